"""Keeps secrets out of whatever people or programs get to read.

Two ways in, because neither suffices alone: by *name* (a field called `password`, or `PGPASSWORD=` within a
text) and by *shape* (a URL with a password in it, a bearer token, a provider's key). A secret that is known
exactly is removed wherever it stands; whoever gets hold of one (a model's key, say) tells `keep_secret`, and
from then on nothing in this process prints it. Redacting too much costs a look at the configuration;
redacting too little cannot be undone.

That does not hold for the contents of files, which a model reads and writes back: `password = load()` is no
secret, and masked it would be lost. So there are two levels. `redact` and `redact_text` go by name and by
shape: for logs, errors, goals, command lines and what commands print. `redact_content` and
`redact_content_text` are for the contents of files: only known secrets, and shapes that nothing else has.
These mask within lines, so that every line keeps its number.

A hostile text must not stall us, and a long secret must not stick out. So every expression either cannot
fail once it reads on, or reads a bounded stretch, or is ended by the next place where it could begin: the
work stays proportional to the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = [
    "MASK",
    "keep_secret",
    "kept_secrets",
    "redact",
    "redact_content",
    "redact_content_text",
    "redact_text",
    "url_password",
]

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

# No word of any language, whatever follows.
_TELLING = (
    r"gh[pousr]_[A-Za-z0-9]{20,}+|glpat-[A-Za-z0-9_-]{16,}+|hf_[A-Za-z0-9]{20,}+|AIza[A-Za-z0-9_-]{30,}+"
    r"|A[KS]IA[A-Z0-9]{16}|xox[abeprs]-[A-Za-z0-9-]{10,}+|npm_[A-Za-z0-9]{30,}+"
)
_WEB_TOKEN = re.compile(
    r"((?<![A-Za-z0-9_-]))eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"
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
        r"((?<![A-Za-z0-9]))(?:(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}+|github_pat_\w{20,}+|" + _TELLING + ")"
    ),
    _WEB_TOKEN,
    re.compile(
        r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?:(?=-----END [A-Z ]{0,30}PRIVATE KEY-----)|\Z)",
        re.DOTALL,
    ),
)

# The same for the contents of files, where `sk-loading-indicator` is a style, `pk_members` a constraint, and
# `{password}` is filled in elsewhere.
_CONTENT_SHAPES = (
    re.compile(
        r"(://[^\s/:@\"']*+:)(?!%[s(]|(?i:pass(?:word|wd)?|pw)@)[^\s\"'/{}$<>`\\]{1,256}(?=@[A-Za-z0-9\[])"
    ),
    re.compile(r"([?&](?:sig|x-amz-signature)=)[A-Za-z0-9%+/=_-]{40,}+", re.IGNORECASE),
    # A long stretch without a separator, perhaps after a few short ones, as in `sk-proj-…`.
    re.compile(
        r"((?<![A-Za-z0-9]))(?:sk-(?=(?:[A-Za-z0-9]{0,15}+[-_]){0,8}?[A-Za-z0-9]{16})[A-Za-z0-9_-]++"
        r"|[spr]k_(?:live|test)_[A-Za-z0-9]{16,}+|sk_[0-9a-f]{32,}+|github_pat_[A-Za-z0-9]{16,}+\w*+|"
        + _TELLING
        + ")"
    ),
    _WEB_TOKEN,
)

# A private key in full, or as much of it as there is. A line may end as it does within a string: `\n`; and it
# may begin as in a diff, or with its number.
_GAP = r"(?:\\[nr]|[\s\"',+]|(?<=[\r\n])(?:-(?!-)|[0-9]{1,7}\t))"
_KEY_BLOCK = re.compile(
    rf"""
    ( -----BEGIN\ [A-Z ]{{0,30}}PRIVATE\ KEY----- (?= [ \t]{{0,4}}+[\r\n] | \\[nr] ) {_GAP}{{1,40}}+ )
    ( (?: [A-Z][A-Za-z-]{{3,9}}: [^\r\n\\]{{1,80}}+ {_GAP}{{1,40}}+ ){{0,3}}+ )
    (
        (?: [A-Za-z0-9+/=]++ {_GAP}{{1,40}}+ ){{1,1000}}+ (?= -{{5,6}}END )
      | [A-Za-z0-9+/]{{40,}}+ =* (?: {_GAP}{{1,40}}+ [A-Za-z0-9+/=]{{40,}}+ ){{0,1000}}+
    )
    """,
    re.VERBOSE,
)
_KEY_LINE = re.compile(r"(?<!\\)[A-Za-z0-9+/=]++")


def keep_secret(secret: str) -> None:
    """From now on this process masks the secret wherever it redacts. It is held in memory alone."""
    if len(secret) >= _SHORTEST:
        _kept[secret] = None


def kept_secrets() -> tuple[str, ...]:
    """Those that this process masks, for who has to look for them in what comes in pieces."""
    return tuple(_kept)


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """The same text with everything that looks like a secret, or is one of `secrets`, masked."""
    text = _without_known(text, secrets)
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


def redact_content_text(text: str) -> str:
    """The same text of a file with known secrets masked, and what can only be one; names mean nothing."""
    text = _without_known(text, ())
    for shape in _CONTENT_SHAPES:
        text = shape.sub(lambda match: match.group(1) + MASK, text)
    return _KEY_BLOCK.sub(_without_key, text)


def redact_content(value: object, *, depth: int = 0) -> object:
    """The same value, through mappings and sequences, with each text of it masked as that of a file is."""
    if isinstance(value, str):
        return redact_content_text(value)
    if depth >= _DEPTH_LIMIT:
        return redact_content_text(repr(value))
    if isinstance(value, Mapping):
        return {redact_content(key): redact_content(item, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_content(item, depth=depth + 1) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return redact_content_text(str(value))


def url_password(url: str) -> str | None:
    """The password inside a URL as it was written, or None; so that it can be masked wherever it turns up."""
    match = _URL.search(url)
    return (match.group(2).rpartition("@")[0] or None) if match else None


def _without_known(text: str, secrets: Collection[str]) -> str:
    for secret in sorted({*secrets, *tuple(_kept)}, key=len, reverse=True):
        if secret:
            text = text.replace(secret, MASK)
    return text


def _without_key(match: re.Match[str]) -> str:
    begin, facts, body = match.groups()
    return begin + facts + _KEY_LINE.sub(MASK, body)


def _without_password(match: re.Match[str]) -> str:
    password, at, host = match.group(2).rpartition("@")
    return f"{match.group(1)}{MASK}{at}{host}" if password else match.group()


def _redact_key(key: object, secrets: Collection[str]) -> object:
    return redact_text(key, secrets) if isinstance(key, str) else key


def _is_secret_name(name: object) -> bool:
    return isinstance(name, str) and _SECRET_NAME.search(name) is not None
