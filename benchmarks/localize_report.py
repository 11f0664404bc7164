"""The accuracy of localization: measures over ranks, a table, and a plot without libraries."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = [
    "DEPTHS",
    "Measures",
    "Outcome",
    "is_candidate",
    "mean_over_projects",
    "measured",
    "plot",
    "table",
]

DEPTHS = (1, 3, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case with one method: the rank of each true file, 0 if not found, and the duration."""

    case: str
    repository: str
    system: str
    ranks: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Measures:
    """`accuracy[k]` is the share of cases with all true files among the first k."""

    cases: int
    accuracy: Mapping[int, float]
    reciprocal_rank: float
    median_seconds: float
    slowest_seconds: float


def is_candidate(path: str) -> bool:
    """Return whether a file is ranked: Python that is not a test."""
    *directories, name = path.split("/")
    if not name.endswith(".py") or "tests" in directories:
        return False
    return not (name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py")


def measured(outcomes: Sequence[Outcome]) -> Measures:
    total = len(outcomes)
    within = {
        depth: sum(all(0 < rank <= depth for rank in one.ranks) for one in outcomes) / total
        for depth in DEPTHS
    }
    firsts = [min((rank for rank in one.ranks if rank), default=0) for one in outcomes]
    seconds = sorted(one.seconds for one in outcomes)
    return Measures(
        total,
        within,
        sum(1 / first for first in firsts if first) / total,
        statistics.median(seconds),
        seconds[-1],
    )


def mean_over_projects(outcomes: Sequence[Outcome]) -> Measures:
    """Return the mean of the measures of each project, so that a project with many cases counts once."""
    projects: dict[str, list[Outcome]] = {}
    for one in outcomes:
        projects.setdefault(one.repository, []).append(one)
    each = [measured(found) for found in projects.values()]
    return Measures(
        len(outcomes),
        {depth: statistics.mean(one.accuracy[depth] for one in each) for depth in DEPTHS},
        statistics.mean(one.reciprocal_rank for one in each),
        statistics.median(one.median_seconds for one in each),
        max(one.slowest_seconds for one in each),
    )


def table(rows: Iterable[tuple[str, Measures]]) -> str:
    lines = [f"{'':34} cases  " + "  ".join(f"@{depth:<4}" for depth in DEPTHS) + "  MRR    ms    worst ms"]
    for name, one in rows:
        shares = "  ".join(f"{100 * one.accuracy[depth]:5.1f}" for depth in DEPTHS)
        times = f"{1000 * one.median_seconds:6.0f}  {1000 * one.slowest_seconds:8.0f}"
        lines.append(f"{name:34} {one.cases:5}  {shares}  {one.reciprocal_rank:.3f} {times}")
    return "\n".join(lines)


_WIDTH = 760
_BAR = 15
_LEFT = 230
_SHADES = ("#1f5f8b", "#4f94c4", "#8fbfe0", "#cfe4f3", "#e8f1f9")


def plot(rows: Sequence[tuple[str, Measures]], title: str) -> str:
    """Return an SVG with bars of accuracy: one group per row, one bar per depth."""
    group = len(DEPTHS) * _BAR + 12
    height = 60 + group * len(rows)
    scale = (_WIDTH - _LEFT - 60) / 100
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="15">{escape(title)}</text>',
    ]
    for position, depth in enumerate(DEPTHS):
        x = _LEFT + 90 * position
        parts.append(f'<rect x="{x}" y="34" width="10" height="10" fill="{_SHADES[position]}"/>')
        parts.append(f'<text x="{x + 15}" y="43">Acc@{depth}</text>')
    for number, (name, one) in enumerate(rows):
        top = 56 + group * number
        parts.append(f'<text x="{_LEFT - 10}" y="{top + group / 2}" text-anchor="end">{escape(name)}</text>')
        for position, depth in enumerate(DEPTHS):
            share = 100 * one.accuracy[depth]
            y = top + position * _BAR
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{share * scale:.1f}" height="{_BAR - 2}" '
                f'fill="{_SHADES[position]}"/>'
            )
            parts.append(
                f'<text x="{_LEFT + share * scale + 5:.1f}" y="{y + 11}" font-size="11">{share:.0f}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])
