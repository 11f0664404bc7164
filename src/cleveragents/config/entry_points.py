"""Entry points of installed packages, and the modules of our own packages.

Reading the metadata of all packages is slow, so the result is cached until a package is installed or removed.
"""

from __future__ import annotations

import os
import pkgutil
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["built_in", "install_command", "installed"]

_MOST_GROUPS = 8
_UV_PLACES = {"path": "", "directory": "", "editable": "", "url": "", "git": "git+"}
"""Where a requirement of uv can come from, and the prefix of that place in a command."""

_SearchPath = tuple[tuple[str, int], ...]


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return all entry points of the group. Safe in any thread."""
    return _read(group, _search_path())


@cache
def built_in(package: ModuleType) -> frozenset[str]:
    """Return the names of the modules in a package of CleverAgents. They do not change while the process
    runs.
    """
    return frozenset(module.name for module in pkgutil.iter_modules(package.__path__))


def _search_path() -> _SearchPath:
    """Return the search path of packages with the modification time of each directory."""
    path = []
    for place in sys.path:
        with suppress(OSError):
            path.append((place, Path(place).stat().st_mtime_ns))
    return tuple(path)


@lru_cache(maxsize=_MOST_GROUPS)
def _read(group: str, path: _SearchPath) -> tuple[EntryPoint, ...]:
    return tuple(_select(path)(group=group))


@lru_cache(maxsize=1)
def _select(path: _SearchPath) -> Callable[..., Iterable[EntryPoint]]:
    """Return a function that selects entry points. All groups are read at once, because they are in the same
    files.
    """
    return entry_points().select


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, which may have been made with uv, pipx or
    pip.
    """
    prefix = Path(sys.prefix)
    wanted = _requirement(extra)
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install {_uv_requirements(prefix, extra)}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx inject cleveragents {wanted}"
    if os.environ.get("VIRTUAL_ENV") == sys.prefix and find_spec("pip") is not None:
        return f"pip install {wanted}"
    if find_spec("pip") is None:
        return f"uv pip install --python {shlex.quote(sys.executable)} {wanted}"
    return f"{shlex.quote(sys.executable)} -m pip install {wanted}"


def _requirement(extra: str) -> str:
    """Return the requirement with the extra, from the source of this installation: the package index, or the
    path or URL in its `direct_url.json` (PEP 610).
    """
    import json
    from urllib.parse import unquote, urlsplit

    try:
        source = json.loads(distribution("cleveragents").read_text("direct_url.json") or "{}")
        url = str(source["url"])
        if (source.get("dir_info") or {}).get("editable"):
            return f"--editable {shlex.quote(f'{unquote(urlsplit(url).path)}[{extra}]')}"
        vcs = source.get("vcs_info")
        if vcs:
            url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
        return shlex.quote(f"cleveragents[{extra}] @ {url}")
    except (PackageNotFoundError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return shlex.quote(f"cleveragents[{extra}]")


def _uv_requirements(prefix: Path, extra: str) -> str:
    """Return all requirements of the uv installation, with the extra added. `uv tool install` replaces the
    whole installation, including packages added by `--with`.
    """
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        receipt = tomllib.loads((prefix / "uv-receipt.toml").read_text(encoding="utf-8"))
        installed = {str(one["name"]): one for one in receipt["tool"]["requirements"]}
        ours = _uv_requirement(installed.pop("cleveragents"), extra)
        return " --with ".join([ours, *map(_uv_requirement, installed.values())])
    return _uv_requirement({"name": "cleveragents"}, extra)


def _uv_requirement(one: Mapping[str, Any], *more: str) -> str:
    """Return a requirement of the receipt as a quoted argument, with more extras."""
    extras = ",".join(sorted({*one.get("extras", ()), *more}))
    places = (f" @ {prefix}{one[kind]}" for kind, prefix in _UV_PLACES.items() if kind in one)
    place = next(places, one.get("specifier", ""))
    return shlex.quote(f"{one['name']}{f'[{extras}]' if extras else ''}{place}")
