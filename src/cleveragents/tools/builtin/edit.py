"""Replace an exact text in a file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.files.exact_edit import ExactEdit
from cleveragents.tools.files.text_files import ensure_no_mask, ensure_unchanged, fingerprint, read_text
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "EditArguments", "EditResult", "EditTool"]


class EditArguments(Arguments):
    path: str = Field(description="the file, relative to the sandbox's root")
    old: str = Field(min_length=1, description="the text to replace, exactly as it is in the file")
    new: str = Field(description="the replacement")
    count: Literal[1, "all"] = Field(
        default=1, description='1: `old` must occur exactly once; "all": replace every occurrence'
    )
    line_endings: Literal["exact", "file"] = Field(
        default="exact",
        description='"exact": use `old` and `new` as given; "file": convert them to the file\'s line endings',
    )
    expected_sha256: str | None = Field(
        default=None, description="refuse if the file's sha256 is not this one, as returned by `read`"
    )


class EditResult(Result):
    path: str
    replacements: int = Field(description="the number of replacements")
    lines: list[int] = Field(description="the line numbers in the old file; the first 20")
    sha256: str = Field(description="the sha256 of the new content")


class EditTool(TypedTool[EditArguments, EditResult]):
    name = "edit"
    description = "Replaces an exact text in a file. If it is missing, reports the first difference."
    capability = Capability.EDIT
    writes = True
    arguments = EditArguments
    result = EditResult

    def run(self, arguments: EditArguments, workplace: Workplace) -> EditResult:
        path = arguments.path
        text, data = read_text(workplace.files, path)
        ensure_unchanged(path, data, arguments.expected_sha256)
        edit = ExactEdit(arguments.old, arguments.new, arguments.count, arguments.line_endings)
        edited = edit.apply(path, text)
        ensure_no_mask(path, text, edited.text)
        after = edited.text.encode("utf-8")
        workplace.files.write(path, after)
        return EditResult(
            path=path,
            replacements=edited.replacements,
            lines=list(edited.lines),
            sha256=fingerprint(after),
        )


TOOL = EditTool()
