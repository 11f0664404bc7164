"""Regular expressions mean the same on every supported Python."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
# `)*+`, `) ++`, `)?+`, `){1,3}+` and, in a format string, `){{1,3}}+`, `{_GROUP}*+` and `{_GROUP}{{1,3}}+`.
POSSESSIVE_GROUP = re.compile(r"[)}]\s*(?:[*+?]|\{?\{[0-9,]+\}\}?)\+")
# Since Python 3.12, a format string is several tokens.
STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def test_no_group_has_a_possessive_quantifier() -> None:
    """Before Python 3.11.5 such a group could match too little, so that secrets were not masked."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        with tokenize.open(path) as opened:
            found += [
                f"{path.relative_to(SOURCES)}:{token.start[0]}"
                for token in tokenize.generate_tokens(opened.readline)
                if token.type in STRINGS and not token.string.startswith('"""')
                if POSSESSIVE_GROUP.search(token.string)
            ]
    assert found == []
