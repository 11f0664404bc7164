"""Files for a model: their type, their name and the most tokens that they take."""

from __future__ import annotations

import struct
import zlib

import pytest

from cleveragents.core.errors import RequestRefused
from cleveragents.models.model.attachment import (
    MOST_ATTACHED_BYTES,
    MOST_ATTACHMENTS,
    MOST_PAGES,
    Attachment,
    MediaType,
    ensure_attachable,
)
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import ModelFacts, ModelRequest
from cleveragents.models.tokens import Estimator, estimate_request
from tests.attached_files import PNG, pdf

FACTS = ModelFacts("openai/m", 100_000, 1_000, image_tokens=1_000, pdf_page_tokens=500)


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, MediaType.PNG),
        (b"\xff\xd8\xff\xe0" + bytes(20), MediaType.JPEG),
        (b"GIF89a" + bytes(20), MediaType.GIF),
        (b"RIFF" + struct.pack("<I", 20) + b"WEBPVP8 ", MediaType.WEBP),
        (pdf("hello"), MediaType.PDF),
    ],
)
def test_the_content_decides_the_type_and_not_the_name(content: bytes, media_type: MediaType) -> None:
    assert Attachment.of("notes.txt", content).media_type is media_type


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"<svg onload='alert(1)'/>",
        b"PK\x03\x04",
        b"RIFF\x00\x00\x00\x00WAVE",
        b" " + PNG,
        b"MZ" + pdf("a program that is also a PDF"),
    ],
)
def test_other_content_is_refused_with_the_remedy(content: bytes) -> None:
    with pytest.raises(RequestRefused, match=r"'image\.png' is no PNG.*paste its text, or name the file"):
        Attachment.of("image.png", content)


def test_a_file_of_two_kinds_is_what_it_begins_with() -> None:
    both = Attachment.of("both.pdf", PNG + pdf("hidden"))
    assert (both.media_type, both.pages) == (MediaType.PNG, 0)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/etc/../shot.png", "shot.png"),
        ("C:\\Users\\ada\\shot.png", "shot.png"),
        ("a\x1b]0;owned\x07\nb\u202egnp.png", "a_]0;owned__b_gnp.png"),
        ("\udcff.png", "_.png"),
        ("x" * 300 + ".png", "x" * 96 + ".png"),
        ("///", "attachment"),
        ("", "attachment"),
        (f"ghp_{'a1B2' * 9}.png", "***.png"),
    ],
)
def test_a_name_is_the_last_part_without_control_characters(name: str, shown: str) -> None:
    assert Attachment.of(name, PNG).name == shown


def test_the_content_is_not_shown_in_a_representation() -> None:
    assert "IHDR" not in repr(Attachment.of("a.png", PNG))


def test_files_are_bounded() -> None:
    with pytest.raises(RequestRefused, match="larger than 10,000,000 bytes"):
        Attachment.of("a.png", PNG + bytes(MOST_ATTACHED_BYTES))
    large = Attachment.of("a.png", PNG + bytes(MOST_ATTACHED_BYTES - len(PNG)))
    ensure_attachable([large])
    small = Attachment.of("a.png", PNG)
    with pytest.raises(RequestRefused, match="10,000,000 bytes together"):
        ensure_attachable([large, small])
    with pytest.raises(RequestRefused, match="at most 5"):
        ensure_attachable([small] * (MOST_ATTACHMENTS + 1))


@pytest.mark.parametrize("packed", [False, True])
def test_the_pages_and_the_text_of_a_pdf_are_counted(packed: bool) -> None:
    found = Attachment.of("a.pdf", pdf("one (nested) word", "<0041004200430044> Tj", packed=packed))
    assert found.pages == 2
    assert len("one nested word") // 2 <= found.text_tokens <= 20


def test_hidden_text_counts_and_a_picture_does_not() -> None:
    shown = Attachment.of("a.pdf", pdf("x" * 100_000))
    assert shown.text_tokens >= 50_000
    picture = b"<< /Type /XObject /Subtype /Image /Filter /FlateDecode >>"
    drawn = pdf("a", extra=(picture, zlib.compress(b"BT (Tj) " * 100_000)))
    assert Attachment.of("a.pdf", drawn).text_tokens < 10
    font = pdf("a stream of words", extra=(b"<< /Length1 9 >>", b"'()x(BT)y" * 1_000))
    assert Attachment.of("a.pdf", font).text_tokens < 10
    unread = pdf("a", extra=(b"<< /Filter /ASCII85Decode >>", b"9jqo^" * 1_000))
    assert Attachment.of("a.pdf", unread).text_tokens >= 2_500, "what is not readable here counts in full"
    open_string = pdf("a", extra=(b"<< >>", b"BT (" + b"x" * 1_000))
    assert Attachment.of("a.pdf", open_string).text_tokens >= 500


def test_a_pdf_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(RequestRefused, match=r"'a\.pdf' is encrypted"):
        Attachment.of("a.pdf", pdf("a") + b"trailer << /Encrypt 5 0 R >>")
    with pytest.raises(RequestRefused, match=r"'a\.pdf' has no page"):
        Attachment.of("a.pdf", b"%PDF-1.7\n%%EOF")
    with pytest.raises(RequestRefused, match="has 101 pages; the most are 100"):
        Attachment.of("a.pdf", pdf(*["a"] * (MOST_PAGES + 1)))
    bomb = zlib.compress(bytes(40_000_000))
    with pytest.raises(RequestRefused, match="too complex"):
        Attachment.of("a.pdf", pdf("a", extra=(b"<< /Filter /FlateDecode >>", bomb)))


@pytest.mark.parametrize("part", [b"(", b"\\(", b"<0", b"stream\n", b"/Type ", b"Tj()"])
def test_a_hostile_pdf_is_read_in_linear_time(part: bytes) -> None:
    Attachment.of("a.pdf", pdf("a", extra=(b"<< >>", b"BT " + part * 200_000)))


def test_the_estimate_counts_attachments() -> None:
    plain = ModelRequest(messages=(Message(MessageRole.USER, "hello"),), max_output_tokens=1)
    files = (Attachment.of("a.png", PNG), Attachment.of("b.pdf", pdf("a" * 400, "b" * 400)))
    request = ModelRequest(messages=plain.messages, max_output_tokens=1, attachments=files)
    added = FACTS.attachment_tokens(files)
    assert added >= 1_000 + 2 * 500 + 400
    estimator = Estimator(FACTS)
    assert estimator.count(request) == estimate_request(plain) + added + 1
    estimator.learn(request, 3 * (estimate_request(plain) + added))
    assert estimator.count(request) >= 3 * added, "a model that counts more raises the bound"


@pytest.mark.parametrize(
    ("facts", "content", "problem"),
    [
        (ModelFacts("openai/m", 1, 1), PNG, "openai/m takes no image/png files, as far as is known"),
        (ModelFacts("openai/m", 1, 1, image_tokens=9), pdf("a"), "takes no application/pdf files"),
        (ModelFacts("openai/m", 1, 1, pdf_page_tokens=9), PNG, "takes no image/png files"),
        (ModelFacts("google/m", 1, 1, image_tokens=9), b"GIF89a", "takes no image/gif files; choose"),
    ],
)
def test_a_file_that_the_model_does_not_take_is_refused(
    facts: ModelFacts, content: bytes, problem: str
) -> None:
    request = ModelRequest(messages=(), max_output_tokens=1, attachments=(Attachment.of("a", content),))
    with pytest.raises(RequestRefused, match=problem) as refused:
        Estimator(facts).count(request)
    assert [one.action for one in refused.value.remedies] == ["model.list", "config.set"]
