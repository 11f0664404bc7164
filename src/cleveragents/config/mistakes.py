"""Mistakes in settings, told all at once: who mends one should not have to ask for the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cleveragents.core.errors import ConfigurationError
from cleveragents.core.errors.remedy import Remedy

__all__ = ["Mistakes"]


class Mistakes:
    """What was found wrong so far, in order. Not thread-safe: it lives as long as one reading does."""

    def __init__(self) -> None:
        self._found: list[ConfigurationError] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, error: ConfigurationError) -> None:
        self._found.append(error)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keeps the `ConfigurationError` that ends its block, and goes on after it."""
        try:
            yield
        except ConfigurationError as error:
            self.add(error)

    def raise_any(self) -> None:
        """`ConfigurationError` if anything was found: the first, and each other one on a line below it."""
        if self._found:
            first, *others = self._found
            remedies: list[Remedy] = []
            for remedy in (remedy for error in self._found for remedy in error.remedies):
                remedies += [] if remedy in remedies else [remedy]
            problem = "\n".join([first.problem, *map(str, others)])
            raise ConfigurationError(first.source, problem, tuple(remedies))
