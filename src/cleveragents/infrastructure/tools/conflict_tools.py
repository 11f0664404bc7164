"""The tool with which conflicts of merged sub-plans are resolved, by an actor or for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.application.ports.tools import SandboxFiles, Tool, Workplace
from cleveragents.application.services.conflict_resolution import resolution_of
from cleveragents.application.services.plan_history import PlanHistory
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.merge_conflict import RESOLVE, Take, shown
from cleveragents.domain.policy import Capability
from cleveragents.domain.tool import ToolSpec
from cleveragents.errors import ToolRefused, UnknownTool
from cleveragents.infrastructure.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["ConflictGround", "ConflictTools"]


@dataclass(frozen=True, slots=True)
class ConflictGround:
    """Whose conflicts they are, and where their files are. `admit` raises `ToolRefused` where it may not be
    done just now; it is asked while nobody else can work in the sandbox."""

    history: PlanHistory
    sandbox: Sandbox
    admit: Callable[[], None] = lambda: None


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
        ground.admit()
        sandbox = ground.sandbox
        take = Take(arguments.take)
        found = resolution_of(ground.history, sandbox.plan_id, sandbox, arguments.path, take)
        workplace.stop.raise_if_cancelled()
        sandbox.restore(found.states)
        ended = [EndedConflict(merge=one.merge, index=one.index) for one in found.ended]
        files = sorted(map(shown, found.states))
        return ResolveResult(path=arguments.path, take=take.value, ended=ended, tree=found.tree, files=files)


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
