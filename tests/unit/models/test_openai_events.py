"""OpenAI's event stream: complete events however they are split, and variants that servers send."""

from __future__ import annotations

import pytest

from cleveragents.core.errors import ContextTooLong, ModelUnavailable
from cleveragents.models.failures import FailedCall, translated
from cleveragents.models.model.conversation import Usage
from cleveragents.models.plain_chat_openai import EventLines, StreamFailed, piece_of

SUBJECT = FailedCall("openai/model", 10, 1000)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_they_are_cut(end: bytes, size: int) -> None:
    lines = [b": a comment", b"event: x", b"data: one", b"", b"", b"data:two", b"data:  three", b"id: 4", b""]
    whole = end.join([*lines, b"data: never ended", b""])
    events = EventLines()
    found = [data for at in range(0, len(whole), size) for data in events.take(whole[at : at + size])]
    assert found == [b"one", b"two\n three"]


def test_a_byte_order_mark_and_empty_events_are_skipped() -> None:
    events = EventLines()
    assert list(events.take(b"\xef\xbb\xbfdata: one\n\ndata:\n\ndata: two\n\n")) == [b"one", b"two"]


@pytest.mark.parametrize("chunk", [b"x" * 65_536, b"data: " + b"x" * 65_529 + b"\n"])
def test_an_event_without_an_end_is_neither_kept_nor_copied_for_ever(chunk: bytes) -> None:
    events = EventLines()
    with pytest.raises(ValueError, match="an event exceeds"):
        for _ in range(1_000):
            assert list(events.take(chunk)) == []


def test_comments_without_end_keep_nothing() -> None:
    events = EventLines()
    for _ in range(40):
        assert list(events.take(b": still at it\n" * 100_000)) == []
    assert list(events.take(b"data: one\n\n")) == [b"one"]


def test_pieces_hold_what_is_read_of_them_and_nothing_else() -> None:
    piece = piece_of(b'{"id": 7, "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}')
    assert (piece.text, piece.ended, piece.usage, list(piece.calls)) == ("a", "stop", None, [])
    assert piece_of(b'{"usage": {"prompt_tokens": 3}}').usage == Usage(3, 0)


@pytest.mark.parametrize(
    "data", [b'{"choices": [{"delta": {"content": "\\ud83d"}}], "x": NaN}', b'{"x": "\xff"}']
)
def test_lone_surrogates_and_odd_numbers_do_not_lose_an_answer(data: bytes) -> None:
    assert piece_of(data).text in ("\ud83d", "")


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        (b'{"prompt_tokens": 12.0, "completion_tokens": 3}', Usage(12, 3)),
        (b'{"prompt_tokens": -5, "completion_tokens": "3"}', Usage(0, 0)),
        (b'{"prompt_tokens": 5, "prompt_tokens_details": []}', Usage(5, 0)),
        (b'{"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}}', Usage(5, 0, 2)),
        (b'{"prompt_tokens": NaN, "completion_tokens": 1}', Usage(0, 1)),
        (b'{"prompt_tokens": 1e300, "completion_tokens": 1%s}' % (b"0" * 30), Usage(1 << 40, 1 << 40)),
        (b"[]", None),
    ],
)
def test_malformed_usage_does_not_lose_the_answer(said: bytes, taken: Usage | None) -> None:
    piece = piece_of(b'{"choices": [{"delta": {"content": "a"}}], "usage": ' + said + b"}")
    assert (piece.text, piece.usage) == ("a", taken)


@pytest.mark.parametrize("data", [b"<html>", b'{"choices": 5}', b"5", b""])
def test_a_malformed_chunk_is_an_unexpected_response(data: bytes) -> None:
    with pytest.raises(ValueError) as raised:
        piece_of(data)
    assert "unexpected response" in str(translated(raised.value, SUBJECT))


def test_an_error_within_a_stream_is_reported_in_the_providers_words() -> None:
    with pytest.raises(StreamFailed) as raised:
        piece_of(b'{"error": {"message": "overloaded", "code": "busy"}}')
    failure = translated(raised.value, SUBJECT)
    assert isinstance(failure, ModelUnavailable)
    assert "overloaded (busy)" in str(failure)
    with pytest.raises(StreamFailed) as raised:
        piece_of(b'{"error": "the maximum context length is 500 tokens, you sent 900"}')
    failure = translated(raised.value, SUBJECT)
    assert isinstance(failure, ContextTooLong)
    assert (failure.needed, failure.limit) == (900, 500)
