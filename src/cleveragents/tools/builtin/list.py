"""List the content of a directory."""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "ListArguments", "ListEntry", "ListResult", "ListTool"]

_DEPTH_LIMIT = 32
_DEFAULT_RESULTS = 1000
_MOST_RESULTS = 10_000


class ListArguments(Arguments):
    path: str = Field(default="", description="the directory; empty: the sandbox's root")
    depth: int = Field(default=1, ge=1, le=_DEPTH_LIMIT, description="1: only direct entries")
    max_results: int = Field(
        default=_DEFAULT_RESULTS, ge=1, le=_MOST_RESULTS, description="the maximum number of entries"
    )


class ListEntry(Result):
    path: str
    kind: str = Field(description="file, directory, symlink or other")
    size_bytes: int


class ListResult(Result):
    entries: list[ListEntry]
    truncated: bool


class ListTool(TypedTool[ListArguments, ListResult]):
    name = "list"
    description = "Lists the files and directories in a directory, except .git. Does not follow links."
    capability = Capability.READ
    arguments = ListArguments
    result = ListResult

    def run(self, arguments: ListArguments, workplace: Workplace) -> ListResult:
        entries: list[ListEntry] = []
        for found in workplace.files.walk(arguments.path, depth=arguments.depth):
            workplace.stop.raise_if_cancelled()
            if len(entries) == arguments.max_results:
                return ListResult(entries=entries, truncated=True)
            # An invalid Unicode name cannot be used as a path, but it is listed.
            shown = found.path.encode("utf-8", "backslashreplace").decode("utf-8")
            entries.append(ListEntry(path=shown, kind=found.kind, size_bytes=found.size))
        return ListResult(entries=entries, truncated=False)


TOOL = ListTool()
