"""Files for a model: their type, their name and the most tokens that they take."""

from __future__ import annotations

import struct
import time
import zlib

import pytest

from cleveragents.core.errors import RequestRefused
from cleveragents.models.model.attachment import (
    MOST_ATTACHED_BYTES,
    MOST_ATTACHMENTS,
    Attachment,
    MediaType,
    ensure_attachable,
)
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import ModelFacts, ModelRequest
from cleveragents.models.tokens import Estimator, estimate_request
from tests.attached_files import PDF, PNG

FACTS = ModelFacts("openai/m", 100_000, 1_000, image_tokens=1_000, pdf_tokens=50_000)


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, MediaType.PNG),
        (b"\xff\xd8\xff\xe0" + bytes(20), MediaType.JPEG),
        (b"GIF89a" + bytes(20), MediaType.GIF),
        (b"RIFF" + struct.pack("<I", 20) + b"WEBPVP8 ", MediaType.WEBP),
        (PDF, MediaType.PDF),
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
        b"MZ" + PDF,
    ],
)
def test_other_content_is_refused_with_the_remedy(content: bytes) -> None:
    with pytest.raises(RequestRefused, match=r"'image\.png' is no PNG.*paste its text, or name the file"):
        Attachment.of("image.png", content)


def test_a_file_of_two_kinds_is_what_it_begins_with() -> None:
    assert Attachment.of("both.pdf", PNG + PDF).media_type is MediaType.PNG


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


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"BT (" + b"x" * 9_000_000, id="long text"),
        pytest.param(b"<< >>\nstream\n\nendstream\n" * 350_000, id="many streams"),
        pytest.param(
            b"<< /Filter /FlateDecode >>\nstream\n" + zlib.compress(b"BT (\\(" * 5_000_000), id="inflates"
        ),
    ],
)
def test_the_content_of_a_pdf_costs_no_time(content: bytes) -> None:
    began = time.thread_time()
    Attachment.of("a.pdf", b"%PDF-1.7\n" + content)
    assert time.thread_time() - began < 0.1


@pytest.mark.parametrize(
    "content",
    [
        b"<< /Subtype /Image /Filter /FlateDecode >>\nstream\n" + zlib.compress(b"BT (text) Tj" * 9_000),
        b"<< /Filter [/FlateDecode /FlateDecode] >>\nstream\n"
        + zlib.compress(zlib.compress(b"BT (text) Tj")),
        b"<< /Type /P#61ge >>",
        b"<< /Type /Pages /Kids [1 0 R 1 0 R 1 0 R 1 0 R] >>",
        b"",
    ],
)
def test_no_pdf_can_hide_tokens(content: bytes) -> None:
    hidden = Attachment.of("a.pdf", b"%PDF-1.7\n" + content)
    assert FACTS.attachment_tokens([hidden]) == 50_000
    assert FACTS.attachment_tokens([Attachment("a.pdf", MediaType.PDF, hidden.content)]) == 50_000


def test_no_files_take_more_than_the_context_window() -> None:
    one = Attachment.of("a.pdf", PDF)
    assert [FACTS.attachment_tokens([one] * number) for number in (0, 1, 2, 5)] == [
        0,
        50_000,
        100_000,
        100_000,
    ]


def test_the_estimate_counts_attachments() -> None:
    plain = ModelRequest(messages=(Message(MessageRole.USER, "hello"),), max_output_tokens=1)
    files = (Attachment.of("a.png", PNG), Attachment.of("b.pdf", PDF))
    request = ModelRequest(messages=plain.messages, max_output_tokens=1, attachments=files)
    estimator = Estimator(FACTS)
    assert estimator.count(request) == estimate_request(plain) + 1 + 51_000
    estimator.learn(plain, 3 * estimate_request(plain))
    assert estimator.count(request) == 3 * estimate_request(plain) + 1 + 51_000, "only texts are raised"


def test_a_request_with_attachments_does_not_raise_other_estimates() -> None:
    plain = ModelRequest(messages=(Message(MessageRole.USER, "hello"),), max_output_tokens=1)
    shown = (Attachment.of("b.pdf", PDF),)
    estimator = Estimator(FACTS)
    before = estimator.count(plain)
    estimator.learn(ModelRequest(messages=(), max_output_tokens=1, attachments=shown), 10_000_000)
    assert estimator.count(plain) == before


@pytest.mark.parametrize(
    ("facts", "content", "problem"),
    [
        (ModelFacts("openai/m", 1, 1), PNG, "openai/m takes no image/png files, as far as is known"),
        (ModelFacts("openai/m", 1, 1, image_tokens=9), PDF, "takes no application/pdf files"),
        (ModelFacts("openai/m", 1, 1, pdf_tokens=9), PNG, "takes no image/png files"),
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
