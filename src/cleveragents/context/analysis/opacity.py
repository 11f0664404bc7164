"""Which contents are not searched: what is no text, too large, or written by a program."""

from __future__ import annotations

import re
from itertools import takewhile

__all__ = ["LARGEST", "PROSE", "decode", "opaque_because"]

LARGEST = 1_000_000
_HEAD = 8192
_MARKED_WITHIN = 1024
_LONG_LINES = 400
_SHORT_ENOUGH = 4096  # a file that is one long line and no longer than this is a small one, not a packed one

# A file that is left out cannot be found at all, so a part that is generated, or a mere plea, is not enough.
_GENERATED = re.compile(
    rb"@generated\b|\bgenerated\b.{,200}\bdo not (?:edit|modify)\b"
    rb"|\bdo not (?:edit|modify)\b.{,200}\bgenerated\b"
    rb"|\b(?:file|code|module) (?:is|was|has been) (?:auto-?|automatically )generated\b",
    re.IGNORECASE | re.DOTALL,
)
_COMMENTS = (b"#", b"//", b"/*", b"*", b"--", b";", b"<!--", b"<?", b"%")

PROSE = (".md", ".rst", ".txt", ".adoc", ".markdown", ".org")
"""Endings of files that people write for people: all of it is documentation, and lines may be long."""


def opaque_because(path: str, data: bytes) -> str | None:
    """Why `data` is not searched, or None if it is."""
    if b"\0" in data[:_HEAD]:
        return "binary"
    if len(data) > LARGEST:
        return "too large"
    if not path.lower().endswith(PROSE) and _is_marked(data[:_MARKED_WITHIN]):
        return "generated"
    lines = data.count(b"\n") + 1
    if len(data) > max(_SHORT_ENOUGH, lines * _LONG_LINES) and not path.lower().endswith(PROSE):
        return "generated"
    return None


def _is_marked(head: bytes) -> bool:
    """Whether the comment that a file begins with says so; further down it may be said of other files."""
    if _GENERATED.search(head) is None:
        return False
    lines = map(bytes.strip, head.split(b"\n"))
    comment = takewhile(lambda line: not line or line.startswith(_COMMENTS), lines)
    return _GENERATED.search(b"\n".join(comment)) is not None


def decode(data: bytes) -> bytes:
    """The same text in UTF-8 without a byte order mark; what is not UTF-8 is read as Latin-1."""
    if data.isascii():
        return data
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1").encode("utf-8")
    return data
