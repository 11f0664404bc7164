"""A context pipeline on a fake clock, with components that misbehave.

A hanging component lets the time run out and then waits at a gate that opens at the end of the test. So a
pipeline that waits for it never returns, and one that keeps its deadline does not depend on the speed of the
machine.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cleveragents.context.code_index import CodePlace, IndexStatus
from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import ContextAnswer, ContextFragment
from cleveragents.context.pipeline.checks import CustomParts
from cleveragents.context.pipeline.pipeline import ContextPipeline, PipelineParts
from cleveragents.context.query import ContextQuery
from cleveragents.core.errors import Cancelled
from cleveragents.models.tokens import estimate_text
from cleveragents.testing.clock import FakeClock
from cleveragents.testing.code_index import FakeCodeIndex, FakeCommitHistory, MemorySnapshot

LONG = 30.0
SECONDS = 100.0
ROOT = CodePlace(Path("/nowhere"))
TEXTS = {
    "src/basket.py": "class Basket:\n    def add(self, thing):\n        return thing\n",
    "src/pay.py": "def pay(card):\n    '''Takes the money.'''\n    return card\n",
    "README.md": "# A shop\n\nIt sells things.\n",
}
PATHS = list(TEXTS)


class World:
    """Two executors on one fake clock, and a gate that blocks hanging components."""

    def __init__(self, **pool: Any) -> None:
        self.clock = FakeClock()
        self.gate = threading.Event()
        self.hanging = threading.Event()
        clock = self.clock.monotonic
        self.executor = ParallelStrategyExecutor(CircuitBreaker(clock=clock), clock=clock, **pool)
        never = CircuitBreaker(failure_threshold=sys.maxsize, clock=clock)
        self.steps = ParallelStrategyExecutor(never, clock=clock)

    def hang(self, seconds: float = SECONDS) -> None:
        """Let this many seconds pass, then block until the gate opens."""
        self.clock.advance(seconds)
        self.hanging.set()
        self.gate.wait(LONG)

    def parts(self, strategies: Mapping[str, Any], **replaced: Any) -> PipelineParts:
        """Return pipeline parts: `loads` are parts by name; other arguments are fields of `PipelineParts`."""
        loads = replaced.pop("loads", {})
        given = {
            "index": FakeCodeIndex(TEXTS),
            "history": FakeCommitHistory(),
            "strategies": strategies,
            "executor": self.executor,
            "steps": self.steps,
            "replaced": CustomParts(self.executor, loads),
            "count": estimate_text,
            **replaced,
        }
        return PipelineParts(**given)

    def pipeline(self, strategies: Mapping[str, Any], **replaced: Any) -> ContextPipeline:
        return ContextPipeline(self.parts(strategies, **replaced), self.clock.monotonic)

    def close(self) -> None:
        self.gate.set()
        assert self.executor.close(LONG) == ()
        assert self.steps.close(LONG) == ()


@contextmanager
def world(**pool: Any) -> Iterator[World]:
    made = World(**pool)
    try:
        yield made
    finally:
        made.close()


def query(question: str = "how is the basket paid?", **options: Any) -> ContextQuery:
    return ContextQuery(question=question, **{"place": ROOT, "deadline_seconds": SECONDS, **options})


class Found:
    """A strategy made from a function without arguments."""

    def __init__(self, name: str, act: Callable[[], Any]) -> None:
        self.name = name
        self._act = act

    def retrieve(self, request: Any, cancelled: Any) -> Any:
        return self._act()


def finding(*fragments: ContextFragment, name: str = "words") -> Callable[[Any], Found]:
    """Return a factory of a strategy that finds these results."""
    return lambda ground: Found(name, lambda: list(fragments))


def fragment(
    path: str = PATHS[0], score: Any = 1.0, span: Any = None, text: str = "", **more: Any
) -> ContextFragment:
    return ContextFragment(path, text, score, more.pop("strategy", "words"), span, more.pop("signal", ""))


class _Liar(ContextFragment):
    """A subclass that runs code whenever a field is read."""


def _raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: Any, **__: Any) -> Any:
        raise error

    return act


def strategy_misdeeds(world: World) -> dict[str, Callable[[Any], Any]]:
    """Return factories of strategies that each misbehave in another way."""

    def made_of(act: Callable[[], Any]) -> Callable[[Any], Any]:
        return lambda ground: Found("x", act)

    def hang() -> Any:
        world.hang()
        return [fragment()]

    def hang_in_the_middle() -> Iterator[ContextFragment]:
        yield fragment()
        world.hang(SECONDS * 0.96)
        yield fragment()

    garbage: dict[str, Any] = {
        "none": None,
        "number": 7,
        "text": "garbage",
        "things": [1, 2, object()],
        "mapping": {"path": "a.py"},
        "subclass": [_Liar(PATHS[0], "", 1.0, "x")],
        "not a number": [fragment(score=float("nan"))],
        "score as text": [fragment(score="high")],
        "lines before the first": [fragment(span=LineSpan(0, -5))],
        "lines after the last": [fragment(span=LineSpan(10**9, 10**10))],
        "elsewhere": [fragment("../../etc/passwd"), fragment("/etc/passwd"), fragment("no\0such\n.py")],
        "another's name": [fragment(strategy="somebody else")],
        "empty": [],
    }
    return {
        **{name: made_of(lambda answer=answer: answer) for name, answer in garbage.items()},
        "raises": made_of(_raising(RuntimeError("broken"))),
        "exits": made_of(_raising(SystemExit(3))),
        "interrupts": made_of(_raising(KeyboardInterrupt())),
        "is cancelled": made_of(_raising(Cancelled("by somebody"))),
        "out of memory": made_of(_raising(MemoryError())),
        "hangs": made_of(hang),
        "hangs in the middle": made_of(hang_in_the_middle),
        "endless": made_of(lambda: (fragment() for _ in itertools.count())),
        "gigabytes": made_of(lambda: (fragment("note", text="x" * 900_000) for _ in itertools.count())),
        "one huge": made_of(lambda: [fragment("note", text="x" * 5_000_000)]),
        "many texts": made_of(lambda: [fragment(f"note {n}", text="words " * 50) for n in range(900)]),
        "cannot be made": _raising(ImportError("not installed")),
        "hangs when made": lambda ground: world.hang(),
        "is nothing": lambda ground: None,
        "finds": finding(fragment(), fragment("src/pay.py", 0.5, LineSpan(1, 3))),
    }


class Misbehaving:
    """A part whose methods all misbehave in the same way."""

    def __init__(self, act: Callable[..., Any]) -> None:
        self._act = act

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._act


def part_misdeeds(world: World) -> dict[str, Callable[[], Any]]:
    """Return loaders of parts that each misbehave in another way."""

    def hang(*_: Any, **__: Any) -> Any:
        world.hang(SECONDS * 0.6)

    answers: dict[str, Any] = {
        "none": None,
        "number": -1,
        "text": "x" * 50_000,
        "things": [None, 3],
        "huge": ["x" * 10_000] * 10_000,
    }
    acts: dict[str, Callable[..., Any]] = {
        **{name: (lambda *_, answer=answer, **__: answer) for name, answer in answers.items()},
        "endless": lambda *_, **__: itertools.repeat("again"),
        "raises": _raising(RuntimeError("broken")),
        "exits": _raising(SystemExit(3)),
        "hangs": hang,
    }
    return {
        **{name: (lambda act=act: Misbehaving(act)) for name, act in acts.items()},
        "cannot be loaded": _raising(ImportError("not installed")),
        "hangs when loaded": hang,
        "is nothing": lambda: None,
    }


class HostileIndex:
    """A `CodeIndex` that misbehaves in one way."""

    def __init__(self, world: World, misdeed: str) -> None:
        self._world = world
        self._misdeed = misdeed
        self.closed = 0

    MISDEEDS = (
        "open raises",
        "open hangs",
        "enter raises",
        "enter hangs",
        "close raises",
        "close hangs",
        "files raise",
        "files are garbage",
        "status raises",
        "status is partial",
        "text raises",
        "text hangs",
        "text is nothing",
        "text is huge",
        "analyses raise",
        "analyses hang",
        "analyses are garbage",
    )

    def open(self, place: CodePlace, **options: Any) -> Any:
        self._maybe("open")
        return self._opened(place)

    @contextmanager
    def _opened(self, place: CodePlace) -> Iterator[Any]:
        self._maybe("enter")
        try:
            yield _HostileSnapshot(self, place)
        finally:
            self.closed += 1
            self._maybe("close")

    def _maybe(self, what: str) -> None:
        if self._misdeed in (f"{what} raises", f"{what} raise"):
            raise OSError("the disk is gone")
        if self._misdeed in (f"{what} hangs", f"{what} hang"):
            self._world.hang(SECONDS * 0.95)

    def answers(self, what: str, honest: Callable[[], Any], garbage: Any = None) -> Any:
        self._maybe(what)
        if self._misdeed.startswith((f"{what} is ", f"{what} are ")):
            return garbage
        return honest()


class _HostileSnapshot(MemorySnapshot):
    def __init__(self, index: HostileIndex, place: CodePlace) -> None:
        super().__init__(TEXTS, place)
        self._index = index
        self._honest = self.files
        del self.files

    def __getattr__(self, name: str) -> Any:
        if name == "files":
            return self._index.answers("files", lambda: self._honest, [None, "a.py"])
        raise AttributeError(name)

    @property
    def status(self) -> Any:
        return self._index.answers(
            "status", lambda: MemorySnapshot(TEXTS, ROOT).status, IndexStatus(9, 3, ("built anew",))
        )

    def text(self, path: str) -> Any:
        huge = "x" * 5_000_000 if self._index._misdeed == "text is huge" else None
        return self._index.answers("text", lambda: TEXTS[path], huge)

    def analyses(self, documents: Sequence[int]) -> Any:
        return self._index.answers(
            "analyses", lambda: MemorySnapshot(TEXTS, ROOT).analyses(documents), [1, 2]
        )


def check_answer(answer: object, asked: Sequence[str], budget: int) -> None:
    """Check the invariants of every answer, whatever went wrong."""
    assert type(answer) is ContextAnswer
    assert estimate_text(answer.text) <= budget
    assert answer.tokens <= budget == answer.budget
    assert [told.name for told in answer.strategies] == list(asked)
    paths = [place.path for place in answer.files]
    assert len(set(paths)) == len(paths)
    assert set(paths) <= set(TEXTS)
    answer.text.encode()  # every encoder accepts it
    assert all(isinstance(note, str) and len(note) <= 500 for note in answer.notes)


def answered(ask: Callable[[], Any], world: World, patience: float = LONG) -> Any:
    """Return the result of `ask` while hanging components still hang; fail if it waits for them."""
    given: list[Any] = []

    def run() -> None:
        try:
            given.append(ask())
        except BaseException as error:
            given.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience)
    came_back = not thread.is_alive()
    world.gate.set()
    thread.join(LONG)
    assert came_back, "it waits for what hangs"
    assert not isinstance(given[0], BaseException), f"it raised {given[0]!r}"
    return given[0]
