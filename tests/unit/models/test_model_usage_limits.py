"""Usage limits are told apart from short rate limits, and their reset times are read from any provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cleveragents.core.circuit_breaker import CircuitBreaker
from cleveragents.core.errors import ModelRefused, ModelUnavailable, UsageLimited
from cleveragents.models.failures import FailedCall, translated
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.model_wrappers import BreakingModel, RetryingModel, RetryPolicy
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.models.usage_limits import UsageLimit, usage_limit_in

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
HOUR = 3600.0
OPENAI_DAY = "Rate limit reached for gpt-4o on requests per day (RPD): Limit 200. Please try again in 7m12s."
OPENAI_MINUTE = (
    "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000. Please try again in 2.5s."
)
GEMINI = (
    "You exceeded your current quota. Quota exceeded for metric: requests, limit: 15. Please retry in 34.07s."
)
GEMINI_DAY = f"{GEMINI} quotaId: GenerateRequestsPerDayPerProjectPerModel-FreeTier"
ANTHROPIC_MONTH = (
    "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."
)
CODEX = '{"error": {"type": "usage_limit_reached", "message": "reached", "resets_in_seconds": 12345}}'


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (OPENAI_DAY, 432.0),
        (CODEX, 12345.0),
        (f"usage_limit_reached resets_at: {int(NOW.timestamp()) + 600}", 600.0),
        ("Your 5-hour limit is reached; it resets in 2 hours 30 minutes", 2.5 * HOUR),
        ("Usage limit reached. Your limit will reset at 2026-11-17 20:00:00", 8 * HOUR),
        (GEMINI_DAY, 20 * HOUR),
        ("you've reached your weekly usage limit", None),
        ("usage limit; try again in 99999999999999 days", None),
        ("usage limit reached; resets_at: 9999999999999", None),
    ],
)
def test_reads_the_reset_from_the_message(text: str, seconds: float | None) -> None:
    assert usage_limit_in(429, text, now=NOW) == UsageLimit(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *(OPENAI_MINUTE, GEMINI, "Too many requests", ""),
        "Rate limit reached, slow down",
        "Concurrency limit reached",
        "Resource has been exhausted (e.g. check quota).",
        "Quota exceeded for quota metric 'Generate Content API requests per minute'",
    ],
)
def test_a_short_rate_limit_is_no_usage_limit(text: str) -> None:
    assert usage_limit_in(429, text, now=NOW) is None


@pytest.mark.parametrize(("seconds", "limit"), [(60.0, None), (61.0, UsageLimit(61.0)), (0.0, None)])
def test_a_long_retry_after_is_a_usage_limit(seconds: float, limit: UsageLimit | None) -> None:
    assert usage_limit_in(429, "too many requests", retry_after=seconds, now=NOW) == limit


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e12])
def test_an_absurd_time_counts_as_unknown(seconds: float) -> None:
    assert usage_limit_in(429, "too many requests", retry_after=seconds, now=NOW) is None


def header_of(name: str, value: object, *, kind: str = "requests") -> dict[str, str]:
    remaining = {
        "anthropic": f"anthropic-ratelimit-{kind}-remaining",
        "openai": f"x-ratelimit-remaining-{kind}",
    }
    return {remaining[name]: "0", remaining[name].replace("remaining", "reset"): str(value)}


@pytest.mark.parametrize(
    "headers",
    [
        header_of("anthropic", (NOW + timedelta(hours=5)).isoformat()),
        header_of("anthropic", "2026-11-17T17:00:00Z", kind="input-tokens"),
        header_of("openai", "5h0m0s"),
        header_of("openai", "4h59m59.999s1ms", kind="tokens"),
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW.timestamp() + 5 * HOUR) * 1000)},
        {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": str(int(NOW.timestamp() + 5 * HOUR)),
        },
        {**header_of("openai", "5h"), **header_of("openai", "3m", kind="tokens")},
        {
            **header_of("openai", "5h"),
            "x-ratelimit-remaining-tokens": "7",
            "x-ratelimit-reset-tokens": "900h",
        },
    ],
)
def test_reads_the_reset_of_exhausted_limits_from_the_headers(headers: dict[str, str]) -> None:
    limit = usage_limit_in(429, "rate_limit_error", headers=headers, now=NOW)
    assert limit is not None
    assert limit.seconds == pytest.approx(5 * HOUR)


@pytest.mark.parametrize("value", ["", "soon", "-5", "1e400", "Tue, 99 Foo 2026", "١٢", "nan"])
def test_an_unreadable_header_is_ignored(value: str) -> None:
    assert usage_limit_in(429, "x", headers=header_of("openai", value), now=NOW) is None


def test_a_long_header_name_is_skipped() -> None:
    """The search for the parts of a name takes time quadratic in its length."""
    name = f"{'ratelimit-' * 10}remaining"
    headers = {name: "0", name.replace("remaining", "reset"): "5h"}
    assert usage_limit_in(429, "x", headers=headers, now=NOW) is None
    assert usage_limit_in(429, "x", headers={"x-" + one[20:]: headers[one] for one in headers}, now=NOW)


def test_other_statuses_need_a_reset_time() -> None:
    assert usage_limit_in(400, ANTHROPIC_MONTH, now=NOW) == UsageLimit(13.5 * 24 * HOUR)
    assert usage_limit_in(400, "usage limit", now=NOW) is None
    assert usage_limit_in(400, "max_tokens is too large", retry_after=HOUR, now=NOW) is None
    assert usage_limit_in(503, ANTHROPIC_MONTH, now=NOW) is None


class Refusal(Exception):
    """An error as libraries raise it."""

    def __init__(self, said: str, status: int = 429, **headers: str) -> None:
        super().__init__(said)
        self.status_code = status
        self.response = type("Response", (), {"headers": headers})()


def meant(error: Exception) -> Exception:
    return translated(error, FailedCall("openai/m", 10, 100, ("OPENAI_API_KEY",)))


def test_translates_the_refusal_of_a_library() -> None:
    limited = meant(Refusal("too many", **{"retry-after": "7200"}))
    assert isinstance(limited, UsageLimited)
    assert (limited.retry_after_seconds, limited.charged) == (7200.0, False)
    assert not isinstance(meant(Refusal("too many", **{"retry-after": "7"})), UsageLimited)
    assert isinstance(meant(Refusal(ANTHROPIC_MONTH.replace("2026", "2099"), 400)), ModelRefused), "too far"


def test_an_account_without_credit_does_not_wait() -> None:
    """Unless the provider states when."""
    said = "You exceeded your current quota, please check your plan and billing details. (insufficient_quota)"
    assert isinstance(meant(Refusal(said)), ModelRefused)
    assert isinstance(meant(Refusal(said, **{"retry-after": "7200"})), UsageLimited)


class Failing:
    """A model that always fails with this error."""

    facts = ModelFacts("openai/m", 100, 100)

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def count_tokens(self, request: ModelRequest) -> int:
        return 1

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        self.calls += 1
        raise self.error


REQUEST = ModelRequest(messages=(Message(MessageRole.USER, "hello"),), max_output_tokens=10)


@pytest.mark.parametrize(("raises_limits", "calls"), [(True, 1), (False, 3)])
def test_a_usage_limit_is_retried_only_if_plans_do_not_wait_for_it(raises_limits: bool, calls: int) -> None:
    async def sleep(seconds: float) -> None:
        return None

    inner: Any = Failing(UsageLimited("openai/m", "quota", 100.0))
    policy = RetryPolicy(retries=2, seconds=1000, raises_limits=raises_limits, sleep=sleep)
    with pytest.raises(UsageLimited):
        asyncio.run(RetryingModel(inner, policy).reply(REQUEST))
    assert inner.calls == calls


def test_usage_limits_do_not_open_the_breaker() -> None:
    """Otherwise the next plan would fail, instead of waiting for the reset."""
    inner: Any = Failing(UsageLimited("openai/m", "quota"))
    breaker = CircuitBreaker(failure_threshold=2, cool_down_seconds=30.0)
    model = BreakingModel(inner, breaker, "openai")
    for _ in range(5):
        with pytest.raises(UsageLimited):
            asyncio.run(model.reply(REQUEST))
    inner.error = ModelUnavailable("openai/m", "down")
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="down"):
            asyncio.run(model.reply(REQUEST))
