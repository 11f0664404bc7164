"""LangChain's client for OpenAI's protocol, without the libraries' walk through what is sent and answered.

OpenAI's library looks at every value of every message and tool to find out whether its type wants it spelt
otherwise, and makes an object of every value of every piece of an answer, of which LangChain makes others.
For a conversation that takes longer than everything else that is done for a call. So messages are spelt as
the protocol wants them at once, sent over the connections that the library would use, and pieces are read as
they come over the wire. What is sent is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import openai
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from cleveragents.core.json_value import thaw
from cleveragents.models.langchain_messages import RequestNumbers, ToolNames
from cleveragents.models.model.conversation import Message, Role
from cleveragents.models.openai_events import DONE, EventLines, piece_of
from cleveragents.models.pieces import Piece, Talk

__all__ = ["PlainChatOpenAI"]

_DEVELOPED = re.compile(r"^o\d")
"""Models whose system is called their developer."""


class PlainChatOpenAI(ChatOpenAI):
    """`ChatOpenAI`; in pieces, the body it sends is the same."""

    async def pieces(self, talk: Talk) -> AsyncGenerator[Piece, None]:
        """As `SpeaksInPieces.pieces`. `openai.APIStatusError`, what the library's transport raises,
        `StreamFailed`, and `ValueError` for a piece of another shape."""
        transport = self.root_async_client._client
        request = transport.build_request(
            "POST",
            f"{str(self.root_async_client.base_url).rstrip('/')}/chat/completions",
            content=self._body(talk),
            headers=self._headers,
            timeout=self.request_timeout,
        )
        response = await transport.send(request, stream=True)
        try:
            if not response.is_success:
                await response.aread()
                raise _refused(response)
            lines, spoke = EventLines(), False
            async for chunk in response.aiter_bytes():
                for data in lines.take(chunk):
                    if data.startswith(DONE):
                        return
                    spoke = True
                    yield piece_of(data)
            if not spoke:  # guard: a page of somebody else is no connection that was lost
                kind = response.headers.get("content-type", "something")
                raise ValueError(f"{kind} in the place of an answer in pieces; is the address right?")
        finally:
            await response.aclose()

    def _body(self, talk: Talk) -> bytes:
        body = self._get_request_payload(
            [], stream=True, stream_options={"include_usage": True}, **talk.options
        )
        body.update(body.pop("extra_body", None) or {})
        system = "developer" if _DEVELOPED.match(self.model_name) else "system"
        body["messages"] = _messages(talk.messages, talk.names, system)
        if talk.tools:
            body["tools"] = talk.tools
        return msgspec.json.encode(body)

    @cached_property
    def _headers(self) -> dict[str, str]:
        key = self.openai_api_key
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": self.root_async_client.user_agent,
            "Authorization": f"Bearer {key.get_secret_value() if isinstance(key, SecretStr) else ''}",
            "OpenAI-Organization": self.root_async_client.organization,
            "OpenAI-Project": self.root_async_client.project,
            **(self.default_headers or {}),
        }
        return {name: value for name, value in headers.items() if value is not None}


def _messages(messages: Sequence[Message], names: ToolNames, system: str) -> list[dict[str, Any]]:
    """The conversation as the protocol spells it: what the system says in one message, at the beginning."""
    numbers = RequestNumbers()
    told: list[dict[str, Any]] = []
    said = [message.text for message in messages if message.role is Role.SYSTEM]
    if said:
        told.append({"content": "\n\n".join(said), "role": system})
    for message in messages:
        if message.role is Role.USER:
            told.append({"content": message.text, "role": "user"})
        elif message.role is Role.TOOL:
            asked = numbers.answer(message.request_id or "")
            told.append({"content": message.text, "role": "tool", "tool_call_id": asked})
        elif message.role is Role.ASSISTANT and message.requests:
            calls = [
                {
                    "type": "function",
                    "id": numbers.ask(request.id),
                    "function": {
                        "name": names.outside(request.tool),
                        "arguments": json.dumps(thaw(request.arguments), ensure_ascii=False),
                    },
                }
                for request in message.requests
            ]
            told.append({"content": message.text or None, "role": "assistant", "tool_calls": calls})
        elif message.role is Role.ASSISTANT and message.text:
            told.append({"content": message.text, "role": "assistant"})
    return told


def _refused(response: Any) -> openai.APIStatusError:
    """What the library makes of such an answer."""
    said = response.text.strip()
    try:
        body = json.loads(said)
    except ValueError:
        body = said
    words = f"Error code: {response.status_code} - {said}"
    inner = body.get("error", body) if isinstance(body, dict) else body
    return openai.APIStatusError(words, response=response, body=inner)
