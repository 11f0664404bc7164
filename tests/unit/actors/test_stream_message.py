"""Messages are immutable, and answers belong to their requests."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from cleveragents.actors.streams.message import MessageKind, StreamMessage
from cleveragents.core.errors import Closed


def test_a_message_is_frozen_and_keeps_a_copy_of_its_content() -> None:
    content = {"n": 1}
    message = StreamMessage("m", "graph", content)
    content["n"] = 2
    assert message.content == {"n": 1}
    with pytest.raises(TypeError):
        message.content["n"] = 3
    with pytest.raises(FrozenInstanceError):
        message.id = "other"


def test_answers_carry_the_identity_of_their_request() -> None:
    message = StreamMessage("m", "graph", {"n": 1}, thread_id="t")
    result = message.result({"n": 2})
    assert (result.id, result.graph, result.thread_id) == ("m", "graph", "t")
    assert (result.kind, result.content, result.error) == (MessageKind.RESULT, {"n": 2}, None)
    closed = Closed("x")
    failure = message.failure(closed, MessageKind.CANCELLED)
    assert (failure.id, failure.graph, failure.thread_id) == ("m", "graph", "t")
    assert (failure.kind, failure.content, failure.error) == (MessageKind.CANCELLED, {"n": 1}, closed)
