"""Files as text: UTF-8, lines parted by `\n`, every other character left as it is.

Keeps the mask, which is shown instead of a secret, from taking the secret's place in a file.

Three stars are ordinary text, too. So they are refused only where a line comes with them while a line goes of
which something was hidden: in a file's content, or in what a command printed of it.
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
    f"{MASK} stands for a secret that was hidden from you; edit other lines, or read the file with `read`, "
    "which hides less than commands do; to take a secret out, put something else in its place"
)
_MASKED = re.compile(r"(?<!\*)\*{3}(?!\*)")


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


def ensure_no_mask(path: str, before: str, after: str) -> None:
    """`ToolRefused` if the mask would come where `before` has something that is not shown."""
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
    """The lines that somebody may have seen otherwise than they are."""
    shown = redact_content_text(text).split("\n")
    if len(shown) != len(lines):  # a known secret of several lines
        return lines
    return [
        line for line, seen in zip(lines, shown, strict=True) if line != seen or redact_text(line) != line
    ]
