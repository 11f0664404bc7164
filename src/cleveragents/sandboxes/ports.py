"""Sandboxes: private copies of a repository or directory in which a plan works.

A cache of the environments that setup commands make: virtual environments, node_modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = [
    "SandboxRequest",
    "SandboxStrategy",
    "Sandboxes",
    "SetupInputs",
    "StartTree",
    "Unapplied",
]


@dataclass(frozen=True, slots=True)
class StartTree:
    """Where a sub-plan begins: with a tree that the sandbox of that plan, its parent's, holds."""

    plan_id: str
    tree: str


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """What a sandbox is to be made of.

    `resource` is the root of a repository or a plain directory. `from_head`: only what is committed, instead
    of the working tree as the user sees it. `include` are patterns of ignored files to bring along, in the
    syntax of .gitignore. What a `.worktreeinclude` file in the resource names is not among them unless the
    caller, who knows whether the resource is trusted, puts it there.

    `start`: its base is that tree, instead of what the resource holds. The tree's content is copied, so that
    the sandbox it came from may go at any time; ignored files come as into any other sandbox of the resource.

    `remote` is what the plan calls its resource, if that is a git remote, of which `resource` is a checkout.
    `fence`: it is registered only while that job runs under that token.
    """

    plan_id: str
    resource: Path
    from_head: bool = False
    include: tuple[str, ...] = ()
    start: StartTree | None = None
    remote: str | None = None
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class Unapplied:
    """What is in a sandbox and is never applied. `ignored` are `ignored_entries`; `repositories` are the
    directories in which a plan made a `.git`: of each, its files are applied, and its `.git` is not;
    `submodules` are those whose directory a plan removed, and which .gitmodules still names."""

    ignored: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()


class SandboxStrategy(Protocol):
    """One way of making sandboxes. Every method from any thread and process."""

    @property
    def name(self) -> str: ...

    def suits(self, resource: Path) -> bool:
        """Whether it makes sandboxes of such a resource."""
        ...

    def create(self, request: SandboxRequest, directory: Path, origin: Sandbox | None = None) -> Sandbox:
        """Makes it in `directory`, which is its alone and holds at most a lock. `SandboxRefused`.

        `origin` is the sandbox that `request.start` names, made by this strategy, too. Interrupted or failed,
        it leaves nothing in the resource that `remove` does not take away.
        """
        ...

    def open(self, plan_id: str, resource: Path, directory: Path) -> Sandbox:
        """The sandbox that was made there. `SandboxMissing`."""
        ...

    def remove(self, plan_id: str, resource: Path, directory: Path) -> None:
        """Takes away all but the lock, and whatever it left in the resource. Twice is harmless."""
        ...


class Sandboxes(Protocol):
    """All sandboxes of this state, by plan; the registry is in the database, so any process knows them."""

    def create(self, request: SandboxRequest, *, progress: Callable[[str], None] | None = None) -> Sandbox:
        """Makes and registers it. One that was half made by a process that died is made anew.

        `SandboxRefused`, `QuotaExceeded`.
        """
        ...

    def open(self, plan_id: str, *, fence: Fence | None = None) -> Sandbox:
        """`SandboxMissing`.

        Of a plan on a remote whose sandbox another machine has, one is made here, of what is recorded. With
        the `fence` of the job that runs the plan it is the plan's sandbox from then on; without, something
        to look at.
        """
        ...

    def remove(self, plan_id: str) -> None:
        """Removes and forgets it; one that another call is writing in raises `SandboxBusy`. Twice is
        harmless."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """Bytes on disk of every sandbox, by plan."""
        ...


@dataclass(frozen=True, slots=True)
class SetupInputs:
    """Everything but the files of the sandbox that decides what a setup makes, or who may have it.

    `project` is the plan's: no project gets what another one's plans made. `paths` are kept. `command` is
    what `CommandRunner.inputs_of` says of the setup command.
    """

    project: str
    paths: tuple[str, ...]
    command: Mapping[str, JsonValue]
