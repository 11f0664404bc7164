"""Find files by a path pattern."""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.files.file_search import Glob, files_matching
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "GlobArguments", "GlobResult", "GlobTool"]

_DEFAULT_RESULTS = 1000
_MOST_RESULTS = 10_000


class GlobArguments(Arguments):
    pattern: Glob = Field(
        description="such as `src/**/*.py`; without a `/`, it matches names in any directory"
    )
    max_results: int = Field(
        default=_DEFAULT_RESULTS, ge=1, le=_MOST_RESULTS, description="the maximum number of paths"
    )


class GlobResult(Result):
    paths: list[str]
    truncated: bool


class GlobTool(TypedTool[GlobArguments, GlobResult]):
    name = "glob"
    description = "Finds files and links whose path matches a pattern, sorted by path."
    capability = Capability.READ
    arguments = GlobArguments
    result = GlobResult

    def run(self, arguments: GlobArguments, workplace: Workplace) -> GlobResult:
        paths: list[str] = []
        for found in files_matching(workplace, arguments.pattern):
            if len(paths) == arguments.max_results:
                return GlobResult(paths=paths, truncated=True)
            paths.append(found.path)
        return GlobResult(paths=paths, truncated=False)


TOOL = GlobTool()
