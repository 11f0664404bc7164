"""Parsing of questions: title, prose, code, stack traces, errors and names.

A question may be a few words or a whole issue with pasted output. Boilerplate of issue templates (comments,
checklists, version dumps) is left out. Code is recognised with and without fences. Parsing takes linear time;
only the start and the end of a very long text are read.

Lines written by a program are recognised for several languages: stack frames and error messages. Questions
are untrusted text: each expression is applied to one line of bounded length, with bounded backtracking.

Search terms are computed for each part of a question, and for the whole with weighted parts. The weight of a
term grows with its count, but less than linearly. In the weighted whole, the title counts twice, and code
counts less than prose, because prose states the problem and code shows how it arose.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cleveragents.context.model.code_terms import count_terms, terms_of, words_of

__all__ = [
    "COMMON_WORDS",
    "ParsedQuestion",
    "QuestionLines",
    "TraceFrame",
    "error_of",
    "frame_of",
    "queries_of",
    "query_terms",
    "read_question",
    "sort_lines",
    "source_of",
]


_HEAD = 80_000
_TAIL = 20_000
_LINE = 1_000
_MOST = 400

_MOST_TERMS = 600
_LEAST_TERMS = 3
_COMMON = (
    "a about above actual after again against all also although am an and any are as at be because been "
    "before behavior behaviour being below between both bug but by call can code complete could currently "
    "describe description did do does doing done down during each eg else etc even example expected few "
    "file first following for from further get gets got had has have having he hello here hi how however "
    "i ie if in instead into is issue it its just last like line make makes may me might minimal more "
    "most must my need new no nor not now of off on once one only or other our out outcome over own per "
    "please problem python recent report reproduce reproduction result results same second see seem seems "
    "shall she should since so some steps still such summary than thank thanks that the their them then "
    "there these they think this those through to too traceback two under unless until up us use used "
    "uses using verifiable version versions very via vs want was way we well were what when where whether "
    "which while who whom whose why will with work working works would you your"
)

COMMON_WORDS = frozenset(_COMMON.split())
"""Words that are common in questions, whatever their subject."""
_PARTS = (("title", 2.0), ("prose", 1.0), ("code", 0.5), ("trace", 0.25), ("ticked", 1.0))


@dataclass(frozen=True, slots=True)
class TraceFrame:
    """A place that a stack trace names, verbatim; `line` is 0 and `function` empty if missing."""

    path: str
    line: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A parsed question. Names and places are in order of appearance, each once, verbatim.

    `prose` excludes the title. `code` is fenced text or text that looks like code; `trace` is the output of a
    program. `ticked` is text between backticks, `quoted` between other quotes. `identifiers` are names in
    title and prose that look like code; `code_names` are all names in `code` and `trace`.
    """

    title: str = ""
    prose: str = ""
    code: str = ""
    trace: str = ""
    frames: tuple[TraceFrame, ...] = ()
    errors: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    dotted: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    code_names: tuple[str, ...] = ()
    ticked: tuple[str, ...] = ()
    quoted: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole text, without boilerplate."""
        return "\n".join(part for part in (self.title, self.prose, self.code, self.trace) if part)


@lru_cache(maxsize=16)
def read_question(text: str) -> ParsedQuestion:
    """Parse a question. Any text is valid; a text without words yields an empty question."""
    parts = sort_lines(_without_comments(_within(text)))
    said = "\n".join((parts.title, *parts.prose))
    prose = _LINK.sub(" ", "\n".join(parts.prose))
    code = _LINK.sub(" ", "\n".join(parts.code))
    trace = "\n".join(parts.trace)
    plain = f"{parts.title}\n{prose}"
    tokens = _TOKEN.findall("\n".join((said, *parts.code, trace)))
    ticked = [piece for piece in _TICKED.findall(plain) if piece.strip()]
    return ParsedQuestion(
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
    """Return the start and end of a text, in lines of bounded length, with lone surrogates replaced."""
    if len(text) > _HEAD + _TAIL:  # guard: the time of what follows grows with the text
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
_DOTTED = re.compile(r"(?<![\w./@-])[^\W\d]\w{0,100}+(?>(?:(?:\.|::|#)[^\W\d]\w{0,100}+)+)(?![/@])")
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
    """Return the path in a word, without a line number; empty if it is not a path."""
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


@dataclass(slots=True)
class QuestionLines:
    """The lines of each kind in order, and the frames and errors among the program output."""

    title: str = ""
    prose: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    frames: list[TraceFrame] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


_FENCE = re.compile(r"\s{0,3}(?:>\s?)?(?:```|~~~)\s*(?P<info>\S{0,40})")
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s*(?P<hash>.{1,200})|\*\*(?P<bold>[^*]{1,200})\*\*:?\s*$)")
_ENVIRONMENT = re.compile(
    r"\b(?:versions?|environment|system(?: info\w*)?|platform|installed packages|dependencies|check ?list"
    r"|operating system|linux distribution|code of conduct|are you willing|search before asking)\b",
    re.IGNORECASE,
)
_CHECK = re.compile(r"\s*[-*+]\s*\[[ xX]?\]")
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,6}){1,4}\S{0,60}")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>")
_PROMPT = re.compile(r"\s*(?:>>>|\.\.\.|In ?\[\d{1,5}\]:|\$)(?:\s|$)")
_CODE = re.compile(
    r"\s{0,40}+(?:"
    r"from [\w.]{1,200}+ import |import \w|def \w{1,100}+\(|class \w{1,100}+\b.*:\s*$|@\w"
    r"|\w[\w.\[\]]{0,200}+ ?= ?\S|[\w.]{1,200}+\(.*\)\s*$"
    r"|(?:for|if|while|with|try|return|raise|assert|print)\b.{0,200}[:(]"
    r")"
)
_INDENTED = re.compile(r"(?:\t|    )\s*\S.*[=(){}\[\];:]")
_KIND = re.compile(
    r"^\W{0,3}(?:bug|enh|feature|regression|docs?|mnt|question|feature request|bug report)\W{0,2}[:\]]\s*",
    re.IGNORECASE,
)
_MOST_TITLE = 300
_LONGEST_HEADING = 60


def sort_lines(text: str) -> QuestionLines:
    """Sort the lines by kind; the first line with content is the title."""
    first, _, rest = text.lstrip().partition("\n")
    parts = QuestionLines(title=_KIND.sub("", first.strip(" #*\t"))[:_MOST_TITLE])
    if error := error_of(first):
        parts.errors.append(error)
    fenced = tracing = skipping = False
    for line in rest.split("\n"):
        if fence := _FENCE.match(line):
            # a language is named where a fence begins; closing fences are often forgotten
            fenced = bool(fence["info"]) or not fenced
            tracing = False
            continue
        if not fenced and (heading := _HEADING.match(line)):
            skipping = bool(_ENVIRONMENT.search(heading["hash"] or heading["bold"]))
            if len(line) < _LONGEST_HEADING:
                continue
        tracing = _sort_line(line, parts, fenced=fenced, tracing=tracing, skipping=skipping)
    return parts


def _sort_line(line: str, parts: QuestionLines, *, fenced: bool, tracing: bool, skipping: bool) -> bool:
    """Add a line to the part that it belongs to; return whether a stack trace may continue after it."""
    if _CHECK.match(line) or (not line.strip() and not tracing):
        return False
    if _said_by_program(line, parts, tracing):
        return bool(line.strip())
    if _is_version(line):
        return False
    if fenced or _PROMPT.match(line) or _CODE.match(line) or _INDENTED.match(line):
        parts.code.append(_PROMPT.sub("", line))
    elif not skipping:
        parts.prose.append(_TAG.sub(" ", line))
    return False


def _is_version(line: str) -> bool:
    """Return whether the line only states the version of something."""
    found = _VERSION.search(line)
    if found is None:
        return False
    before = line[: found.start()].strip(" \t-*+>v=")
    after = line[found.end() :].strip(" \t*`")
    words = before.rstrip(":").split()
    return 0 < len(words) <= 4 and before[0].isalpha() and (not after or after.startswith("("))


def _said_by_program(line: str, parts: QuestionLines, tracing: bool) -> bool:
    """Return whether the line belongs to a stack trace, and store it if so."""
    frame = frame_of(line)
    if frame is not None:
        parts.frames.append(frame)
        parts.trace.append(frame.function)
        return True
    error = error_of(line)
    if error is not None:
        parts.errors.append(error)
        parts.trace.append(error)
        return True
    if "Traceback (most recent call last)" in line or line.startswith("-------"):
        return True
    if tracing and (line.startswith((" ", "\t", "-")) or not line.strip()):
        parts.trace.append(source_of(line))
        return True
    return False


_PATH = r"(?P<path>[^\s\"'():,]{1,300}+)"
_ANY = r"(?P<path>[^\"<>]{1,300}?)"
_FRAME_NAME = r"(?P<function>[^\s(\"'`]{1,200}+)"
_FRAME_LINE = r"(?P<line>\d{1,7}+)"
_FRAMES = tuple(
    re.compile(pattern)
    for pattern in (
        # Python, with or without the function
        rf"\s*+File \"{_ANY}\", line {_FRAME_LINE}(?:, in {_FRAME_NAME})?",
        # IPython 8, then earlier
        rf"\s*+File {_PATH}:{_FRAME_LINE}, in {_FRAME_NAME}",
        rf"\s*+(?P<path>[^\s\"'():,]{{1,300}}\.\w{{1,4}}) in {_FRAME_NAME}\(",
        # pytest
        rf"{_PATH}:{_FRAME_LINE}: in {_FRAME_NAME}",
        rf"{_PATH}:{_FRAME_LINE}: (?P<function>)[A-Z]\w{{0,80}}(?:Error|Exception|Warning)\b",
        # Ruby
        rf"\s*+(?:from )?{_PATH}:{_FRAME_LINE}:in [`'](?P<function>[^'`]{{1,200}})'",
        # Java: the package tells the directory
        r"\s*+at (?P<function>[\w.$<>]{3,300})\((?P<path>\w{1,100}\.(?:java|kt|scala)):(?P<line>\d{1,7})\)",
        # JavaScript, with and without a name
        rf"\s*+at (?:async )?{_FRAME_NAME} (?:\[as [^\]]{{1,80}}\] )?\((?:file://)?{_PATH}:{_FRAME_LINE}(?::\d{{1,7}})?\)",
        rf"\s*+at (?P<function>)(?:file://)?{_PATH}:{_FRAME_LINE}:\d{{1,7}}\s*$",
        # gdb and sanitizers
        rf"\s*+#\d{{1,4}}\s.{{0,200}}?\b(?:in )?{_FRAME_NAME} \(.{{0,200}}\) at {_PATH}:{_FRAME_LINE}",
        # Rust, then compilers
        rf".{{0,100}}\bpanicked at (?P<function>){_PATH}:{_FRAME_LINE}:\d",
        rf"\s*+(?:-->|at) (?P<function>){_PATH}:{_FRAME_LINE}(?::\d{{1,7}})?\s*$",
        rf"{_PATH}:{_FRAME_LINE}:(?:\d{{1,7}}:)? (?P<function>)(?:fatal )?(?:error|warning|note):",
        # Go
        rf"\s++(?P<function>){_PATH}:{_FRAME_LINE} \+0x",
    )
)
# Fourteen expressions are tried only on lines that may match.
_MAYBE = re.compile(r":\d|, line \d|\.\w{1,4} in [^\s(]{1,200}\(")
_ERROR = re.compile(
    r"\s*+(?:E\s++|exception: |Caused by: |Uncaught |Exception in thread \"[^\"]{0,80}\" |panic: )?"
    r"(?P<kind>(?>(?:[A-Za-z_][\w$]{0,80}+(?:\.|::))*)[A-Za-z_][\w$]{0,80}+)"
    r"(?: \[\w{1,40}\])?: (?P<message>\S.*)"
)
_FRAME_KIND = re.compile(r"(?:Error|Exception|Warning|Exit|Interrupt|Failure|Fault|Iteration|Panic)$")
_BARE = re.compile(
    r"\s*+(?:error(?:\[\w{1,10}\])?|fatal(?: error)?|panic|ERROR|FATAL|FAILED): (?P<message>\S.*)"
)
_NUMBERED = re.compile(r"\s*(?:-{1,4}>)?\s*\d{1,6}(?: (?P<source>.*))?$")


def frame_of(line: str) -> TraceFrame | None:
    """Return the frame that a line of a stack trace names; None if the line is not a frame."""
    if not _MAYBE.search(line):
        return None
    for pattern in _FRAMES:
        found = pattern.match(line)
        if found is not None and _is_file(found["path"]):
            named = found.groupdict()
            return TraceFrame(found["path"], int(named.get("line") or 0), named.get("function") or "")
    return None


def _is_file(path: str) -> bool:
    return "." in path and not path.startswith(("<", "http:", "https:"))


def error_of(line: str) -> str | None:
    """Return the error that a line reports, with its kind if it has one: `ValueError: too many values`."""
    found = _ERROR.match(line)
    if found is not None and _FRAME_KIND.search(found["kind"]):
        kind = found["kind"].replace("::", ".").rpartition(".")[2]
        return f"{kind}: {found['message'].strip()}"
    bare = _BARE.match(line)
    return bare["message"].strip() if bare is not None else None


def source_of(line: str) -> str:
    """Return a line of a source excerpt without its line number and arrow."""
    found = _NUMBERED.match(line)
    return line if found is None else found["source"] or ""


def query_terms(text: str) -> Counter[str]:
    """Return the count of each term in `text`, without common words."""
    words = Counter(word for word in words_of(text) if word.lower() not in COMMON_WORDS)
    counts = count_terms(words)
    return Counter({term: count for term, count in counts.items() if term not in COMMON_WORDS})


def queries_of(question: ParsedQuestion) -> dict[str, dict[str, float]]:
    """Return the weights of the terms for each part of the question, for the whole (`full`), and for the
    whole with weighted parts (`weighed`).
    """
    # In a question of three words, every word matters.
    terms = query_terms if len(query_terms(question.text)) >= _LEAST_TERMS else terms_of
    counted = {
        "title": terms(question.title),
        "prose": terms(question.prose),
        "code": terms(question.code),
        "trace": terms(question.trace),
        "ticked": terms("\n".join(question.ticked)),
        "errors": terms("\n".join(question.errors)),
    }
    full: Counter[str] = Counter()
    for part in ("title", "prose", "code", "trace"):
        full.update(counted[part])
    weighed: dict[str, float] = {}
    for part, weight in _PARTS:
        for term, count in counted[part].items():
            weighed[term] = weighed.get(term, 0.0) + weight * (1 + math.log(count))
    kept = frozenset(sorted(weighed, key=lambda term: (-weighed[term], term))[:_MOST_TERMS])
    queries = {part: _damped(counts) for part, counts in counted.items()}
    queries["full"] = _damped(full)
    queries["weighed"] = {term: math.sqrt(weight) for term, weight in weighed.items()}
    return {
        name: {term: weight for term, weight in query.items() if term in kept}
        for name, query in queries.items()
    }


def _damped(counts: Mapping[str, int]) -> dict[str, float]:
    return {term: 1 + math.log(count) for term, count in counts.items()}
