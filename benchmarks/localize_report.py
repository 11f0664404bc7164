"""The accuracy of localization: measures over ranks, a table, and a plot without libraries."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = [
    "DEPTHS",
    "SUFFIXES",
    "Measures",
    "Outcome",
    "differences",
    "is_candidate",
    "language_of",
    "mean_over_projects",
    "measured",
    "plot",
    "table",
]

DEPTHS = (1, 3, 5, 10, 20)
SUFFIXES = {
    "python": (".py",),
    "javascript": (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue"),
    "go": (".go",),
    "java": (".java",),
    "rust": (".rs",),
}
"""The languages that are measured; JavaScript and TypeScript are one."""
_TEST_DIRECTORIES = frozenset(
    {"test", "tests", "__tests__", "spec", "specs", "e2e", "testdata", "fixtures", "__fixtures__"}
)
_TEST_FILE = re.compile(r"_test\.go$|[.-](?:test|spec)\.\w+$|Tests?\.java$|^Test\w*\.java$|^tests?\.\w+$")


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


def language_of(path: str) -> str:
    """Return the language of a file by its name; "" for others."""
    return next((name for name, suffixes in SUFFIXES.items() if path.endswith(suffixes)), "")


def is_candidate(path: str, language: str = "python") -> bool:
    """Return whether a file is ranked: one of the language that is not a test."""
    *directories, name = path.split("/")
    if not name.endswith(SUFFIXES[language]):
        return False
    if language == "python":
        tests = name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
        return "tests" not in directories and not tests
    return _TEST_DIRECTORIES.isdisjoint(directories) and not _TEST_FILE.search(name)


def measured(outcomes: Sequence[Outcome]) -> Measures:
    total = len(outcomes)
    within = {depth: sum(_hit(one, depth) for one in outcomes) / total for depth in DEPTHS}
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


_DRAWS = 10_000


def differences(old: Sequence[Outcome], new: Sequence[Outcome]) -> list[str]:
    """Return the differences of two methods on the same cases, a line for each depth and one for the mean of
    all depths to 10: the mean over cases and the mean over projects, in points, each with its 95 % interval
    by a paired bootstrap.
    """
    lines: list[str] = []
    groups = {f"@{depth}": (depth,) for depth in DEPTHS} | {"mean": DEPTHS[:-1]}
    for name, depths in groups.items():
        changes: dict[str, list[float]] = {}
        for before, after in zip(old, new, strict=True):
            change = statistics.mean(_hit(after, depth) - _hit(before, depth) for depth in depths)
            changes.setdefault(before.repository, []).append(change)
        cases = [change for of_project in changes.values() for change in of_project]
        projects = [statistics.mean(of_project) for of_project in changes.values()]
        lines.append(f"{name:<5} cases {_interval(cases)}  projects {_interval(projects)}")
    return lines


def _hit(one: Outcome, depth: int) -> bool:
    return all(0 < rank <= depth for rank in one.ranks)


def _interval(changes: Sequence[float]) -> str:
    drawn = random.Random(1)
    means = sorted(statistics.fmean(drawn.choices(changes, k=len(changes))) for _ in range(_DRAWS))
    low, high = means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS)]
    return f"{100 * statistics.fmean(changes):+5.1f} ({100 * low:+5.1f} to {100 * high:+5.1f})"


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
