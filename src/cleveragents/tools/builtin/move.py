"""Gives a file, link or directory another name."""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "MoveArguments", "MoveResult", "MoveTool"]


class MoveArguments(Arguments):
    source: str = Field(description="what to move, relative to the sandbox's root")
    target: str = Field(description="its new path, which must not exist yet")


class MoveResult(Result):
    source: str
    target: str


class MoveTool(TypedTool[MoveArguments, MoveResult]):
    name = "move"
    description = "Moves or renames a file, link or directory. Never replaces anything."
    # Nothing is lost by it: the content is all there, under another name.
    capability = Capability.EDIT
    writes = True
    arguments = MoveArguments
    result = MoveResult

    def run(self, arguments: MoveArguments, workplace: Workplace) -> MoveResult:
        workplace.files.move(arguments.source, arguments.target)
        return MoveResult(source=arguments.source, target=arguments.target)


TOOL = MoveTool()
