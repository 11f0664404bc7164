"""Actions, policies and trust."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Conflict, InvalidRequest
from cleveragents.core.errors.remedy import OptionValue, Remedy

__all__ = [
    "ActionExists",
    "InvalidAction",
    "InvalidArguments",
    "InvalidGoals",
    "NetworkNotDenied",
    "NotIsolated",
    "NotTrusted",
    "PolicyDenied",
    "UnknownAction",
]


@dataclass(eq=False)
class UnknownAction(InvalidRequest):
    """No action of that name exists here."""

    name: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"there is no action {self.name!r}{hint}"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("action.list", text="List the actions"),)


@dataclass(eq=False)
class ActionExists(InvalidRequest):
    """An action of that name exists already."""

    message = "there is an action {name!r} already; delete it first, or replace it"
    name: str


@dataclass(eq=False)
class InvalidAction(InvalidRequest):
    """The YAML is not an action. Every mistake is named, with its line, all at once."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is not a valid action: {'; '.join(self.problems)}"


@dataclass(eq=False)
class InvalidArguments(InvalidRequest):
    """The arguments do not fit the action's."""

    message = "action {action}: {problem}"
    action: str
    problem: str

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return (Remedy("action.show", options={"name": self.action}, text="Show its arguments"),)


@dataclass(eq=False)
class InvalidGoals(InvalidRequest):
    """The YAML is no list of goals. Every mistake is named, with its line, all at once."""

    source: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} is no list of goals that can be run: {'; '.join(self.problems)}"


@dataclass(eq=False)
class NotTrusted(Conflict):
    """Something that the repository brings along would run, and nobody has said that it may. `resource` is
    the repository's name for whoever does not know it by its path; `confirm` says that trusting it was asked
    for and not confirmed."""

    message = "{what} comes with the repository and is not trusted"
    exit_code = 3

    what: str
    path: str
    resource: str | None = None
    confirm: bool = False

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        options: dict[str, OptionValue] = {"force": True} if self.confirm else {}
        options |= {"path": self.path} if self.resource is None else {"resource": self.resource}
        return (Remedy("trust", options=options, text="Read it, then trust it"),)


@dataclass(eq=False)
class PolicyDenied(InvalidRequest):
    """The policy forbids it."""

    message = "{what} is denied by the policy ({profile}: {capability})"
    what: str
    profile: str
    capability: str


@dataclass(eq=False)
class NetworkNotDenied(PolicyDenied):
    """The policy denies the network, and a command could use it: nothing isolates commands here."""

    message = (
        "{what} cannot run: profile {profile} denies the network, and without bubblewrap the network cannot "
        "be denied; "
        "install bubblewrap, or choose a profile that does not deny the network, such as supervised"
    )


@dataclass(eq=False)
class NotIsolated(InvalidRequest):
    """Other people's plans are to be run, and nothing isolates their commands."""

    message = "commands of plans would not be isolated: {problem}; {remedy}"
    problem: str
    remedy: str
