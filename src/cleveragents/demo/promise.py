"""A promise of the demo, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Promise"]


@dataclass(frozen=True, slots=True)
class Promise:
    """Something promised, whether it was kept, and what shows it."""

    what: str
    kept: bool
    shown_by: str
