"""Errors of sandboxes, git, applying and tools.

An error of applying or undoing leaves the user's files unchanged.
"""

from __future__ import annotations

from cleveragents.core.errors.families import Conflict, Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "ApplyBusy",
    "ApplyConflict",
    "ApplyRefused",
    "CheckFailed",
    "EditMismatch",
    "GitFailed",
    "InvalidToolCall",
    "OutsideSandbox",
    "QuotaExceeded",
    "RemoteUnreachable",
    "SandboxBusy",
    "SandboxMissing",
    "SandboxRefused",
    "ToolRefused",
    "UnknownTool",
]


class SandboxRefused(InvalidRequest):
    """The repository or sandbox cannot be used."""

    message = "cannot use {resource}: {reason}"
    resource: str
    reason: str
    remedies: tuple[Remedy, ...] = ()


class SandboxMissing(InvalidRequest):
    """The operation needs the sandbox of the plan, which was removed."""

    message = "the sandbox of plan {plan_id} was removed ({location}); this action needs it"
    plan_id: str
    location: str


class SandboxBusy(Unavailable):
    """Another call uses the sandbox."""

    message = "another process uses the sandbox of plan {plan_id}; wait for it, or cancel the plan"
    plan_id: str


class QuotaExceeded(Unavailable):
    """The sandboxes have used up their disk quota."""

    message = "no space left for sandboxes: they use {used_bytes} of {quota_bytes} bytes"
    used_bytes: int
    quota_bytes: int

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (
            Remedy("gc", options={"older_than": "7d"}, text="Remove the sandboxes of plans that ended"),
            Remedy(
                "config.set", options={"key": "sandbox.quota_bytes", "value": None}, text="Raise the limit"
            ),
        )


class RemoteUnreachable(Unavailable):
    """A git remote cannot be reached or refused the login; the operation can be tried again."""

    message = "cannot reach {location}: {problem}; check the URL and git's credentials"
    location: str
    problem: str


class GitFailed(Fault):
    """A git command failed unexpectedly; `problem` is its error output."""

    message = "git {command} failed: {problem}"
    command: str
    problem: str


class ApplyConflict(Conflict):
    """The changes of the plan conflict with the working tree; `details` shows both sides."""

    exit_code = 3

    plan_id: str
    paths: tuple[str, ...]
    details: str = ""
    wanted: str = "applied"
    remedies: tuple[Remedy, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(self.paths)
        return (
            f"plan {self.plan_id} was not {self.wanted}: it conflicts with the current state of {named}; "
            "nothing was changed"
        )


class ApplyRefused(Conflict):
    """The plan cannot be applied for a reason that a person can resolve."""

    message = "plan {plan_id} was not {wanted}: {reason}; nothing was changed"
    exit_code = 3

    plan_id: str
    reason: str
    wanted: str = "applied"
    remedies: tuple[Remedy, ...] = ()


class CheckFailed(Conflict):
    """A required check did not pass on the merged result."""

    message = "plan {plan_id} was not applied: the check {check!r} {problem}; nothing was changed"
    exit_code = 3

    plan_id: str
    check: str
    problem: str


class ApplyBusy(Unavailable):
    """Another apply to the same repository is still running."""

    message = "another plan is being applied to {resource}; nothing was changed, try again"
    resource: str


class UnknownTool(InvalidRequest):
    """There is no tool with this name."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"there is no tool {self.name!r} (known: {', '.join(self.known)})"


class InvalidToolCall(InvalidRequest):
    """The arguments do not match the schema of the tool."""

    message = "{tool}: {problem}"
    tool: str
    problem: str


class OutsideSandbox(InvalidRequest):
    """A path leads out of the sandbox or to a protected file in it."""

    message = "{path!r} {reason}; use a path inside the sandbox"
    path: str
    reason: str


class ToolRefused(InvalidRequest):
    """The call is valid, but the tool cannot carry it out."""

    message = "{tool}: {reason}"
    tool: str
    reason: str


class EditMismatch(InvalidRequest):
    """The file does not contain the text to replace; `diagnosis` shows where the file and the text differ."""

    message = "{path}: {diagnosis}; nothing was changed"
    path: str
    diagnosis: str
