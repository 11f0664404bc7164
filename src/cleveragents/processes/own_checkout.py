"""Detect a check that would test the user's own checkout instead of the sandbox.

An "editable" package leads Python back to the directory it was installed from: by a .pth file, an import
hook, a link, or because the virtual environment itself lies in the checkout. A check in a sandbox would then
pass or fail for unchanged code. So this module runs every interpreter that the check could use, exactly like
the check, and asks it for the directories that it would import from. If an interpreter does not answer, the
check does not count either, because the tested files are unknown.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from cleveragents.core.errors import ToolRefused
from cleveragents.processes.environment import is_inside, search_path
from cleveragents.processes.ports import Command, CommandResult, CommandRunner, StopSignal
from cleveragents.processes.program_lookup import look_up, shebang

__all__ = ["imports_from"]

_ASK_SECONDS = 120.0
_ANSWER_BYTES = 1 << 20
_TOLD = 200
# The exit codes of a shell for "cannot execute" and "not found". The shims of version managers use them, too.
_NOT_THERE = (126, 127)
_MARK = "cleveragents-imports:"
_INTERPRETERS = ("python", "python3")
# Programs that are scripts of an interpreter, which need not be the one on PATH.
_TEST_PROGRAMS = ("pytest", "tox", "nox")
# Runs on old interpreters, too, and imports only loaded modules: a module of the sandbox may shadow the
# standard library. `-I` would drop paths that the check will have, and `-P` is too new.
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
                found.setdefault(path, 'an import hook leads to')
for entry in sys.path:
    entry = os.path.abspath(entry)
    found.setdefault(entry, 'its sys.path contains')
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
    """Return the problem if `command` would import from `resource`, or if an interpreter does not answer;
    else None.

    `command` is the check. Only Python interpreters are asked: those on the command's PATH, and the
    interpreter of the program that the command runs. The PATH is the part of `user_path` (by default our own)
    that `runner` passes on. Raises `Cancelled`.
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
            continue  # not visible to the command
        stop.raise_if_cancelled()
        if result.exit_code in _NOT_THERE:
            continue
        answer = _answer(result)
        if answer is None:  # guard: a check of unknown files says nothing about these
            return f"cannot determine which files {interpreter} would import: {_no_answer(result)}"
        for place, how in answer:
            # The sandbox may itself lie below the checkout: its own directories are correct.
            if is_inside(Path(place), [resource]) and not is_inside(Path(place), [command.root]):
                return (
                    f"{interpreter} would import from the user's own checkout instead of the sandbox: "
                    f"{how} {place}"
                )
    stop.raise_if_cancelled()
    return None


def _interpreters(command: Command, path: str) -> Iterator[str]:
    """Yield the interpreters on PATH, and those in the shebang of the program and of common test programs."""
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
    said = " ".join(result.output.split())[-_TOLD:] or "no output"
    return "timed out" if result.timed_out else f"{said} (exit code {result.exit_code})"
