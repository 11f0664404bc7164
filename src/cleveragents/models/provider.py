"""What a provider is to the catalogue: its name, what it needs, and how a model of it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cleveragents.models.ports import Model, ModelFacts

__all__ = ["ONE_CALL_EACH", "Opening", "Provider"]

ONE_CALL_EACH = {"Connection": "close"}
"""Headers: no connection outlives its call. Beside an answer of seconds a new one costs nothing, and none is
ever stale, left over at the end, or tied to a loop that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A model to be opened. `model` is its name at the provider; `timeout_seconds` bounds a whole answer,
    and is kept by whoever calls: a library that takes a limit of its own may be told it."""

    facts: ModelFacts
    model: str
    timeout_seconds: float
    key: str | None = field(default=None, repr=False)
    base_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider. `open` may import what takes long; whatever it finds missing it says as
    `ConfigurationError`.

    `module` is what it imports, `extra` the extra of ours that installs it, `variables` those that may hold
    its key (any of them), `base_url_variables` those that may say where it is. `reads_facts` is for models
    that say themselves what they can do.
    """

    name: str
    open: Callable[[Opening], Model]
    module: str | None = None
    extra: str | None = None
    variables: tuple[str, ...] = ()
    base_url_variables: tuple[str, ...] = ()
    reads_facts: Callable[[str, str], ModelFacts] | None = None
