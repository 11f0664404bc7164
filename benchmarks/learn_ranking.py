"""`python -m benchmarks.learn_ranking CACHE --cases CASES`: compare learned rankings with the shipped ones.

CACHE is the folder of `benchmarks.localize_signals`, and CASES contains the questions. Every learned ranking
is measured on projects that were left out: each project in turn is ranked by what was learned from all
others. The settings of a ranking (such as the penalty or the number of trees) are chosen by a second division
of those others, so no choice depends on the reported figures. The report contains the mean over cases and the
mean over projects, for files, functions and classes, and the paired difference to the shipped ranking with
95 % intervals: cases, or projects, are drawn again with replacement.

Weights maximise the likelihood of the true candidates if one is drawn in proportion to the exponential of its
weighted sum (a listwise softmax). They are not negative and have a square penalty. `--trees` also compares
gradient-boosted trees, which need the package `lightgbm`. The trees start from the weights, and see ranks,
leads and properties of the question as well (`benchmarks.ranking_features`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.localize import read_cases
from benchmarks.localize_report import (
    Outcome,
    differences,
    is_candidate,
    mean_over_projects,
    measured,
    table,
)
from benchmarks.ranking_features import candidate_features, question_features, within_groups
from cleveragents.context.search.definition_signals import DefinitionSignals, definition_scores
from cleveragents.context.search.fusion_weights import fusion_weights

_STEPS = 150
_MOST_ROWS = 120
_MOST_FILES = 60
_PARTS = 3
_CHOSEN_BY = (1, 3, 5, 10)
_HAND_SET = "mentions.path_title"
"""A signal that is too rare to learn; the shipped weight is used."""
_NOT_LEARNED = frozenset({"keyword.test", "keyword.text", "embeddings.file", _HAND_SET})
"""Embeddings are off by default, so neither the shipped nor the learned rankings see them."""
_PENALTY = 5.0
_PENALTIES = (1.0, 5.0, 20.0, 60.0)
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
    "max_bin": 63,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
    "seed": 1,
}
_ROUNDS = (20, 60, 120, 240)

Matrix = NDArray[np.float32]
Unit = tuple[str, str, str, int, int]
"""The path, the dotted name, the kind, and the first and last line of a definition."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is ranked for one case: a row of signals for each candidate, a row of further features, which
    candidates are true, how many true ones there are, and the scores in the shipped ranking. `fixed` is added
    to learned scores.
    """

    rows: Matrix
    features: Matrix
    fixed: Matrix
    true: NDArray[np.bool_]
    wanted: int
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


Score = Callable[[Candidates], Matrix]
Learn = Callable[[Sequence[Candidates]], Sequence[tuple[str, Score]]]
"""Learns rankings, one for each setting, with the name of the setting."""
Scores = dict[str, Matrix]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn_ranking", description=__doc__)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--cases", type=Path, required=True, help="JSON lines with the questions")
    parser.add_argument("--not-in", type=Path, help="report no case of this file, but learn from all")
    parser.add_argument("--trees", action="store_true", help="compare gradient-boosted trees")
    parser.add_argument("--only-files", action="store_true", help="compare no definitions")
    options = parser.parse_args(arguments)
    cases = read_cache(options.cache, {case.id: case.question for case in read_cases(options.cases, "")})
    hidden = {case.id for case in read_cases(options.not_in, "")} if options.not_in else set()
    shown = [case for case in cases if case.id not in hidden]
    projects = {case.repository for case in cases}
    print(f"{len(cases)} cases of {len(projects)} projects, {len(shown)} reported")
    learns: dict[str, Learn] = {"weights": learn_weights}
    if options.trees:
        learns["trees"] = learn_trees
    scores = {"shipped": {case.id: case.files.shipped for case in cases}}
    scores |= {name: left_out(cases, "files", learn) for name, learn in learns.items()}
    _show("files", shown, scores, _file_outcome)
    if options.only_files:
        return 0
    scores = {"shipped": {case.id: case.definitions.shipped for case in cases}}
    scores |= {name: left_out(cases, "definitions", learn) for name, learn in learns.items()}
    _show("functions", shown, scores, _function_outcome)
    _show("classes", shown, scores, _class_outcome)
    return 0


def read_cache(folder: Path, questions: Mapping[str, str]) -> list[Cached]:
    """Return the cases of the cache in which a definition was found."""
    told: list[tuple[dict[str, Any], Matrix]] = []
    for path in sorted(folder.glob("*.npz")):
        if path.name.endswith(".part.npz"):
            continue
        with np.load(path) as stored:
            told.append((json.loads(bytes(stored["told"])), stored["matrix"]))
    signals = sorted({signal for one, _ in told for signal in one["files"]} - _NOT_LEARNED)
    return [_cached(one, matrix, signals, questions[one["case"]]) for one, matrix in told if len(matrix)]


def _cached(told: dict[str, Any], matrix: Matrix, signals: Sequence[str], question: str) -> Cached:
    units: list[Unit] = [tuple(unit) for unit in told["units"]]
    shipped = definition_scores(DefinitionSignals((), matrix))
    kept = [row for row in np.argsort(-shipped, kind="stable").tolist() if is_candidate(units[row][0])]
    kept = kept[:_MOST_ROWS]
    functions = frozenset((path, first) for path, _, first, _ in told["functions"])
    paths = [path for path, _ in told["fused"] if is_candidate(path)][:_MOST_FILES]
    asked = question_features(question)
    return Cached(
        id=told["case"],
        repository=told["repository"],
        true_files=tuple(told["true_files"]),
        functions=functions,
        classes=frozenset((path, name) for path, name, _, _ in told["classes"]),
        units=tuple(units[row] for row in kept),
        paths=tuple(paths),
        definitions=_definition_candidates(
            [units[row] for row in kept], matrix[kept], shipped[kept], functions, asked
        ),
        files=_file_candidates(told, paths, signals, asked),
    )


def _definition_candidates(
    units: Sequence[Unit],
    matrix: Matrix,
    shipped: Matrix,
    functions: frozenset[tuple[str, int]],
    asked: Matrix,
) -> Candidates:
    of_file: dict[str, list[int]] = {}
    for row, unit in enumerate(units):
        of_file.setdefault(unit[0], []).append(row)
    # Products with the score of the file, because the shipped ranking consists of them.
    rows = np.hstack([matrix, matrix[:, :1] * matrix, shipped[:, None] / max(shipped.max(initial=0), 1e-9)])
    shape = np.asarray(
        [
            (kind == "class", kind == "method", np.log1p(last - first), name.count("."), name.count("__"))
            for _, name, kind, first, last in units
        ],
        dtype=np.float32,
    ).reshape(len(units), 5)
    signals = np.hstack([matrix, shipped[:, None]]).astype(np.float32)
    features = np.hstack(
        [candidate_features(signals, asked), within_groups(signals, [*of_file.values()]), shape]
    )
    true = np.asarray([(unit[0], unit[3]) in functions for unit in units])
    fixed = np.zeros(len(units), dtype=np.float32)
    return Candidates(rows.astype(np.float32), features, fixed, true, len(functions), shipped)


def _file_candidates(
    told: dict[str, Any], paths: Sequence[str], signals: Sequence[str], asked: Matrix
) -> Candidates:
    fusion = fusion_weights()
    rows = {path: row for row, path in enumerate(paths)}
    shares = np.zeros((len(paths), len(signals) + 1), dtype=np.float32)
    # A weight is never negative, so the prior of code that users do not run is that of all other code.
    shares[:, -1] = [fusion.prior(path) >= 0 for path in paths]
    fixed = np.zeros(len(paths), dtype=np.float32)
    shipped = np.asarray([fusion.prior(path) for path in paths], dtype=np.float32)
    columns = {signal: column for column, signal in enumerate(signals)}
    for signal in (*signals, _HAND_SET):
        strategy, _, name = signal.partition(".")
        weight = fusion.signals.get((strategy, name), fusion.unknown)
        scores = told["files"].get(signal, {})
        highest = max(scores.values(), default=0.0)
        for path in scores.keys() & rows.keys() if highest > 0 else ():
            share = max(0.0, scores[path]) / highest
            shipped[rows[path]] += weight * share
            if signal in columns:
                shares[rows[path], columns[signal]] = share
            else:
                fixed[rows[path]] = weight * share
    true = np.asarray([path in told["true_files"] for path in paths])
    place = np.asarray([[path.count("/"), path.endswith("__init__.py")] for path in paths], dtype=np.float32)
    features = np.hstack([candidate_features(shares, asked), place.reshape(len(paths), 2)])
    return Candidates(shares, features, fixed, true, len(told["true_files"]), shipped)


def learn_weights(cases: Sequence[Candidates]) -> Sequence[tuple[str, Score]]:
    """Learn weights of at least zero, for each penalty."""

    def score(weights: Matrix) -> Score:
        return lambda case: case.rows @ weights + case.fixed

    return [(f"penalty {penalty:g}", score(weights_of(cases, penalty))) for penalty in _PENALTIES]


def weights_of(cases: Sequence[Candidates], penalty: float) -> Matrix:
    """Learn by accelerated gradient descent; the problem is convex."""
    known = [case for case in cases if case.true.any()]
    rows = np.concatenate([case.rows for case in known])
    sizes = np.asarray([len(case.rows) for case in known])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    truth = np.concatenate([case.true / case.true.sum() for case in known])
    step = 1 / (penalty + 0.5 * float(np.maximum.reduceat((rows**2).sum(axis=1), starts).sum()))
    weights = np.zeros(rows.shape[1])
    ahead, speed = weights.copy(), 1.0
    for _ in range(_STEPS):
        sums = (rows @ ahead.astype(np.float32)).astype(np.float64)
        drawn = np.exp(sums - np.repeat(np.maximum.reduceat(sums, starts), sizes))
        drawn /= np.repeat(np.add.reduceat(drawn, starts), sizes)
        slope = rows.T @ (drawn - truth).astype(np.float32)
        moved = np.maximum(ahead - step * (penalty * ahead + slope), 0.0)
        faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
        ahead = moved + (speed - 1) / faster * (moved - weights)
        weights, speed = moved, faster
    return weights.astype(np.float32)


def learn_trees(cases: Sequence[Candidates]) -> Sequence[tuple[str, Score]]:
    """Learn gradient-boosted trees by LambdaMART, on top of weights, for each number of trees."""
    model, weights = _trees_of(cases)
    return [
        ("0 trees", lambda case: case.rows @ weights + case.fixed),
        *((f"{rounds} trees", _boosted(model, weights, rounds)) for rounds in _ROUNDS),
    ]


def _trees_of(cases: Sequence[Candidates]) -> tuple[Any, Matrix]:
    lightgbm = import_module("lightgbm")
    known = [case for case in cases if case.true.any()]
    weights = weights_of(known, _PENALTY)
    rows = np.concatenate([_with_base(case, weights) for case in known])
    data = lightgbm.Dataset(
        rows,
        np.concatenate([case.true for case in known]).astype(np.float32),
        group=[len(case.rows) for case in known],
        init_score=rows[:, -1].astype(np.float64),
    )
    return lightgbm.train(_TREES, data, max(_ROUNDS)), weights


def _with_base(case: Candidates, weights: Matrix) -> Matrix:
    base = case.rows @ weights
    return np.hstack([case.features, (base - base.max(initial=0))[:, None]])


def _boosted(model: Any, weights: Matrix, rounds: int) -> Score:
    def score(case: Candidates) -> Matrix:
        rows = _with_base(case, weights)
        added = model.predict(rows, num_threads=1, num_iteration=rounds, raw_score=True)
        return np.asarray(rows[:, -1] + added + case.fixed, dtype=np.float32)

    return score


def left_out(cases: Sequence[Cached], part: str, learn: Learn) -> Scores:
    """Return the scores of each case, by what was learned from all other projects."""
    by_project: dict[str, dict[str, Candidates]] = {}
    for case in cases:
        by_project.setdefault(case.repository, {})[case.id] = getattr(case, part)
    scores: Scores = {}
    for project in sorted(by_project):
        others = [[*by_project[name].values()] for name in sorted(by_project) if name != project]
        setting = choose(others, learn)
        rankings = dict(learn([case for cases_of in others for case in cases_of]))
        print(f"{part}, {project}: {setting}", file=sys.stderr, flush=True)
        for case_id, case in by_project[project].items():
            scores[case_id] = rankings[setting](case)
    return scores


def choose(projects: Sequence[Sequence[Candidates]], learn: Learn) -> str:
    """Return the setting that ranks a third of the projects best after learning from the others; the first of
    equal ones.
    """
    largest_first = sorted(projects, key=len, reverse=True)
    tested = [case for of in largest_first[1::_PARTS] for case in of if case.wanted]
    rest = [case for at, of in enumerate(largest_first) if at % _PARTS != 1 for case in of]
    quality = {name: sum(_hits(case, score(case)) for case in tested) for name, score in learn(rest)}
    return max(quality, key=lambda name: quality[name])


def _hits(case: Candidates, scores: Matrix) -> int:
    """Return at how many depths all true candidates are found."""
    order = np.argsort(-scores, kind="stable")
    found = np.flatnonzero(case.true[order])
    last = found[-1] + 1 if len(found) == case.wanted else np.inf
    return sum(last <= depth for depth in _CHOSEN_BY)


def _show(
    kind: str,
    shown: Sequence[Cached],
    scores: Mapping[str, Scores],
    outcome: Callable[[Cached, Matrix], Outcome | None],
) -> None:
    """Report all cases, then those whose fix changed one file."""
    for which in ("all", "one file"):
        cases = [case for case in shown if which == "all" or len(case.true_files) == 1]
        outcomes = {
            f"{kind}, {which}, {name}": [
                one for case in cases if (one := outcome(case, of[case.id])) is not None
            ]
            for name, of in scores.items()
        }
        print()
        print(table((name, measured(found)) for name, found in outcomes.items()))
        print(table((f"{name}, by project", mean_over_projects(found)) for name, found in outcomes.items()))
        (_, shipped), *learned = outcomes.items()
        for name, found in learned:
            print(f"{name}, difference to shipped")
            print("\n".join(differences(shipped, found)), flush=True)


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
