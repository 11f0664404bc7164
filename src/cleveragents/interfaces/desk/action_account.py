"""Actions as rows and JSON show them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cleveragents.domain.invariant import Invariant

if TYPE_CHECKING:
    from cleveragents.application.ports.actions import ActionListing
    from cleveragents.domain.action import Action
    from cleveragents.domain.action_arguments import Argument
    from cleveragents.domain.json_value import JsonValue

__all__ = ["action_account", "action_row", "argument_account"]


def action_row(listing: ActionListing) -> dict[str, JsonValue]:
    """An action in a list: the first line of what it says of itself, and what is wrong with it."""
    described = listing.action.description if listing.action else ""
    return {
        "name": listing.name,
        "origin": listing.origin.value,
        "trusted": listing.trusted,
        "description": described.partition("\n")[0],
        "source": listing.source,
        "problem": listing.problem,
    }


def argument_account(argument: Argument) -> dict[str, JsonValue]:
    """An argument that an action takes."""
    return {
        "name": argument.name,
        "type": argument.type.value,
        "required": argument.required,
        "default": argument.default,
        "description": argument.description,
        "rest": argument.rest,
    }


def action_account(action: Action) -> dict[str, JsonValue]:
    """All of an action."""
    setup = action.setup
    return {
        "name": action.name,
        "description": action.description,
        "arguments": [argument_account(argument) for argument in action.arguments],
        "strategize_actor": action.strategize_actor,
        "execute_actor": action.execute_actor,
        "review_actor": action.review_actor,
        "steps": [
            {
                "name": step.name,
                "tool": step.tool,
                "with": step.arguments,
                "shell": step.shell,
                "continue_on_failure": step.continue_on_failure,
                "expect_exit": step.expect_exit,
            }
            for step in action.steps
        ],
        "checks": [
            {
                "name": check.name,
                "command": check.command,
                "required": check.required,
                "timeout_seconds": check.timeout_seconds,
            }
            for check in action.checks
        ],
        "invariants": action.invariants,
        "enforced": [text for text in action.invariants if Invariant.parse(text).enforced],
        "definition_of_done": action.definition_of_done,
        "profile": action.profile,
        "budget": asdict(action.budget),
        "setup": {"command": setup.command, "key": setup.key, "paths": setup.paths} if setup else None,
        "include": action.include,
    }
