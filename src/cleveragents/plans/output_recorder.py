"""Records the output of running plans for viewers in other processes.

The threads of a plan only append to a list. One thread of the recorder masks and stores the pieces a few
times a second. A plan never waits for the recorder: if output arrives faster than it can be stored, the
oldest pieces are dropped and the gap is reported.
"""

from __future__ import annotations

import codecs
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from cleveragents.actors.model.actor import Progress, ProgressKind, cut_arguments
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.redaction import PieceMask, redact, redact_text
from cleveragents.jobs.service_thread import ServiceThread
from cleveragents.jobs.worker.log import worker_log
from cleveragents.plans.model.plan import Plan

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.plans.ports.plans import PlanOutput

__all__ = ["OutputRecorder", "PlanWatch", "WatchOf", "joined"]


_Seen = TypeVar("_Seen")

_INTERVAL_SECONDS = 0.25
_BOUND = 256 * 1024
_IDLE_SECONDS = 10.0
_CLOSE_SECONDS = 10.0
_SETTLE_SECONDS = 5.0
_OUTPUT = "output"
_MODEL = "model"
_PROGRESS = "progress"
_NODE = "node"
# More than any tool text shown anywhere: a viewer cuts it to a line, and programs get all of it.
_TOOL_CHARACTERS = 4000
# A node is one piece in the store.
_ARGUMENT_CHARACTERS = 12_000


class OutputRecorder:
    """Watches plans and stores their output; `watch` is a `WatchOf`. Call `start` and `close`.

    Thread safety:
        Owner: its creator starts and closes it; any thread of any plan may report to it.
        Lock: `_lock` guards the lists of reported pieces, for arithmetic only; it is not held while text is
            masked or stored. Text being masked belongs to the recorder's own thread.
        Guarantee: the pieces that one thread reports for a plan are stored in order and masked as one text;
            a reporting thread never waits; dropped output is reported.
    Cancel safety: reporting never waits, and `settle` waits for a few seconds at most. `close` stores the
        pieces reported before, unless that takes longer than its timeout.
    """

    def __init__(
        self,
        output: PlanOutput,
        clock: Clock,
        *,
        interval_seconds: float = _INTERVAL_SECONDS,
        bound_characters: int = _BOUND,
    ) -> None:
        self._output = output
        self._clock = clock
        self._bound = bound_characters
        self._interval = interval_seconds
        self._lock = threading.Lock()
        self._told: dict[str, _Told] = {}
        self._texts: dict[str, _Texts] = {}
        self._thread = ServiceThread("output-recorder", self._step, pause_seconds=1.0)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Store all reported output, and stop. A second call does nothing."""
        self._thread.stop()
        if self._thread.join(_CLOSE_SECONDS):
            for plan_id in [*self._told, *self._texts]:
                self.end(plan_id)
            self._keep_all()

    def watch(self, plan: Plan) -> PlanWatch:
        """Return a watch for the plan; it uses no memory before the first report."""
        return self.watch_id(plan.id)

    def watch_id(self, plan_id: str) -> PlanWatch:
        """Return a watch for the plan, or for the conversation, with this id."""
        return PlanWatch(
            # One line each: a name with a line break cannot pass for another message.
            progress=lambda line: self._add(plan_id, _PROGRESS, f"{' '.join(line.splitlines())}\n"),
            on_output=lambda chunk: self._add(plan_id, _OUTPUT, chunk),
            told=lambda seen: self._see(plan_id, seen),
        )

    def end(self, plan_id: str) -> None:
        """Mark the end of a job: unfinished text, such as a partial line, is stored soon.

        Waits for nothing.
        """
        with self._lock:
            told = self._told.setdefault(plan_id, _Told())
            told.ended = True
        self._thread.wake()

    def settle(self, plan_id: str, seconds: float = _SETTLE_SECONDS) -> None:
        """Mark the end of a job, and wait until its output is stored, so that a client that sees the end of
        the job finds all of its output. Waits at most `seconds`; output that is not stored by then is stored
        later.
        """
        stored = threading.Event()
        with self._lock:
            told = self._told.setdefault(plan_id, _Told())
            told.ended = True
            told.stored.append(stored)
        self._thread.wake()
        stored.wait(seconds)

    def _see(self, plan_id: str, seen: Progress) -> None:
        speaker = f"{_MODEL}:{seen.actor}/{seen.node}"
        if seen.kind is ProgressKind.PIECE:
            self._add(plan_id, speaker, seen.text)
        elif seen.kind is ProgressKind.THOUGHT:
            self._add(plan_id, speaker, _Thought(seen.text))
        elif seen.kind is ProgressKind.NODE:
            self._mark(plan_id, seen)
        elif seen.kind is ProgressKind.THINKING:
            self._add(plan_id, speaker, _END)
            self._mark(plan_id, seen, event=seen.kind.value, text=_one_line(seen.text))
        elif seen.kind is ProgressKind.TOOL:
            self._add(plan_id, speaker, _END)
            self._mark_call(plan_id, seen)
            self._add(plan_id, _PROGRESS, f"  {_one_line(seen.text)}\n")
        elif seen.kind is ProgressKind.PLAN:
            self._mark(plan_id, seen, event=seen.kind.value, plan=seen.text)
        elif seen.failed:
            self._add(plan_id, _PROGRESS, f"    it failed: {_one_line(seen.text)}\n")
        else:
            self._mark(plan_id, seen, event=seen.kind.value, text=_one_line(seen.text))

    def _mark(self, plan_id: str, seen: Progress, **more: object) -> None:
        """Report which node is running, as JSON for programs; people see no line for it."""
        at = {"actor": seen.actor, "node": seen.node, **more}
        self._add(plan_id, _NODE, json.dumps(at, ensure_ascii=False))

    def _mark_call(self, plan_id: str, seen: Progress) -> None:
        """Report the tool and the arguments of a call, masked and cut, before its line for people."""
        if seen.tool is None:
            return
        arguments = cut_arguments(redact(seen.arguments))
        if len(json.dumps(arguments, ensure_ascii=False)) > _ARGUMENT_CHARACTERS:
            arguments = None
        self._mark(plan_id, seen, event=seen.kind.value, tool=redact_text(seen.tool), arguments=arguments)

    def _add(self, plan_id: str, source: str, heard: str | bytes) -> None:
        with self._lock:
            told = self._told.setdefault(plan_id, _Told())
            told.pieces.append((source, heard))
            told.size += len(heard)
            while told.size > self._bound:  # guard: fast output does not fill memory
                told.dropped += len(told.pieces[0][1])
                told.size -= len(told.pieces.popleft()[1])

    def _step(self) -> float:
        self._keep_all()
        return self._interval

    def _keep_all(self) -> None:
        with self._lock:
            taken, self._told = self._told, {}
        now = self._clock.monotonic()
        for plan_id, told in taken.items():
            texts = self._texts.setdefault(plan_id, _Texts())
            texts.heard_at = now
            texts.take(told)
        for plan_id, texts in list(self._texts.items()):
            if now - texts.heard_at >= _IDLE_SECONDS:
                texts.pause()
            self._keep(plan_id, texts)

    def _keep(self, plan_id: str, texts: _Texts) -> None:
        ready = list(_joined(texts.ready))
        try:
            if ready:
                self._output.append(plan_id, ready, now=self._clock.now())
        except CleverAgentsError as error:
            # Only this plan: the others are stored meanwhile. Retried later, and logged once because it may
            # take long.
            if not texts.waits:
                worker_log().warning("plan_output.not_kept", plan_id=plan_id, error=str(error))
            texts.waits = True
            texts.bound(self._bound)
            return
        texts.waits = False
        texts.ready.clear()
        for stored in texts.stored:
            stored.set()
        texts.stored.clear()
        if texts.finished:
            del self._texts[plan_id]


class _Told:
    """The pieces reported for a plan since the last store."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[str, str | bytes]] = deque()
        self.size = 0
        self.dropped = 0
        self.ended = False
        self.stored: list[threading.Event] = []
        """Set once the pieces are stored."""


class _Thought(str):
    """The complete answer of a model. Its pieces may already have been reported as they arrived."""


_END: str = _Thought()
"""Marks the end of a model's answer."""


class _Texts:
    """The texts of a running plan, each masked on its own, and the pieces that are ready to store."""

    def __init__(self) -> None:
        self.ready: list[tuple[str, str]] = []
        self.heard_at = 0.0
        self.finished = False
        self.waits = False
        self.stored: list[threading.Event] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._masks: dict[str, PieceMask] = {}

    def take(self, told: _Told) -> None:
        self.finished = False
        self.stored += told.stored
        if told.dropped:
            self.ready.append((_PROGRESS, f"[{told.dropped:,} characters dropped: output was too fast]\n"))
        for source, heard in told.pieces:
            self._hear(source, heard)
        if told.ended:
            self.finish()

    def bound(self, characters: int) -> None:
        """Drop the oldest unstored pieces beyond this size."""
        size = sum(len(text) for _, text in self.ready)
        while size > characters:
            size -= len(self.ready.pop(0)[1])

    def pause(self) -> None:
        """After a long silence, store text that cannot be part of a secret, such as a prompt. Other text
        waits until more text arrives or the job ends.
        """
        for source, mask in self._masks.items():
            self.ready.append((_kind(source), mask.pause()))
        holds = any(mask.holds for mask in self._masks.values())
        if holds or self._decoder.getstate()[0]:  # guard: a value may come long after its name
            return
        self.finish()

    def finish(self) -> None:
        """Flush all texts at the end of the output."""
        self._hear(_OUTPUT, self._decoder.decode(b"", True))
        for source in list(self._masks):
            self._end(source)
        self.finished = True

    def _hear(self, source: str, heard: str | bytes) -> None:
        if isinstance(heard, bytes):
            heard = self._decoder.decode(heard)
        if source in (_PROGRESS, _NODE):
            self.ready.append((source, heard))  # complete already; masked by the store
        elif isinstance(heard, _Thought):
            if source not in self._masks and heard:
                self._feed(source, heard)
            self._end(source)
        elif heard:
            self._feed(source, heard)

    def _feed(self, source: str, text: str) -> None:
        mask = self._masks.setdefault(source, PieceMask())
        self.ready.append((_kind(source), mask.feed(text)))

    def _end(self, source: str) -> None:
        mask = self._masks.pop(source, None)
        if mask is not None:
            rest = mask.finish()
            self.ready.append((_kind(source), f"{rest}\n" if _kind(source) == _MODEL else rest))


def _kind(source: str) -> str:
    return source.partition(":")[0]


def _joined(pieces: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Join adjacent pieces of the same kind, except `node` pieces, each of which is a JSON object."""
    kind, texts = "", list[str]()
    for each, text in pieces:
        if each != kind or each == _NODE:
            if texts and any(texts):
                yield kind, "".join(texts)
            kind, texts = each, []
        texts.append(text)
    if any(texts):
        yield kind, "".join(texts)


def _one_line(text: str) -> str:
    # Mask before the cut: half a secret is not recognized.
    joined = " ".join(redact_text(text).split())
    return joined if len(joined) <= _TOOL_CHARACTERS else f"{joined[: _TOOL_CHARACTERS - 1]}…"


class PlanWatch(Struct, frozen=True):
    """The callbacks that receive the progress lines, the command output and the actor progress of one plan.
    Called by the threads that run the plan; other plans run at the same time.
    """

    progress: Callable[[str], None] | None = None
    on_output: Callable[[bytes], None] | None = None
    told: Callable[[Progress], None] | None = None


def joined(first: PlanWatch, second: PlanWatch) -> PlanWatch:
    """Return a watch that passes every report to both watches, in this order."""
    return PlanWatch(
        _to_both(first.progress, second.progress),
        _to_both(first.on_output, second.on_output),
        _to_both(first.told, second.told),
    )


def _to_both(
    first: Callable[[_Seen], None] | None, second: Callable[[_Seen], None] | None
) -> Callable[[_Seen], None] | None:
    if first is None or second is None:
        return first or second

    def pass_on(seen: _Seen) -> None:
        first(seen)
        second(seen)

    return pass_on


WatchOf = Callable[[Plan], PlanWatch]
"""Returns the watch of a plan. Called for every report, so it must be quick."""
