"""Make several exact replacements in one file: all or none."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cleveragents.core.errors import EditMismatch
from cleveragents.core.policy import Capability
from cleveragents.tools.files.exact_edit import Edited, ExactEdit
from cleveragents.tools.files.text_files import ensure_no_mask, ensure_unchanged, fingerprint, read_text
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "MultiEditArguments", "MultiEditResult", "MultiEditTool", "OneEdit"]

# Each scans the whole file.
_EDITS_LIMIT = 500
_ORDER = "applied in this order, each to the result of the previous ones"


class OneEdit(Arguments):
    old: str = Field(
        min_length=1, description="the text to replace, exactly as it is after the previous edits"
    )
    new: str = Field(description="the replacement")
    count: Literal[1, "all"] = Field(
        default=1, description='1: `old` must occur exactly once; "all": replace every occurrence'
    )


class MultiEditArguments(Arguments):
    path: str = Field(description="the file, relative to the sandbox's root")
    edits: list[OneEdit] = Field(min_length=1, max_length=_EDITS_LIMIT, description=_ORDER)
    line_endings: Literal["exact", "file"] = Field(
        default="exact",
        description='"exact": use `old` and `new` as given; "file": convert them to the file\'s line endings',
    )
    expected_sha256: str | None = Field(
        default=None,
        description="refuse if the file's sha256, before all edits, is not this one, as returned by `read`",
    )


class MultiEditResult(Result):
    path: str
    replacements: list[int] = Field(description="the number of replacements of each edit")
    sha256: str = Field(description="the sha256 of the new content")


class MultiEditTool(TypedTool[MultiEditArguments, MultiEditResult]):
    name = "multi_edit"
    description = "Makes several exact replacements in one file, in order; all or none."
    capability = Capability.EDIT
    writes = True
    arguments = MultiEditArguments
    result = MultiEditResult

    def run(self, arguments: MultiEditArguments, workplace: Workplace) -> MultiEditResult:
        path = arguments.path
        before, data = read_text(workplace.files, path)
        text = before
        ensure_unchanged(path, data, arguments.expected_sha256)
        replacements = []
        for number, one in enumerate(arguments.edits, start=1):
            workplace.stop.raise_if_cancelled()
            edit = ExactEdit(one.old, one.new, one.count, arguments.line_endings)
            edited = _made(edit, path, text, f"edit {number} of {len(arguments.edits)}")
            replacements.append(edited.replacements)
            text = edited.text
        ensure_no_mask(path, before, text)
        after = text.encode("utf-8")
        workplace.files.write(path, after)
        return MultiEditResult(path=path, replacements=replacements, sha256=fingerprint(after))


def _made(edit: ExactEdit, path: str, text: str, which: str) -> Edited:
    try:
        return edit.apply(path, text)
    except EditMismatch as mismatch:
        raise EditMismatch(path, f"{which}: {mismatch.diagnosis}") from None


TOOL = MultiEditTool()
