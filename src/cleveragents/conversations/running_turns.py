"""Runs turns on threads of this process, and keeps their leases.

The lease of a turn works like the lease of a job, without wall clocks. The owner measures the lease from the
moment before its last acknowledged heartbeat. Another process measures it from the moment after it first saw
that heartbeat. So the owner gives up before another process takes over. A dead owner on the same machine is
recognised at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import Progress
from cleveragents.conversations.model import Conversation, Observed, TurnState
from cleveragents.conversations.store import SqlConversationStore
from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    Cancelled,
    CleverAgentsError,
    Closed,
    DatabaseFailed,
    QueueFull,
    Remedy,
    StaleTurn,
    Unavailable,
    UnknownConversation,
    remedies_from_json,
    remedies_to_json,
)
from cleveragents.core.identifiers import TurnFence, acting_as
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.jobs.process.supervisor import ProcessSupervisor
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.output_recorder import OutputRecorder
from cleveragents.plans.ports.plans import PlanOutput

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["LeaseObserver", "LeaseTerms", "RunningTurns", "TurnWork"]

MOST_TURNS = 32
STOPPED = "stopped by the user"
_LOOK_SECONDS = 0.25
_CLOSE_SECONDS = 10.0

TurnWork = Callable[[CancellationToken, Callable[[Progress], None]], str]
"""Runs a turn and returns its answer; gets the stop signal, and a listener for its progress."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The length of a lease, and the time between heartbeats."""

    lease_seconds: float
    heartbeat_seconds: float


class LeaseObserver:
    """Decides whether the owner of a conversation is dead or silent.

    Thread safety:
        Owner: the process; any thread may ask.
        Lock: `_lock` guards `_seen`, for a look-up or an insertion.
        Guarantee: a lease is reported as abandoned only if its owner is a dead process of this machine, or
            sent no heartbeat for a whole lease after this object first saw the last one.
    Cancel safety: nothing here waits.
    """

    def __init__(self, processes: ProcessSupervisor, clock: Clock, terms: LeaseTerms) -> None:
        self._processes = processes
        self._clock = clock
        self._terms = terms
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[Observed, float]] = {}

    def abandoned(self, conversation: Conversation) -> Observed | None:
        """Return the lease of the conversation if its owner abandoned it, else None."""
        owner, lease = conversation.owner, conversation.observed
        if owner is None:
            return None
        if self._processes.is_alive(owner) is False:
            return lease
        now = self._clock.monotonic()
        with self._lock:
            seen, since = self._seen.get(conversation.id, (None, now))
            if seen != lease:
                since = now
                self._seen[conversation.id] = (lease, now)
        return lease if now - since >= self._terms.lease_seconds else None


class RunningTurns:
    """The turns that this process runs, one thread each. Close it before the database.

    Thread safety:
        Owner: the container of the process closes it; any thread may start and stop turns.
        Lock: `_lock` guards the dictionary of tokens, for arithmetic and the start of a thread.
        Guarantee: after `close`, no turn starts. The output and the end of a turn are stored under its fence,
            so a turn that another process has taken over changes nothing.
    Cancel safety: a stopped turn stores its state `stopped`; a turn that `close` ends is `interrupted`. Both
        can be continued.
    """

    def __init__(
        self,
        store: SqlConversationStore,
        output_of: Callable[[TurnFence], PlanOutput],
        clock: Clock,
        terms: LeaseTerms,
    ) -> None:
        self._store = store
        self._output_of = output_of
        self._clock = clock
        self._terms = terms
        self._lock = threading.Lock()
        self._running: dict[TurnFence, tuple[CancellationToken, threading.Thread | None]] = {}
        self._closed = False

    def ensure_room(self) -> None:
        """Raise `Closed` after `close`, and `QueueFull` if too many turns run."""
        with self._lock:
            closed, count = self._closed, len(self._running)
        if closed:
            raise Closed("the sessions of this process")
        if count >= MOST_TURNS:
            raise QueueFull(f"{MOST_TURNS} turns run in this process", MOST_TURNS)

    def start(self, held: Conversation, work: TurnWork, *, by: str | None) -> None:
        """Run the work of a turn that this process has begun, on a thread. If no thread can be started, the
        turn is marked as interrupted, and `RuntimeError` is raised.
        """
        token, fence = CancellationToken(), held.held
        thread = threading.Thread(
            target=self._run, args=(fence, work, token, by), name=f"turn-{held.id}", daemon=True
        )
        try:
            with self._lock:
                if self._closed:
                    token.cancel("the process ends")
                thread.start()  # under the lock: `close` joins only threads that have started
                self._running[fence] = (token, thread)
        except RuntimeError:
            self._store.end(fence, TurnState.INTERRUPTED, now=self._clock.now())
            raise

    def run(self, held: Conversation, work: Callable[[CancellationToken], object]) -> None:
        """Run other work on a taken conversation, in the calling thread, while the lease is renewed."""
        token, fence = CancellationToken(), held.held
        with self._lock:
            self._running[fence] = (token, None)
        try:
            with _Keeper(self, fence, token):
                work(token)
        finally:
            self._forget(fence)

    def stop(self, conversation_id: str) -> None:
        """Stop the turn of the conversation if this process runs it."""
        with self._lock:
            tokens = [
                one for fence, (one, _) in self._running.items() if fence.conversation_id == conversation_id
            ]
        for token in tokens:
            token.cancel(STOPPED)

    def close(self) -> None:
        """Stop all turns, and wait until their states are stored. A second call does nothing."""
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for token, _ in running:
            token.cancel("the process ends")
        for _, thread in running:
            if thread is not None and thread is not threading.current_thread():
                thread.join(_CLOSE_SECONDS)

    def beat(self, fence: TurnFence) -> bool:
        """Renew a lease; return whether a person has requested a stop."""
        return self._store.beat(fence)

    def is_stop_requested(self, fence: TurnFence) -> bool:
        return self._store.is_stop_requested(fence.conversation_id)

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def terms(self) -> LeaseTerms:
        return self._terms

    def _run(self, fence: TurnFence, work: TurnWork, token: CancellationToken, by: str | None) -> None:
        try:
            with acting_as(by):
                self._answer(fence, work, token)
        except (StaleTurn, UnknownConversation):
            # Another process continued the turn, or the conversation was deleted.
            turn_log().info("turn.lost", conversation_id=fence.conversation_id, turn=fence.turn)
        except CleverAgentsError as error:
            # The turn stays `running` without an owner that lives, and can be continued.
            turn_log().warning("turn.not_stored", conversation_id=fence.conversation_id, problem=str(error))
        finally:
            self._forget(fence)

    def _answer(self, fence: TurnFence, work: TurnWork, token: CancellationToken) -> None:
        state, answer, error = TurnState.ANSWERED, "", None
        remedies: tuple[Remedy, ...] = ()
        recorder = OutputRecorder(self._output_of(fence), self._clock)
        recorder.start()
        told = recorder.watch_id(fence.conversation_id).told
        assert told is not None
        with _Keeper(self, fence, token):
            try:
                answer = work(token, told)
            except StaleTurn:
                raise
            except Cancelled:
                state = TurnState.STOPPED if token.reason == STOPPED else TurnState.INTERRUPTED
            except CleverAgentsError as failed:
                state, error = TurnState.FAILED, redact_text(str(failed))
                remedies = remedies_from_json(redact(remedies_to_json(failed.remedies)))
            except Exception as failed:
                logger = turn_log()
                logger.exception("turn.failed", conversation_id=fence.conversation_id, turn=fence.turn)
                state, error = TurnState.FAILED, f"internal error: {type(failed).__name__}"
            finally:
                recorder.close()  # before the end of the turn, so that a watcher misses nothing
        now = self._clock.now()
        self._store.end(fence, state, answer=answer, error=error, remedies=remedies, now=now)

    def _forget(self, fence: TurnFence) -> None:
        with self._lock:
            self._running.pop(fence, None)


class _Keeper:
    """Renews the lease of a turn on a thread. Cancels the turn if the lease is lost, or if a person requests
    a stop.
    """

    def __init__(self, turns: RunningTurns, fence: TurnFence, token: CancellationToken) -> None:
        self._turns = turns
        self._fence = fence
        self._token = token
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="turn-lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        clock, terms = self._turns.clock, self._turns.terms
        renewed = clock.monotonic()
        while not self._ended.wait(min(_LOOK_SECONDS, terms.heartbeat_seconds)):
            now = clock.monotonic()
            if now - renewed >= terms.lease_seconds:  # guard: another process may take over from now on
                self._token.cancel("the lease of the turn is lost")
                return
            with suppress(DatabaseFailed, Unavailable):  # tried again until the lease ends
                try:
                    if now - renewed >= terms.heartbeat_seconds:
                        wanted = self._turns.beat(self._fence)
                        renewed = now
                    else:
                        wanted = self._turns.is_stop_requested(self._fence)
                except StaleTurn:
                    self._token.cancel("another process continued the turn")
                    return
                if wanted:
                    self._token.cancel(STOPPED)


def turn_log() -> FilteringBoundLogger:
    """Return the logger of turns. structlog is imported at first use, because turns rarely log."""
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger("cleveragents.conversations")
    return logger
