"""Sandboxes and the repositories they are made from.

What keeps a plan from being applied or undone. All of these leave the user's files as they were.

Tools: what they refuse, and why.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(eq=False)
class SandboxRefused(InvalidRequest):
    """What is there cannot be a sandbox's, or made one of, and why."""

    message = "{resource} cannot be used as it is: {reason}"
    resource: str
    reason: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class SandboxMissing(InvalidRequest):
    """The plan's sandbox was removed, so what needs its files cannot be done."""

    message = "the sandbox of plan {plan_id} was removed ({location}), and this cannot be done without it"
    plan_id: str
    location: str


@dataclass(eq=False)
class SandboxBusy(Unavailable):
    """Another call writes in the sandbox; one at a time."""

    message = "another process works in the sandbox of plan {plan_id}; wait for it, or cancel the plan"
    plan_id: str


@dataclass(eq=False)
class QuotaExceeded(Unavailable):
    """The sandboxes use as much disk as they may."""

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


@dataclass(eq=False)
class RemoteUnreachable(Unavailable):
    """A git remote did not answer as it should; what was to be done there may be tried again."""

    message = "{location} cannot be reached: {problem}; git's own settings say how to log in there"
    location: str
    problem: str


@dataclass(eq=False)
class GitFailed(Fault):
    """git refused a step that should have worked; its own words are in `problem`."""

    message = "git {command} failed: {problem}"
    command: str
    problem: str


@dataclass(eq=False)
class ApplyConflict(Conflict):
    """The plan's changes and the present files overlap; `details` shows each place with both sides."""

    exit_code = 3

    plan_id: str
    paths: tuple[str, ...]
    details: str = ""
    wanted: str = "applied"

    def __str__(self) -> str:
        named = ", ".join(self.paths)
        return (
            f"plan {self.plan_id} was not {self.wanted}: it conflicts with the present state of {named}; "
            "nothing was changed"
        )


@dataclass(eq=False)
class ApplyRefused(Conflict):
    """The plan cannot be applied as asked, for a reason a person can remove."""

    message = "plan {plan_id} was not {wanted}: {reason}; nothing was changed"
    exit_code = 3

    plan_id: str
    reason: str
    wanted: str = "applied"
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class CheckFailed(Conflict):
    """A required check did not pass on the merged result."""

    message = "plan {plan_id} was not applied: the check {check!r} {problem}; nothing was changed"
    exit_code = 3

    plan_id: str
    check: str
    problem: str


@dataclass(eq=False)
class ApplyBusy(Unavailable):
    """Another apply to the same repository did not end in time."""

    message = "another plan is being applied to {resource}; nothing was changed, try again"
    resource: str


@dataclass(eq=False)
class UnknownTool(InvalidRequest):
    """There is no tool of that name."""

    name: str
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"there is no tool {self.name!r} (known: {', '.join(self.known)})"


@dataclass(eq=False)
class InvalidToolCall(InvalidRequest):
    """The arguments are not what the tool's schema says."""

    message = "{tool}: {problem}"
    tool: str
    problem: str


@dataclass(eq=False)
class OutsideSandbox(InvalidRequest):
    """A path leads out of the sandbox, or into what nobody may touch there."""

    message = "{path!r} {reason}; only files inside the sandbox can be touched"
    path: str
    reason: str


@dataclass(eq=False)
class ToolRefused(InvalidRequest):
    """The tool understood, and cannot do it."""

    message = "{tool}: {reason}"
    tool: str
    reason: str


@dataclass(eq=False)
class EditMismatch(InvalidRequest):
    """The text to be replaced is not in the file as given; `diagnosis` says where they part."""

    message = "{path}: {diagnosis}; nothing was changed"
    path: str
    diagnosis: str
