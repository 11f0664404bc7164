"""A plan as a server tells of it, in the words and the JSON of the command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cleveragents.api.plans.account import has_passed
from cleveragents.api.plans.changes import unapplied_in_words
from cleveragents.api.wording import on_one_line
from cleveragents.cli.output import Output, continued, progress
from cleveragents.cli.plan.account import tell_of_changes
from cleveragents.cli.plan.outcome import FAILED, INTERRUPTED, NEEDS_HUMAN, TRY_AGAIN
from cleveragents.cli.render.narrow import steps_in_lines
from cleveragents.cli.render.remedies import step_pairs
from cleveragents.core.errors import Remedy, remedies_from_json

__all__ = [
    "Account",
    "as_local",
    "error_of",
    "exit_code_of",
    "is_done",
    "is_running",
    "next_steps",
    "tell_changes",
    "tell_next",
    "tell_reason",
    "title_of",
    "told_account",
    "waited_for",
]

Account = Mapping[str, Any]

_RUNNING = ("queued", "processing")
_ENDED = ("applied", "rejected", "undone", "cancelled")
_MORE = (
    "status",
    "at_rest",
    "label",
    "project",
    "resource_name",
    "needs",
    "meaning",
    "can",
    "next_steps",
    "steps",
    "out_of_reach",
    "in_the_way",
    "hints",
)
"""What a server says beside what the command line does."""

_KNOWN_OUT_OF_REACH = (
    *("id", "goal", "action", "phase", "state", "resource", "created", "updated", "waiting_for", "error"),
    *("request", "job", "parent", "root", "depth", "out_of_reach"),
)


def as_local(account: Account) -> dict[str, Any]:
    """As the same command tells it where no server is between."""
    if account.get("out_of_reach"):
        return {name: account[name] for name in _KNOWN_OUT_OF_REACH}
    told = {name: value for name, value in account.items() if name not in _MORE}
    if "spending" in told and told["spending"]["model_calls"] is None:
        told["spending"] = {}
    return told


def told_account(output: Output, account: Account) -> None:
    """Where a plan stands: all of it for programs, for people what they need to name it."""
    if output.for_programs:
        output.record(as_local(account))
        return
    goal = on_one_line(account["goal"])
    output.record({"plan": account["id"], "goal": goal, "state": account["meaning"]})


def is_running(account: Account) -> bool:
    """Whether somebody works at the plan, or will without being asked; of sub-plans, see `waits_below`."""
    if account["phase"] == "strategize" and account["state"] == "complete":
        return True
    return account["state"] in _RUNNING


def is_done(account: Account) -> bool:
    """Whether there is a result that nobody decided about."""
    return (account["phase"], account["state"]) == ("execute", "complete")


def waited_for(account: Account) -> str | None:
    """What a plan that waits, waits for."""
    waiting = account["waiting_for"]
    if account["state"] != "waiting":
        return None
    return str(waiting.get("for") or "leave") if isinstance(waiting, Mapping) else "leave"


def exit_code_of(account: Account, *, only_review: bool = False) -> int:
    """As `agents run` and `agents plan watch` end for it."""
    state = account["state"]
    if state == "errored":
        return FAILED
    if state == "cancelled":
        return INTERRUPTED
    if state in _ENDED:
        return 0
    if is_running(account) or (waited_for(account) == "sub-plans" and account["needs"] is None):
        return TRY_AGAIN
    if state != "complete":
        return NEEDS_HUMAN
    if account["parent"] is not None:
        return 0
    if failed_checks(account):
        return NEEDS_HUMAN
    return 0 if only_review or not account["changes"] else NEEDS_HUMAN


def failed_checks(account: Account) -> list[str]:
    """The required ones that did not pass."""
    return [str(one["name"]) for one in account["checks"] if one["required"] and not has_passed(one)]


def place_of(account: Account) -> str:
    """Where its result goes, or went, in words."""
    resource, branch = str(account["resource"]), account["branch"]
    return resource if branch is None else f"branch {branch} of {resource.rpartition('#')[0]}"


def error_of(account: Account, otherwise: str) -> str:
    """Why it failed."""
    return str(account["error"] or otherwise)


def title_of(account: Account) -> str:
    """What it is about, on one line; of a sub-plan, whose goal says all that it has to know, what it is
    called."""
    if account["parent"] is None:
        return on_one_line(account["goal"])
    name = account["request"].get("name")
    return on_one_line(str(name or account["goal"].strip().partition("\n")[0]))


def next_steps(account: Account, prefix: str, message: str | None = None) -> list[tuple[str, str]]:
    """Commands that go on from here, as they are written with this server."""
    steps: list[Remedy] = []
    for step in remedies_from_json(account["steps"]):
        commit = {} if message is None or step.action != "plan.apply" else {"commit": message}
        # They are not those of who asks.
        text = step.text.replace("your files", place_of(account))
        steps.append(replace(step, options={**step.options, **commit}, text=text))
    return step_pairs(steps, prefix)


def tell_next(account: Account, prefix: str, message: str | None = None) -> None:
    """What can be done with the plan, on stderr."""
    for line in steps_in_lines(next_steps(account, prefix, message), sys.stderr):
        progress(line)


def tell_reason(account: Account) -> None:
    """Why the plan stands where it does, on stderr, if it has a reason."""
    error = error_of(account, "")
    waiting = account["waiting_for"]
    if account["state"] == "waiting" and isinstance(waiting, Mapping):
        error = f"it waits: {waiting.get('what') or account['meaning']}"
    elif account["state"] == "errored" and error:
        error = f"it failed: {error}"
    for line in continued(error) if error else ():
        progress(line)


def tell_changes(account: Account) -> bool:
    """The changed files and the checks that did not pass, on stderr; whether there is anything to apply."""
    from cleveragents.plans.sub_plans.words import told_left_out
    from cleveragents.sandboxes.ports import Unapplied

    left_out = told_left_out([(part["name"], part["why"]) for part in account["parts_left_out"]])
    # A server of an earlier version does not name repositories.
    unapplied = Unapplied(tuple(account["ignored"]), tuple(account.get("nested_repositories", ())))
    said = [left_out] if left_out else []
    said += unapplied_in_words(unapplied, checked=bool(account["checks"]))
    tell_of_changes(account["changes"], said, account["checks"])
    return bool(account["changes"])
