"""Invariants: what must hold whatever a plan does. Those about paths are enforced; all are told to actors.

`never touch migrations/, *.lock` forbids changes: a pattern that ends in `/` means all below it, one without
any `/` a name in every directory, others are paths from the root, with `*`, `?` and `**`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Invariant", "broken_by"]

_FORBIDS = re.compile(
    r"(?:never|do not|don't|must not)\s+(?:touch|change|edit|modify|write|alter)\s+(?:to\s+)?(?P<paths>\S.*)",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"\s*(?:,|\band\b|\bor\b)\s*")
_WRITTEN_AS_PATH = re.compile(r"[\w.*?/@+-]*[./*][\w.*?/@+-]*")


@dataclass(frozen=True, slots=True)
class Invariant:
    """One of them. `patterns` is empty where it says nothing about paths that a program could check."""

    text: str
    patterns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Invariant:
        """What the text forbids; if any part of it does not look like a path, it is all left to readers."""
        found = _FORBIDS.fullmatch(text.strip().rstrip("."))
        if found is None:
            return cls(text)
        parts = [part.strip("`'\"") for part in _SEPARATORS.split(found["paths"]) if part]
        if not all(_WRITTEN_AS_PATH.fullmatch(part) for part in parts):
            return cls(text)
        return cls(text, tuple(parts))

    def forbids(self, path: str) -> bool:
        """Whether that file may not be changed."""
        return any(_expression(pattern).fullmatch(path) is not None for pattern in self.patterns)


def broken_by(invariants: Iterable[str], paths: Iterable[str]) -> str | None:
    """The first invariant that a change of these paths breaks, and by which; None if all hold."""
    parsed = [Invariant.parse(text) for text in invariants]
    for path in paths:
        for invariant in parsed:
            if invariant.forbids(path):
                return f"{path} was changed, and that is forbidden: {invariant.text}"
    return None


def _expression(pattern: str) -> re.Pattern[str]:
    rooted = pattern.lstrip("/")
    anywhere = "/" not in rooted.rstrip("/") and not pattern.startswith("/")
    body = "".join(_translated(piece) for piece in re.split(r"(\*\*/?|\*|\?)", rooted.rstrip("/")))
    return re.compile(("(?:.*/)?" if anywhere else "") + body + "(?:/.*)?", re.DOTALL)


def _translated(piece: str) -> str:
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return wild.get(piece, re.escape(piece))
