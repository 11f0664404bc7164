"""Finds a check that would test the user's own checkout instead of the sandbox.

A package that is installed "editable" leads Python back to the directory it was installed from: by a .pth
file, by an import hook, by a link, or because the virtual environment itself lies in the checkout. Checks in
a sandbox would then pass or fail for code that nobody changed. So the interpreters that a check could use
are asked, run just like the check, where they would import from. One that is there and does not say makes the
check worth nothing as well: nobody knows what it would test.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cleveragents.core.errors import ToolRefused
from cleveragents.processes.environment import is_inside, search_path
from cleveragents.processes.ports import Command, CommandResult, CommandRunner, StopSignal
from cleveragents.processes.program_lookup import look_up, shebang

__all__ = ["imports_from"]

_ASK_SECONDS = 120.0
_ANSWER_BYTES = 1 << 20
_TOLD = 200
# A shell's words for: cannot be run, not found. A version manager's stand-in says so of what it lacks.
_NOT_THERE = (126, 127)
_MARK = "cleveragents-imports:"
_INTERPRETERS = ("python", "python3")
# Programs that are scripts of an interpreter which need not be the one on PATH.
_TEST_PROGRAMS = ("pytest", "tox", "nox")
# Runs on old interpreters, too, and imports nothing that is not loaded: a module of the sandbox may have the
# name of one in the standard library. `-I` would leave out what the check will have, and `-P` is too new.
_QUESTION = """
import sys
if sys.path and sys.path[0] == '':
    del sys.path[0]
import os
found = {sys.prefix: 'its environment is'}
def strings(value, depth):
    if isinstance(value, getattr(os, 'PathLike', str)):
        value = str(value)
    if isinstance(value, str):
        return [value] if os.path.isabs(value) else []
    if depth and isinstance(value, dict):
        value = list(value.items())
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [text for item in value for text in strings(item, depth - 1)]
    return []
standard = getattr(sys, 'stdlib_module_names', ())
for finder in sys.meta_path:
    kind = finder if isinstance(finder, type) else type(finder)
    module = sys.modules.get(kind.__module__)
    if kind.__module__ in standard or kind.__module__.startswith('_frozen_importlib'):
        continue
    for holder in (module, kind, finder):
        for value in list(getattr(holder, '__dict__', {}).values()):
            for path in strings(value, 3):
                found.setdefault(path, 'an import hook leads there, to')
for entry in sys.path:
    entry = os.path.abspath(entry)
    found.setdefault(entry, 'its sys.path has')
    try:
        below = os.listdir(entry)
    except OSError:
        continue
    for name in below:
        item = os.path.join(entry, name)
        if os.path.islink(item):
            found.setdefault(os.path.realpath(item), 'a link in its packages leads to')
answer = repr([pair for pair in found.items() if os.path.exists(pair[0])])
print('')
print(MARK + answer.encode('ascii', 'backslashreplace').decode('ascii'))
"""


def imports_from(
    resource: Path, runner: CommandRunner, command: Command, stop: StopSignal, *, user_path: str | None = None
) -> str | None:
    """A sentence that names the path in `resource` from which `command` would import; None if there is none.

    Or one that says that an interpreter, though there, did not answer.
    `command` is the check. Only Python is asked, and only what is on the command's PATH (`user_path`, by
    default our own, as far as `runner` passes it on) or runs the program it names. `Cancelled`.
    """
    path = command.environment.get("PATH") or user_path or os.environ.get("PATH", os.defpath)
    for interpreter in _interpreters(command, path):
        stop.raise_if_cancelled()
        question = _QUESTION.replace("MARK", repr(_MARK))
        asked = replace(
            command,
            argv=(interpreter, "-c", question),
            timeout_seconds=_ASK_SECONDS,
            output_limit_bytes=_ANSWER_BYTES,
            input=b"",
        )
        try:
            result = runner.run(asked, stop)
        except ToolRefused:
            continue  # not there, as the command sees it
        stop.raise_if_cancelled()
        if result.exit_code in _NOT_THERE:
            continue
        answer = _answer(result)
        if answer is None:  # guard: a check of nobody knows which files says nothing of these
            return f"it cannot be told whose files {interpreter} would import: {_no_answer(result)}"
        for place, how in answer:
            # The sandbox may itself lie below the checkout: its own directories are what is meant.
            if is_inside(Path(place), [resource]) and not is_inside(Path(place), [command.root]):
                return (
                    f"{interpreter} would import from the user's own checkout instead of the sandbox: "
                    f"{how} {place}"
                )
    stop.raise_if_cancelled()
    return None


def _interpreters(command: Command, path: str) -> Iterator[str]:
    """By name, as PATH has them, and those that the program (or a usual test program) is a script of."""
    yield from _INTERPRETERS
    known = set()
    kept = os.pathsep.join(map(str, search_path(path, hidden=(), root=command.root)))
    for name in (command.argv[0], *_TEST_PROGRAMS):
        found = command.directory / name if "/" in name else look_up(name, kept)
        interpreter = None if found is None else shebang(found)
        if interpreter is not None and "python" in interpreter.name and interpreter not in known:
            known.add(interpreter)
            yield str(interpreter)


def _answer(result: CommandResult) -> list[tuple[str, str]] | None:
    for line in reversed(result.output.splitlines()):
        if line.startswith(_MARK):
            try:
                return [(str(place), str(how)) for place, how in ast.literal_eval(line.removeprefix(_MARK))]
            except (ValueError, SyntaxError, TypeError):
                return None
    return None


def _no_answer(result: CommandResult) -> str:
    said = " ".join(result.output.split())[-_TOLD:] or "it said nothing"
    return "it took too long" if result.timed_out else f"{said} (exit code {result.exit_code})"
