"""Translation of provider errors into CleverAgents errors.

Only this module knows how libraries and providers report errors. Libraries use different classes but agree on
HTTP, so the first HTTP status in the chain of causes decides. An error within a stream has no HTTP status;
its name decides instead. Any other error is a failed connection or an invalid response, which may be retried.
A refusal by the provider is not retried.

Every message states the failure, with the provider's status and text, and a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from cleveragents.core.errors import (
    CleverAgentsError,
    ContextTooLong,
    ModelRefused,
    ModelUnavailable,
    UsageLimited,
)
from cleveragents.core.text.redaction import redact_text
from cleveragents.models.catalogue import PriceList
from cleveragents.models.usage_limits import UsageLimit, usage_limit_in

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
_FILTERED = (
    "content_filter",
    "content_policy_violation",
    "ResponsibleAIPolicyViolation",
    "PROHIBITED_CONTENT",
    "blocked by content filtering policy",
)
_NO_ANSWER = 451
"""The status for a request that a content filter rejected. Providers use 400 for it."""
_REMEDIES = {
    401: "the API key was rejected; check {keys}",
    402: "the account has no credit left; add credit at the provider, or choose another model",
    403: "the API key lacks permission; check {keys}, and whether its account may use the model",
    404: "model not found; check its name and the base URL",
    _NO_ANSWER: "the content filter of the provider rejected the request; rephrase it",
}
_NAMED = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP statuses of errors within a stream, by their names at Anthropic and OpenAI."""
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
"""Name prefixes of errors raised before the request reaches the provider."""
_SAID_IN_STREAMS = ("APIError", "StreamFailed")
"""Names of errors that arrive within a stream and have no HTTP status."""
_TRANSPORTS = ("httpx", "httpcore", "aiohttp", "requests", "ssl", "socket", "anyio", "h11")


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The facts of a failed call: the model, the tokens the request needs, the model's limit, and the
    environment variables for the key. `place` is the configured base URL and the setting it comes from.
    """

    model: str
    needed: int
    limit: int
    keys: tuple[str, ...] = ()
    place: str = ""


def translated(error: Exception, subject: FailedCall) -> CleverAgentsError:
    """Convert an error of a provider's library into a CleverAgents error."""
    if isinstance(error, CleverAgentsError):
        return error
    status = _status(error)
    said = _said(error)
    if _is_too_long(error, status, said):
        return _too_long(subject, said)
    if status is not None:
        limit = usage_limit_in(
            status,
            f"{said} {error}",
            headers=_headers(error),
            retry_after=_retry_after(error),
            now=datetime.now(UTC),
        )
        return failure_of_status(subject, status, said, _retry_after(error), limit)
    if _timed_out(error):
        return ModelUnavailable(subject.model, "the request timed out")
    if _is_transport(error):
        deepest = [*_causes(error)][-1]
        if subject.place:
            failed = f"the connection to {_shortened(subject.place)} failed ({_brief(deepest)})"
            return ModelUnavailable(subject.model, f"{failed}; check that the server is running")
        return ModelUnavailable(subject.model, f"the connection failed ({_brief(deepest)})")
    return ModelUnavailable(subject.model, f"unexpected response ({said})")


def may_have_cost(error: Exception) -> bool:
    """Return whether the provider may charge for the call: it received the whole request and did not refuse
    it.
    """
    if _http_status(error) is not None:
        return False
    names = {type(cause).__name__ for cause in _causes(error)}
    return not any(name.startswith(_NOT_SENT) for name in names)


def failure_of_status(
    subject: FailedCall,
    status: int,
    said: str,
    retry_after: float | None = None,
    limit: UsageLimit | None = None,
) -> CleverAgentsError:
    """Return the error for an HTTP status. `limit` is the usage limit that the response reports."""
    said = _shortened(said)
    if status == 413 or (status in (400, 422, 500) and _TOO_LONG.search(said)):
        return _too_long(subject, said)
    meant = _meant(status, said)
    # An account without credit gets none by waiting, unless the provider states when.
    if limit is not None and (limit.seconds is not None or meant != 402):
        return UsageLimited(subject.model, said, limit.seconds, status=status)
    if meant in _AGAIN or meant >= 500:
        problem = f"{_temporary(status, said)} (HTTP {status}: {said})"
        return ModelUnavailable(subject.model, problem, retry_after, status=status)
    remedy = _REMEDIES.get(meant, "the provider rejected the request")
    near = PriceList().nearest(subject.model) if meant == 404 and not subject.place else None
    if near is not None:
        remedy += f"; did you mean {near}?"
    keys = " or ".join(subject.keys) or "its key"
    return ModelRefused(subject.model, f"{remedy.format(keys=keys)} (HTTP {status}: {said})", status=meant)


def _temporary(status: int, said: str) -> str:
    """Return the text for a temporary failure."""
    if status == 429:
        return "too many requests"
    if status == 529 or "overloaded" in said.lower():
        return "the provider is overloaded"
    return "the provider failed" if status >= 500 else "the provider did not accept the request"


def _meant(status: int, said: str) -> int:
    """Return the usual status for this error. Providers use different statuses for the same problem."""
    if any(word in said for word in _NO_CREDIT):
        return 402
    if any(word in said for word in _WRONG_KEY):
        return 401
    return _NO_ANSWER if status == 400 and any(word in said for word in _FILTERED) else status


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _status(error: Exception) -> int | None:
    """Return the HTTP status; for an error within a stream, the status that its name stands for."""
    found = _http_status(error)
    inners = [_inner(getattr(cause, "body", None)) for cause in _causes(error)]
    names = [inner.get(key) for inner in inners for key in ("code", "type")]
    named = (_NAMED[name] for name in names if isinstance(name, str) and name in _NAMED)
    return found if found is not None else next(named, None)


def _http_status(error: Exception) -> int | None:
    for cause in _causes(error):
        inner = _inner(getattr(cause, "body", None))
        reported = (getattr(cause, "status_code", None), getattr(cause, "code", None), inner.get("code"))
        for found in reported:
            if isinstance(found, int) and 400 <= found <= 599:
                return found
    return None


def _inner(body: object) -> Mapping[str, Any]:
    """Return the error in the body of a response; empty if there is none."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


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
        if not isfinite(seconds):  # guard: nan cannot be waited for or stored
            return None
        return max(seconds, 0.0)
    match = _RETRY_DELAY.search(str(error))
    return float(match.group(1)) if match else None


def _seconds_until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):  # no such year
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0.0)


def _is_too_long(error: Exception, status: int | None, said: str) -> bool:
    # Compared by name: the library that defines the class may not be installed.
    names = {cls.__name__ for cause in _causes(error) for cls in type(cause).__mro__}
    if "ContextOverflowError" in names:
        return True
    return status is None and not names.isdisjoint(_SAID_IN_STREAMS) and _TOO_LONG.search(said) is not None


def _too_long(subject: FailedCall, said: str) -> ContextTooLong:
    """Return the error. If the provider's message contains two numbers, the smaller is the limit, and the
    larger is the size of the request.
    """
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
    """Return the provider's message, followed by its error code."""
    said = next((_shortened(said) for said in map(_message, _causes(error)) if said), None) or _brief(error)
    codes = (getattr(cause, "code", None) for cause in _causes(error))
    code = next((code for code in codes if isinstance(code, str) and code not in said), None)
    # The code follows the message: `invalid_api_key: …` would look like a secret and be masked.
    return f"{said} ({code})" if code else said


def _brief(error: BaseException) -> str:
    return _shortened(str(error)) or type(error).__name__


def _message(error: BaseException) -> str | None:
    """Return the provider's message inside the library's error."""
    for said in (getattr(error, "body", None), getattr(error, "details", None)):
        message = _inner(said).get("message")
        if isinstance(message, str) and message:
            return message
    return None


def _shortened(text: str) -> str:
    said = redact_text(" ".join(text.split()))
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
