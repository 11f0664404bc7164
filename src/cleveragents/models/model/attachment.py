"""Images and PDFs that go to a model with a question.

The first bytes of a file decide its type; its name is ignored. Nothing else of the content is read: a file
may be hostile, and a PDF can hide its pages and its text.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from cleveragents.core.errors import RequestRefused
from cleveragents.core.text.redaction import redact_text

__all__ = [
    "MOST_ATTACHED_BYTES",
    "MOST_ATTACHMENTS",
    "Attachment",
    "MediaType",
    "ensure_attachable",
]

MOST_ATTACHMENTS = 5
"""The most files of one question."""
MOST_ATTACHED_BYTES = 10_000_000
"""The most bytes of all files of one question."""
_WHERE = "attachments"
_LONGEST_NAME = 100


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

    `name` is for people and the model: the last part of a path, without control characters.
    """

    name: str
    media_type: MediaType
    content: bytes = field(repr=False)

    @classmethod
    def of(cls, name: str, content: bytes) -> Attachment:
        """Return the attachment for the content of a file. Raises `RequestRefused` for a file that is too
        large, and for one that is no image or PDF.
        """
        shown = _safe_name(name)
        if len(content) > MOST_ATTACHED_BYTES:
            raise RequestRefused(f"{shown!r} is larger than {MOST_ATTACHED_BYTES:,} bytes", _WHERE)
        media_type = _media_type(content)
        if media_type is None:
            problem = f"{shown!r} is no PNG, JPEG, GIF or WebP image and no PDF"
            raise RequestRefused(f"{problem}; paste its text, or name the file with @path", _WHERE)
        return cls(shown, media_type, content)

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
