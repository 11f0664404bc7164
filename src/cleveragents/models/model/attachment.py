"""Images and PDFs that go to a model with a question.

The first bytes of a file decide its type; its name is ignored. Of a PDF, the pages and the characters of the
text are counted, to reserve the cost of a call. All of this is bounded, because a file may be hostile.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from cleveragents.core.errors import RequestRefused
from cleveragents.core.text.redaction import redact_text

__all__ = [
    "MOST_ATTACHED_BYTES",
    "MOST_ATTACHMENTS",
    "MOST_PAGES",
    "Attachment",
    "MediaType",
    "ensure_attachable",
]

MOST_ATTACHMENTS = 5
"""The most files of one question."""
MOST_ATTACHED_BYTES = 10_000_000
"""The most bytes of all files of one question."""
MOST_PAGES = 100
"""The most pages of a PDF, which is what most providers accept."""
_WHERE = "attachments"
_LONGEST_NAME = 100
_MOST_INFLATED = 32_000_000
_HEADER_BYTES = 2_048
_CHARACTERS_PER_TOKEN = 2
_DIGITS_PER_CHARACTER = 4
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_IMAGE = re.compile(rb"/Subtype\s*/Image(?![A-Za-z])")
_OTHER_FILTER = re.compile(rb"/(?:ASCII85|ASCIIHex|LZW|RunLength)Decode")
_STRING = re.compile(rb"\\.|[()]|<[0-9A-Fa-f\s]+>", re.DOTALL)
_TEXT_BEGINS = re.compile(rb"(?:^|[\s\0])BT[\s\0]")


class MediaType(str, Enum):
    """The types of files that models take."""

    PNG = "image/png"
    JPEG = "image/jpeg"
    GIF = "image/gif"
    WEBP = "image/webp"
    PDF = "application/pdf"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file for a model. Create it with `of`, which checks it.

    `name` is for people and the model: the last part of a path, without control characters. `text_tokens` is
    an upper bound of the tokens of the text in a PDF.
    """

    name: str
    media_type: MediaType
    content: bytes = field(repr=False)
    pages: int = 0
    text_tokens: int = 0

    @classmethod
    def of(cls, name: str, content: bytes) -> Attachment:
        """Return the attachment for the content of a file. Raises `RequestRefused` for a file that is too
        large, that is no image or PDF, and for a PDF that is encrypted or has too many pages.
        """
        shown = _safe_name(name)
        if len(content) > MOST_ATTACHED_BYTES:
            raise RequestRefused(f"{shown!r} is larger than {MOST_ATTACHED_BYTES:,} bytes", _WHERE)
        media_type = _media_type(content)
        if media_type is None:
            problem = f"{shown!r} is no PNG, JPEG, GIF or WebP image and no PDF"
            raise RequestRefused(f"{problem}; paste its text, or name the file with @path", _WHERE)
        if media_type is not MediaType.PDF:
            return cls(shown, media_type, content)
        return cls(shown, media_type, content, *_measured(shown, content))

    @property
    def base64(self) -> str:
        """The content as requests to providers contain it."""
        return b64encode(self.content).decode()


def ensure_attachable(attachments: Sequence[Attachment]) -> None:
    """Raise `RequestRefused` if these are too many files for one question, or too many bytes."""
    if len(attachments) > MOST_ATTACHMENTS:
        raise RequestRefused(f"a question has at most {MOST_ATTACHMENTS} attachments", _WHERE)
    if sum(len(one.content) for one in attachments) > MOST_ATTACHED_BYTES:
        problem = f"the attachments of a question have at most {MOST_ATTACHED_BYTES:,} bytes together"
        raise RequestRefused(problem, _WHERE)


def _safe_name(name: str) -> str:
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    # Control characters, direction marks and lone surrogates are not printable.
    printable = "".join(sign if sign.isprintable() else "_" for sign in last)
    return redact_text(printable).strip()[-_LONGEST_NAME:] or "attachment"


def _media_type(content: bytes) -> MediaType | None:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return MediaType.PNG
    if content.startswith(b"\xff\xd8\xff"):
        return MediaType.JPEG
    if content.startswith((b"GIF87a", b"GIF89a")):
        return MediaType.GIF
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return MediaType.WEBP
    return MediaType.PDF if content.startswith(b"%PDF-") else None


def _measured(name: str, content: bytes) -> tuple[int, int]:
    """Return the pages of a PDF, and an upper bound of the tokens of its text."""
    if b"/Encrypt" in content:
        raise RequestRefused(f"{name!r} is encrypted; attach a PDF without a password", _WHERE)
    pages, characters = len(_PAGE.findall(content)), 0
    room = _MOST_INFLATED
    for header, raw in _streams(content):
        if _IMAGE.search(header):
            continue
        data = _inflated(header, raw, room)
        if data is None:  # not readable here, but perhaps for the provider
            characters += len(raw)
            continue
        room -= len(data)
        if room <= 0:  # guard: a small file may inflate without end
            raise RequestRefused(f"{name!r} is too complex; attach a picture of the page", _WHERE)
        pages += len(_PAGE.findall(data)) if data is not raw else 0
        characters += _text_length(data)
    if not 0 < pages <= MOST_PAGES:
        problem = f"has {pages:,} pages; the most are {MOST_PAGES}" if pages else "has no page"
        raise RequestRefused(f"{name!r} {problem}", _WHERE)
    return pages, -(-characters // _CHARACTERS_PER_TOKEN)


def _streams(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the dictionary and the bytes of each stream of a PDF."""
    at = 0
    while (keyword := content.find(b"stream", at)) >= 0:
        begin = keyword + len(b"stream")
        if content[begin : begin + 1] not in (b"\r", b"\n"):  # a word in a text
            at = begin
            continue
        end = content.find(b"endstream", begin)
        end = len(content) if end < 0 else end
        before = content[max(0, keyword - _HEADER_BYTES) : keyword]
        yield before[before.rfind(b"obj") + 1 :], content[begin:end].lstrip(b"\r\n")
        at = end + len(b"endstream")


def _inflated(header: bytes, raw: bytes, room: int) -> bytes | None:
    """Return the data of a stream, at most `room` bytes; None if its encoding is not known here."""
    if _OTHER_FILTER.search(header):
        return None
    if b"/FlateDecode" not in header:
        return raw
    try:
        return zlib.decompressobj().decompress(raw, room)
    except zlib.error:
        return None


def _text_length(data: bytes) -> int:
    """Return the characters that a page shows, not below their number: those in the strings of its stream."""
    if not _TEXT_BEGINS.search(data):  # a font, for example
        return 0
    length, depth, begin = 0, 0, 0
    for token in _STRING.finditer(data):
        if token[0] == b"(":
            begin = begin if depth else token.end()
            depth += 1
        elif token[0] == b")" and depth:
            depth -= 1
            length += 0 if depth else token.start() - begin
        elif token[0].startswith(b"<") and not depth:
            length += -(-len(token[0]) // _DIGITS_PER_CHARACTER)
    return length + (len(data) - begin if depth else 0)
