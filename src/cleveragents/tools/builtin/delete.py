"""Delete a file, a link, or a directory with its content."""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.errors import ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "DeleteArguments", "DeleteResult", "DeleteTool"]


class DeleteArguments(Arguments):
    path: str = Field(description="the file, link or directory, relative to the sandbox's root")
    recursive: bool = Field(
        default=False, description="required for a directory: delete everything below, too"
    )


class DeleteResult(Result):
    path: str
    files: int = Field(description="the number of deleted files and links")


class DeleteTool(TypedTool[DeleteArguments, DeleteResult]):
    name = "delete"
    description = "Deletes a file or a symbolic link (not its target); a directory with `recursive`."
    capability = Capability.DELETE
    writes = True
    arguments = DeleteArguments
    result = DeleteResult

    def run(self, arguments: DeleteArguments, workplace: Workplace) -> DeleteResult:
        files, path = workplace.files, arguments.path
        count = 1
        if files.kind(path) == "directory":
            if not arguments.recursive:
                raise ToolRefused(self.name, f"{path!r} is a directory; use `recursive` to delete all of it")
            count = sum(found.kind != "directory" for found in files.walk(path))
        files.delete(path)
        return DeleteResult(path=path, files=count)


TOOL = DeleteTool()
