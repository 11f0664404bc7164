"""Every error of every provider: which error of ours it becomes, and what its message says to do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from cleveragents.cli.render.remedies import remedy_lines
from cleveragents.core.errors import (
    CleverAgentsError,
    ContextTooLong,
    ModelRefused,
    ModelUnavailable,
    UsageLimited,
)
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import ModelFacts, ModelRequest
from cleveragents.models.provider import ModelSpec
from cleveragents.models.providers import anthropic, google, openai
from tests.model_wires import ERRORS, serving

# Found without importing: imports take seconds, and every collection would pay for them.
if any(find_spec(f"langchain_{name}") is None for name in ("openai", "anthropic", "google_genai")):
    pytest.skip("a provider's library is not installed", allow_module_level=True)

PROVIDERS = {"openai": openai.PROVIDER, "anthropic": anthropic.PROVIDER, "google": google.PROVIDER}
REFUSED, UNAVAILABLE = ModelRefused, ModelUnavailable
ANOTHER = "agents config set models.default PROVIDER/NAME"
FALLBACK = "agents config set models.fallback PROVIDER/NAME"
WINDOWS = "agents model list"
MEANINGS: dict[str, tuple[type[CleverAgentsError], int | None, str, str]] = {
    # name: (error, status, message, remedy)
    "key": (REFUSED, 401, r"the API key was rejected; check [A-Z_]+_API_KEY", "agents model test"),
    "credit": (REFUSED, 402, r"no credit left; add credit at the provider, or choose another", ANOTHER),
    "quota": (REFUSED, 402, r"no credit left; add credit at the provider, or choose another", ANOTHER),
    "permission": (REFUSED, 403, r"lacks permission; check [A-Z_]+_API_KEY", "agents model test"),
    "model": (REFUSED, 404, r"model not found; check its name and the base URL", "agents model list"),
    "large": (ContextTooLong, None, r"accepts at most 800 tokens, but the request has 801", WINDOWS),
    "context": (ContextTooLong, None, r"accepts at most 800 tokens, but the request has 900", WINDOWS),
    "busy": (UNAVAILABLE, 429, r"too many requests \(HTTP 429: .*; try again later, or choose", FALLBACK),
    "busy for 7 s": (UNAVAILABLE, 429, r"too many requests .*; try again in 7 s, or choose", FALLBACK),
    "limit": (
        UsageLimited,
        429,
        r"usage limit is reached .*; the limit resets in 3 hours, or choose",
        FALLBACK,
    ),
    "failed": (UNAVAILABLE, 500, r"the provider failed \(HTTP 500: .*; try again later", FALLBACK),
    "gateway": (UNAVAILABLE, None, r"the provider failed \(HTTP 50[24]: .*; try again later", FALLBACK),
    "overloaded": (UNAVAILABLE, None, r"the provider is overloaded \(HTTP 5[02][39]: ", FALLBACK),
    "overloaded later": (UNAVAILABLE, None, r"the provider is overloaded \(HTTP 5[02][09]: ", FALLBACK),
    "filter": (REFUSED, None, r"the content filter of the provider .*; rephrase", ANOTHER),
    "filtered answer": (REFUSED, None, r"the content filter of the provider .*; rephrase", ANOTHER),
}
CASES = [(provider, name) for provider, errors in ERRORS.items() for name in errors]


def failure(provider: str, answer: Callable[[str], tuple[int, object, bytes]]) -> CleverAgentsError:
    """Return the error of a call to a server that answers so."""
    with serving(answer) as wire:
        facts = ModelFacts(f"{provider}/m", 800, 100)
        spec = ModelSpec(
            facts=facts,
            model="m",
            timeout_seconds=60,
            key="sk-nobody",
            key_variables=("SOME_API_KEY",),
            base_url=wire.url,
        )
        model = PROVIDERS[provider].open(spec)
        asked = ModelRequest(messages=[Message(MessageRole.USER, "hello")], max_output_tokens=64)
        with pytest.raises(CleverAgentsError) as caught:
            asyncio.run(model.reply(asked))
    return caught.value


@pytest.mark.parametrize(("provider", "name"), CASES, ids=lambda part: part.replace(" ", "-"))
def test_every_error_has_a_status_a_message_and_a_remedy(provider: str, name: str) -> None:
    kind, status, message, command = MEANINGS[name]
    error = failure(provider, lambda text: ERRORS[provider][name])
    assert type(error) is kind
    assert re.search(message, str(error)), str(error)
    assert status in (None, getattr(error, "status", None))
    (line,) = remedy_lines(error.remedies)
    assert command in line
    assert "sk-nobody" not in str(error)


def test_every_provider_has_every_error() -> None:
    for provider, errors in ERRORS.items():
        missing = {"credit", "quota", "overloaded later"} if provider == "google" else set()
        assert MEANINGS.keys() - errors.keys() == missing  # Google has no such responses
