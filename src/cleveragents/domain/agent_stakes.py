"""What is at stake when an agent of somebody else's wants leave: what it runs, and what it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleveragents.domain.json_value import JsonValue

__all__ = ["at_stake"]


def at_stake(arguments: Mapping[str, JsonValue]) -> str:
    """In words, to be put behind the question; nothing for calls that are no agent's."""
    argv = _names(arguments.get("argv"))
    if not argv or "environment" not in arguments or "home" not in arguments:
        return ""
    variables, home = _names(arguments["environment"]), _names(arguments["home"])
    gets = [
        f"your variables {', '.join(variables)}" if variables else "none of your variables",
        f"copies of {', '.join(f'~/{path}' for path in home)}" if home else "nothing of your home",
        "the network" if arguments.get("network") else "no network",
    ]
    return f": it runs {argv[0]}, which gets {', '.join(gets[:-1])} and {gets[-1]}"


def _names(value: JsonValue) -> list[str]:
    many = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [str(one) for one in many]
