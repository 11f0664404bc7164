"""Patterns that find secrets in a text by name and by shape.

By *name*: a value after `password=` or `PGPASSWORD:`. By *shape*: a URL with a password, a bearer token, the
key of a provider. The functions search the original text and do not change it: `redaction` merges their
matches and masks them once.

A hostile text must not stall the search, and no part of a long secret may stay visible. So every expression
either cannot fail once it has started, or reads a limited number of characters, or stops at the next place
where it could start again. The time is linear in the length of the text.

Before Python 3.11.5, a possessive quantifier after a group, as in `(?:a|b)*+`, could match too little
(gh-106052), so the expressions use atomic groups there: `(?>(?:a|b)*)`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "LONGEST_WORD",
    "SECRET_NAME",
    "SecretMatch",
    "end_of_masking",
    "find_in_content",
    "find_in_text",
    "undecided_from",
    "url_passwords",
]

LONGEST_WORD = 8192
"""The maximum length of a name or a quoted value; a longer stretch without a space starts no match."""

_OVERLAP = 128
"""The maximum length of a name with its separators and quotes: within this distance of the end of a value the
next one may begin.
"""


class SecretMatch(NamedTuple):
    """A secret in a text: the match begins at `begin`, and `start` to `end` is masked."""

    begin: int
    start: int
    end: int


_WORDS = (
    r"pass(?:word|wd|phrase)(?![_-]?less)|secret|api[_-]?key|api[ ]key[ ]provided"
    r"|(?:private|access|account|signing|encryption)[_-]?key|authorization|credential"
)
SECRET_NAME = re.compile(rf"{_WORDS}|token$|[_-]pwd$|cookie", re.IGNORECASE)

# The password extends to the last "@": people write "@" and "/" in passwords without encoding them.
_URL = re.compile(r"(://[^\s/:@\"']{0,1024}+:)([^\s\"']++)")

# A secret word, possibly with a suffix as in `SECRET_KEY`, a separator, and a value: either in quotes, which
# may be escaped and may never be closed, or up to the end of a bare value.
_NAME = rf"""
    (?: (?i:{_WORDS}) (?> (?: s\b | [_0-9A-Z]\w{{0,40}}+ )? ) | (?i:token|(?<=[_;-])pwd) )
    \\{{0,3}}["']?  \s{{0,4}}+  [:=]{{1,2}}+  >?  \s{{0,4}}+
"""
_QUOTE = r"""[bru]{0,2}  (?P<quote> \\{0,3}["'] )  (?! (?P=quote) )"""
_SCHEME = r"(?i:Bearer|Basic|Digest|Token|ApiKey|Negotiate)"
_WITH_SCHEME = rf"""(?> (?: {_SCHEME} \s{{1,4}}+ (?! [\s"'] ) )? )"""
_QUOTED = r"(?: (?! (?P=quote) ) (?: \\++. | [^\\] ) )"
_LITERAL = r"(?:None|null|NULL|[Tt]rue|[Ff]alse)"
# Part of a bare value, unless it ends a command or starts the next query parameter: `&sslmode=…`.
_AMPERSAND = r"& (?! & | [A-Za-z_] [\w.%\[\]-]{0,63}+ = )"
_BARE_PART = rf"""(?<=\() ["'][^"'\r\n]*+ | ["'][^\s,;&"')\]}}]++ | {_AMPERSAND} [^\s,;&"']*+"""
# Of a bare value, 64 parts are matched at a time: each repetition takes memory until its group has matched.
_NAMED = re.compile(
    rf"""
    ( {_NAME} (?: {_QUOTE} | (?! {_LITERAL}\b )  (?= [^\s,;&"'] [^\s,;"']{{2}} ) ) {_WITH_SCHEME} )
    (?(quote)
        (?: (?> {_QUOTED}{{1,8192}} ) (?= (?P=quote) ) | [^\r\n]++ )
      | [^\s,;&"']++
        (?> (?: (?> (?: {_BARE_PART} ){{1,64}} ) )* )
    )
    """,
    re.VERBOSE | re.DOTALL,
)

# These are not words of any language, whatever follows.
_TELLING = (
    r"gh[pousr]_[A-Za-z0-9]{20,}+|glpat-[A-Za-z0-9_-]{16,}+|hf_[A-Za-z0-9]{20,}+|AIza[A-Za-z0-9_-]{30,}+"
    r"|A[KS]IA[A-Z0-9]{16}|xox[abeprs]-[A-Za-z0-9-]{10,}+|npm_[A-Za-z0-9]{30,}+"
)
_WEB_TOKEN = re.compile(
    r"((?<![A-Za-z0-9_-]))eyJ[A-Za-z0-9_-]{8,4096}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"
)

_KEY_BEGIN = "-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
_KEY_END = "-----END [A-Z ]{0,30}PRIVATE KEY-----"

# Each pattern keeps its first group and masks the rest.
_SHAPES = (
    _NAMED,
    re.compile(r"(\b(?:set-)?cookie\\{0,3}[\"']?\s{0,4}:\s{0,4}[\"']?)[^\s\"'][^\r\n\"']*+", re.IGNORECASE),
    re.compile(r"([?&](?:sig|signature|key|x-amz-signature)=)[^\s&\"']{8,}+", re.IGNORECASE),
    # Excludes ordinary words, as in "basic authentication".
    re.compile(
        r"(\b(?:bearer|basic)\s{1,4}+)(?![a-z]{1,14}+(?![\w.~+/=-]))[a-z0-9._~+/=-]{8,}+", re.IGNORECASE
    ),
    re.compile(
        r"((?<![A-Za-z0-9]))(?:(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}+|github_pat_\w{20,}+|" + _TELLING + ")"
    ),
    _WEB_TOKEN,
    re.compile(rf"({_KEY_BEGIN}).*?(?:(?={_KEY_END})|\Z)", re.DOTALL),
)

# The same for file contents, where `sk-loading-indicator` is a style, `pk_members` a constraint, and
# `{password}` a placeholder.
_CONTENT_SHAPES = (
    re.compile(
        r"(://[^\s/:@\"']*+:)(?!%[s(]|(?i:pass(?:word|wd)?|pw)@)[^\s\"'/{}$<>`\\]{1,256}(?=@[A-Za-z0-9\[])"
    ),
    re.compile(r"([?&](?:sig|x-amz-signature)=)[A-Za-z0-9%+/=_-]{40,}+", re.IGNORECASE),
    # A long stretch without a separator, possibly after a few short ones, as in `sk-proj-…`.
    re.compile(
        r"((?<![A-Za-z0-9]))(?:sk-(?=(?:[A-Za-z0-9]{0,15}+[-_]){0,8}?[A-Za-z0-9]{16})[A-Za-z0-9_-]++"
        r"|[spr]k_(?:live|test)_[A-Za-z0-9]{16,}+|sk_[0-9a-f]{32,}+|github_pat_[A-Za-z0-9]{16,}+\w*+|"
        + _TELLING
        + ")"
    ),
    _WEB_TOKEN,
)

# A complete or truncated private key. A line may end as it does within a string, with `\n`, and may start as
# in a diff or with a line number.
_GAP = r"(?>(?:\\[nr]|[\s\"',+]|(?<=[\r\n])(?:-(?!-)|[0-9]{1,7}\t)){1,40})"
_KEY_BLOCK = re.compile(
    rf"""
    ( -----BEGIN\ [A-Z ]{{0,30}}PRIVATE\ KEY----- (?= [ \t]{{0,4}}+[\r\n] | \\[nr] ) {_GAP} )
    ( (?> (?: [A-Z][A-Za-z-]{{3,9}}: [^\r\n\\]{{1,80}}+ {_GAP} ){{0,3}} ) )
    (
        (?> (?: [A-Za-z0-9+/=]++ {_GAP} ){{1,1000}} ) (?= -{{5,6}}END )
      | [A-Za-z0-9+/]{{40,}}+ =* (?> (?: {_GAP} [A-Za-z0-9+/=]{{40,}}+ ){{0,1000}} )
    )
    """,
    re.VERBOSE,
)
_KEY_LINE = re.compile(r"(?<!\\)[A-Za-z0-9+/=]++")

# The end of a text that more text could complete to a name with a value.
_NAME_AT_END = re.compile(
    rf"""
    (?:
        (?:
            (?: (?i:{_WORDS}|cookie) (?: s | [_0-9A-Z]\w{{0,40}} )? | (?i:token|(?<=[_;-])pwd) )
            \\{{0,3}}["']?  \s{{0,4}}  [:=]{{0,2}}  >?  \s{{0,4}}
            (?:
                [bru]{{0,2}} \\{{0,3}}["']? (?: {_SCHEME} \s{{0,4}} )?
              | {_LITERAL}
              | (?: [^\s,;&"'] [^\s,;"']? )?
              | {_SCHEME} \s{{0,4}}
            )
        )
      | \b(?i:bearer|basic) \s{{1,4}} [A-Za-z0-9._~+/=-]{{0,15}}
      | (?i: api [ ] (?: k | ke | key | key [ ] \w{{0,8}} )? )
      | -----BEGIN[ ][A-Z ]{{0,42}}-{{0,5}}
    )\Z
    """,
    re.VERBOSE,
)
_QUOTE_AT_END = re.compile(
    rf"{_NAME} {_QUOTE} {_WITH_SCHEME} (?> {_QUOTED}{{0,8192}} ) \\*+ \Z", re.VERBOSE | re.DOTALL
)
_AT_END = 160
_NEVER_INSIDE = (")", "]", "}", ">", "!")
_END_OF_LINE = re.compile(r"[\r\n]")
_BEGIN_OF_KEY = re.compile(_KEY_BEGIN)
_END_OF_KEY = re.compile(_KEY_END)


def find_in_text(text: str, first: int = 0) -> list[SecretMatch]:
    """Return all secrets with a known name or shape in a log, an error or the output of a command."""
    matches = [
        SecretMatch(match.start(), start, end)
        for match in _URL.finditer(text, first)
        for start, end in _password_spans(match)
    ]
    for shape in _SHAPES:
        matches += _found(shape, text, first)
    return matches


def find_in_content(text: str) -> list[SecretMatch]:
    """Return all unmistakable secrets in the content of a file, where names prove nothing."""
    matches = [match for shape in _CONTENT_SHAPES for match in _found(shape, text, 0)]
    for block in _KEY_BLOCK.finditer(text):
        lines = _KEY_LINE.finditer(text, *block.span(3))
        matches += (SecretMatch(block.start(), line.start(), line.end()) for line in lines)
    return matches


def undecided_from(text: str, first: int = 0, *, paused: bool = False) -> int:
    """Return the position after which more text may still reveal or extend a secret.

    A match of `find_in_text` that reaches the end of the text is undecided, too. Usually the whole last word
    is undecided; if `paused`, only if more text could turn it into a secret.
    """
    size = len(text)
    # No quoted value is longer than the limit, and a URL has neither spaces nor quotes.
    recent = max(first, size - 2 * LONGEST_WORD)
    unbroken = max(first, *(text.rfind(mark, first) + 1 for mark in " \t\r\n\"'"))
    tail = text[max(first, size - LONGEST_WORD) :]
    word = "" if tail[-1:].isspace() or not tail else tail.rsplit(None, 1)[-1]
    place = size - (_undecided_end(word) if paused else len(word))
    name = _NAME_AT_END.search(text, max(first, size - _AT_END))
    quote = _QUOTE_AT_END.search(text, recent)
    url = next((match for match in _URL.finditer(text, unbroken) if match.end() == size), None)
    return min([place, *(match.start() for match in (name, quote, url) if match is not None)])


def _undecided_end(word: str) -> int:
    """Return the length of the end of a word that may be the beginning of a secret.

    A word that ends with a character of `_NEVER_INSIDE` cannot begin a secret, unless it contains `://` or
    `=`: such a character may be in a URL before its password, or in a value.
    """
    if "://" in word or "=" in word:
        return len(word)
    if word.endswith("?"):
        return 1  # of a query: `?sig=…`
    return 0 if word.endswith(_NEVER_INSIDE) else len(word)


def end_of_masking(text: str, begin: int) -> re.Pattern[str]:
    """Return the pattern that matches the end of a secret at `begin` that is too long to be buffered."""
    return _END_OF_KEY if _BEGIN_OF_KEY.match(text, begin) else _END_OF_LINE


def url_passwords(text: str) -> list[str]:
    """Return the passwords in the URLs of the text, as written."""
    return [text[start:end] for match in _URL.finditer(text) for start, end in _password_spans(match)]


def _password_spans(match: re.Match[str]) -> list[tuple[int, int]]:
    password = match.group(2).rpartition("@")[0]
    return [(match.start(2), match.start(2) + len(password))] if password else []


def _found(shape: re.Pattern[str], text: str, first: int) -> list[SecretMatch]:
    """Return all matches of `shape`, including overlapping ones.

    Matches overlap where a value ends with the name of the next secret: `password=token: …`.
    """
    matches: list[SecretMatch] = []
    match = shape.search(text, first)
    while match is not None:
        begin, start, end = match.start(), match.end(1), match.end()
        matches.append(SecretMatch(begin, start, end))
        match = shape.search(text, max(begin + 1, start, end - _OVERLAP))
    return matches
