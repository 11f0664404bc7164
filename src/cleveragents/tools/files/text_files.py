"""Files as text: UTF-8, lines parted by `\\n`, every other character left as it is."""

from __future__ import annotations

from hashlib import sha256

from cleveragents.core.errors import ToolRefused
from cleveragents.tools.ports import SandboxFiles

__all__ = ["ensure_unchanged", "fingerprint", "line_at", "looks_binary", "read_text", "uses_crlf"]

# git's own rule: a NUL among the first bytes.
_BINARY_LOOK_BYTES = 8000


def looks_binary(data: bytes) -> bool:
    """Whether git would call it binary."""
    return b"\0" in data[:_BINARY_LOOK_BYTES]


def fingerprint(data: bytes) -> str:
    """The content's SHA-256, by which a caller says which version it means."""
    return sha256(data).hexdigest()


def ensure_unchanged(path: str, data: bytes | None, expected_sha256: str | None) -> None:
    """`ToolRefused` unless the content is what the caller has seen; None: there is no file."""
    if expected_sha256 is None:
        return
    if data is None:
        raise ToolRefused("file", f"{path!r} is gone since it was read; nothing was changed")
    found = fingerprint(data)
    if found != expected_sha256.lower():  # guard: a stale edit would undo what was done since
        raise ToolRefused(
            "file",
            f"{path!r} changed since it was read (its sha256 is {found}); nothing was done, read it again",
        )


def read_text(files: SandboxFiles, path: str) -> tuple[str, bytes]:
    """The text, and the bytes it is made of. `ToolRefused` if it is no UTF-8 text."""
    data = files.read(path)
    if looks_binary(data):
        raise ToolRefused("file", f"{path!r} is a binary file")
    try:
        return data.decode("utf-8"), data
    except UnicodeDecodeError as error:
        raise ToolRefused("file", f"{path!r} is not UTF-8 text (byte {error.start})") from None


def line_at(text: str, position: int) -> int:
    """The number, from 1, of the line that a position is in."""
    return text.count("\n", 0, position) + 1


def uses_crlf(text: str) -> bool:
    """Whether every line of it ends with CRLF."""
    newlines = text.count("\n")
    return newlines > 0 and text.count("\r\n") == newlines
