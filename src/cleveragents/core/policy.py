"""Policies, which allow, ask for or deny each capability of a plan; and the isolation of commands.

A profile answers for every capability. Two answers are joined by taking the stricter one, so an additional
policy (of a repository or an action) can tighten the user's choice and never loosen it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from functools import reduce
from types import MappingProxyType

from cleveragents.core.errors import ConfigurationError, NetworkNotDenied

__all__ = [
    "DEFAULT_PROFILE",
    "PROFILES",
    "READ_ONLY",
    "Capability",
    "Isolation",
    "Policy",
    "Verdict",
    "profile",
    "weaker",
]


class Capability(str, Enum):
    """A permission that a tool call may need."""

    READ = "read"
    EDIT = "edit"
    CREATE = "create"
    DELETE = "delete"
    COMMAND = "command"
    NETWORK = "network"
    INSTALL = "install"
    SPAWN = "spawn"
    APPLY = "apply"


class Verdict(str, Enum):
    """The answer of a policy, from the most lenient to the strictest."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Policy:
    """A named answer for every capability.

    With `never_asks`, a policy denies instead of asking, because no person could answer.
    """

    name: str
    verdicts: Mapping[Capability, Verdict]
    never_asks: bool = False

    def verdict(self, capability: Capability) -> Verdict:
        # A capability that the policy does not mention is not allowed by default.
        answer = self.verdicts.get(capability, Verdict.ASK)
        if answer is Verdict.ASK and self.never_asks:  # guard: no person is there to deny it
            return Verdict.DENY
        return answer

    def command_verdict(self, *, isolated: bool, by_agent: bool) -> Verdict:
        """Return the verdict on a command, given whether it is isolated and whether an agent chose it.

        Without isolation nothing blocks the network for a command, so a policy that denies the network denies
        every command. A policy at least as strict as `supervised` asks for each command of an agent.
        """
        verdict = self.verdict(Capability.COMMAND)
        if isolated:
            return verdict
        if self.verdict(Capability.NETWORK) is Verdict.DENY:
            return Verdict.DENY
        if by_agent and verdict is Verdict.ALLOW and self.is_at_least_as_strict_as(PROFILES["supervised"]):
            return Verdict.ASK
        return verdict

    def ensure_denies_network(self, what: str, isolation: Isolation) -> None:
        """Raise `NetworkNotDenied` if the policy denies the network and commands are not isolated from it."""
        denies = self.verdict(Capability.NETWORK) is Verdict.DENY
        if denies and isolation is Isolation.NONE:
            raise NetworkNotDenied(what, self.name, Capability.COMMAND.value)

    def is_at_least_as_strict_as(self, other: Policy) -> bool:
        """Return whether, for every capability, this policy's verdict is as strict as the other policy's or
        stricter.
        """
        return all(
            self.verdict(capability).strictness >= other.verdict(capability).strictness
            for capability in Capability
        )

    def tightened(self, other: Policy) -> Policy:
        """Return a policy with this policy's name and, for each capability, the stricter of both verdicts."""
        joined = {
            capability: max(
                self.verdict(capability), other.verdict(capability), key=lambda verdict: verdict.strictness
            )
            for capability in Capability
        }
        # If one policy has no person to answer, the combination has none either.
        return Policy(self.name, MappingProxyType(joined), self.never_asks or other.never_asks)


def profile(name: str) -> Policy:
    """Return the built-in profile with this name, or the strictest combination of several joined by `+`.

    Raises `ConfigurationError` with the closest name if there is none.
    """
    first, *others = [_builtin(part) for part in name.split("+")]
    joined = reduce(Policy.tightened, others, first)
    return replace(joined, name=name)


def _builtin(name: str) -> Policy:
    found = PROFILES.get(name)
    if found is None:
        near = get_close_matches(name, list(PROFILES), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(PROFILES)}"
        raise ConfigurationError(f"profile {name!r}", f"does not exist; {hint}")
    return found


def _policy(name: str, verdicts: str) -> Policy:
    letters = {"+": Verdict.ALLOW, "?": Verdict.ASK, "-": Verdict.DENY}
    answers = {capability: letters[sign] for capability, sign in zip(Capability, verdicts, strict=True)}
    return Policy(name, MappingProxyType(answers), never_asks=name == "ci")


class Isolation(str, Enum):
    """`bubblewrap`: commands see their sandbox and little else. `none`: they can do whatever the user can."""

    BUBBLEWRAP = "bubblewrap"
    NONE = "none"

    @staticmethod
    def of(isolates: bool) -> Isolation:
        """Return the isolation of a command runner that does or does not isolate."""
        return Isolation.BUBBLEWRAP if isolates else Isolation.NONE


# One sign per capability, in their order: read edit create delete command network install spawn apply.
PROFILES: Mapping[str, Policy] = MappingProxyType(
    {
        name: _policy(name, signs)
        for name, signs in {
            "manual": "+????????",
            "review": "+++??-???",
            "supervised": "+++++??+?",
            "cautious": "+++?+-?+?",
            "trusted": "++++++++?",
            "auto": "+++++??++",
            "ci": "+++++--++",
            "full-auto": "+++++++++",
        }.items()
    }
)

READ_ONLY = _policy("read-only", "+--------")
"""The policy of an actor that may only read; users cannot choose it."""
DEFAULT_PROFILE = "supervised"


def weaker(one: Isolation | None, other: Isolation | None) -> Isolation | None:
    """Return the weaker of two isolations, for a plan that ran under both; None if neither is known."""
    known = {isolation for isolation in (one, other) if isolation is not None}
    if Isolation.NONE in known:
        return Isolation.NONE
    return Isolation.BUBBLEWRAP if known else None
