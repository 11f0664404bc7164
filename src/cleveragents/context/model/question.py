"""What a question says: its title, its prose, code, stack traces and errors, and the names in it.

A question may be a few words or an issue with everything pasted into it. What the template of an issue brings
along (comments, check lists, dumps of versions) says nothing of the matter and is left out. Reading costs
time proportional to the text, of which only the beginning and the end are read when it is very long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from cleveragents.context.model.question_frames import Frame
from cleveragents.context.model.question_lines import sort_lines

__all__ = ["Frame", "Question", "read_question"]

_HEAD = 80_000
_TAIL = 20_000
_LINE = 1_000
_MOST = 400


@dataclass(frozen=True, slots=True)
class Question:
    """Names and places are in order of appearance, each once, as they are written.

    `prose` is without the title. `code` is what stands in fences or looks like it; `trace` is what a program
    wrote. `ticked` is what stands between back-ticks, `quoted` between other quotes. `identifiers` look like
    code in title and prose; `code_names` are all names of `code` and `trace`.
    """

    title: str = ""
    prose: str = ""
    code: str = ""
    trace: str = ""
    frames: tuple[Frame, ...] = ()
    errors: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    dotted: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    code_names: tuple[str, ...] = ()
    ticked: tuple[str, ...] = ()
    quoted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All that it says, without boiler-plate."""
        return "\n".join(part for part in (self.title, self.prose, self.code, self.trace) if part)


@lru_cache(maxsize=16)
def read_question(text: str) -> Question:
    """What `text` says. Any text is a question; one without words says nothing."""
    parts = sort_lines(_without_comments(_within(text)))
    said = "\n".join((parts.title, *parts.prose))
    prose = _LINK.sub(" ", "\n".join(parts.prose))
    code = _LINK.sub(" ", "\n".join(parts.code))
    trace = "\n".join(parts.trace)
    plain = f"{parts.title}\n{prose}"
    tokens = _TOKEN.findall("\n".join((said, *parts.code, trace)))
    ticked = [piece for piece in _TICKED.findall(plain) if piece.strip()]
    return Question(
        title=parts.title,
        prose=prose,
        code=code,
        trace=trace,
        frames=tuple(parts.frames[-_MOST:]),
        errors=_once(parts.errors),
        paths=_once(path for token in tokens if (path := _path(token))),
        dotted=_once(_DOTTED.findall(f"{plain}\n{code}")),
        identifiers=_once((*_names_within(ticked), *_CODE_LIKE.findall(plain))),
        code_names=_once(_NAME.findall(f"{code}\n{trace}")),
        ticked=_once(ticked),
        quoted=_once(one or two for one, two in _QUOTED.findall(plain)),
    )


def _within(text: str) -> str:
    """Its beginning and end, in lines of bounded length; a surrogate alone is nothing one could look for."""
    if len(text) > _HEAD + _TAIL:  # guard: what follows takes a time that grows with the text
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "\n".join(line[:_LINE] for line in text.splitlines())


def _without_comments(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (begin := text.find("<!--", at)) >= 0:
        kept.append(text[at:begin])
        end = text.find("-->", begin)
        if end < 0:
            return "".join(kept)
        at = end + 3
    return "".join((*kept, text[at:]))


_TOKEN = re.compile(r"[^\s\"'`<>()\[\]{},;|=*]{3,400}")
_TICKED = re.compile(r"`([^`\n]{1,200})`")
_QUOTED = re.compile(r"\"([^\"\n]{2,100})\"|(?<!\w)'([^'\n]{2,100})'(?!\w)")
_NAME = re.compile(r"(?<!\w)[^\W\d]\w{1,100}+")
_DOTTED = re.compile(r"(?<![\w./@-])[^\W\d]\w{0,100}+(?:(?:\.|::|#)[^\W\d]\w{0,100}+)++(?![/@])")
_LINK = re.compile(r"\bhttps?://[^\s<>\"')\]]{1,500}+")
_CODE_LIKE = re.compile(
    r"(?<!\w)(?:"
    r"_{0,2}[^\W\d_]\w{0,100}_\w{0,100}+"  # with an underscore within
    r"|__\w{1,100}+"
    r"|[a-z]{1,60}+[A-Z]\w{0,100}+"  # camelCase
    r"|[A-Z]{1,60}[a-z0-9]{1,60}[A-Z]\w{0,100}+"  # CamelCase
    r"|[^\W\d]\w{1,100}+(?=\()"  # called
    r")"
)
_EXTENSION = re.compile(
    r"\.(?:py|pyi|pyx|pxd|js|jsx|ts|tsx|mjs|cjs|vue|go|rs|java|kt|scala|c|cc|cpp|cxx|h|hh|hpp|hxx|rb|erb|php|cs"
    r"|swift|sh|sql|html|css|scss|md|rst|txt|toml|yaml|yml|json|cfg|ini|xml|proto|gradle|in|tmpl|j2|lua|pl|r|jl"
    r"|ipynb|mk|cmake|lock)$",
    re.IGNORECASE,
)
_POSITION = re.compile(r"(?::\d{1,7}){1,2}$|#L\d{1,7}(?:-L\d{1,7})?$")
_BLOB = re.compile(r"/(?:blob|tree|raw|blame)/[^/]{1,100}/(?P<path>[^\s?#]{1,300})")


def _path(token: str) -> str:
    """The path that a word is, without a position in it; empty if it is none."""
    bare = _POSITION.sub("", token.rstrip(".:!?"))
    blob = _BLOB.search(bare) if "://" in bare else None
    if blob is not None:
        return blob["path"]
    if "://" in bare or not _EXTENSION.search(bare):
        return ""
    return bare.replace("\\", "/").strip("@")


def _names_within(pieces: list[str]) -> list[str]:
    return [name for piece in pieces for name in _NAME.findall(piece)]


def _once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(list(dict.fromkeys(items))[:_MOST])
