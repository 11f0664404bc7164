"""Usage limits of providers: whether a refusal is one, and when it resets.

A rate limit of some seconds is an ordinary refusal, and the call is retried. A limit that lasts longer than
`SHORT_SECONDS`, or that the provider calls a quota or a usage limit, is a usage limit: retries are useless
before it resets. Providers state the time in headers, in the body or in words. All of these are untrusted, so
unreadable and absurd times count as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import isfinite

__all__ = ["SHORT_SECONDS", "UsageLimit", "usage_limit_in"]

SHORT_SECONDS = 60.0
"""The longest wait after which a call is simply retried."""

_MOST_SECONDS = 366 * 86_400.0
_LONGEST_TEXT = 20_000
_LONGEST_NAME = 100
_STATUSES = frozenset({400, 402, 403, 429})
_NAMED = re.compile(
    r"usage[ _-]?limit|quota|session limit|free-models-per-day"
    r"|\b(?:daily|weekly|monthly|hourly|\d+[ -]hour)\b(?: \w+){0,2} limit"
    r"|(?:requests|tokens) per (?:day|week|month|hour)|\b[RT]PD\b",
    re.IGNORECASE,
)
_SHORT = re.compile(
    r"per[ _-]?(?:min(?:ute)?|sec(?:ond)?)\b|PerMinute|concurren|slow down|resource has been exhausted",
    re.IGNORECASE,
)
"""Words of ordinary rate limits, which some providers call quotas, too."""
_PER_DAY = re.compile(r"PerDay|per[ -]day|\b[RT]PD\b")
_DURATION = r"(?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|d|days?|h|hours?|m|minutes?|s|seconds?)(?![a-z]),?\s*)+"
_IN = re.compile(rf"(?:again|retry|resets?|available)(?:\s\w+){{0,3}}?\s+in\s+({_DURATION})", re.IGNORECASE)
_ON = re.compile(
    r"(?:regain access|resets?|available again|try again)(?:\s\w+){0,2}?\s+(?:on|at|after)\s+"
    r"(\d{4}-\d\d-\d\d(?:(?:T| at |\s)\d\d:\d\d(?::\d\d)?)?)",
    re.IGNORECASE,
)
_FIELD = re.compile(r"resets?_(?:in_seconds|at|after)\W{1,4}(\d{1,13}(?:\.\d+)?)")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|mil|[dhms])", re.IGNORECASE)
_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_REMAINING = re.compile(r"(?:(.+-)?ratelimit)-(?:(.+)-)?remaining(?:-(.+))?")
_EPOCH = 1e9
_EPOCH_MILLISECONDS = 1e12
_UNIFIED = "anthropic-ratelimit-unified-"


@dataclass(frozen=True, slots=True)
class UsageLimit:
    """A usage limit. `seconds` is the time until it resets; None if the provider does not state it."""

    seconds: float | None


def usage_limit_in(
    status: int,
    text: str,
    *,
    headers: Mapping[str, str] | None = None,
    retry_after: float | None = None,
    now: datetime,
) -> UsageLimit | None:
    """Return the usage limit that a refusal reports; None if it reports none.

    `text` is the error with its body, `retry_after` the seconds of a `Retry-After` header.
    """
    if status not in _STATUSES:
        return None
    text = text[:_LONGEST_TEXT]
    named = _NAMED.search(text) is not None and not (_SHORT.search(text) and not _PER_DAY.search(text))
    if status != 429 and not named:
        return None
    seconds = _reset_seconds(text, headers or {}, retry_after, now)
    if named and _PER_DAY.search(text) and (seconds is None or seconds <= SHORT_SECONDS):
        return UsageLimit(_until_google_midnight(now) if "PerDay" in text else None)
    if seconds is not None and seconds > SHORT_SECONDS:
        return UsageLimit(seconds)
    # A missing credit or a wrong request does not end by itself.
    return UsageLimit(None) if status == 429 and named and seconds is None else None


def _reset_seconds(
    text: str, headers: Mapping[str, str], retry_after: float | None, now: datetime
) -> float | None:
    """Return the seconds until the reset: as the server computed them, else from the message and headers."""
    if retry_after is not None:
        return _sound(retry_after)
    for found in (_FIELD.search(text), _ON.search(text)):
        if found is not None:
            return _seconds(found.group(1).replace(" at ", "T"), now)
    match = _IN.search(text)
    if match is not None:
        return _sound(_duration(match.group(1)))
    return max(_header_seconds(headers, now), default=None)


def _header_seconds(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    """Yield the seconds until each exhausted limit resets. Limits that are not exhausted are ignored: every
    response states their resets, too.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    for name, value in lower.items():
        if len(name) > _LONGEST_NAME:  # the search takes time quadratic in the length
            continue
        match = _REMAINING.fullmatch(name)
        if match is not None and value.strip() == "0":
            reset = _seconds(lower.get(name.replace("remaining", "reset"), ""), now)
            if reset is not None:
                yield reset
    if lower.get(f"{_UNIFIED}status") == "rejected":
        reset = _seconds(lower.get(f"{_UNIFIED}reset", ""), now)
        if reset is not None:
            yield reset


def _seconds(value: str, now: datetime) -> float | None:
    """Parse a number, a duration (`6m0s`), a date or a Unix time, and return the seconds from now."""
    value = value.strip()
    try:
        number = float(value)
    except ValueError:
        if re.fullmatch(_DURATION, value):
            return _sound(_duration(value))
        moment = _moment(value)
        return None if moment is None else _sound((moment - now).total_seconds())
    if number >= _EPOCH_MILLISECONDS:
        number = number / 1000
    return _sound(number - now.timestamp() if number >= _EPOCH else number)


def _moment(value: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        try:
            found = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _duration(value: str) -> float:
    return sum(
        float(number) * (0.001 if unit.lower() in ("ms", "mil") else _UNITS[unit[0].lower()])
        for number, unit in _PART.findall(value)
    )


def _sound(seconds: float) -> float | None:
    """Return the seconds, at least 0; None for an absurd time."""
    if not isfinite(seconds) or seconds > _MOST_SECONDS:  # guard: it cannot be waited for
        return None
    return max(seconds, 0.0)


def _until_google_midnight(now: datetime) -> float:
    """Return the seconds until the daily quotas of Gemini are reset in any season: midnight in California."""
    reset = now.astimezone(UTC).replace(hour=8, minute=0, second=0, microsecond=0)
    return (reset - now).total_seconds() % timedelta(days=1).total_seconds() or 86_400.0
