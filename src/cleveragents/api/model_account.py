"""Language models as rows and JSON show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue
    from cleveragents.models.catalogue import ModelCatalogue
    from cleveragents.models.ports import ModelFacts

__all__ = ["model_account", "model_row", "no_provider"]

_PRICES = ("input", "cached", "output")

_MILLION = 10**6


def model_account(facts: ModelFacts, catalogue: ModelCatalogue) -> dict[str, JsonValue]:
    """What is known of a model; prices are in dollars per million tokens."""
    price = facts.price
    return {
        "model": facts.name,
        "input": None if price is None else price.input / _MILLION,
        "cached": None if price is None or price.cached is None else price.cached / _MILLION,
        "output": None if price is None else price.output / _MILLION,
        "context_tokens": facts.context_tokens,
        "output_tokens": facts.output_tokens,
        "key": _key(facts, catalogue),
    }


def model_row(known: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The same for people, to whom an empty price might be none."""
    return {name: "unknown" if name in _PRICES and value is None else value for name, value in known.items()}


def no_provider(name: str, known: Sequence[str]) -> str:
    """What is said of one that there is not."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"there is no provider {name!r}; {hint}"


def _key(facts: ModelFacts, catalogue: ModelCatalogue) -> str:
    if not catalogue.needs_key(facts.name):
        return "not needed"
    return "there" if facts.keyed else "missing"
