"""Keeps secrets out of whatever people or programs get to read.

A secret is found in three ways, because none suffices alone: by its value where that is known
(`known_secrets`), by the name before it, and by its shape (`secret_patterns`). All are looked for in the text
as it was written; what they find is merged where it overlaps or touches, and masked once. So a known value
within a longer secret never leaves the rest of it. Redacting too much costs a look at the configuration;
redacting too little cannot be undone.

That does not hold for the contents of files, which a model reads and writes back: `password = load()` is no
secret, and masked it would be lost. So there are two levels. `redact` and `redact_text` go by name and by
shape: for logs, errors, goals, command lines and what commands print. `redact_content` and
`redact_content_text` are for the contents of files: only known secrets, and shapes that nothing else has.
These mask within lines, so that every line keeps its number.

What a person approves, trusts or reviews must be the exact text: a name or a shape could hide code from
them, as in `PASSWORD="$(rm -rf .)" ls`. There, `redact_known` and `redact_known_text` mask only known values.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping

from cleveragents.core.text.known_secrets import known_values, value_spans
from cleveragents.core.text.secret_patterns import SECRET_NAME, find_in_content, find_in_text, url_passwords

__all__ = [
    "MASK",
    "Span",
    "end_of_cut_secret",
    "mask_spans",
    "redact",
    "redact_content",
    "redact_content_text",
    "redact_known",
    "redact_known_text",
    "redact_text",
    "spans_around",
    "url_password",
]

MASK = "***"

Span = tuple[int, int]

_DEPTH_LIMIT = 16
_LINE = re.compile(r"[^\r\n]+")


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """The same text with everything that looks like a secret, or is one of `secrets`, masked."""
    found = [(start, end) for _, start, end in find_in_text(text)]
    return mask_spans(text, [*found, *value_spans(text, known_values().union(secrets))])


def redact(value: object, secrets: Collection[str] = (), *, depth: int = 0) -> object:
    """The same value, through mappings and sequences, with secrets masked by name and by shape."""
    if isinstance(value, str):
        return redact_text(value, secrets)
    if depth >= _DEPTH_LIMIT:
        return redact_text(repr(value), secrets)
    if isinstance(value, Mapping):
        return {
            _redact_key(key, secrets): MASK
            if item and _is_secret_name(key)
            else redact(item, secrets, depth=depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item, secrets, depth=depth + 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redact_text(str(value), secrets)


def redact_content_text(text: str) -> str:
    """The same text of a file with known secrets masked, and what can only be one; names mean nothing."""
    found = [(start, end) for _, start, end in find_in_content(text)]
    return mask_spans(text, [*found, *value_spans(text, known_values())])


def redact_content(value: object) -> object:
    """The same value, through mappings and sequences, with each text of it masked as that of a file is."""
    return _each_text(value, redact_content_text)


def redact_known_text(text: str) -> str:
    """Return the text with known secrets masked and everything else as it is. Line breaks are kept."""
    spans = value_spans(text, known_values())
    return mask_spans(text, [line.span() for span in spans for line in _LINE.finditer(text, *span)])


def redact_known(value: object) -> object:
    """Return the value, through mappings and sequences, with known secrets masked in each text."""
    return _each_text(value, redact_known_text)


def _each_text(value: object, masked: Callable[[str], str], depth: int = 0) -> object:
    if isinstance(value, str):
        return masked(value)
    if depth >= _DEPTH_LIMIT:
        return masked(repr(value))
    if isinstance(value, Mapping):
        return {_each_text(key, masked): _each_text(item, masked, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each_text(item, masked, depth + 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return masked(str(value))


def url_password(url: str) -> str | None:
    """The password inside a URL as it was written, or None; so that it can be masked wherever it turns up."""
    return next(iter(url_passwords(url)), None)


def mask_spans(text: str, spans: Iterable[Span], first: int = 0, last: int | None = None) -> str:
    """The text from `first` to `last` with the mask in place of each span; of those that overlap or touch,
    one. No span may begin before `first` or end after `last`."""
    pieces: list[str] = []
    for start, end in _merged(spans):
        pieces += (text[first:start], MASK)
        first = end
    pieces.append(text[first:last])
    return "".join(pieces)


def spans_around(known: Collection[Span], others: Iterable[Span]) -> list[Span]:
    """The known spans, each with all of the others that overlap or touch it: a known value within a longer
    secret hides all of it."""
    starts = sorted(start for start, _ in known)
    merged = _merged([*known, *others]) if known else []
    return [span for span in merged if bisect_left(starts, span[0]) < bisect_left(starts, span[1])]


def end_of_cut_secret(before: str, behind: str) -> int:
    """Return how many characters of `behind` belong to a secret that begins in `before`, by name or by shape.

    Without `before` the rest of such a secret could not be recognized, so it must not be kept either.
    """
    first = end = len(before)
    for match in sorted(find_in_text(before + behind)):
        if match.begin < end:
            end = max(end, match.end)
    return end - first


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _redact_key(key: object, secrets: Collection[str]) -> object:
    return redact_text(key, secrets) if isinstance(key, str) else key


def _is_secret_name(name: object) -> bool:
    return isinstance(name, str) and SECRET_NAME.search(name) is not None
