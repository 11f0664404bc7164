"""`python -m benchmarks.learn_weights CASES --clones FOLDER`: learn the weights of the pipeline's signals.

CASES and FOLDER are as in `benchmarks.localize`. Every strategy is asked for each case, and each signal is
divided by its highest score. The weights maximise the likelihood of the true files if one file is drawn in
proportion to the exponential of its weighted sum (a listwise softmax). Weights are not negative and have a
square penalty. The output reports the accuracy on a project that was excluded from learning, and the weights
learned from all projects.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.localize import Case, NotCancelled, clone_of, read_cases
from benchmarks.localize_report import Outcome, is_candidate, measured, table
from cleveragents.context.code_index import CodePlace
from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.index.sqlite_code_index import SqliteCodeIndex
from cleveragents.context.model.context import ContextRequest
from cleveragents.context.search.git_history import GitCommitHistory
from cleveragents.context.strategy_registry import StrategyRegistry

_PENALTY = 5.0
_STEPS = 400
_NOT_LEARNED = frozenset({"keyword.test", "keyword.text"})

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """The signals of one case: their shares for each candidate, and which candidates are true."""

    case: Case
    paths: tuple[str, ...]
    shares: dict[str, dict[str, float]]

    def matrix(self, signals: Sequence[str]) -> Matrix:
        rows = {path: row for row, path in enumerate(self.paths)}
        found = np.zeros((len(self.paths), len(signals)))
        for column, signal in enumerate(signals):
            for path, share in self.shares.get(signal, {}).items():
                found[rows[path], column] = share
        return found

    def truth(self) -> Matrix:
        true = np.asarray([path in self.case.files for path in self.paths], dtype=np.float64)
        return true / max(true.sum(), 1.0)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learn_weights", description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True, help="folder of the index")
    parser.add_argument("--only", default="", help="repositories with this in their name")
    options = parser.parse_args(arguments)
    seen = [_look(case, options) for case in read_cases(options.cases, options.only)]
    signals = sorted({signal for one in seen for signal in one.shares} - _NOT_LEARNED)
    outcomes: list[Outcome] = []
    for project in sorted({one.case.repository for one in seen}):
        weights = learned([one for one in seen if one.case.repository != project], signals)
        outcomes += [_outcome(one, signals, weights) for one in seen if one.case.repository == project]
    print(table([("a project that was excluded from learning", measured(outcomes))]), file=sys.stderr)
    answer: dict[str, dict[str, float]] = {}
    for signal, weight in zip(signals, learned(seen, signals), strict=True):
        strategy, _, name = signal.partition(".")
        answer.setdefault(strategy, {})[name] = round(float(weight), 3)
    print(json.dumps(answer, indent=2))
    return 0


def _look(case: Case, options: argparse.Namespace) -> Seen:
    clone = clone_of(options.clones, case.repository)
    if clone is None:
        raise SystemExit(f"no clone of {case.repository} in {options.clones}")
    print(case.id, file=sys.stderr, flush=True)
    scores: dict[str, dict[str, float]] = {}
    with SqliteCodeIndex(options.state).open(CodePlace(clone, case.base_commit)) as code:
        ground = StrategyGround(code, GitCommitHistory(options.state))
        paths = tuple(file.path for file in code.files if is_candidate(file.path))
        for name, make in StrategyRegistry().offers().items():
            for one in make(ground).retrieve(ContextRequest(case.question), NotCancelled()):
                if one.span is None and not one.text and is_candidate(one.path):
                    of_signal = scores.setdefault(f"{name}.{one.signal}", {})
                    of_signal[one.path] = max(of_signal.get(one.path, 0.0), one.score)
    return Seen(case, paths, {signal: _shared(found) for signal, found in scores.items()})


def _shared(scores: dict[str, float]) -> dict[str, float]:
    highest = max(scores.values())
    return {path: score / highest for path, score in scores.items()} if highest > 0 else {}


def learned(seen: Sequence[Seen], signals: Sequence[str]) -> Matrix:
    """Learn the weights by accelerated gradient descent, with negative weights set to zero; the problem is
    convex.
    """
    cases = [(one.matrix(signals), one.truth()) for one in seen]
    weights = np.zeros(len(signals))
    ahead, speed = weights.copy(), 1.0
    step = 1 / (_PENALTY + 0.5 * sum(float((shares**2).sum(axis=1).max()) for shares, _ in cases))
    for _ in range(_STEPS):
        gradient = _PENALTY * ahead
        for shares, truth in cases:
            sums = shares @ ahead
            drawn = np.exp(sums - sums.max())
            gradient += shares.T @ (truth.sum() * drawn / drawn.sum() - truth)
        moved = np.maximum(ahead - step * gradient, 0.0)
        faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
        ahead = moved + (speed - 1) / faster * (moved - weights)
        weights, speed = moved, faster
    return weights


def _outcome(one: Seen, signals: Sequence[str], weights: Matrix) -> Outcome:
    order = np.argsort(-(one.matrix(signals) @ weights), kind="stable")
    ranks = {one.paths[position]: rank for rank, position in enumerate(order.tolist(), 1)}
    found = tuple(ranks.get(path, 0) for path in one.case.files)
    return Outcome(one.case.id, one.case.repository, "learned", found, 0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
