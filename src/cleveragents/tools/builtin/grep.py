"""Find matching lines in all or some files."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.files.file_search import Glob, Skipped, batches_of
from cleveragents.tools.files.matchers import Matcher, matcher_for
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "GrepArguments", "GrepMatch", "GrepResult", "GrepTool"]

_PATTERN_LIMIT = 1000
_CONTEXT_LIMIT = 20
_DEFAULT_RESULTS = 200
_MOST_RESULTS = 5000
_LINE_LIMIT = 500
_SKIPPED_SHOWN = 50
_DEFAULT_SECONDS = 20.0
_MOST_SECONDS = 300.0


class GrepArguments(Arguments):
    pattern: str = Field(
        min_length=1,
        max_length=_PATTERN_LIMIT,
        description="a Python regular expression, matched line by line",
    )
    glob: Glob = Field(default="**", description="the files to search, such as `src/**/*.py`")
    fixed: bool = Field(default=False, description="treat the pattern as plain text")
    ignore_case: bool = Field(default=False, description="ignore the difference between upper and lower case")
    context: int = Field(default=0, ge=0, le=_CONTEXT_LIMIT, description="lines to show before and after")
    max_results: int = Field(
        default=_DEFAULT_RESULTS, ge=1, le=_MOST_RESULTS, description="the maximum number of lines"
    )
    timeout_seconds: float = Field(
        default=_DEFAULT_SECONDS, gt=0, le=_MOST_SECONDS, description="the time limit of the search"
    )


class GrepMatch(Result):
    path: str
    line: int
    text: str
    before: list[str]
    after: list[str]


class GrepResult(Result):
    matches: list[GrepMatch]
    files: int = Field(description="the number of searched files, without binary files and links")
    truncated: bool = Field(description="whether there may be more matches; see `note`")
    note: str
    skipped: list[Skipped] = Field(description="files that could not be searched")


class GrepTool(TypedTool[GrepArguments, GrepResult]):
    name = "grep"
    description = "Finds lines that match a regular expression, sorted by path."
    capability = Capability.READ
    arguments = GrepArguments
    result = GrepResult

    def run(self, arguments: GrepArguments, workplace: Workplace) -> GrepResult:
        with matcher_for(
            arguments.pattern,
            fixed=arguments.fixed,
            ignore_case=arguments.ignore_case,
            seconds=arguments.timeout_seconds,
            stop=workplace.stop,
        ) as matcher:
            return _search(arguments, workplace, matcher)


def _search(arguments: GrepArguments, workplace: Workplace, matcher: Matcher) -> GrepResult:
    matches: list[GrepMatch] = []
    skipped: list[Skipped] = []
    files = 0
    note = ""
    for path, text, numbers in _searched(arguments, workplace, matcher, skipped):
        if numbers is None:
            note = f"the time limit was reached at {path!r}; search fewer files, or use a simpler pattern"
            break
        files += 1
        room = arguments.max_results - len(matches)
        lines = text.split("\n") if numbers else []
        matches += [_match(path, lines, number, arguments.context) for number in numbers[:room]]
        if len(numbers) > room:
            note = f"there are more than {arguments.max_results} matches"
            break
    return GrepResult(
        matches=matches, files=files, truncated=bool(note), note=note, skipped=skipped[:_SKIPPED_SHOWN]
    )


def _searched(
    arguments: GrepArguments, workplace: Workplace, matcher: Matcher, skipped: list[Skipped]
) -> Iterator[tuple[str, str, list[int] | None]]:
    for batch in batches_of(workplace, arguments.glob, skipped):
        # One more than the limit, to know whether there are more.
        answers = matcher.lines([text for _, text in batch], arguments.max_results + 1)
        for (path, text), numbers in zip(batch, answers, strict=False):
            yield path, text, numbers


def _match(path: str, lines: list[str], number: int, context: int) -> GrepMatch:
    return GrepMatch(
        path=path,
        line=number + 1,
        text=_shown(lines[number]),
        before=[_shown(line) for line in lines[max(0, number - context) : number]],
        after=[_shown(line) for line in lines[number + 1 : number + 1 + context]],
    )


def _shown(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= _LINE_LIMIT else line[:_LINE_LIMIT] + "…"


TOOL = GrepTool()
