"""`python -m benchmarks.localize_signals CASES --clones FOLDER --state FOLDER --cache FOLDER`: extract the
signals of files and definitions for each case.

CASES and the clones are as in `benchmarks.localize`. The cache gets one file for each case, so an interrupted
run continues where it stopped. The cases of each project are taken in the order of their commits, because two
neighbouring commits share most contents and so most of the index. `benchmarks.learn_ranking` learns from the
cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.localize import OFF, Case, NotCancelled, clone_of, read_cases
from benchmarks.localize_truth import TrueDefinitions, true_definitions
from cleveragents.context.code_index import CodePlace, CodeSnapshot
from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.index.sqlite_code_index import SqliteCodeIndex
from cleveragents.context.model.code import kind_of
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.pipeline.ranking import FusedScorer, MergedPlaces
from cleveragents.context.search.definition_signals import definition_signals
from cleveragents.context.search.fusion_weights import fusion_weights
from cleveragents.context.search.git_history import GitCommitHistory
from cleveragents.context.search.question_search import shared_search
from cleveragents.context.strategy_registry import StrategyRegistry
from cleveragents.core.errors import SourceMissing

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CaseSignals:
    """The signals of one case. `files` has, by signal, the score of each path; `fused` is the ranking of
    files by the shipped weights; `units` are the definitions of the best files, with a row of `matrix` each.
    """

    files: Mapping[str, Mapping[str, float]]
    fused: Sequence[tuple[str, float]]
    units: Sequence[tuple[str, str, str, int, int]]
    matrix: Matrix
    truth: TrueDefinitions


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.localize_signals", description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True, help="folder of the index")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the signals")
    parser.add_argument("--only", default="", help="repositories with this in their name")
    parser.add_argument("--part", default="0/1", help="take the projects I, I+N, … of all: I/N")
    parser.add_argument("--round", type=int, default=12, help="cases of a project before the next project")
    options = parser.parse_args(arguments)
    options.cache.mkdir(parents=True, exist_ok=True)
    for case in _ordered(list(read_cases(options.cases, options.only)), options):
        target = options.cache / f"{case.id}.npz"
        clone = clone_of(options.clones, case.repository)
        if target.exists() or clone is None:
            continue
        began = time.perf_counter()
        try:
            extract(case, clone, options.state, target)
        except SourceMissing as missing:  # a commit that the clone does not have
            print(f"{case.id}: {missing}", file=sys.stderr, flush=True)
            continue
        print(f"{case.id} {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return 0


def _ordered(cases: Sequence[Case], options: argparse.Namespace) -> Iterable[Case]:
    """Return the cases of all projects in turn, some of each at a time, each project in the order of time."""
    index, _, total = options.part.partition("/")
    projects = sorted({case.repository for case in cases})[int(index) :: int(total)]
    waiting = {
        name: _by_time([case for case in cases if case.repository == name], options) for name in projects
    }
    while any(waiting.values()):
        for name, left in waiting.items():
            yield from left[: options.round]
            waiting[name] = left[options.round :]


def _by_time(cases: Sequence[Case], options: argparse.Namespace) -> list[Case]:
    """Return the cases by the time of their commits, every eighth first, so that a part covers all times."""
    clone = clone_of(options.clones, cases[0].repository)
    if clone is None:
        print(f"no clone of {cases[0].repository} in {options.clones}", file=sys.stderr)
        return []
    command = ["git", "-C", str(clone), "log", "--no-walk=unsorted", "--ignore-missing", "--format=%H %ct"]
    commits = sorted({case.base_commit for case in cases})
    told = subprocess.run([*command, *commits], capture_output=True, text=True, check=True).stdout
    times = dict(line.split() for line in told.splitlines())
    known = sorted(
        (case for case in cases if case.base_commit in times), key=lambda one: int(times[one.base_commit])
    )
    return [case for start in range(8) for case in known[start::8]]


def extract(case: Case, clone: Path, state: Path, target: Path) -> None:
    with SqliteCodeIndex(state).open(CodePlace(clone, case.base_commit)) as code:
        seen = _look(case, code, GitCommitHistory(state))
    partial = target.with_suffix(".part.npz")
    told = {
        "case": case.id,
        "repository": case.repository,
        "true_files": case.files,
        "functions": seen.truth.functions,
        "classes": seen.truth.classes,
        "files": seen.files,
        "fused": seen.fused,
        "units": seen.units,
    }
    np.savez_compressed(partial, matrix=seen.matrix, told=np.frombuffer(json.dumps(told).encode(), np.uint8))
    partial.rename(target)


def _look(case: Case, code: CodeSnapshot, history: GitCommitHistory) -> CaseSignals:
    ground = StrategyGround(code, history)
    found: list[ContextFragment] = []
    for make in (make for name, make in StrategyRegistry().offers().items() if name not in OFF.split(",")):
        found += make(ground).retrieve(ContextRequest(case.question), NotCancelled())
    ranking = FusedScorer(fusion_weights()).rank(case.question, MergedPlaces().merge(found), code)
    fused = [(place.path, place.score) for place in ranking.files if kind_of(place.path) == "source"]
    files: dict[str, dict[str, float]] = {}
    for one in found:
        if one.span is None and not one.text and kind_of(one.path) == "source":
            of_signal = files.setdefault(f"{one.strategy}.{one.signal}", {})
            of_signal[one.path] = max(of_signal.get(one.path, 0.0), float(one.score))
    look = shared_search(code, case.question)
    signals = definition_signals(look, fused)
    units = [
        (unit.path, unit.dotted, unit.definition.kind, unit.span.first, unit.span.last)
        for unit in signals.units
    ]
    return CaseSignals(files, fused, units, signals.matrix, true_definitions(case, code))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
