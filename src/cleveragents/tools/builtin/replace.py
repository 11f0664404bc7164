"""Replace a text or a regular expression in all files that match a pattern: in all of them, or in none."""

from __future__ import annotations

from contextlib import suppress

from pydantic import Field

from cleveragents.core.errors import CleverAgentsError, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.tools.files.confined_files import FILE_LIMIT_BYTES
from cleveragents.tools.files.file_search import Glob, Skipped, batches_of
from cleveragents.tools.files.matchers import Matcher, matcher_for
from cleveragents.tools.files.text_files import ensure_no_mask
from cleveragents.tools.ports import SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "ReplaceArguments", "ReplaceResult", "ReplaceTool", "ReplacedFile"]

_PATTERN_LIMIT = 10_000
_SECONDS = 120.0
# Old and new content of all changed files stay in memory until the last one is checked.
_TOTAL_LIMIT_BYTES = 256 << 20
_SKIPPED_SHOWN = 50

_Change = tuple[str, bytes, bytes, int]


class ReplaceArguments(Arguments):
    pattern: str = Field(
        min_length=1, max_length=_PATTERN_LIMIT, description="the text or expression to search for"
    )
    replacement: str = Field(description="the replacement; with `regex`, \\1 is the first group")
    glob: Glob = Field(default="**", description="the files to change, such as `src/**/*.py`")
    regex: bool = Field(
        default=False, description="treat the pattern as a Python regular expression in multi-line mode"
    )
    ignore_case: bool = Field(default=False, description="ignore the difference between upper and lower case")


class ReplacedFile(Result):
    path: str
    count: int


class ReplaceResult(Result):
    files: list[ReplacedFile]
    total: int
    skipped: list[Skipped] = Field(description="files that could not be searched")


class ReplaceTool(TypedTool[ReplaceArguments, ReplaceResult]):
    name = "replace"
    description = "Searches and replaces in all files that match a pattern, or in none; skips binary files."
    capability = Capability.EDIT
    writes = True
    arguments = ReplaceArguments
    result = ReplaceResult

    def run(self, arguments: ReplaceArguments, workplace: Workplace) -> ReplaceResult:
        with matcher_for(
            arguments.pattern,
            fixed=not arguments.regex,
            ignore_case=arguments.ignore_case,
            seconds=_SECONDS,
            stop=workplace.stop,
        ) as matcher:
            changes, skipped = _planned(arguments, workplace, matcher)
        _write_all(changes, workplace)
        return ReplaceResult(
            files=[ReplacedFile(path=path, count=count) for path, _, _, count in changes],
            total=sum(count for _, _, _, count in changes),
            skipped=skipped[:_SKIPPED_SHOWN],
        )


def _planned(
    arguments: ReplaceArguments, workplace: Workplace, matcher: Matcher
) -> tuple[list[_Change], list[Skipped]]:
    changes: list[_Change] = []
    skipped: list[Skipped] = []
    total = 0
    for batch in batches_of(workplace, arguments.glob, skipped):
        answers = matcher.replace([text for _, text in batch], arguments.replacement)
        for (path, text), replaced in zip(batch, answers, strict=False):
            if replaced is None:
                raise ToolRefused("replace", f"the time limit was reached at {path!r}; nothing was changed")
            after, count = replaced
            if after == text:
                continue
            ensure_no_mask(path, text, after)
            change = (path, text.encode("utf-8"), after.encode("utf-8"), count)
            total += len(change[1]) + len(change[2])
            if len(change[2]) > FILE_LIMIT_BYTES or total > _TOTAL_LIMIT_BYTES:
                raise ToolRefused("replace", f"the size limit was reached at {path!r}; nothing was changed")
            changes.append(change)
    return changes, skipped


def _write_all(changes: list[_Change], workplace: Workplace) -> None:
    written: list[_Change] = []
    try:
        for change in changes:
            workplace.stop.raise_if_cancelled()
            path, _, after, _ = change
            workplace.files.write(path, after)
            written.append(change)
    except BaseException:
        _put_back(written, workplace.files)
        raise


def _put_back(written: list[_Change], files: SandboxFiles) -> None:
    for path, before, _, _ in reversed(written):
        with suppress(CleverAgentsError):
            files.write(path, before)


TOOL = ReplaceTool()
