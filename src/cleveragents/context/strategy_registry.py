"""The registry of context strategies: the modules of `strategies` and those of installed packages.

A built-in module defines `make(ground)`, and may define `offered()`, which returns whether its requirements
are installed. An entry point refers to such a `make`; it is loaded by the strategy's first run, on a thread
that can be abandoned. A package cannot replace a built-in strategy.
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
"""Entry point group. Each entry is named after its strategy and refers to a `MakeStrategy`."""


class StrategyRegistry:
    """Built-in and installed strategies.

    Any thread may use it: if two threads compute a value at once, both get the same result.
    """

    def __init__(self, entries: Iterable[EntryPoint] | None = None) -> None:
        self._entries = entries

    def offers(self) -> Mapping[str, MakeStrategy]:
        """Return every strategy by its name, sorted by name."""
        found: dict[str, MakeStrategy] = {name: _Builtin(name) for name in self._builtin if _is_offered(name)}
        for entry in self._found:
            if entry.name not in self._builtin:  # guard: a package cannot replace a built-in strategy
                found.setdefault(entry.name, _Installed(entry))
        return {name: found[name] for name in sorted(found)}

    def names(self) -> frozenset[str]:
        """Return the names of all strategies, including those whose requirements are missing."""
        return self._builtin | {entry.name for entry in self._found}

    def notes(self) -> tuple[str, ...]:
        """Return notes about installed strategies that are not used."""
        taken = [entry for entry in self._found if entry.name in self._builtin]
        return tuple(
            f"the installed strategy {entry.name} is ignored: a built-in strategy has the same name"
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
    """Return whether a strategy is offered.

    A strategy that cannot be imported is offered as well, so that its report states the error.
    """
    try:
        module = import_module(f"{strategies.__name__}.{name}")
    except ImportError:
        return True
    offered = getattr(module, "offered", None)
    return offered is None or bool(offered())
