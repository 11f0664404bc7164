"""Translation of errors of libraries and servers, and answers in unusual pieces."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import ClassVar

import pytest

from cleveragents.core.errors import CleverAgentsError, ContextTooLong, ModelRefused, ModelUnavailable
from cleveragents.models.failures import FailedCall, translated
from cleveragents.models.model.conversation import Message, MessageRole, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest

messages = pytest.importorskip("langchain_core.messages")

SUBJECT = FailedCall("acme/m", 900, 800, ("ACME_KEY",))


class Response:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Theirs(Exception):
    """An error of a library: with a status, a body, a response, or nothing."""

    def __init__(self, said: str = "oops", **facts: object) -> None:
        super().__init__(said)
        for name, value in facts.items():
            setattr(self, name, value)


class APIError(Theirs):
    """The usual name of an error within a stream."""


class APIConnectionError(Theirs):
    """The usual name of a failed connection."""


class ReadTimeout(Theirs):
    """The usual name of a timeout."""


def told(error: Exception) -> CleverAgentsError:
    return translated(error, SUBJECT)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_temporary_failures_are_unavailable(status: int) -> None:
    assert isinstance(told(Theirs(status_code=status)), ModelUnavailable)


def test_a_name_that_is_nearly_one_we_know_gets_a_hint() -> None:
    wrong = Theirs(status_code=404)
    assert "did you mean openai/gpt-4.1-mini?" in str(
        translated(wrong, FailedCall("openai/gpt-4.1-mni", 1, 1))
    )
    assert "did you mean" not in str(translated(wrong, FailedCall("openai/gpt-4.1-mini", 1, 1)))
    elsewhere = FailedCall("openai/gpt-4.1-mni", 1, 1, place="http://localhost:1/v1")
    assert "did you mean" not in str(translated(wrong, elsewhere))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 410, 422])
def test_permanent_failures_are_refused(status: int) -> None:
    assert isinstance(told(Theirs(status_code=status)), ModelRefused)


def test_a_wrong_key_names_its_variables() -> None:
    assert "check ACME_KEY (HTTP 401: oops)" in str(told(Theirs(status_code=401)))
    assert "check its key" in str(translated(Theirs(status_code=403), FailedCall("m", 1, 1)))


class WrongKey(Exception):
    status_code = 401
    code = "invalid_api_key"
    body: ClassVar = {"error": {"message": "Incorrect API key provided: sk-x"}}


def test_a_wrong_key_is_masked_and_the_words_around_it_are_not() -> None:
    said = str(translated(WrongKey(), FailedCall("m", 1, 1)))
    assert "Incorrect API key provided: *** (invalid_api_key)" in said


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "12"}, 12.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after_ms": "250", "retry_after": "1"}, 0.25),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "Wed, 21 Oct 99999999999 07:28:00 GMT"}, None),
        ({}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after_ms": "1e999"}, None),
    ],
)
def test_the_retry_delay_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    error = told(Theirs(status_code=429, response=Response(**headers)))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after_seconds == seconds


@pytest.mark.parametrize("zone", [UTC, None])
def test_a_retry_date_is_parsed(zone: object) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1))
    date = later if zone else later.replace("+0000", "-0000")
    error = told(Theirs(status_code=503, response=Response(retry_after=date)))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after_seconds is not None
    assert 3000 < error.retry_after_seconds <= 3600
    past = format_datetime(datetime(2020, 1, 1, tzinfo=UTC))
    gone = told(Theirs(status_code=503, response=Response(retry_after=past)))
    assert isinstance(gone, ModelUnavailable)
    assert gone.retry_after_seconds == 0


def test_the_status_is_found_behind_other_errors() -> None:
    error = ValueError("wrapped")
    error.__cause__ = Theirs(code=503)
    assert "HTTP 503" in str(told(error))
    assert "HTTP 500" in str(told(Theirs(body={"code": 500, "message": "inside"})))


def test_an_error_that_is_its_own_cause_is_read_once() -> None:
    error = Theirs()
    error.__context__ = error
    assert "unexpected response (oops)" in str(told(error))


@pytest.mark.parametrize(
    "error",
    [
        Theirs(status_code=400, body={"message": "maximum context length is 800 tokens, you sent 900"}),
        Theirs(status_code=500, body={"error": {"message": "exceeds the available context size: 900 > 800"}}),
        APIError("the prompt is too long: 900 tokens, 800 at most"),
        Theirs("prompt is too long", status_code=413),
    ],
)
def test_a_too_long_request_reports_its_numbers(error: Exception) -> None:
    found = told(error)
    assert isinstance(found, ContextTooLong)
    assert (found.needed, found.limit) == (900, 800)


def test_a_too_long_request_needs_more_than_the_limit() -> None:
    found = translated(Theirs("prompt is too long", status_code=400), FailedCall("m", 5, 800))
    assert isinstance(found, ContextTooLong)
    assert (found.needed, found.limit) == (801, 800)


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError("reset"), ssl.SSLError("bad"), APIConnectionError("Connection error.")],
)
def test_a_connection_that_failed_is_unavailable(error: Exception) -> None:
    assert "the connection failed" in str(told(error))


def test_a_timeout_is_unavailable() -> None:
    for error in (TimeoutError(), ReadTimeout()):
        assert "the request timed out" in str(told(error))


def test_own_errors_are_not_translated() -> None:
    error = ModelRefused("m", "no")
    assert told(error) is error


def test_error_messages_are_shortened_and_masked() -> None:
    found = str(told(Theirs("x" * 5000 + "\n  y", status_code=400)))
    assert len(found) < 600
    assert "***" in str(told(Theirs("api_key=verysecretindeed", status_code=400)))
    assert "(HTTP 400: Theirs)" in str(told(Theirs("", status_code=400)))


# ── unusual pieces ────────────────────────────────────────────────────────────────────────────────


class Chat:
    """The part of a chat model that the adapter uses; it streams the given pieces."""

    def __init__(self, *chunks: object) -> None:
        self.chunks = chunks

    def bind_tools(self, tools: object) -> Chat:
        return self

    async def astream(self, said: object, **options: object) -> AsyncIterator[object]:
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def piece(
    text: str = "",
    ended: str | None = None,
    calls: tuple[dict[str, object], ...] = (),
    usage: int | None = None,
) -> object:
    metadata = {"finish_reason": ended} if ended else {}
    counted = {"input_tokens": usage, "output_tokens": 1, "total_tokens": usage + 1} if usage else None
    return messages.AIMessageChunk(
        text, response_metadata=metadata, tool_call_chunks=[*calls], usage_metadata=counted
    )


def call(index: int | None, **parts: str | None) -> dict[str, object]:
    return {"name": None, "args": None, "id": None, **parts, "index": index, "type": "tool_call_chunk"}


def heard(*chunks: object, sums: bool = True, most: int = 100) -> ModelReply:
    from cleveragents.models.langchain_model import LangChainModel

    model = LangChainModel(Chat(*chunks), ModelFacts("acme/m", 800, 100), lambda request: {}, sums_usage=sums)
    request = ModelRequest(messages=[Message(MessageRole.USER, "hello")], max_output_tokens=most)
    return asyncio.run(model.reply(request))


def test_calls_with_one_index_are_distinguished_by_their_ids() -> None:
    reply = heard(
        piece(calls=(call(0, name="a", args="{", id="x"),)),
        piece(calls=(call(0, args="}"),)),
        piece(calls=(call(0, name="b", args="{}", id="y"),)),
        piece(ended="stop"),
    )
    assert [(r.tool, r.id, r.problem) for r in reply.message.requests] == [("a", "x", None), ("b", "y", None)]


def test_a_call_without_a_name_or_an_id_is_a_separate_problem() -> None:
    reply = heard(piece(calls=(call(0, args="{}"),)), piece(ended="tool_calls"))
    (request,) = reply.message.requests
    assert (request.id, request.tool, request.problem) == ("call_0", "", "the call names no tool")


@pytest.mark.parametrize("depth", [100, 200_000])
def test_arguments_nested_without_end_are_a_problem(depth: int) -> None:
    written = '{"a":' + "[" * depth + "]" * depth + "}"
    reply = heard(piece(calls=(call(0, name="a", args=written),)), piece(ended="stop"), most=100_000)
    (request,) = reply.message.requests
    assert request.problem is not None
    assert "nested" in request.problem


@pytest.mark.parametrize("written", ['"text"', "3"])
def test_arguments_that_are_not_an_object_are_a_problem(written: str) -> None:
    (request,) = heard(piece(calls=(call(0, name="a", args=written),)), piece(ended="stop")).message.requests
    assert request.problem is not None
    assert "pass one JSON object" in request.problem


def test_usage_is_summed_or_taken_from_the_last_chunk() -> None:
    chunks = (piece("a", usage=5), piece("b", usage=7), piece(ended="stop"))
    assert heard(*chunks).usage == Usage(12, 2)
    assert heard(*chunks, sums=False).usage == Usage(7, 1)


def test_a_server_that_does_not_stop_is_not_listened_to_for_ever() -> None:
    long = "".join(f"{number:,} " for number in range(10_000))[:50_000]
    reply = heard(*(piece(long) for _ in range(10)), most=1)
    assert reply.cut_off
    assert len(reply.message.text) == 100_000


@pytest.mark.parametrize(
    "said", ["x", "The function is not used. The class is not used.\n", "é" * 499 + "\n"]
)
def test_a_model_that_repeats_itself_is_stopped(said: str) -> None:
    pieces = [piece(f"Once: {said}"), *(piece(said) for _ in range(10_000))]
    reply = heard(*pieces, piece(ended="stop"), most=100_000)
    assert reply.cut_off
    assert len(reply.message.text) < 4_000


def test_the_usage_of_an_answer_that_was_stopped_early_is_unknown() -> None:
    """A stated usage would be too low, so the call has to count at its worst case."""
    pieces = [piece("Once.\n", usage=1000), *(piece("The same again.\n") for _ in range(1000))]
    assert heard(*pieces, most=100_000).usage is None


def test_text_that_only_looks_alike_is_no_repetition() -> None:
    rows = [piece(f"| row {number} | the same words in every row of this table |\n") for number in range(400)]
    reply = heard(*rows, piece(ended="stop"), most=100_000)
    assert not reply.cut_off
    assert reply.message.text.count("\n") == 400


def test_lone_surrogates_and_nul_are_replaced() -> None:
    assert heard(piece("a\ud800b\0c"), piece(ended="stop")).message.text == "a\ufffdb\ufffdc"


def test_an_answer_without_an_end_is_an_error() -> None:
    with pytest.raises(ModelUnavailable, match="lost during the answer"):
        heard(piece("half"))


def test_an_answer_that_ended_early_is_an_error() -> None:
    with pytest.raises(ModelUnavailable, match="ended early"):
        heard(piece(ended="MALFORMED_FUNCTION_CALL"))


def test_a_content_filter_refuses_the_answer() -> None:
    with pytest.raises(ModelRefused, match="content_filter"):
        heard(piece("no", ended="content_filter"))


def test_any_error_of_a_library_is_translated() -> None:
    with pytest.raises(ModelUnavailable, match="unexpected response"):
        heard(piece("a"), KeyError("choices"))


# ── the cost of a failure ─────────────────────────────────────────────────────────────────────────


class ConnectError(Theirs):
    """The usual name of a refused connection."""


def caused_by(cause: Exception) -> Exception:
    error = APIConnectionError()
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("chunks", "charged"),
    [
        ((Theirs(status_code=429),), False),
        ((Theirs(status_code=401),), False),
        ((caused_by(ConnectError()),), False),
        ((caused_by(ConnectionRefusedError()),), False),
        ((caused_by(ConnectionResetError()),), True),
        ((caused_by(ReadTimeout()),), True),
        ((KeyError("choices"),), True),
        ((), True),
        ((piece(),), True),
        ((piece(usage=5),), True),  # reasoning, but no text
        ((piece(usage=5), Theirs(status_code=529)), True),
        ((piece("half"), Theirs(status_code=400)), True),
    ],
)
def test_accepted_requests_may_be_charged(chunks: tuple[object, ...], charged: bool) -> None:
    with pytest.raises((ModelUnavailable, ModelRefused)) as failed:
        heard(*chunks)
    assert failed.value.charged is charged
    assert failed.value.took is None  # the usage so far is incomplete


@pytest.mark.parametrize("ended", ["content_filter", "malformed_function_call"])
def test_the_usage_of_a_broken_answer_is_reported_at_its_end(ended: str) -> None:
    with pytest.raises((ModelUnavailable, ModelRefused)) as failed:
        heard(piece(usage=5), piece(ended=ended, usage=7))
    assert (failed.value.charged, failed.value.took) == (True, (12, 2, 0, 0))


def test_a_conversation_that_is_too_long_costs_nothing() -> None:
    with pytest.raises(ContextTooLong):
        heard(APIError("maximum context length"))


def test_usage_that_cannot_be_true_costs_neither_less_than_nothing_nor_more_than_the_worst_case() -> None:
    assert Usage.reported(-5, -1, -1, -(10**9)) == Usage(0, 0, 0, 0)
    assert Usage.reported(100, 7, 80, 70) == Usage(100, 7, 80, 20)
    assert Usage.reported(float("nan"), "many", None, float("inf")) == Usage(0, 0, 0, 0)
    said = heard(piece("a", usage=5), piece("b", usage=-50), piece(ended="stop")).usage
    assert said is not None
    assert min(said.input_tokens, said.output_tokens) >= 0
