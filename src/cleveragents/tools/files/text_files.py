"""Files as text: UTF-8, lines separated by LF, all other characters unchanged.

The module also keeps an edit from replacing a secret by its mask (`***`), which a model sees instead. Three
stars can also be ordinary text, so an edit is refused only if a new line contains the mask and the edit
removes a line that a tool or a command may have shown with a mask.
"""

from __future__ import annotations

import re
from hashlib import sha256

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.redaction import MASK, redact_content_text, redact_text
from cleveragents.tools.ports import SandboxFiles

__all__ = [
    "HIDDEN",
    "ensure_no_mask",
    "ensure_unchanged",
    "fingerprint",
    "line_at",
    "looks_binary",
    "read_text",
    "uses_crlf",
]


# git's own rule: a NUL among the first bytes.
_BINARY_LOOK_BYTES = 8000

HIDDEN = (
    f"{MASK} masks a secret; edit other lines, or read the file with `read`, "
    "which masks less than commands do; to remove the secret, replace it by another text"
)
_MASKED = re.compile(r"(?<!\*)\*{3}(?!\*)")


def looks_binary(data: bytes) -> bool:
    """Return whether git would treat the data as binary."""
    return b"\0" in data[:_BINARY_LOOK_BYTES]


def fingerprint(data: bytes) -> str:
    """Return the content's SHA-256, by which a caller identifies a version."""
    return sha256(data).hexdigest()


def ensure_unchanged(path: str, data: bytes | None, expected_sha256: str | None) -> None:
    """Raise `ToolRefused` unless the file still has the content that the caller has read.

    `data` is None if there is no file.
    """
    if expected_sha256 is None:
        return
    if data is None:
        raise ToolRefused("file", f"{path!r} was deleted after it was read; nothing was changed")
    found = fingerprint(data)
    if found != expected_sha256.lower():  # guard: a stale edit would undo later changes
        raise ToolRefused(
            "file",
            f"{path!r} changed since it was read (sha256 is now {found}); nothing was changed, read it again",
        )


def read_text(files: SandboxFiles, path: str) -> tuple[str, bytes]:
    """Return the text and its bytes. Raises `ToolRefused` if it is not UTF-8 text."""
    data = files.read(path)
    if looks_binary(data):
        raise ToolRefused("file", f"{path!r} is a binary file")
    try:
        return data.decode("utf-8"), data
    except UnicodeDecodeError as error:
        raise ToolRefused("file", f"{path!r} is not UTF-8 text (byte {error.start})") from None


def line_at(text: str, position: int) -> int:
    """Return the line number, from 1, of a position."""
    return text.count("\n", 0, position) + 1


def uses_crlf(text: str) -> bool:
    """Return whether every line ends with CRLF."""
    newlines = text.count("\n")
    return newlines > 0 and text.count("\r\n") == newlines


def ensure_no_mask(path: str, before: str, after: str) -> None:
    """Raise `ToolRefused` if the mask would replace hidden content of `before`."""
    if MASK not in after:
        return
    old, new = before.split("\n"), after.split("\n")
    known = set(old)
    if not any(_MASKED.search(line) for line in new if line not in known):
        return
    left = set(new)
    if any(line not in left for line in _hidden(before, old)):  # guard: the secret would be lost
        raise ToolRefused("file", f"{HIDDEN}; {path!r} was not changed")


def _hidden(text: str, lines: list[str]) -> list[str]:
    """Return the lines that may have been shown with a mask."""
    shown = redact_content_text(text).split("\n")
    if len(shown) != len(lines):  # a known secret of several lines
        return lines
    return [
        line for line, seen in zip(lines, shown, strict=True) if line != seen or redact_text(line) != line
    ]
