"""The budget of a session in the terminal: what is spent, and the limits that a person types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.api.format import duration_text
from cleveragents.cli.budget_options import read_limits
from cleveragents.core.errors import RequestRefused

if TYPE_CHECKING:
    from cleveragents.api.conversations.client import ConversationView
    from cleveragents.api.plans.request import Limits

__all__ = ["budget_facts", "typed_limits"]

_OPTIONS = {
    "": "max_usd",
    "usd": "max_usd",
    "tokens": "max_tokens",
    "steps": "max_steps",
    "time": "timeout",
}


def typed_limits(text: str) -> Limits:
    """Return the limit after `/budget`: `2` dollars, `50000 tokens`, `20 steps` or `10m time`. Raises
    `RequestRefused`.
    """
    amount, _, unit = text.strip().partition(" ")
    option = _OPTIONS.get(unit.strip().lower())
    if option is None:
        raise RequestRefused(f"unknown unit {unit.strip()!r}: write usd, tokens, steps or time", "limits")
    try:
        return read_limits({option: amount.removeprefix("$")})
    except click.BadParameter as error:
        raise RequestRefused(f"the limit is wrong: {error.message}", "limits") from None
    except ValueError:  # not a number: `nan`
        raise RequestRefused(f"the limit is wrong: {amount!r} is not a number", "limits") from None


def budget_facts(found: ConversationView) -> dict[str, str]:
    """Return what a session has spent, and its limits."""
    limits = found.limits
    most = "" if limits.usd is None else f" of ${limits.usd:,.2f}"
    facts = {
        "model calls": f"{found.model_calls:,}{_of(limits.steps)}",
        "tokens": f"{found.tokens:,}{_of(limits.tokens)}",
        "cost": f"{'unknown' if found.usd is None else f'${found.usd:.4f}'}{most}",
    }
    return facts if limits.seconds is None else {**facts, "turn": f"at most {duration_text(limits.seconds)}"}


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {limit:,}"
