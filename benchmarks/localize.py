"""`python -m benchmarks.localize CASES --clones FOLDER`: does the pipeline find the files of the real fix?

CASES is a file of JSON lines with `id`, `repository` (owner/name), `base_commit`, `question` and `files`,
those that the real fix changed. FOLDER holds clones, bare or not: OWNER+NAME/repo, OWNER+NAME, OWNER/NAME or
NAME. Each question is asked about the code at its commit, with the index and the strategies of `agents
context`. The report contains Acc@k (the share of cases with all true files among the first k candidates), MRR
and time: for each strategy alone, for the whole pipeline, which opens the index again for each question, and
for plain BM25. If the cases have `lines`, those that the fix changed, the report also contains Acc@k of the
functions and classes that it touched.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.localize_report import (
    Outcome,
    is_candidate,
    language_of,
    mean_over_projects,
    measured,
    plot,
    table,
)
from benchmarks.localize_truth import TrueDefinitions, true_definitions
from cleveragents.context.code_index import CodePlace, CodeSnapshot
from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.executor import ParallelStrategyExecutor
from cleveragents.context.index.sqlite_code_index import SqliteCodeIndex
from cleveragents.context.model.code import Field
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.model.context import ContextAnswer, ContextFragment, ContextRequest
from cleveragents.context.pipeline.assembly import DefaultParts
from cleveragents.context.pipeline.checks import CustomParts
from cleveragents.context.pipeline.pipeline import ContextPipeline, PipelineParts
from cleveragents.context.pipeline.ranking import FusedScorer, MergedPlaces
from cleveragents.context.query import ContextQuery
from cleveragents.context.search.bm25 import Bm25Table, Corpus, best
from cleveragents.context.search.fusion_weights import fusion_weights
from cleveragents.context.search.git_history import GitCommitHistory
from cleveragents.context.strategy_registry import StrategyRegistry

FUSION = "all strategies"
FUNCTIONS = "functions, all strategies"
CLASSES = "classes, all strategies"
PLAIN = "plain BM25"
OFF = "embeddings"
"""The strategies that are off by default (`context.strategies_off`), even if their package is installed."""
_MOST_PLAIN = 200
_DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    id: str
    repository: str
    base_commit: str
    question: str
    files: tuple[str, ...]
    lines: Mapping[str, Mapping[str, Sequence[int]]]

    @property
    def language(self) -> str:
        return language_of(self.files[0])

    def is_candidate(self, path: str) -> bool:
        return is_candidate(path, self.language)


@dataclass(frozen=True, slots=True)
class Opened:
    """The time to open a snapshot; `cold` if its contents had to be indexed first."""

    repository: str
    files: int
    cold_seconds: float
    warm_seconds: float


class NotCancelled:
    is_cancelled = False


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    cases = list(read_cases(options.cases, options.only))
    cases = [case for case in cases if not options.one_file or len(case.files) == 1][: options.limit]
    home = Path(options.state or tempfile.mkdtemp(prefix="localize-"))
    outcomes: list[Outcome] = []
    opened: list[Opened] = []
    bench = Bench(home, options.without)
    try:
        for number, case in enumerate(cases, 1):
            clone = clone_of(options.clones, case.repository)
            if clone is None:
                print(f"no clone of {case.repository} in {options.clones}", file=sys.stderr)
                continue
            found, took = bench.ask(case, clone)
            outcomes += found
            opened.append(took)
            _tell(number, len(cases), case, found, took)
    finally:
        bench.close()
        if options.state is None:
            shutil.rmtree(home, ignore_errors=True)
    if not outcomes:
        return 1
    _report(outcomes, opened, options)
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.localize", description=__doc__)
    parser.add_argument("cases", type=Path, help="JSON lines")
    parser.add_argument("--clones", type=Path, required=True, help="the folder with the clones")
    parser.add_argument("--limit", type=int, help="use only the first LIMIT cases")
    parser.add_argument("--only", default="", help="repositories with this in their name")
    parser.add_argument("--one-file", action="store_true", help="only cases whose fix changed one file")
    parser.add_argument(
        "--without",
        default=OFF,
        help="strategies to leave out, separated by commas; default: those off by default",
    )
    parser.add_argument("--state", help="folder of an index to reuse; by default, it is temporary")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--plot", type=Path, help="write a plot to this file (SVG)")
    return parser.parse_args(arguments)


def read_cases(path: Path, only: str) -> Iterator[Case]:
    for line in path.read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        if only in raw["repository"]:
            yield Case(
                raw["id"],
                raw["repository"],
                raw["base_commit"],
                raw["question"],
                tuple(raw["files"]),
                raw.get("lines", {}),
            )


def clone_of(folder: Path, repository: str) -> Path | None:
    joined = repository.replace("/", "+")
    places = (
        folder / joined / "repo",
        folder / joined,
        folder / repository,
        folder / repository.split("/")[-1],
    )
    return next((place for place in places if place.is_dir()), None)


class Bench:
    """The index, the history, the strategies and the pipeline, as the command line uses them."""

    def __init__(self, home: Path, without: str) -> None:
        self._index = SqliteCodeIndex(home)
        self._history = GitCommitHistory(home)
        left_out = set(without.split(","))
        self._offers = {
            name: make for name, make in StrategyRegistry().offers().items() if name not in left_out
        }
        self._scorer = FusedScorer(fusion_weights())
        self._executors = (ParallelStrategyExecutor(), ParallelStrategyExecutor())
        executor, steps = self._executors
        self._pipeline = ContextPipeline(
            PipelineParts(
                index=self._index,
                history=self._history,
                strategies=self._offers,
                executor=executor,
                steps=steps,
                replaced=CustomParts(executor),
                count=len,
                own=DefaultParts(scorer=self._scorer),
            )
        )

    def close(self) -> None:
        for executor in self._executors:
            executor.close()

    def ask(self, case: Case, clone: Path) -> tuple[list[Outcome], Opened]:
        place = CodePlace(clone, case.base_commit)
        began = time.perf_counter()
        with self._index.open(place):
            cold = time.perf_counter() - began
        began = time.perf_counter()
        with self._index.open(place) as code:
            warm = time.perf_counter() - began
            outcomes = self._answered(case, code)
            return outcomes, Opened(case.repository, len(code.files), cold, warm)

    def _answered(self, case: Case, code: CodeSnapshot) -> list[Outcome]:
        ground = StrategyGround(code, self._history)
        request = ContextRequest(case.question)
        # The first strategy that asks computes the shared data, which is not counted as its time.
        self._offers["keyword"](ground).retrieve(request, NotCancelled())
        alone: dict[str, tuple[list[ContextFragment], float]] = {}
        for name, make in self._offers.items():
            began = time.perf_counter()
            found = list(make(ground).retrieve(request, NotCancelled()))
            alone[name] = (found, time.perf_counter() - began)
        outcomes = [
            self._outcome(case, name, self._paths(case, found, code), seconds)
            for name, (found, seconds) in alone.items()
        ]
        answer = self._pipeline.ask(
            ContextQuery(
                question=case.question, place=code.place, fragments=False, deadline_seconds=_DEADLINE_SECONDS
            )
        )
        if answer.notes:
            print(f"{case.id}: {'; '.join(answer.notes)}", file=sys.stderr)
        paths = [place.path for place in answer.files]
        outcomes.append(self._outcome(case, FUSION, paths, answer.seconds))
        outcomes += _definitions(case, answer, true_definitions(case, code))
        began = time.perf_counter()
        paths = _plain(case, code)
        outcomes.append(self._outcome(case, PLAIN, paths, time.perf_counter() - began))
        return outcomes

    def _paths(self, case: Case, found: Sequence[ContextFragment], code: CodeSnapshot) -> list[str]:
        candidates = MergedPlaces().merge(found)
        ranking = self._scorer.rank(case.question, candidates, code)
        return [place.path for place in ranking.files]

    def _outcome(self, case: Case, system: str, paths: Iterable[str], seconds: float) -> Outcome:
        order = {path: rank for rank, path in enumerate(filter(case.is_candidate, paths), 1)}
        ranks = tuple(order.get(path, 0) for path in case.files)
        return Outcome(case.id, case.repository, system, ranks, seconds)


def _definitions(case: Case, answer: ContextAnswer, truth: TrueDefinitions) -> list[Outcome]:
    """Return the ranks of the touched functions, and of the touched classes by their best member."""
    found = [one for one in answer.definitions if case.is_candidate(one.path)]
    functions = [(one.path, one.name, one.span.first) for one in found if one.kind != "class"]
    owners = [(one.path, one.name if one.kind == "class" else one.name.rpartition(".")[0]) for one in found]
    classes = dict.fromkeys(owner for owner in owners if owner[1])
    true_functions = [(path, name, first) for path, name, first, _ in truth.functions]
    true_classes = [(path, name) for path, name, _, _ in truth.classes]
    kinds: list[tuple[str, Iterable[object], Sequence[object]]] = [
        (FUNCTIONS, functions, true_functions),
        (CLASSES, classes, true_classes),
    ]
    outcomes: list[Outcome] = []
    for system, ranked, true in kinds:
        order = {one: rank for rank, one in enumerate(ranked, 1)}
        if true:
            ranks = tuple(order.get(one, 0) for one in true)
            outcomes.append(Outcome(case.id, case.repository, system, ranks, answer.seconds))
    return outcomes


def _plain(case: Case, code: CodeSnapshot) -> list[str]:
    """Rank whole files by the whole text of the question."""
    paths = {file.document: file.path for file in code.files if case.is_candidate(file.path)}
    corpus = Corpus(code, paths.keys())
    query = {term: float(count) for term, count in terms_of(case.question).items()}
    found = corpus.find(code, Field.BODY, sorted(query))
    scores = Bm25Table(corpus, found, documents=True).scores(query)
    return [paths[document] for document in best(scores, _MOST_PLAIN)]


def _tell(number: int, total: int, case: Case, found: Sequence[Outcome], took: Opened) -> None:
    ranks = {one.system: one.ranks for one in found}
    print(
        f"{number}/{total} {case.id}: {FUSION} {ranks[FUSION]}, {PLAIN} {ranks[PLAIN]}; "
        f"{took.files} files, cold {took.cold_seconds:.1f} s",
        file=sys.stderr,
        flush=True,
    )


def _report(outcomes: Sequence[Outcome], opened: Sequence[Opened], options: argparse.Namespace) -> None:
    systems = list(dict.fromkeys(one.system for one in outcomes))
    rows = [(name, measured([one for one in outcomes if one.system == name])) for name in systems]
    print(table(rows))
    by_project = [
        (name, mean_over_projects([one for one in outcomes if one.system == name])) for name in systems
    ]
    print("\nmean over projects")
    print(table(by_project))
    print()
    projects = sorted({one.repository for one in outcomes})
    for system in (FUSION, FUNCTIONS, CLASSES, PLAIN):
        of_system = [one for one in outcomes if one.system == system]
        by_name = {name: [one for one in of_system if one.repository == name] for name in projects}
        print(system)
        print(table((name, measured(found)) for name, found in by_name.items() if found))
        print()
    times = _times(opened, kept=options.state is not None)
    print("\n".join(f"{name}: {value:,.2f}" for name, value in times.items()))
    if options.json:
        data = {
            "systems": {name: asdict(one) for name, one in rows},
            "times": times,
            "outcomes": [asdict(one) for one in outcomes],
        }
        options.json.write_text(json.dumps(data, indent=1), encoding="utf-8")
    if options.plot:
        options.plot.write_text(plot(rows, f"{rows[0][1].cases} issues, files found"), encoding="utf-8")


def _times(opened: Sequence[Opened], *, kept: bool) -> Mapping[str, float]:
    first: dict[str, Opened] = {}
    for one in opened:
        first.setdefault(one.repository, one)
    cold = sum(one.cold_seconds for one in first.values())
    warm = sorted(one.warm_seconds for one in opened)
    times = {
        "median seconds to open an indexed commit": warm[len(warm) // 2],
        "peak memory in MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak memory of an indexing process in MB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        / 1024,
    }
    if not kept:  # otherwise an earlier run has indexed them
        times["files indexed per second, from an empty index"] = (
            sum(one.files for one in first.values()) / cold
        )
    return times


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
