"""What makes a node for another agent wrong: its command line, and what of the user's it wants. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from cleveragents.actors.model.actor import Actor, AgentNode, CommandNode
from cleveragents.core.text.template import Place

__all__ = ["PROMPT", "PROMPT_FILE", "agent_problems"]

PROMPT = "{prompt}"
"""In a command line: the prompt."""

PROMPT_FILE = "{prompt_file}"
"""In a command line: the path of a file that holds the prompt."""

_Problem = tuple[Place, str]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OWN_PREFIX = "CLEVERAGENTS_"


def agent_problems(actor: Actor, node: AgentNode) -> Iterator[_Problem]:
    """What is wrong with it, and where in it."""
    if actor.read_only:
        yield (), "it runs a program that may change anything, and the actor is `read_only`; take that out"
    if node.argv and not node.argv[0].strip():
        yield ("argv", 0), "it names no program; write its name first: [claude, --print]"
    for number, word in enumerate(node.argv):
        if "\0" in word:
            yield ("argv", number), "there is a NUL character in it; take it out"
    if isinstance(node, CommandNode):
        yield from _prompt_problems(node)
        for name in node.variables:
            yield from _variable_problem(("variables", name), name, 'NO_COLOR: "1"')
    yield from _environment_problems(node)
    yield from _home_problems(node)


def _prompt_problems(node: CommandNode) -> Iterator[_Problem]:
    for mark, way in ((PROMPT, "argument"), (PROMPT_FILE, "file")):
        there = [number for number, word in enumerate(node.argv) if mark in word]
        if node.prompt_by == way == "file" and not there:
            yield ("argv",), f"the prompt is in a file that nothing names; write {mark} where its path goes"
        if node.prompt_by != way and there:
            problem = f"{mark} stands there, and the prompt comes by {node.prompt_by}"
            yield ("argv", there[0]), f"{problem}; say `prompt_by: {way}`, or take it out"


def _environment_problems(node: AgentNode) -> Iterator[_Problem]:
    for number, name in enumerate(node.environment):
        place: Place = ("environment", number)
        yield from _variable_problem(place, name, "the name alone: it has the value that it has for you")
        if name in node.environment[:number]:
            yield place, f"{name!r} is said twice; keep one"


def _variable_problem(place: Place, name: str, example: str) -> Iterator[_Problem]:
    if not _VARIABLE.fullmatch(name):
        yield place, f"{name[:60]!r} is no variable's name; write {example}"
    elif name.startswith(_OWN_PREFIX):
        yield place, f"{name[:60]!r} is ours, and no agent gets it; take it out"


def _home_problems(node: AgentNode) -> Iterator[_Problem]:
    for number, name in enumerate(node.home):
        path = PurePosixPath(name)
        plain = path.as_posix() == name and "\0" not in name and name != "."
        if not plain or path.is_absolute() or ".." in path.parts or "~" in path.parts:
            remedy = "write a path below your home, such as .config/tool/settings.json"
            yield ("home", number), f"{name[:60]!r} is no such path; {remedy}"
        elif name in node.home[:number]:
            yield ("home", number), f"{name!r} is said twice; keep one"
