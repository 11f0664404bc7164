"""Invariants: what must hold whatever a plan does. Those about paths are enforced; all are told to actors.

`never touch migrations/, *.lock` forbids changes, `never delete tests/` only that files go: a pattern that
ends in `/` means all below it, one without any `/` a name in every directory, others are paths from the root,
with `*`, `?` and `**`. They are people's sentences, so what is made of one is said (`standing`). A sentence
with a condition or an exception is left to readers: by its words alone it might forbid the opposite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cleveragents.core.file_state import Difference, FileState

__all__ = ["Invariant", "TouchedPaths", "broken_by"]

TouchedPaths: TypeAlias = Iterable[str] | Mapping[str, Difference] | Mapping[str, FileState | None]
"""Paths that are about to change; or that did, with what has become of each."""

_REMOVAL = r"delete|remove|rename|move"
_VERB = rf"(?:touch|change|edit|modify|write|alter|{_REMOVAL})"
_FORBIDS = re.compile(
    r"\b(?:never|do not|don['’]t|must not|mustn['’]t|may not)\s+"
    rf"(?P<verbs>{_VERB}(?:\s*(?:,|/|\bor\b|\band\b)\s*{_VERB})*)\s+(?P<rest>\S.*)",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"[.!]+(?:\s+|$)|[;\n]\s*")
_SEPARATORS = re.compile(r"\s*(?:,|\band\b|\bor\b)\s*")
_OTHERWISE = re.compile(
    r"(?<!\S)(?:except|excepting|but|unless|outside|without|only|if|when|whenever|while|until|before|after|other|"
    r"besides|beyond|apart|always|instead|can|should|keep|use|run|update)(?![\w./*-])",
    re.IGNORECASE,
)
_PREPOSITION = re.compile("in|under|below|inside|within|of|at|to|from|into|for", re.IGNORECASE)
_FILLER = re.compile(
    f"{_PREPOSITION.pattern}|the|an?|any|all|every|our|my|this|that|these|those|its?|them|named|called|"
    "(?:any|every|some)thing|files?|director(?:y|ies)|folders?|dirs?|paths?|contents?",
    re.IGNORECASE,
)
_WRITTEN_AS_PATH = re.compile(r"(?=.*[\w*])[\w.*?/@+-]*[./*][\w.*?/@+-]*")
_NAME = re.compile(r"[\w@+-]+")
_QUOTES = "`'\"()“”‘’:"


@dataclass(frozen=True, slots=True)
class Invariant:
    """One of them. Of `patterns` nothing may be changed, of `kept` nothing may go; both are empty where it
    says nothing about paths that a program could check."""

    text: str
    patterns: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Invariant:
        """What the text forbids, sentence by sentence: every word of one that looks like a path."""
        patterns: list[str] = []
        kept: list[str] = []
        for sentence in _SENTENCES.split(text):
            found = _FORBIDS.search(sentence)
            if found is None or _OTHERWISE.search(sentence):
                continue
            verbs = re.findall(r"\w+", found["verbs"].lower())
            only_removal = all(re.fullmatch(rf"{_REMOVAL}|or|and", verb) for verb in verbs)
            named = [path for part in _SEPARATORS.split(found["rest"]) for path in _paths(part, verbs)]
            (kept if only_removal else patterns).extend(named)
        return cls(text, tuple(patterns), tuple(kept))

    @property
    def enforced(self) -> bool:
        """Whether a program sees to any of it."""
        return bool(self.patterns or self.kept)

    @property
    def standing(self) -> str:
        """Whether a program sees to it, and to what of it."""
        said = [f"no change of {', '.join(self.patterns)}"] if self.patterns else []
        said += [f"{', '.join(self.kept)} may not be deleted, moved or renamed"] if self.kept else []
        return f"enforced: {'; '.join(said)}" if said else "only told to actors"

    def forbids(self, path: str) -> bool:
        """Whether that file may not be changed."""
        return _matched(self.patterns, path)

    def keeps(self, path: str) -> bool:
        """Whether that file may not go."""
        return _matched(self.kept, path)


def broken_by(invariants: Iterable[str], touched: TouchedPaths) -> str | None:
    """The first invariant that a change of these paths breaks, and by which; None if all hold.

    That a file is gone is known only where it is said what has become of it.
    """
    parsed = [Invariant.parse(text) for text in invariants]
    gone = frozenset(_gone(touched))
    for path in touched:
        for invariant in parsed:
            if invariant.forbids(path):
                return f"{path} was changed, and that is forbidden: {invariant.text}"
            if path in gone and invariant.keeps(path):
                return f"{path} was deleted, and that is forbidden: {invariant.text}"
    return None


def _gone(touched: TouchedPaths) -> Iterator[str]:
    if isinstance(touched, Mapping):
        for path, state in touched.items():
            if (state.after if isinstance(state, Difference) else state) is None:
                yield path


def _paths(part: str, verbs: list[str]) -> list[str]:
    """The paths in a part of a sentence; none where it is about something in a file, not the file."""
    words = [word for word in (word.strip(_QUOTES) for word in part.split()) if word]
    place = next((n for n, word in enumerate(words) if _PREPOSITION.fullmatch(word)), len(words))
    head, rest = words[:place], words[place:]
    found = [word for word in head if _WRITTEN_AS_PATH.fullmatch(word)]
    said = [word for word in head if not _FILLER.fullmatch(word)]
    if found or said:
        # One word alone is a name, as in `never touch Dockerfile`; what is written may be text.
        alone = not rest and len(said) == 1 and "write" not in verbs and _NAME.fullmatch(said[0])
        return found or (said if alone else [])
    return [word for word in rest if _WRITTEN_AS_PATH.fullmatch(word)] or _bare(rest)


def _bare(words: list[str]) -> list[str]:
    """`files in migrations`: the one word that is left."""
    said = [word for word in words if not _FILLER.fullmatch(word)]
    return said if len(said) == 1 and _NAME.fullmatch(said[0]) else []


def _matched(patterns: tuple[str, ...], path: str) -> bool:
    return any(_expression(pattern).fullmatch(path) is not None for pattern in patterns)


def _expression(pattern: str) -> re.Pattern[str]:
    rooted = pattern.lstrip("/")
    anywhere = "/" not in rooted.rstrip("/") and not pattern.startswith("/")
    body = "".join(_translated(piece) for piece in re.split(r"(\*\*/?|\*|\?)", rooted.rstrip("/")))
    return re.compile(("(?:.*/)?" if anywhere else "") + body + "(?:/.*)?", re.DOTALL)


def _translated(piece: str) -> str:
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return wild.get(piece, re.escape(piece))
