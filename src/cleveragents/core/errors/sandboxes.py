"""Sandboxes and the repositories they are made from."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "GitFailed",
    "QuotaExceeded",
    "RemoteUnreachable",
    "SandboxBusy",
    "SandboxMissing",
    "SandboxRefused",
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
