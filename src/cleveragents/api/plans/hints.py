"""Explains commands that failed because their isolation hides the network or a program.

Commands in bubblewrap have no network unless the policy allows it, and their output ("could not resolve
host") looks like a broken connection. They see few directories, and their output ("not found") looks as if a
program were missing. Without bubblewrap nothing is hidden, and there is no hint.

Only the owner of this machine learns that a program exists, and only for commands that a person wrote: a hint
must not tell agents or users of a server which files the machine has.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cleveragents.api.plans.details import checks_of
from cleveragents.processes.environment import is_inside

if TYPE_CHECKING:
    from cleveragents.api.access import Access
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.model.strategy import Strategy

__all__ = ["hints_of", "looks_like_no_network"]

_COMMAND = "builtin/command"
_NOT_RUN = (126, 127)
"""The exit codes of a shell for "cannot execute" and "not found"."""

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


def hints_of(access: Access, plan: Plan) -> list[str]:
    """Return hints for failed commands and checks: about the network, and about hidden programs."""
    parts = access.container.plan_parts
    # guard: agents write the commands of other plans, and the checks of sub-plans that they make
    mine = access.is_owner and plan.parent_id is None
    return [*_about_network(parts, plan), *(_about_programs(parts, plan) if mine else ())]


def _about_programs(parts: PlanParts, plan: Plan) -> Iterator[str]:
    """Yield a hint for each program that exists, that a failed command of a person names, and that commands
    do not see.
    """
    from cleveragents.processes.bubblewrap import is_visible

    resource = Path(plan.resource)
    failed = [*_not_found(parts, plan)]
    if not failed or not parts.commands(resource).isolates:
        return
    named = dict.fromkeys(word for words, output in failed for word in _words(words) if word in output)
    for program in map(Path, named):
        if not program.is_absolute() or not os.access(program, os.X_OK) or not program.is_file():
            continue
        if is_inside(program, [resource]):
            yield f"{program} exists, but commands see the sandbox instead of this directory"
        elif not is_visible(program, root=resource, hidden=(resource,)):
            yield (
                f"{program} exists, but isolated commands see only the system directories and those on the "
                f"PATH of `agents`; add {program.parent} to PATH"
            )


def _not_found(parts: PlanParts, plan: Plan) -> Iterator[tuple[Sequence[str], str]]:
    """Yield the words and the output of each command of a person whose program could not be run."""
    for check in checks_of(parts, plan, None):
        if check["verdict"] == "not run":
            yield [str(check["command"])], str(check["details"])
    for call in parts.history.calls(plan.id)[-1:]:
        result = call.result if isinstance(call.result, Mapping) else {}
        if plan.action == _COMMAND and result.get("exit_code") in _NOT_RUN:
            argv = call.arguments.get("argv")
            words = [str(word) for word in argv] if isinstance(argv, Sequence) else []
            yield words, str(result.get("output"))


def _words(commands: Sequence[str]) -> Iterator[str]:
    """Yield the words of commands, also of scripts within them, as in `sh -c SCRIPT`."""
    for command in commands:
        with suppress(ValueError):  # an open quote
            yield from shlex.split(command)


def _about_network(parts: PlanParts, plan: Plan) -> list[str]:
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
