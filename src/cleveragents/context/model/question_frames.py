"""Lines of a question that a running program wrote: stack frames and error messages, of several languages.

Questions are anybody's text. Each expression is tried on one line of bounded length, and none can go back
over what it has read more than a bounded number of times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Frame", "error_of", "frame_of", "source_of"]


@dataclass(frozen=True, slots=True)
class Frame:
    """A place that a stack trace names, as it stands there; `line` is 0 and `function` empty if not said."""

    path: str
    line: int = 0
    function: str = ""


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

# Fourteen expressions are tried only on lines that could be one.
_MAYBE = re.compile(r":\d|, line \d|\.\w{1,4} in [^\s(]{1,200}\(")

_ERROR = re.compile(
    r"\s*+(?:E\s++|exception: |Caused by: |Uncaught |Exception in thread \"[^\"]{0,80}\" |panic: )?"
    r"(?P<kind>(?:[A-Za-z_][\w$]{0,80}+(?:\.|::))*+[A-Za-z_][\w$]{0,80}+)"
    r"(?: \[\w{1,40}\])?: (?P<message>\S.*)"
)
_FRAME_KIND = re.compile(r"(?:Error|Exception|Warning|Exit|Interrupt|Failure|Fault|Iteration|Panic)$")
_BARE = re.compile(
    r"\s*+(?:error(?:\[\w{1,10}\])?|fatal(?: error)?|panic|ERROR|FATAL|FAILED): (?P<message>\S.*)"
)
_NUMBERED = re.compile(r"\s*(?:-{1,4}>)?\s*\d{1,6}(?: (?P<source>.*))?$")


def frame_of(line: str) -> Frame | None:
    """The frame that this line of a stack trace is, if it is one."""
    if not _MAYBE.search(line):
        return None
    for pattern in _FRAMES:
        found = pattern.match(line)
        if found is not None and _is_file(found["path"]):
            named = found.groupdict()
            return Frame(found["path"], int(named.get("line") or 0), named.get("function") or "")
    return None


def _is_file(path: str) -> bool:
    return "." in path and not path.startswith(("<", "http:", "https:"))


def error_of(line: str) -> str | None:
    """The error that this line reports, with its kind if it has one: `ValueError: too many values`."""
    found = _ERROR.match(line)
    if found is not None and _FRAME_KIND.search(found["kind"]):
        kind = found["kind"].replace("::", ".").rpartition(".")[2]
        return f"{kind}: {found['message'].strip()}"
    bare = _BARE.match(line)
    return bare["message"].strip() if bare is not None else None


def source_of(line: str) -> str:
    """What an excerpt of source says, without the line number and arrow in front of it."""
    found = _NUMBERED.match(line)
    return line if found is None else found["source"] or ""
