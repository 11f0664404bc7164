"""Keeps secrets out of whatever people or programs get to read.

Two ways in, because neither suffices alone: by *name* (a field called `password`, or `PGPASSWORD=` within a
text) and by *shape* (a URL with a password in it, a bearer token, a provider's key). A secret that is known
exactly is removed wherever it stands; whoever gets hold of one (a model's key, say) tells `keep_secret`, and
from then on nothing in this process prints it. Redacting too much costs a look at the configuration;
redacting too little cannot be undone.

A hostile text must not stall us, and a long secret must not stick out. So every expression either cannot
fail once it reads on, or reads a bounded stretch, or is ended by the next place where it could begin: the
work stays proportional to the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = ["MASK", "keep_secret", "redact", "redact_text", "url_password"]

MASK = "***"

_DEPTH_LIMIT = 16

_SHORTEST = 8
"""A shorter secret would be found within ordinary words, and all of them masked."""

# Only ever added to, in one step each; and read in one step. So no thread needs a lock.
_kept: dict[str, None] = {}

_WORDS = (
    r"pass(?:word|wd|phrase)(?![_-]?less)|secret|api[_-]?key|(?:private|access|account|signing|encryption)"
    r"[_-]?key|authorization|credential"
)
_SECRET_NAME = re.compile(rf"{_WORDS}|token$|[_-]pwd$|cookie", re.IGNORECASE)

# The password runs to the last "@": people write "@" and "/" in passwords without encoding them.
_URL = re.compile(r"(://[^\s/:@\"']*+:)([^\s\"']++)")

# A secret word, perhaps with a tail as in `SECRET_KEY`, a separator, and a value: within quotes, which may be
# escaped and may never be closed, or up to where a bare value ends.
_NAMED = re.compile(
    rf"""
    (
        (?: (?i:{_WORDS}) (?: s\b | [_0-9A-Z]\w{{0,40}}+ )?+ | (?i:token|(?<=[_;-])pwd) )
        \\{{0,3}}["']?  \s{{0,4}}+  [:=]{{1,2}}+  >?  \s{{0,4}}+
        (?:
            [bru]{{0,2}}  (?P<quote> \\{{0,3}}["'] )  (?! (?P=quote) )
          | (?! (?:None|null|NULL|[Tt]rue|[Ff]alse)\b )  (?= [^\s,;&"']{{3}} )
        )
        (?: (?i:Bearer|Basic|Digest|Token|ApiKey|Negotiate) \s{{1,4}}+ (?! [\s"'] ) )?+
    )
    (?(quote)
        (?: (?: (?! (?P=quote) ) (?: \\++. | [^\\] ) ){{1,8192}}+ (?= (?P=quote) ) | [^\r\n]++ )
      | [^\s,;&"']++ (?: (?<=\() ["'][^"'\r\n]*+ | ["'][^\s,;&"')\]}}]++ )*+
    )
    """,
    re.VERBOSE | re.DOTALL,
)

# Each keeps its first group and masks the rest.
_SHAPES = (
    _NAMED,
    re.compile(r"(\b(?:set-)?cookie\\{0,3}[\"']?\s{0,4}:\s{0,4}[\"']?)[^\s\"'][^\r\n\"']*+", re.IGNORECASE),
    re.compile(r"([?&](?:sig|signature|key|x-amz-signature)=)[^\s&\"']{8,}+", re.IGNORECASE),
    # Not the ordinary words, as in "basic authentication".
    re.compile(
        r"(\b(?:bearer|basic)\s{1,4}+)(?![a-z]{1,14}+(?![\w.~+/=-]))[a-z0-9._~+/=-]{8,}+", re.IGNORECASE
    ),
    re.compile(
        r"((?<![A-Za-z0-9]))(?:(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}+|gh[pousr]_[A-Za-z0-9]{20,}+"
        r"|github_pat_\w{20,}+|glpat-[A-Za-z0-9_-]{16,}+|hf_[A-Za-z0-9]{20,}+|AIza[A-Za-z0-9_-]{30,}+"
        r"|A[KS]IA[A-Z0-9]{16}|xox[abeprs]-[A-Za-z0-9-]{10,}+|npm_[A-Za-z0-9]{30,}+)"
    ),
    re.compile(r"((?<![A-Za-z0-9_-]))eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"),
    re.compile(
        r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?:(?=-----END [A-Z ]{0,30}PRIVATE KEY-----)|\Z)",
        re.DOTALL,
    ),
)


def keep_secret(secret: str) -> None:
    """From now on this process masks the secret wherever it redacts. It is held in memory alone."""
    if len(secret) >= _SHORTEST:
        _kept[secret] = None


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """The same text with everything that looks like a secret, or is one of `secrets`, masked."""
    for secret in sorted({*secrets, *tuple(_kept)}, key=len, reverse=True):
        if secret:
            text = text.replace(secret, MASK)
    text = _URL.sub(_without_password, text)
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


def url_password(url: str) -> str | None:
    """The password inside a URL as it was written, or None; so that it can be masked wherever it turns up."""
    match = _URL.search(url)
    return (match.group(2).rpartition("@")[0] or None) if match else None


def _without_password(match: re.Match[str]) -> str:
    password, at, host = match.group(2).rpartition("@")
    return f"{match.group(1)}{MASK}{at}{host}" if password else match.group()


def _redact_key(key: object, secrets: Collection[str]) -> object:
    return redact_text(key, secrets) if isinstance(key, str) else key


def _is_secret_name(name: object) -> bool:
    return isinstance(name, str) and _SECRET_NAME.search(name) is not None
