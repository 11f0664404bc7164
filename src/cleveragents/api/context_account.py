"""An answer of the context pipeline as programs get it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.context.model.context import StrategyReport
    from cleveragents.context.model.context_answer import ContextAnswer, PackedFragment
    from cleveragents.core.json_value import JsonValue

__all__ = ["context_account", "has_no_files"]


def context_account(answer: ContextAnswer, *, only_files: bool, limit: int | None) -> dict[str, JsonValue]:
    """The files that matter, the fragments with who found them, and how it came about."""
    return {
        "files": tuple(place.path for place in answer.files[:limit]),
        "fragments": () if only_files else tuple(_fragment(fragment) for fragment in answer.fragments),
        "strategies": tuple(_strategy(report) for report in answer.strategies),
        "tokens": answer.tokens,
        "budget": answer.budget,
        "took_ms": round(answer.seconds * 1000),
        "notes": answer.notes,
        "preamble": answer.preamble,
        "skeleton": answer.skeleton,
    }


def has_no_files(root: Path) -> bool:
    """Whether there is nothing to be found there, whatever is asked."""
    try:
        return all(entry.name == ".git" for entry in root.iterdir())
    except OSError:  # what cannot be looked at, the index says
        return False


def _fragment(fragment: PackedFragment) -> dict[str, JsonValue]:
    place, rendering = fragment.place, fragment.rendering
    return {
        "path": place.path,
        "lines": None if place.span is None else (place.span.first, place.span.last),
        "score": round(place.score, 4),
        "depth": rendering.depth.value,
        "tokens": rendering.tokens,
        "text": rendering.text,
        "found_by": tuple(
            {"strategy": found.strategy, "signal": found.signal, "score": round(found.score, 4)}
            for found in place.findings
        ),
    }


def _strategy(report: StrategyReport) -> dict[str, JsonValue]:
    return {
        "name": report.name,
        "status": report.status.value,
        "found": len(report.fragments),
        "ms": round(report.seconds * 1000),
        "error": report.error,
        "truncated": report.truncated,
    }
