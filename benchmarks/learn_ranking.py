"""`python -m benchmarks.learn_ranking CACHE`: compare learned rankings with the shipped ones.

CACHE is the folder of `benchmarks.localize_signals`. Every learned ranking is measured on projects that were
left out: each project in turn is ranked by what was learned from all others. The report contains the mean
over cases and the mean over projects, for files, functions and classes.

Weights maximise the likelihood of the true candidates if one is drawn in proportion to the exponential of its
weighted sum (a listwise softmax). They are not negative and have a square penalty. `--trees` also compares
gradient-boosted trees, which need the package `lightgbm`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.localize_report import Outcome, is_candidate, mean_over_projects, measured, table
from cleveragents.context.search.definition_signals import DefinitionSignals, definition_scores

_PENALTY = 5.0
_STEPS = 150
_MOST_ROWS = 300
_MOST_FILES = 60
_NOT_LEARNED = frozenset({"keyword.test", "keyword.text"})
_TREES = {
    "objective": "lambdarank",
    "lambdarank_truncation_level": 15,
    "num_leaves": 7,
    "min_data_in_leaf": 50,
    "learning_rate": 0.05,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 20.0,
    "num_threads": 1,
    "verbose": -1,
    "seed": 1,
}
_ROUNDS = 150

Matrix = NDArray[np.float32]
Unit = tuple[str, str, str, int, int]
"""The path, the dotted name, the kind, and the first and last line of a definition."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is ranked for one case: a row of signals for each candidate, which candidates are true, and their
    scores in the shipped ranking.
    """

    rows: Matrix
    true: NDArray[np.bool_]
    shipped: Matrix


@dataclass(frozen=True, slots=True)
class Cached:
    """One case of the cache."""

    id: str
    repository: str
    true_files: tuple[str, ...]
    functions: frozenset[tuple[str, int]]
    classes: frozenset[tuple[str, str]]
    units: tuple[Unit, ...]
    paths: tuple[str, ...]
    definitions: Candidates
    files: Candidates


Learn = Callable[[Sequence[Candidates]], Callable[[Matrix], Matrix]]
Scores = dict[str, Matrix]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn_ranking", description=__doc__)
    parser.add_argument("cache", type=Path)
    parser.add_argument(
        "--one-file", action="store_true", help="report only cases whose fix changed one file"
    )
    parser.add_argument("--trees", action="store_true", help="compare gradient-boosted trees")
    options = parser.parse_args(arguments)
    cases = read_cache(options.cache)
    shown = [case for case in cases if not options.one_file or len(case.true_files) == 1]
    print(f"{len(cases)} cases of {len({case.repository for case in cases})} projects")
    learns: dict[str, Learn] = {"weights": learn_weights}
    if options.trees:
        learns["trees"] = learn_trees
    scores = {"files, shipped": {case.id: case.files.shipped for case in cases}}
    scores |= {f"files, {name}": left_out(cases, "files", learn) for name, learn in learns.items()}
    _show({name: [_file_outcome(case, of[case.id]) for case in shown] for name, of in scores.items()})
    scores = {"shipped": {case.id: case.definitions.shipped for case in cases}}
    scores |= {name: left_out(cases, "definitions", learn) for name, learn in learns.items()}
    for kind, outcome in (("functions", _function_outcome), ("classes", _class_outcome)):
        _show(
            {
                f"{kind}, {name}": [one for case in shown if (one := outcome(case, of[case.id])) is not None]
                for name, of in scores.items()
            }
        )
    return 0


def read_cache(folder: Path) -> list[Cached]:
    """Return the cases of the cache in which a definition was found."""
    told: list[tuple[dict[str, Any], Matrix]] = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as stored:
            told.append((json.loads(bytes(stored["told"])), stored["matrix"]))
    signals = sorted({signal for one, _ in told for signal in one["files"]} - _NOT_LEARNED)
    return [_cached(one, matrix, signals) for one, matrix in told if len(matrix)]


def _cached(told: dict[str, Any], matrix: Matrix, signals: Sequence[str]) -> Cached:
    units: list[Unit] = [tuple(unit) for unit in told["units"]]
    shipped = definition_scores(DefinitionSignals((), matrix))
    kept = [row for row in np.argsort(-shipped, kind="stable").tolist() if is_candidate(units[row][0])]
    kept = kept[:_MOST_ROWS]
    functions = frozenset((path, first) for path, _, first, _ in told["functions"])
    true = np.asarray([(units[row][0], units[row][3]) in functions for row in kept])
    paths = [path for path, _ in told["fused"] if is_candidate(path)][:_MOST_FILES]
    # Products with the score of the file, because the shipped ranking consists of them.
    rows = np.hstack([matrix, matrix[:, :1] * matrix])[kept]
    return Cached(
        id=told["case"],
        repository=told["repository"],
        true_files=tuple(told["true_files"]),
        functions=functions,
        classes=frozenset((path, name) for path, name, _, _ in told["classes"]),
        units=tuple(units[row] for row in kept),
        paths=tuple(paths),
        definitions=Candidates(rows, true, shipped[kept]),
        files=_file_candidates(told, paths, signals),
    )


def _file_candidates(told: dict[str, Any], paths: Sequence[str], signals: Sequence[str]) -> Candidates:
    rows = {path: row for row, path in enumerate(paths)}
    shares = np.zeros((len(paths), len(signals)), dtype=np.float32)
    for column, signal in enumerate(signals):
        scores = told["files"].get(signal, {})
        highest = max(scores.values(), default=0.0)
        for path, score in scores.items():
            if path in rows and highest > 0:
                shares[rows[path], column] = max(0.0, score) / highest
    true = np.asarray([path in told["true_files"] for path in paths])
    return Candidates(shares, true, -np.arange(len(paths), dtype=np.float32))


def learn_weights(cases: Sequence[Candidates]) -> Callable[[Matrix], Matrix]:
    """Learn weights of at least zero by accelerated gradient descent; the problem is convex."""
    known = [case for case in cases if case.true.any()]
    rows = np.concatenate([case.rows for case in known]).astype(np.float64)
    sizes = np.asarray([len(case.rows) for case in known])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    truth = np.concatenate([case.true / case.true.sum() for case in known])
    step = 1 / (_PENALTY + 0.5 * float(np.maximum.reduceat((rows**2).sum(axis=1), starts).sum()))
    weights = np.zeros(rows.shape[1])
    ahead, speed = weights.copy(), 1.0
    for _ in range(_STEPS):
        sums = rows @ ahead
        drawn = np.exp(sums - np.repeat(np.maximum.reduceat(sums, starts), sizes))
        drawn /= np.repeat(np.add.reduceat(drawn, starts), sizes)
        moved = np.maximum(ahead - step * (_PENALTY * ahead + rows.T @ (drawn - truth)), 0.0)
        faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
        ahead = moved + (speed - 1) / faster * (moved - weights)
        weights, speed = moved, faster
    return lambda found: found @ weights.astype(np.float32)


def learn_trees(cases: Sequence[Candidates]) -> Callable[[Matrix], Matrix]:
    """Learn gradient-boosted trees by LambdaMART."""
    lightgbm = import_module("lightgbm")
    known = [case for case in cases if case.true.any()]
    data = lightgbm.Dataset(
        np.concatenate([case.rows for case in known]),
        np.concatenate([case.true for case in known]).astype(np.float32),
        group=[len(case.rows) for case in known],
    )
    model = lightgbm.train(_TREES, data, _ROUNDS)
    return lambda rows: np.asarray(model.predict(rows, num_threads=1), dtype=np.float32)


def left_out(cases: Sequence[Cached], part: str, learn: Learn) -> Scores:
    """Return the scores of each case, by what was learned from all other projects."""
    scores: Scores = {}
    for project in sorted({case.repository for case in cases}):
        model = learn([getattr(case, part) for case in cases if case.repository != project])
        for case in cases:
            if case.repository == project:
                scores[case.id] = model(getattr(case, part).rows)
    return scores


def _show(outcomes: dict[str, list[Outcome]]) -> None:
    print()
    print(table((name, measured(found)) for name, found in outcomes.items()))
    print(table((f"{name}, by project", mean_over_projects(found)) for name, found in outcomes.items()))


def _file_outcome(case: Cached, scores: Matrix) -> Outcome:
    order = [case.paths[row] for row in np.argsort(-scores, kind="stable").tolist()]
    return _outcome(case, order, case.true_files)


def _function_outcome(case: Cached, scores: Matrix) -> Outcome | None:
    """Return the ranks of the true functions among all functions; None if the fix touched none."""
    order = [case.units[row] for row in np.argsort(-scores, kind="stable").tolist()]
    functions = [(path, first) for path, _, kind, first, _ in order if kind != "class"]
    return _outcome(case, functions, case.functions) if case.functions else None


def _class_outcome(case: Cached, scores: Matrix) -> Outcome | None:
    """Return the ranks of the true classes, each ranked by its best member; None if the fix touched none."""
    order = [case.units[row] for row in np.argsort(-scores, kind="stable").tolist()]
    owners = [
        (path, name if kind == "class" else name.rpartition(".")[0]) for path, name, kind, _, _ in order
    ]
    classes = dict.fromkeys(owner for owner in owners if owner[1])
    return _outcome(case, classes, case.classes) if case.classes else None


def _outcome(case: Cached, order: Iterable[object], true: Iterable[object]) -> Outcome:
    ranks = {candidate: rank for rank, candidate in enumerate(order, 1)}
    return Outcome(case.id, case.repository, "", tuple(ranks.get(one, 0) for one in true), 0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
