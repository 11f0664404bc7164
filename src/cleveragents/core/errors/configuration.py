"""Configuration."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import InvalidRequest
from cleveragents.core.errors.remedy import Remedy

__all__ = ["ConfigurationError"]


@dataclass(eq=False)
class ConfigurationError(InvalidRequest):
    """A setting is unknown, malformed or out of range."""

    message = "{source}: {problem}"
    source: str
    problem: str
    remedies: tuple[Remedy, ...] = ()
