"""Sorts the lines of a question: its title, prose, code, what a program wrote, and what says nothing.

Issues are written into templates, so part of them is the template's; and people paste what their machine
consists of. Neither tells what the question is about. Code is recognised without fences as well, because half
of all people forget them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cleveragents.context.model.question_frames import Frame, error_of, frame_of, source_of

__all__ = ["QuestionLines", "sort_lines"]


@dataclass(slots=True)
class QuestionLines:
    """The lines of each kind, in order; and the frames and errors among what a program wrote."""

    title: str = ""
    prose: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
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
    """Each line where it belongs; the first one that says anything is the title."""
    first, _, rest = text.lstrip().partition("\n")
    parts = QuestionLines(title=_KIND.sub("", first.strip(" #*\t"))[:_MOST_TITLE])
    if error := error_of(first):
        parts.errors.append(error)
    fenced = tracing = skipping = False
    for line in rest.split("\n"):
        if fence := _FENCE.match(line):
            # a language is named where a fence begins; people forget to end one
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
    """Puts it where it belongs; whether a stack trace may go on after it."""
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
    """Whether it says which version of something there is, and nothing else."""
    found = _VERSION.search(line)
    if found is None:
        return False
    before = line[: found.start()].strip(" \t-*+>v=")
    after = line[found.end() :].strip(" \t*`")
    words = before.rstrip(":").split()
    return 0 < len(words) <= 4 and before[0].isalpha() and (not after or after.startswith("("))


def _said_by_program(line: str, parts: QuestionLines, tracing: bool) -> bool:
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
        return True
    if "Traceback (most recent call last)" in line or line.startswith("-------"):
        return True
    if tracing and (line.startswith((" ", "\t", "-")) or not line.strip()):
        parts.trace.append(source_of(line))
        return True
    return False
