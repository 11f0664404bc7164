"""Keeps secrets out of whatever people or programs get to read.

Two ways in, because neither suffices alone: by *name* (a field called `password`) and by *shape* (a URL with
a password in it, a bearer token, a provider's key). A secret that is known exactly is removed wherever it
stands. Redacting too much costs a look at the configuration; redacting too little cannot be undone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = ["MASK", "redact", "redact_text", "url_password"]

MASK = "***"

_DEPTH_LIMIT = 16

_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase)|secret|(?:^|[_.-])token$|api[_-]?key|authorization|credential|private[_-]?key|cookie",
    re.IGNORECASE,
)

# Each keeps its first group and masks its second. Quantifiers are bounded: a hostile text must not stall us.
_SHAPES = (
    # The password runs to the last "@": people write "@" and "/" in passwords without encoding them.
    re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]{1,40}://[^\s/:@\"']{0,256}:)([^\s\"']{1,512})(?=@)"),
    re.compile(r"([?&](?:password|sslpassword|token|secret|api_?key)=)([^\s&\"']{1,512})", re.IGNORECASE),
    re.compile(
        r"(\b(?:password|passwd|api_?key|secret)\s{0,4}[=:]\s{0,4})([^\s,;&\"']{3,512})", re.IGNORECASE
    ),
    re.compile(r"(\b(?:Bearer|Basic)\s{1,4})([A-Za-z0-9._~+/=-]{8,2048})"),
    re.compile(
        r"(\b)((?:sk|pk|rk)-[A-Za-z0-9_-]{16,256}|gh[pousr]_[A-Za-z0-9]{20,255}"
        r"|AKIA[A-Z0-9]{16}|xox[abprs]-[A-Za-z0-9-]{10,255})"
    ),
)


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """The same text with everything that looks like a secret, or is one of `secrets`, masked."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    for shape in _SHAPES:
        text = shape.sub(lambda match: match.group(1) + MASK, text)
    return text


def redact(value: object, secrets: Collection[str] = (), *, depth: int = 0) -> object:
    """The same value, through mappings and sequences, with secrets masked by name and by shape."""
    if isinstance(value, str):
        return redact_text(value, secrets)
    if depth >= _DEPTH_LIMIT:
        return redact_text(repr(value), secrets)
    if isinstance(value, Mapping):
        return {
            key: MASK if item and _is_secret_name(key) else redact(item, secrets, depth=depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item, secrets, depth=depth + 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redact_text(str(value), secrets)


def _is_secret_name(name: object) -> bool:
    return isinstance(name, str) and _SECRET_NAME.search(name) is not None


def url_password(url: str) -> str | None:
    """The password inside a URL as it was written, or None; so that it can be masked wherever it turns up."""
    match = _SHAPES[0].search(url)
    return match.group(2) if match else None
