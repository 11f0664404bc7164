"""Corrections of a single line, for small models that find a wrong line more easily than they rewrite a
function.

The model names the line by its text, not by a number, because small models miscount. The line must occur
exactly once in the shown files. A line ends at LF; other separators, such as U+2028, are part of it.
"""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.errors import OutsideSandbox, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.plans.tools.block_edits import MergeRefused, ensure_parses, files_in, is_protected
from cleveragents.tools.files.text_files import ensure_no_mask, read_text
from cleveragents.tools.ports import SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TRIED", "LineEdits"]

TRIED = "Tried: "
"""Precedes a line in the text of a task whose corrections did not help."""
_BYTE_ORDER_MARK = "\ufeff"


class LineEditsArguments(Arguments):
    wrong_line: str = Field(max_length=10_000, description="the line, as it is in the file")
    corrected_line: str = Field(max_length=10_000, description="the line or lines to put in its place")
    shown: str = Field(max_length=1_000_000, description="what the model was shown, with the paths of files")
    goal: str = Field(default="", description="the goal; existing tests are changed only if it asks for it")


class LineEditsResult(Result):
    changed: list[str] = Field(description="the changed file, with the number of the line")
    problems: list[str] = Field(description="why nothing was changed")


class LineEdits(TypedTool[LineEditsArguments, LineEditsResult]):
    name = "correct_line"
    description = "Replaces one line of a shown file. Indentation is that of the old line."
    capability = Capability.EDIT
    writes = True
    arguments = LineEditsArguments
    result = LineEditsResult

    def run(self, arguments: LineEditsArguments, workplace: Workplace) -> LineEditsResult:
        try:
            return LineEditsResult(changed=[_correct(arguments, workplace.files)], problems=[])
        except MergeRefused as refused:
            return LineEditsResult(changed=[], problems=[str(refused)])


def _correct(arguments: LineEditsArguments, files: SandboxFiles) -> str:
    wrong = arguments.wrong_line.strip().removeprefix(_BYTE_ORDER_MARK)
    corrected = arguments.corrected_line.strip("\r\n").removeprefix(_BYTE_ORDER_MARK)
    if not wrong:
        raise MergeRefused("the wrong line is empty")
    if wrong == corrected.strip():
        raise MergeRefused("the corrected line is the same as the wrong line")
    shown = [path for path in files_in(arguments.shown, files) if not _keeps(path, arguments.goal)]
    places = [(path, number) for path in shown for number in _numbers(files, path, wrong)]
    if not places:
        raise MergeRefused("no shown file has this line")
    path, number = places[0]
    if any(other != path for other, _ in places):  # guard: the first place may be the wrong one
        raise MergeRefused("several files have this line")
    if len(places) > 1:  # guard: the first place may be the wrong one
        raise MergeRefused(f"the line occurs {len(places)} times in {path}; correct another line")
    mark, lines = _lines(files, path)
    old = "".join(lines)
    lines[number] = _indented(corrected, lines[number])
    new = "".join(lines)
    ensure_parses(path, old, new)
    ensure_no_mask(path, old, new)
    files.write(path, (mark + new).encode("utf-8"))
    return f"{path}: line {number + 1}"


def _keeps(path: str, goal: str) -> bool:
    return is_protected(path, "", goal)


def _numbers(files: SandboxFiles, path: str, wrong: str) -> list[int]:
    """Return the positions of the line in the file; empty if the file is not text."""
    try:
        lines = _lines(files, path)[1]
    except (ToolRefused, OutsideSandbox):
        return []
    return [number for number, line in enumerate(lines) if line.strip() == wrong]


def _lines(files: SandboxFiles, path: str) -> tuple[str, list[str]]:
    """Return the byte order mark of a file, if it has one, and its lines with their endings."""
    text = read_text(files, path)[0]
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    *ended, last = text.removeprefix(mark).split("\n")
    return mark, [*(f"{line}\n" for line in ended), last]


def _indented(corrected: str, old: str) -> str:
    """Return the lines with the indentation and the line ending of the old line."""
    indent = old[: len(old) - len(old.lstrip())]
    ending = old[len(old.rstrip("\r\n")) :]
    given = corrected.replace("\r\n", "\n").split("\n") if corrected else []
    first = given[0][: len(given[0]) - len(given[0].lstrip())] if given else ""
    moved = [indent + line.removeprefix(first) if line.strip() else "" for line in given]
    return (ending or "\n").join(moved) + ending if moved else ""
