"""Sandboxes: private copies of a repository or directory in which a plan works.

Also the inputs for the cache of setup environments, such as virtual environments and node_modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = [
    "Progress",
    "SandboxRequest",
    "SandboxStrategy",
    "Sandboxes",
    "SetupInputs",
    "StartTree",
    "Unapplied",
]


Progress = Callable[[str], None]
"""A function that shows the user a line about the work in progress."""


class StartTree(Struct, frozen=True):
    """The initial tree of a sub-plan: a tree in the sandbox of its parent plan."""

    plan_id: str
    tree: str


class SandboxRequest(Struct, frozen=True):
    """A request for a sandbox.

    `resource` is the root of a repository or a plain directory. `from_head` uses only committed files instead
    of the working tree. `include` are patterns of ignored files to copy, in .gitignore syntax. Patterns from
    a `.worktreeinclude` file of the resource count only if the caller adds them, since the caller knows
    whether the resource is trusted. With `start`, the base is that tree instead of the resource's files. The
    tree's content is copied, so the sandbox it comes from may be removed at any time; ignored files are
    copied as for any other sandbox of the resource. If `resource` is a checkout of a git remote, `remote` is
    the plan's name for that remote. With `fence`, the sandbox is registered only while the job runs under
    that fence.
    """

    plan_id: str
    resource: Path
    from_head: bool = False
    include: tuple[str, ...] = ()
    start: StartTree | None = None
    remote: str | None = None
    fence: Fence | None = None


class Unapplied(Struct, frozen=True):
    """Files in a sandbox that are never applied.

    `ignored` are the files of `Sandbox.unapplied`. `repositories` are directories in which a plan
    created a `.git`: their files are applied, but not the `.git`. `submodules` are the submodules whose
    directory the plan removed although .gitmodules still names them.
    """

    ignored: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()


class SandboxStrategy(Protocol):
    """A way to create sandboxes. Any thread and process may call every method."""

    @property
    def name(self) -> str: ...

    def suits(self, resource: Path) -> bool:
        """Return whether this strategy handles the resource."""
        ...

    def create(
        self,
        request: SandboxRequest,
        directory: Path,
        origin: Sandbox | None = None,
        *,
        progress: Progress | None = None,
    ) -> Sandbox:
        """Create a sandbox in `directory`, which is dedicated to it and holds at most a lock. Raises
        `SandboxRefused`.

        `origin` is the sandbox that `request.start` names, created by the same strategy. `progress` is called
        before a slow copy. After an interruption or error, `remove` cleans up everything left in the
        resource.
        """
        ...

    def open(self, plan_id: str, resource: Path, directory: Path) -> Sandbox:
        """Open an existing sandbox. Raises `SandboxMissing`."""
        ...

    def remove(self, plan_id: str, resource: Path, directory: Path) -> None:
        """Remove everything except the lock, including traces in the resource. Idempotent."""
        ...


class Sandboxes(Protocol):
    """All sandboxes of this state directory, by plan. Every process sees them, in the database."""

    def create(self, request: SandboxRequest, *, progress: Progress | None = None) -> Sandbox:
        """Create and register a sandbox. Replaces an incomplete sandbox of a dead process.

        Raises `SandboxRefused` and `QuotaExceeded`.
        """
        ...

    def open(self, plan_id: str, *, fence: Fence | None = None) -> Sandbox:
        """Open the plan's sandbox. Raises `SandboxMissing`.

        If the plan works on a remote and another machine has its sandbox, a new sandbox is created on this
        machine from the recorded changes. With the `fence` of the plan's job, the new sandbox becomes the
        plan's sandbox; without a fence, it is only for reading.
        """
        ...

    def remove(self, plan_id: str) -> None:
        """Remove a sandbox and its record. Raises `SandboxBusy` if another call writes in it. Idempotent."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """Return the disk use of every sandbox in bytes, by plan."""
        ...


class SetupInputs(Struct, frozen=True):
    """Everything that affects the result of a setup, or which plans may use it, except the sandbox's files.

    `project` is the plan's project: environments are never shared across projects. `paths` are the
    directories to cache. `command` comes from `CommandRunner.inputs_of` for the setup command.
    """

    project: str
    paths: tuple[str, ...]
    command: Mapping[str, JsonValue]
