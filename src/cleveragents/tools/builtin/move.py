"""Move or rename a file, link or directory."""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "MoveArguments", "MoveResult", "MoveTool"]


class MoveArguments(Arguments):
    source: str = Field(description="the path to move, relative to the sandbox's root")
    target: str = Field(description="the new path, which must not exist")


class MoveResult(Result):
    source: str
    target: str


class MoveTool(TypedTool[MoveArguments, MoveResult]):
    name = "move"
    description = "Moves or renames a file, link or directory. Never overwrites."
    # Nothing is lost: the content stays complete under another name.
    capability = Capability.EDIT
    writes = True
    arguments = MoveArguments
    result = MoveResult

    def run(self, arguments: MoveArguments, workplace: Workplace) -> MoveResult:
        workplace.files.move(arguments.source, arguments.target)
        return MoveResult(source=arguments.source, target=arguments.target)


TOOL = MoveTool()
