"""What a filesystem makes of names, links and permissions: tried out, as `git init` does.

A repository's configuration says what was true where it was cloned. Copied or mounted elsewhere it is wrong,
and git then overlooks files.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

__all__ = ["ignores_case", "traits_of"]

_COMPOSED = "\u00e4"
_DECOMPOSED = "a\u0308"


def ignores_case(directory: Path) -> bool:
    """Whether the directory is found under its name in the other case, too. Nothing is written.

    Asked of a directory, because a file could have a second name on purpose.
    """
    other = directory.with_name(directory.name.swapcase())
    if other == directory:
        return False
    with contextlib.suppress(OSError):
        return os.path.samestat(directory.lstat(), other.lstat())
    return False


def traits_of(directory: Path) -> dict[str, str]:
    """git's settings for files that are kept in this directory, which is ours to try things out in."""
    with tempfile.TemporaryDirectory(prefix="probe-", dir=directory) as place:
        probe = Path(place)
        file = probe / _COMPOSED
        file.touch(mode=0o600)
        file.chmod(0o700)
        keeps_modes = bool(file.stat().st_mode & stat.S_IXUSR)
        file.chmod(0o600)
        keeps_modes = keeps_modes and not file.stat().st_mode & stat.S_IXUSR
        found = {
            "core.filemode": keeps_modes,
            "core.symlinks": _makes_links(probe),
            "core.ignorecase": ignores_case(probe),
            "core.precomposeunicode": os.path.lexists(probe / _DECOMPOSED),
        }
    return {name: str(value).lower() for name, value in found.items()}


def _makes_links(probe: Path) -> bool:
    link = probe / "link"
    with contextlib.suppress(OSError):
        link.symlink_to("target")
        return link.is_symlink()
    return False
