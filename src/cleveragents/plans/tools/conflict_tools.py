"""The tool with which an actor resolves conflicts of merged sub-plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from cleveragents.changes.model.merge_conflict import RESOLVE, Take, resolved_result
from cleveragents.core.errors import ToolRefused, UnknownTool
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.plans.conflicts.resolution import resolution_of
from cleveragents.plans.history import PlanHistory
from cleveragents.sandboxes.ports import Sandbox
from cleveragents.tools.ports import SandboxFiles, Tool, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["ConflictGround", "ConflictTools"]


@dataclass(frozen=True, slots=True)
class ConflictGround:
    """Whose conflicts they are, and where their files are."""

    history: PlanHistory
    sandbox: Sandbox


class ResolveArguments(Arguments):
    path: str = Field(min_length=1, description="the conflicted file, as the task names it")
    take: Literal["ours", "theirs", "edited"] = Field(
        description="`edited`: the file is what it should be now, and has no marks in it; `ours`: what this "
        "plan had; `theirs`: what the merged part had. In text with marks, a side is taken in the marked "
        "places only."
    )


class EndedConflict(Result):
    merge: int
    index: int


class ResolveResult(Result):
    path: str
    take: str
    ended: list[EndedConflict] = Field(description="which conflicts are resolved by it")
    tree: str
    files: list[str] = Field(description="the files that were changed for it")


class ResolveTool(TypedTool[ResolveArguments, ResolveResult]):
    name = RESOLVE
    description = "Says how a conflict of a merged part is resolved; until then, the plan is not done."
    capability = Capability.EDIT
    writes = True
    runs_commands = True
    arguments = ResolveArguments
    result = ResolveResult

    def __init__(self, ground: ConflictGround) -> None:
        self._ground = ground

    def run(self, arguments: ResolveArguments, workplace: Workplace) -> ResolveResult:
        ground = self._ground
        sandbox = ground.sandbox
        take = Take(arguments.take)
        found = resolution_of(ground.history, sandbox.plan_id, sandbox, arguments.path, take)
        workplace.stop.raise_if_cancelled()
        sandbox.restore(found.states)
        told = resolved_result(found.ended[0].shown_path, take, found.ended, found.tree, found.states)
        return ResolveResult.model_validate(thaw(told))


class ConflictTools:
    """`ToolSource` of that one. Any thread may ask."""

    def __init__(self, ground: ConflictGround) -> None:
        self._tool: Tool = ResolveTool(ground)

    def get(self, name: str) -> Tool:
        if name != RESOLVE:
            raise UnknownTool(name, self.names())
        return self._tool

    def capability_of(
        self, tool: Tool, arguments: Mapping[str, JsonValue], files: SandboxFiles
    ) -> Capability:
        return tool.capability_of(arguments, files)

    def names(self) -> tuple[str, ...]:
        return (RESOLVE,)

    def specs(self) -> tuple[ToolSpec, ...]:
        return (self._tool.spec,)

    def problems(self) -> tuple[ToolRefused, ...]:
        return ()
