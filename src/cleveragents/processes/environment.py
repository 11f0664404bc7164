"""The environment variables of a command: few, and none that could hold a secret of the user.

Only variables with known names are passed on; their content does not matter. Our own variables
(`CLEVERAGENTS_*`) are not passed on even if allowed by name, because the server's token is among them; only
the markers that identify a command's attempt are added.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.processes.ports import Command

__all__ = [
    "OWN_PREFIX",
    "absolute_entries",
    "command_environment",
    "installations",
    "is_directory",
    "is_inside",
    "is_inside_spelled",
    "real_path",
    "search_path",
    "spellings",
]

OWN_PREFIX = "CLEVERAGENTS_"
_HARMLESS = ("LANG", "LANGUAGE", "TZ", "USER", "LOGNAME")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_IDENTITY = {
    "GIT_AUTHOR_NAME": "CleverAgents",
    "GIT_AUTHOR_EMAIL": "cleveragents@localhost",
    "GIT_COMMITTER_NAME": "CleverAgents",
    "GIT_COMMITTER_EMAIL": "cleveragents@localhost",
}
# Keep git from reading the user's configuration and from prompting.
_QUIET = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "TERM": "dumb",
}


# Tools look for their installation below HOME by default, and the user's home is hidden from the command.
_INSTALLATIONS = {"RUSTUP_HOME": ".rustup"}


def command_environment(
    command: Command,
    inherited: Mapping[str, str],
    *,
    home: str,
    temporary: str,
    hidden: tuple[Path, ...] = (),
    allowed_names: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return all variables of `command`. Its own `environment` overrides our values; its markers override
    everything.

    Of a PATH in the command's own `environment`, only the absolute entries count.
    """
    named = (*allowed_names, *command.passed)
    passed = {
        name: value
        for name, value in inherited.items()
        if name in _HARMLESS
        or name.startswith("LC_")
        or (name in named and not name.startswith(OWN_PREFIX))  # guard: no command gets our token
    }
    if "PATH" in command.environment:
        entries = absolute_entries(command.environment["PATH"])
    else:
        entries = search_path(inherited.get("PATH", _DEFAULT_PATH), hidden=hidden, root=command.root)
    places = (command.root, Path(os.path.realpath(command.root)))
    ceilings = dict.fromkeys(str(parent) for place in places for parent in place.parents)
    return {
        "LANG": "C.UTF-8",
        "USER": "agent",
        **passed,
        **{name: str(place) for name, place in installations(inherited).items()},
        **_IDENTITY,
        **_QUIET,
        "HOME": home,
        "TMPDIR": temporary,
        # guard: neither a sandbox without a repository nor a directory above it belongs to an outer
        # repository
        "GIT_CEILING_DIRECTORIES": os.pathsep.join(ceilings),
        **command.environment,
        "PATH": os.pathsep.join(map(str, entries)) or _DEFAULT_PATH,
        **command.markers,
    }


def installations(inherited: Mapping[str, str]) -> dict[str, Path]:
    """Return the directories of tools that are installed neither on PATH nor beside it, by the variables that
    name these directories.
    """
    home = Path(inherited.get("HOME") or Path.home())
    named = {name: Path(inherited.get(name) or home / place) for name, place in _INSTALLATIONS.items()}
    return {name: place for name, place in named.items() if is_directory(place)}


def search_path(path: str, *, hidden: Iterable[Path], root: Path) -> tuple[Path, ...]:
    """Return the directories of a PATH that a command may use, in order.

    Directories in a hidden place, such as the user's own checkout, are dropped, because their programs must
    not be used in the sandbox. The sandbox's own directories stay.
    """
    covered, own = spellings(hidden), spellings([root])
    return tuple(
        entry
        for entry in absolute_entries(path)
        if is_inside_spelled(entry, own) or not is_inside_spelled(entry, covered)
    )


def absolute_entries(path: str) -> tuple[Path, ...]:
    """Return the absolute directories of a PATH, in order and without duplicates.

    Relative and empty entries depend on the current directory, which may be a sandbox or an untrusted
    repository: a file there must never pass for a program of the system.
    """
    entries = (Path(word) for word in path.split(os.pathsep))
    return tuple(dict.fromkeys(entry for entry in entries if entry.is_absolute()))  # guard: see above


def is_directory(path: Path) -> bool:
    """Return whether `path` is a directory that we can access; False for an invalid or unreadable path."""
    return os.access(path, os.F_OK) and path.is_dir()


def is_inside(path: Path, places: Iterable[Path]) -> bool:
    """Return whether `path` equals a place or lies below one, by name or after resolving links."""
    places = tuple(places)
    return _is_below(path, places) or is_inside_spelled(path, spellings(places))


def spellings(places: Iterable[Path]) -> tuple[Path, ...]:
    """Return each place as given and with its links resolved, without duplicates."""
    return tuple(dict.fromkeys(found for place in places for found in (place, real_path(place))))


def is_inside_spelled(path: Path, spelled: Collection[Path]) -> bool:
    """Like `is_inside`, for places whose `spellings` are known, which saves resolving them for each path."""
    return _is_below(path, spelled) or _is_below(real_path(path), spelled)


def _is_below(path: Path, places: Collection[Path]) -> bool:
    text = f"{path}{os.sep}"
    return any(text.startswith(f"{place}{os.sep}" if place.name else str(place)) for place in places)


def real_path(path: Path) -> Path:
    """Return `path` with its links resolved; only normalized, if the links change during that."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return Path(os.path.normpath(path))
