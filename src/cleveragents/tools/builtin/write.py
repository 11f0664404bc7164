"""Create or replace a file."""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.errors import ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import MASK
from cleveragents.tools.files.text_files import ensure_no_mask, ensure_unchanged, fingerprint
from cleveragents.tools.ports import SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "WriteArguments", "WriteResult", "WriteTool"]


class WriteArguments(Arguments):
    path: str = Field(description="the file, relative to the sandbox's root")
    content: str = Field(description="the complete text")
    executable: bool | None = Field(
        default=None, description="whether the file is executable; by default unchanged"
    )
    expected_sha256: str | None = Field(
        default=None, description="refuse if the file's sha256 is not this one, as returned by `read`"
    )


class WriteResult(Result):
    path: str
    created: bool
    size_bytes: int
    sha256: str


class WriteTool(TypedTool[WriteArguments, WriteResult]):
    name = "write"
    description = "Creates a file, or replaces its whole content. Creates missing directories."
    capability = Capability.EDIT
    writes = True
    arguments = WriteArguments
    result = WriteResult

    def needs(self, arguments: WriteArguments, files: SandboxFiles) -> Capability:
        return Capability.EDIT if files.exists(arguments.path) else Capability.CREATE

    def run(self, arguments: WriteArguments, workplace: Workplace) -> WriteResult:
        files, path = workplace.files, arguments.path
        data = arguments.content.encode("utf-8")
        created = not files.exists(path)
        if arguments.expected_sha256 is not None:
            ensure_unchanged(path, None if created else files.read(path), arguments.expected_sha256)
        if path.endswith("/"):
            raise ToolRefused(self.name, f"{path!r} is a directory; add the file's name")
        if not created and MASK in arguments.content:
            ensure_no_mask(path, files.read(path).decode("utf-8", "replace"), arguments.content)
        files.write(path, data, executable=arguments.executable)
        return WriteResult(path=path, created=created, size_bytes=len(data), sha256=fingerprint(data))


TOOL = WriteTool()
