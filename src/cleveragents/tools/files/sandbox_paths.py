"""Paths as tools are given them: taken apart, and refused where they cannot name a file of the sandbox.

Only the text is judged here. Where a path really leads is decided at the moment of the access (`descent.py`).
"""

from __future__ import annotations

from cleveragents.core.errors import OutsideSandbox, ToolRefused

__all__ = ["is_git_name", "parts_of"]

# What every common filesystem allows; longer ones fail in ways that differ from one to the next.
_NAME_LIMIT_BYTES = 255
_PATH_LIMIT_BYTES = 4096
# HFS+ leaves these out when it compares names, so a name with one of them can be `.git` on a Mac.
_IGNORED_BY_HFS = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)


def parts_of(path: str) -> tuple[str, ...]:
    """The names in a path, without `.` and empty ones; none for the root. `OutsideSandbox`, `ToolRefused`."""
    if "\0" in path:
        raise OutsideSandbox(path, "has a NUL character")
    if path.startswith("/"):
        raise OutsideSandbox(path, "is absolute, and must be relative to the sandbox's root")
    try:
        length = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise ToolRefused("path", f"{path!r} is not Unicode text, and could not be recorded") from None
    if length > _PATH_LIMIT_BYTES:
        raise ToolRefused("path", f"a path of {length} bytes is too long (at most {_PATH_LIMIT_BYTES})")
    parts = tuple(name for name in path.split("/") if name not in ("", "."))
    for name in parts:
        _ensure_usable(name, path)
    return parts


def _ensure_usable(name: str, path: str) -> None:
    # Also `..\..`, which is one name here and a way out on other systems.
    if ".." in name.split("\\"):
        raise OutsideSandbox(path, "has '..' in it")
    if is_git_name(name):
        raise OutsideSandbox(path, "is in a git directory, which no tool may touch")
    length = len(name.encode("utf-8"))
    if length > _NAME_LIMIT_BYTES:
        shown = f"{name[:40]}…"
        raise ToolRefused("path", f"the name {shown!r} has {length} bytes (at most {_NAME_LIMIT_BYTES})")


def is_git_name(name: str) -> bool:
    """Whether git would take it for its own directory, on this or another filesystem; git's own rules."""
    plain = name.translate(_IGNORED_BY_HFS).casefold()
    # NTFS: what follows a colon is a stream of the same file, and trailing dots and blanks do not count.
    # A backslash ends a name there.
    return any(
        piece.split(":")[0].rstrip(" .") in (".git", "git~1") or piece.rstrip(" ") == ".git"
        for piece in plain.split("\\")
    )
