"""Mutants that survive, and why that is right. The key is `file::place::guard`."""

from __future__ import annotations

__all__ = ["EXPLAINED"]

EXPLAINED: dict[str, str] = {}
