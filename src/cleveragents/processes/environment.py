"""The variables that a command gets: few, and none that could hold a secret of the user's.

Chosen by name, not filtered by look: a variable nobody thought of stays out. Our own (`CLEVERAGENTS_*`) stay
out even if allowed by name, for the token that opens the server is among them; only markers are added.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

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
# git neither reads the user's configuration nor asks anybody anything.
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


# Where tools look for their installation if not told: below the home that a command does not see.
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
    """All that `command` gets. Its own `environment` wins over what we say, and its markers over all.

    Of its own PATH, too, only absolute entries count.
    """
    named = (*allowed_names, *command.passed)
    passed = {
        name: value
        for name, value in inherited.items()
        if name in _HARMLESS
        or name.startswith("LC_")
        or (name in named and not name.startswith(OWN_PREFIX))  # guard: our token is no command's
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
        # guard: neither a sandbox without a repository nor a directory above it belongs to one further up
        "GIT_CEILING_DIRECTORIES": os.pathsep.join(ceilings),
        **command.environment,
        "PATH": os.pathsep.join(map(str, entries)) or _DEFAULT_PATH,
        **command.markers,
    }


def installations(inherited: Mapping[str, str]) -> dict[str, Path]:
    """Directories of tools that are neither on PATH nor beside what is, by the variable that names them."""
    home = Path(inherited.get("HOME") or Path.home())
    named = {name: Path(inherited.get(name) or home / place) for name, place in _INSTALLATIONS.items()}
    return {name: place for name, place in named.items() if is_directory(place)}


def search_path(path: str, *, hidden: Iterable[Path], root: Path) -> tuple[Path, ...]:
    """The directories of a PATH that a command may use, in order.

    Those of a hidden place (the user's own checkout, say) would run its programs on the sandbox: they are not
    kept. The sandbox's own are.
    """
    covered, own = spellings(hidden), spellings([root])
    return tuple(
        entry
        for entry in absolute_entries(path)
        if is_inside_spelled(entry, own) or not is_inside_spelled(entry, covered)
    )


def absolute_entries(path: str) -> tuple[Path, ...]:
    """The directories of a PATH that are the same from everywhere, in order, each once.

    Relative and empty entries mean whatever directory one is in, a sandbox or a foreign repository: what lies
    there must never be taken for a program of the system.
    """
    entries = (Path(word) for word in path.split(os.pathsep))
    return tuple(dict.fromkeys(entry for entry in entries if entry.is_absolute()))  # guard: see above


def is_directory(path: Path) -> bool:
    """Whether it is one that we can see: a place we may not look into, or that cannot be, is none."""
    return os.access(path, os.F_OK) and path.is_dir()


def is_inside(path: Path, places: Iterable[Path]) -> bool:
    """Whether `path` is one of the places or below one, by its name or by where its links lead."""
    places = tuple(places)
    return _is_below(path, places) or is_inside_spelled(path, spellings(places))


def spellings(places: Iterable[Path]) -> tuple[Path, ...]:
    """Each place by the name it was given and by its real one, each once."""
    return tuple(dict.fromkeys(found for place in places for found in (place, real_path(place))))


def is_inside_spelled(path: Path, spelled: Collection[Path]) -> bool:
    """`is_inside` for places whose `spellings` are known: to find them anew for each path takes long."""
    return _is_below(path, spelled) or _is_below(real_path(path), spelled)


def _is_below(path: Path, places: Collection[Path]) -> bool:
    text = f"{path}{os.sep}"
    return any(text.startswith(f"{place}{os.sep}" if place.name else str(place)) for place in places)


def real_path(path: Path) -> Path:
    """Where its links lead; as far as its name says if they change while they are followed."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return Path(os.path.normpath(path))
