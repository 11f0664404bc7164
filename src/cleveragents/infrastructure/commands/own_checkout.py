"""Finds a check that would test the user's own checkout instead of the sandbox.

A package that is installed "editable" leads Python back to the directory it was installed from: by a .pth
file, by an import hook, by a link, or because the virtual environment itself lies in the checkout. Checks in
a sandbox would then pass or fail for code that nobody changed. So the interpreters that a check could use
are asked, run just like the check, where they would import from.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cleveragents.application.ports.commands import Command, CommandRunner, StopSignal
from cleveragents.errors import ToolRefused
from cleveragents.infrastructure.commands.environment import is_inside, search_path
from cleveragents.infrastructure.commands.tool_directories import shebang

__all__ = ["imports_from"]

_ASK_SECONDS = 30.0
_MARK = "cleveragents-imports:"
_INTERPRETERS = ("python", "python3")
# Programs that are scripts of an interpreter which need not be the one on PATH.
_TEST_PROGRAMS = ("pytest", "tox", "nox")
_QUESTION = """
import json, os, sys
found = {sys.prefix: 'its environment is'}
def strings(value, depth):
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        if isinstance(text, str) and os.path.isabs(text):
            yield text
    elif depth and isinstance(value, dict):
        for pair in value.items():
            yield from strings(pair, depth - 1)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from strings(item, depth - 1)
for finder in sys.meta_path:
    kind = finder if isinstance(finder, type) else type(finder)
    module = sys.modules.get(kind.__module__)
    if kind.__module__ in sys.stdlib_module_names or kind.__module__.startswith('_frozen_importlib'):
        continue
    for holder in (module, kind, finder):
        for value in list(getattr(holder, '__dict__', {}).values()):
            for path in strings(value, 3):
                found.setdefault(path, 'an import hook leads there, to')
for entry in sys.path:
    entry = os.path.abspath(entry)
    found.setdefault(entry, 'its sys.path has')
    try:
        below = list(os.scandir(entry))
    except OSError:
        continue
    for item in below:
        if item.is_symlink():
            found.setdefault(os.path.realpath(item.path), 'a link in its packages leads to')
print()
print(MARK + json.dumps([pair for pair in found.items() if os.path.exists(pair[0])]))
"""


def imports_from(
    resource: Path, runner: CommandRunner, command: Command, stop: StopSignal, *, user_path: str | None = None
) -> str | None:
    """A sentence that names the path in `resource` from which `command` would import; None if there is none.

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
            timeout_seconds=min(command.timeout_seconds, _ASK_SECONDS),
            input=b"",
        )
        try:
            result = runner.run(asked, stop)
        except ToolRefused:
            continue  # not there, as the command sees it
        for place, how in _answer(result.output):
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
        found = shutil.which(command.directory / name) if "/" in name else shutil.which(name, path=kept)
        interpreter = None if found is None else shebang(Path(found))
        if interpreter is not None and "python" in interpreter.name and interpreter not in known:
            known.add(interpreter)
            yield str(interpreter)


def _answer(output: str) -> list[tuple[str, str]]:
    for line in reversed(output.splitlines()):
        if line.startswith(_MARK):
            return [(place, how) for place, how in json.loads(line.removeprefix(_MARK))]
    return []
