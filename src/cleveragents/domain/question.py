"""What a question says: its title, its prose, code, stack traces and errors, and the names in it.

A question may be a few words or an issue with everything pasted into it. What the template of an issue brings
along (comments, check lists, dumps of versions) says nothing of the matter and is left out. Reading costs
time proportional to the text, of which only the beginning and the end are read when it is very long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from cleveragents.domain.question_frames import Frame, error_of, frame_of, source_of

__all__ = ["Frame", "Question", "read_question"]

_HEAD = 80_000
_TAIL = 20_000
_LINE = 1_000
_TITLE = 300
_MOST = 400


@dataclass(frozen=True, slots=True)
class Question:
    """Names and places are in order of appearance, each once, as they are written.

    `prose` includes the title. `code` is what stands in fences or is indented; `trace` is what a program
    wrote. `identifiers` look like code in the prose; `code_names` are all names of `code` and `trace`.
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
    quoted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All that it says, without boiler-plate."""
        return "\n".join(part for part in (self.prose, self.code, self.trace) if part)


@lru_cache(maxsize=16)
def read_question(text: str) -> Question:
    """What `text` says. Any text is a question; one without words says nothing."""
    parts = _split(_without_comments(_within(text)))
    prose = "\n".join(parts.prose)
    code = "\n".join(parts.code)
    trace = "\n".join(parts.trace)
    whole = f"{prose}\n{code}"
    tokens = _TOKEN.findall(f"{whole}\n{trace}")
    ticked = _TICKED.findall(prose)
    return Question(
        title=_title(parts.prose),
        prose=_without_links(prose),
        code=code,
        trace=trace,
        frames=tuple(parts.frames[:_MOST]),
        errors=_once(parts.errors),
        paths=_once(path for token in tokens if (path := _path(token))),
        dotted=_once(_DOTTED.findall(_without_links(whole))),
        identifiers=_once((*_names_within(ticked), *_code_like(_without_links(prose)))),
        code_names=_once(_NAME.findall(f"{code}\n{trace}")),
        quoted=_once((*ticked, *(one or two for one, two in _QUOTED.findall(prose)))),
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


@dataclass(slots=True)
class _Parts:
    prose: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


_FENCE = re.compile(r"\s{0,3}(?:>\s?)?(?:```|~~~)\s*(?P<info>\S{0,40})")
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s*(?P<hash>.{1,200})|\*\*(?P<bold>[^*]{1,200})\*\*:?\s*$)")
_ENVIRONMENT = re.compile(
    r"\b(?:versions?|environment|system info\w*|platform|installed packages|dependencies|check ?list)\b",
    re.IGNORECASE,
)
_CHECK = re.compile(r"\s*[-*+]\s*\[[ xX]?\]")
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,6}){1,4}\S{0,60}")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>")
_PROMPT = re.compile(r"\s*(?:>>>|\.\.\.|In \[\d{1,5}\]:|\$)(?:\s|$)")


def _split(text: str) -> _Parts:
    """Each line where it belongs."""
    parts = _Parts()
    fenced = tracing = skipping = False
    for line in text.split("\n"):
        if fence := _FENCE.match(line):
            # a language is named where a fence begins; people forget to end one
            fenced = bool(fence["info"]) or not fenced
            tracing = False
            continue
        if not fenced and (heading := _HEADING.match(line)):
            skipping = bool(parts.prose and _ENVIRONMENT.search(heading["hash"] or heading["bold"]))
        if _CHECK.match(line) or (not line.strip() and not tracing):
            continue
        said = _said_by_program(line, parts, tracing)
        tracing = said and bool(line.strip())
        if said or _is_version(line):
            continue
        if fenced or line.startswith(("    ", "\t")) or _PROMPT.match(line):
            parts.code.append(_PROMPT.sub("", line))
        elif not skipping:
            parts.prose.append(_TAG.sub(" ", line))
    return parts


def _is_version(line: str) -> bool:
    """Whether it says which version of something there is, and nothing else."""
    found = _VERSION.search(line)
    if found is None:
        return False
    before = line[: found.start()].strip(" \t-*+>v=")
    after = line[found.end() :].strip(" \t*`")
    words = before.rstrip(":").split()
    return 0 < len(words) <= 4 and before[0].isalpha() and (not after or after.startswith("("))


def _said_by_program(line: str, parts: _Parts, tracing: bool) -> bool:
    """Whether the line belongs to a stack trace; then it is kept as such."""
    frame = frame_of(line)
    if frame is not None:
        parts.frames.append(frame)
        parts.trace.append(frame.function)
        return True
    error = error_of(line)
    if error is not None:
        parts.errors.append(error)
        parts.trace.append(error)
        return bool(parts.prose)  # the title is prose whatever it says
    if "Traceback (most recent call last)" in line or line.startswith("-------"):
        return True
    if tracing and (line.startswith((" ", "\t", "-")) or not line.strip()):
        parts.trace.append(source_of(line))
        return True
    return False


def _title(prose: list[str]) -> str:
    first = next((line.strip(" #*\t") for line in prose if line.strip(" #*\t")), "")
    return first[:_TITLE]


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


def _without_links(text: str) -> str:
    return _LINK.sub(" ", text)


def _names_within(pieces: list[str]) -> list[str]:
    return [name for piece in pieces for name in _NAME.findall(piece)]


def _code_like(text: str) -> list[str]:
    return _CODE_LIKE.findall(text)


def _once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(list(dict.fromkeys(items))[:_MOST])
