"""All context strategies there are: the modules of `strategies`, and what installed packages offer.

A module of ours has `make(ground)`, and may have `offered()`, which says whether what it needs is
installed. An entry point's object is such a `make`; it is loaded by the strategy's first run, on a thread
that can be left behind. A built-in name cannot be taken over by a package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint

from cleveragents.config.entry_points import built_in, installed
from cleveragents.context import strategies
from cleveragents.context.context_parts import MakeStrategy, StrategyGround
from cleveragents.context.strategy import ContextStrategy

__all__ = ["ENTRY_POINTS", "StrategyRegistry"]

ENTRY_POINTS = "cleveragents.context_strategies"
"""The group; an entry's name is the strategy's, its object a `MakeStrategy`."""


class StrategyRegistry:
    """What is built in and what is installed. Any thread may use it: what it works out twice is the same."""

    def __init__(self, entries: Iterable[EntryPoint] | None = None) -> None:
        self._entries = entries

    def offers(self) -> Mapping[str, MakeStrategy]:
        """Every strategy by its name, in order of names."""
        found: dict[str, MakeStrategy] = {name: _Builtin(name) for name in self._builtin if _is_offered(name)}
        for entry in self._found:
            if entry.name not in self._builtin:  # guard: what a built-in name means is ours to say
                found.setdefault(entry.name, _Installed(entry))
        return {name: found[name] for name in sorted(found)}

    def names(self) -> frozenset[str]:
        """Of all that there are, those among them that lack what they need."""
        return self._builtin | {entry.name for entry in self._found}

    def notes(self) -> tuple[str, ...]:
        """What is installed and not used."""
        taken = [entry for entry in self._found if entry.name in self._builtin]
        return tuple(
            f"an installed package offers a strategy {entry.name}, whose name is taken; it is not used"
            for entry in taken
        )

    @property
    def _builtin(self) -> frozenset[str]:
        return built_in(strategies)

    @cached_property
    def _found(self) -> tuple[EntryPoint, ...]:
        found = installed(ENTRY_POINTS) if self._entries is None else self._entries
        return tuple(sorted(found, key=lambda entry: (entry.name, entry.value)))


@dataclass(frozen=True, slots=True)
class _Builtin:
    name: str

    def __call__(self, ground: StrategyGround) -> ContextStrategy:
        made: ContextStrategy = import_module(f"{strategies.__name__}.{self.name}").make(ground)
        return made


@dataclass(frozen=True, slots=True)
class _Installed:
    entry: EntryPoint

    def __call__(self, ground: StrategyGround) -> ContextStrategy:
        made: ContextStrategy = self.entry.load()(ground)
        return made


def _is_offered(name: str) -> bool:
    """One that cannot even be imported is offered all the same: its report will say why it fails."""
    try:
        module = import_module(f"{strategies.__name__}.{name}")
    except ImportError:
        return True
    offered = getattr(module, "offered", None)
    return offered is None or bool(offered())
