"""What goes wrong with a call, in our words: the one place that knows how libraries and providers say it.

Libraries differ in their classes and agree on HTTP: so the status decides, wherever in the chain of causes it
is found, and what has none is a connection that failed or an answer that nobody understood. Both are worth
another try; what a provider refused is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from cleveragents.core.errors import CleverAgentsError, ContextTooLong, ModelRefused, ModelUnavailable
from cleveragents.core.text.redaction import redact_text
from cleveragents.models.catalogue import PriceList

__all__ = ["FailedCall", "failure_of_status", "may_have_cost", "translated"]

_LONGEST = 400
_AGAIN = frozenset({408, 409, 425, 429})
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit", "credit balance is too low")
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context (?:size|window|length)|exceed_context_size"
    r"|prompt is too long|too many tokens|token limit|exceeds the maximum number of tokens"
    r"|input tokens exceed|contextwindowexceeded",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])\d{3,9}(?![\w.]*\d)")
_RETRY_DELAY = re.compile(r"retryDelay\W{1,6}(\d+(?:\.\d+)?)s")
_WRONG_KEY = ("API key not valid", "API_KEY_INVALID")
_REMEDIES = {
    401: "the key is not accepted; check {keys}",
    402: "there is no credit left with the provider",
    403: "the key does not allow this; check {keys}",
    404: "the provider has no such model, or the address is wrong",
}
_NOT_SENT = (
    "ClientConnector",
    "ConnectError",
    "ConnectTimeout",
    "ConnectionRefused",
    "gaierror",
    "InvalidURL",
    "LocalProtocol",
    "PoolTimeout",
    "SSL",
    "UnsupportedProtocol",
    "Write",
)
"""How the errors begin of what never reached the provider."""
_SAID_IN_STREAMS = ("APIError", "StreamFailed")
"""What is raised for an error that came instead of a piece, with no status of its own."""
_TRANSPORTS = ("httpx", "httpcore", "aiohttp", "requests", "ssl", "socket", "anyio", "h11")


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The call that failed: of which model, how much it wrote and may read, and where its key comes from.
    `place` is where the user says that it is, with what says so."""

    model: str
    needed: int
    limit: int
    keys: tuple[str, ...] = ()
    place: str = ""


def translated(error: Exception, subject: FailedCall) -> CleverAgentsError:
    """Ours for theirs."""
    if isinstance(error, CleverAgentsError):
        return error
    status = _status(error)
    said = _said(error)
    if _is_too_long(error, status, said):
        return _too_long(subject, said)
    if status is not None:
        return failure_of_status(subject, status, said, _retry_after(error))
    if _timed_out(error):
        return ModelUnavailable(subject.model, "no answer in time")
    if _is_transport(error):
        deepest = [*_causes(error)][-1]
        if subject.place:
            where = f"the connection to {_shortened(subject.place)} failed"
            return ModelUnavailable(subject.model, f"{where} ({_brief(deepest)}): is the server running?")
        return ModelUnavailable(subject.model, f"the connection failed ({_brief(deepest)})")
    return ModelUnavailable(subject.model, f"its answer is not understood ({said})")


def may_have_cost(error: Exception) -> bool:
    """Whether the provider had the whole request and did not turn it down: then it may have worked at it."""
    if _status(error) is not None:
        return False
    names = {type(cause).__name__ for cause in _causes(error)}
    return not any(name.startswith(_NOT_SENT) for name in names)


def failure_of_status(
    subject: FailedCall, status: int, said: str, retry_after: float | None = None
) -> CleverAgentsError:
    """What an HTTP status means to the caller."""
    said = _shortened(said)
    if status in (400, 413, 422, 500) and _TOO_LONG.search(said):
        return _too_long(subject, said)
    meant = _meant(status, said)
    if meant in _AGAIN or meant >= 500:
        what = "too many requests" if status == 429 else f"HTTP {status}"
        return ModelUnavailable(subject.model, f"{what} ({said})", retry_after)
    remedy = _REMEDIES.get(meant, "the request is not accepted")
    near = PriceList().nearest(subject.model) if meant == 404 and not subject.place else None
    if near is not None:
        remedy += f"; did you mean {near}?"
    keys = " or ".join(subject.keys) or "its key"
    return ModelRefused(subject.model, f"{remedy.format(keys=keys)} (HTTP {status}: {said})")


def _meant(status: int, said: str) -> int:
    """Some say with one status what others say with another."""
    if any(word in said for word in _NO_CREDIT):
        return 402
    return 401 if any(word in said for word in _WRONG_KEY) else status


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _status(error: Exception) -> int | None:
    for cause in _causes(error):
        body = getattr(cause, "body", None)
        inner = body.get("code") if isinstance(body, Mapping) else None
        for found in (getattr(cause, "status_code", None), getattr(cause, "code", None), inner):
            if isinstance(found, int) and 400 <= found <= 599:
                return found
    return None


def _headers(error: Exception) -> Mapping[str, str]:
    for cause in _causes(error):
        headers: Any = getattr(getattr(cause, "response", None), "headers", None)
        if isinstance(headers, Mapping):
            return headers
    return {}


def _retry_after(error: Exception) -> float | None:
    headers = _headers(error)
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            return _seconds_until(value)
        if not isfinite(seconds):  # guard: nobody can wait for nan, or tell it
            return None
        return max(seconds, 0.0)
    match = _RETRY_DELAY.search(str(error))
    return float(match.group(1)) if match else None


def _seconds_until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):  # a year that no calendar has
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0.0)


def _is_too_long(error: Exception, status: int | None, said: str) -> bool:
    # By name, because the class is in a library that need not be installed.
    names = {cls.__name__ for cause in _causes(error) for cls in type(cause).__mro__}
    if "ContextOverflowError" in names:
        return True
    return status is None and not names.isdisjoint(_SAID_IN_STREAMS) and _TOO_LONG.search(said) is not None


def _too_long(subject: FailedCall, said: str) -> ContextTooLong:
    """With the provider's numbers where it says them: the smaller is what it reads, the larger what came."""
    numbers = sorted(int(number) for number in _NUMBER.findall(said.replace(",", "")))
    if len(numbers) >= 2:
        return ContextTooLong(subject.model, numbers[-1], numbers[0])
    return ContextTooLong(subject.model, max(subject.needed, subject.limit + 1), subject.limit)


def _timed_out(error: Exception) -> bool:
    return any(
        isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__ for cause in _causes(error)
    )


def _is_transport(error: Exception) -> bool:
    return any(
        isinstance(cause, OSError)
        or type(cause).__module__.startswith(_TRANSPORTS)
        or "APIConnectionError" in type(cause).__name__
        for cause in _causes(error)
    )


def _said(error: Exception) -> str:
    """What the provider said, with the word it has for it."""
    said = next((_shortened(said) for said in map(_message, _causes(error)) if said), None) or _brief(error)
    codes = (getattr(cause, "code", None) for cause in _causes(error))
    code = next((code for code in codes if isinstance(code, str) and code not in said), None)
    # Behind the message: `invalid_api_key: …` would be a name with its value, and masked.
    return f"{said} ({code})" if code else said


def _brief(error: BaseException) -> str:
    return _shortened(str(error)) or type(error).__name__


def _message(error: BaseException) -> str | None:
    """The provider's own words, within what the library made of them."""
    for said in (getattr(error, "body", None), getattr(error, "details", None)):
        inner = said.get("error", said) if isinstance(said, Mapping) else None
        message = inner.get("message") if isinstance(inner, Mapping) else None
        if isinstance(message, str) and message:
            return message
    return None


def _shortened(text: str) -> str:
    said = redact_text(" ".join(text.split()))
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
