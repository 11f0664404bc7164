"""An actor's file as one of the user's own, and what an agent of somebody else's runs and gets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from textwrap import indent

from cleveragents.actors.model.actor import AgentNode, CommandNode
from cleveragents.core.actions.model import BUILTIN_NAMESPACE
from cleveragents.core.json_value import JsonValue

__all__ = ["agent_facts", "own_text"]

_SHIPPED = re.compile(rf"^(name:[ ]*)(?:{BUILTIN_NAMESPACE}|external)/", re.MULTILINE)
_IN_A_FILE = re.compile(r"^([ ]*)(\w+):[ ]*\{[ ]*file:[ ]*([\w./-]+)[ ]*\}[ ]*$", re.MULTILINE)


def own_text(file: Path) -> str:
    """Its YAML, which means the same wherever it is kept: the prompts that it names are in it, and a name
    that is for what is shipped is another."""
    from cleveragents.actors.prompt_files import prompt_text, prompts_beside

    beside = prompts_beside(file.resolve().parent)

    def filled(match: re.Match[str]) -> str:
        space, key, name = match.groups()
        return f"{space}{key}: |-\n{indent(prompt_text(name, beside), space + '  ')}"

    text = file.read_text(encoding="utf-8-sig")
    return _IN_A_FILE.sub(filled, _SHIPPED.sub(r"\1mine/", text))


def agent_facts(node: AgentNode) -> dict[str, JsonValue]:
    """What it runs, what of the user's it gets, and what bounds it."""
    facts: dict[str, JsonValue] = {
        "runs": shlex.join(node.argv),
        "told by": node.prompt_by if isinstance(node, CommandNode) else "session",
        "your variables": ", ".join(node.environment) or "none",
        "files of your home": ", ".join(node.home) or "none",
        "network": "wants it" if node.network else "does without",
        "at most seconds": node.seconds,
        "at most processes": node.processes,
        "to install it": node.install or None,
    }
    if isinstance(node, CommandNode) and node.variables:
        facts["sets"] = ", ".join(f"{name}={value}" for name, value in node.variables.items())
    return {name: value for name, value in facts.items() if value is not None}
