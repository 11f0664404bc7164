"""Facts about models: what they cost, read and write, from the list that is shipped and one of the user's.

What is in no list is unknown, not free. A dated name (`gpt-4o-2024-08-06`) has the facts of the undated one
unless it is listed itself. Where the user points a provider at another server, the shipped list says nothing
about what answers there; the user's own still does.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cleveragents.core.errors import ConfigurationError
from cleveragents.models.model.budget import Price
from cleveragents.models.ports import ModelFacts

__all__ = ["UNKNOWN_CONTEXT", "UNKNOWN_OUTPUT", "PriceList"]

UNKNOWN_CONTEXT = 32_768
UNKNOWN_OUTPUT = 4_096
"""Of models that are in no list: what all but the smallest can do."""

_DATED = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest|\d{3}|0)$")
_PICODOLLARS_A_TOKEN = 10**6  # of a price of one dollar per million tokens
_KEYS = {"input", "output", "cached", "context_tokens", "output_tokens"}


class PriceList:
    """The facts of models by `provider/name`, the user's before the shipped. Immutable."""

    def __init__(self, own: str = "") -> None:
        self._shipped, self.as_of = _shipped()
        self._own = _read(own) if own else {}

    def facts(self, name: str, *, shipped: bool = True) -> ModelFacts:
        """What is known; `shipped` False leaves the list that came with us out."""
        for listed in (self._own, self._shipped if shipped else {}):
            for spelling in (name, _DATED.sub("", name)):
                if spelling in listed:
                    return _named(listed[spelling], name)
        return ModelFacts(name, UNKNOWN_CONTEXT, UNKNOWN_OUTPUT)

    def nearest(self, name: str) -> str | None:
        """What somebody who wrote that may have meant; None if it is listed, or like nothing that is."""
        every = {**self._shipped, **self._own}
        if name in every or _DATED.sub("", name) in every:
            return None
        return next(iter(get_close_matches(name, list(every), n=1, cutoff=0.88)), None)

    def known(self) -> tuple[ModelFacts, ...]:
        """All that is listed, in the order of names."""
        every = {**self._shipped, **self._own}
        return tuple(every[name] for name in sorted(every))


def _named(facts: ModelFacts, name: str) -> ModelFacts:
    return ModelFacts(name, facts.context_tokens, facts.output_tokens, facts.price)


@cache
def _shipped() -> tuple[Mapping[str, ModelFacts], str]:
    text = files("cleveragents.models").joinpath("prices.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text, parse_float=Decimal)
    return _parsed(document, "prices.toml"), str(document["as_of"])


def _read(path: str) -> Mapping[str, ModelFacts]:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        document = tomllib.loads(text, parse_float=Decimal)
    except OSError as error:
        raise ConfigurationError(path, f"cannot be read: {error.strerror}; see models.prices") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(path, f"is no TOML: {error}") from None
    return _parsed(document, path)


def _parsed(document: Mapping[str, Any], source: str) -> Mapping[str, ModelFacts]:
    models = document.get("models")
    if not isinstance(models, dict):
        raise ConfigurationError(source, 'has no [models."provider/name"]; the reference shows one')
    return {name: _facts(name, entry, source) for name, entry in models.items()}


def _facts(name: str, entry: object, source: str) -> ModelFacts:
    where = f"{source}: {name}"
    if not isinstance(entry, dict):
        raise ConfigurationError(where, "should be a table")
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise ConfigurationError(where, f"unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    if ("input" in entry) != ("output" in entry):
        raise ConfigurationError(where, "a price is both, input and output")
    price = None
    if "input" in entry:
        cached = _per_token(entry["cached"], where) if "cached" in entry else None
        price = Price(_per_token(entry["input"], where), _per_token(entry["output"], where), cached)
    return ModelFacts(
        name,
        _tokens(entry.get("context_tokens", UNKNOWN_CONTEXT), where),
        _tokens(entry.get("output_tokens", UNKNOWN_OUTPUT), where),
        price,
    )


def _per_token(dollars_a_million: object, where: str) -> int:
    if isinstance(dollars_a_million, bool) or not isinstance(dollars_a_million, (int, Decimal)):
        raise ConfigurationError(where, "a price is a number: dollars per million tokens")
    exact = Decimal(dollars_a_million) * _PICODOLLARS_A_TOKEN
    if not exact.is_finite() or exact < 0 or exact != int(exact):
        raise ConfigurationError(where, f"{dollars_a_million} is no price: it is 0 or more, to 6 decimals")
    return int(exact)


def _tokens(number: object, where: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigurationError(where, "a number of tokens is a whole number above 0")
    return number
