"""A model whose calls end as a test scripts them, and requests for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from cleveragents.core.errors import ModelUnavailable
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest

FACTS = ModelFacts("test/model", 1000, 100)
REQUEST = ModelRequest(messages=[Message(MessageRole.USER, "hello")], max_output_tokens=10)
REPLY = ModelReply(Message(MessageRole.ASSISTANT, "hi"), FACTS.name)


def unavailable(retry_after: float | None = None) -> ModelUnavailable:
    return ModelUnavailable(FACTS.name, "busy", retry_after)


@dataclass
class EndingModel:
    """A `Model` whose calls end as the next entry of `ends` says.

    An error is raised, a reply is returned, a list of pieces is emitted before the next end, an event is
    awaited; after the last entry it answers.
    """

    ends: list[Exception | ModelReply | list[str] | asyncio.Event] = field(default_factory=list)
    calls: int = 0
    running: int = 0
    most: int = 0
    facts: ModelFacts = FACTS

    def count_tokens(self, request: ModelRequest) -> int:
        return 42

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._end(on_token)
        finally:
            self.running -= 1

    async def _end(self, on_token: Callable[[str], None] | None) -> ModelReply:
        if not self.ends:
            return REPLY
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        if isinstance(end, ModelReply):
            return end
        if isinstance(end, list):
            for piece in end:
                if on_token is not None:
                    on_token(piece)
            return await self._end(on_token)
        await end.wait()
        return REPLY
