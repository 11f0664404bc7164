"""Actions as rows and JSON show them: masked, though they are kept as they are, because plans run them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cleveragents.core.actions.invariant import Invariant
from cleveragents.core.json_value import freeze
from cleveragents.core.text.redaction import redact, redact_text

if TYPE_CHECKING:
    from cleveragents.core.actions.arguments import Argument
    from cleveragents.core.actions.model import Action
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.ports.actions import ActionListing

__all__ = ["action_account", "action_row", "argument_account"]


def action_row(listing: ActionListing) -> dict[str, JsonValue]:
    """An action in a list: the first line of what it says of itself, and what is wrong with it."""
    described = listing.action.description if listing.action else ""
    return {
        "name": listing.name,
        "origin": listing.origin.value,
        "trusted": listing.trusted,
        "description": redact_text(described.partition("\n")[0]),
        "source": listing.source,
        "problem": listing.problem,
    }


def argument_account(argument: Argument) -> dict[str, JsonValue]:
    """An argument that an action takes."""
    return {
        "name": argument.name,
        "type": argument.type.value,
        "required": argument.required,
        "default": freeze(redact(argument.default)),
        "description": redact_text(argument.description),
        "rest": argument.rest,
    }


def action_account(action: Action) -> dict[str, JsonValue]:
    """All of an action."""
    setup = action.setup
    return {
        "name": action.name,
        "description": redact_text(action.description),
        "arguments": [argument_account(argument) for argument in action.arguments],
        "strategize_actor": action.strategize_actor,
        "execute_actor": action.execute_actor,
        "review_actor": action.review_actor,
        "steps": [
            {
                "name": None if step.name is None else redact_text(step.name),
                "tool": step.tool,
                "with": freeze(redact(step.arguments)),
                "shell": step.shell,
                "continue_on_failure": step.continue_on_failure,
                "expect_exit": step.expect_exit,
            }
            for step in action.steps
        ],
        "checks": [
            {
                "name": redact_text(check.name),
                "command": redact_text(check.command),
                "required": check.required,
                "timeout_seconds": check.timeout_seconds,
            }
            for check in action.checks
        ],
        "invariants": [redact_text(text) for text in action.invariants],
        "enforced": [redact_text(text) for text in action.invariants if Invariant.parse(text).enforced],
        "definition_of_done": redact_text(action.definition_of_done),
        "profile": action.profile,
        "budget": asdict(action.budget),
        "setup": {"command": freeze(redact(setup.command)), "key": setup.key, "paths": setup.paths}
        if setup
        else None,
        "include": action.include,
    }
