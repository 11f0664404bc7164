"""Hints for commands that failed because their isolation denies the network.

Commands in bubblewrap have no network unless the policy allows it, and their output ("could not resolve
host") looks like a broken connection. Without bubblewrap the network is not cut off, and there is no hint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cleveragents.api.plans.details import checks_of

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.model.strategy import Strategy

__all__ = ["hints_of", "looks_like_no_network"]

_NO_NETWORK = re.compile(
    r"""could\ not\ resolve | couldn't\ resolve | cannot\ resolve | unable\ to\ resolve
    | failed\ to\ lookup\ address | name\ resolution | name\ or\ service\ not\ known
    | nodename\ nor\ servname | no\ address\ associated | unknown\ host | no\ such\ host
    | getaddrinfo | \bEAI_AGAIN\b | \bENOTFOUND\b | \bdns\ error
    | network\ is\ unreachable | network\ unreachable | \bENETUNREACH\b | no\ route\ to\ host""",
    re.IGNORECASE | re.VERBOSE,
)


def looks_like_no_network(output: str) -> bool:
    """Return whether the text looks like the output of a program without network."""
    return _NO_NETWORK.search(output) is not None


def hints_of(parts: PlanParts, plan: Plan) -> list[str]:
    """Return a hint for each failed command or check that may have failed because it has no network."""
    from cleveragents.plans.model.strategy import Strategy

    if plan.strategy is None or not any(map(looks_like_no_network, _failures(parts, plan))):
        return []
    strategy = Strategy.from_json(plan.strategy)
    if _allows(strategy) or not parts.commands(Path(plan.resource)).isolates:
        return []
    return [f"commands have no network under the profile {strategy.profile}; {_remedy(strategy)}"]


def _failures(parts: PlanParts, plan: Plan) -> Iterator[str]:
    """Yield the error of the plan with the output of its last command, and the failed checks."""
    if plan.error is not None:
        yield plan.error
        for call in parts.history.calls(plan.id)[-1:]:
            yield str(call.result.get("output")) if isinstance(call.result, Mapping) else ""
    for check in checks_of(parts, plan, None):
        if check["verdict"] != "passed":
            yield str(check["details"])


def _remedy(strategy: Strategy) -> str:
    """Return a text that names the profiles that allow the network, or says that the action's own profile
    denies it.
    """
    from cleveragents.core.policy import PROFILES

    allowing = [name for name in PROFILES if _allows(replace(strategy, profile=name))]
    if not allowing:
        return f"the action's own profile, {strategy.action_profile}, denies the network"
    return f"to allow the network, run it with the profile {' or '.join(allowing)}"


def _allows(strategy: Strategy) -> bool:
    from cleveragents.core.policy import Capability, Verdict

    return strategy.policy.verdict(Capability.NETWORK) is Verdict.ALLOW
