"""Worker processes that analyse batches in parallel and end with this process.

If a batch kills a process or does not finish, its contents are distributed again one by one. The content at
fault is then known, and is permanently excluded from the search.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType

from cleveragents.context.index.build.batch import AnalysisRequest, IndexBatch, opaque
from cleveragents.context.index.build.segment import (
    IndexedContent,
    TermNumbers,
    analysis_to_bytes,
    segment_of,
)
from cleveragents.context.index.build.worker import LENGTH
from cleveragents.context.index.place import IndexDeadline
from cleveragents.context.index.view import FileEntry

__all__ = ["WorkerPool", "WorkerPoolUnusable", "process_count"]

_AT_ONCE = 2
_MOST_WORKERS = 8
_BATCH_SECONDS = 120.0
_START_SECONDS = 60.0
_LEAVE_SECONDS = 5.0
_LOOK_SECONDS = 0.05
# A pipe holds 64 KiB. The unread data of a process is its first message and two orders; they must fit, or a
# process that does not read would block this one.
_ORDER_BYTES = 28_000
_ENTRY_BYTES = 32
_PATH_LETTERS = 1_000


class WorkerPoolUnusable(Exception):
    """No process can be started; the caller must do the work itself."""


def process_count() -> int:
    """Return the number of available processors, up to a limit."""
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_WORKERS, ours)


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    orders: deque[AnalysisRequest] = field(default_factory=deque)
    said: bytearray = field(default_factory=bytearray)
    began: float = 0.0
    ready: bool = False

    def send(self, data: bytes) -> bool:
        """Send a message; return False if the process is gone."""
        assert self.process.stdin is not None
        view = memoryview(LENGTH.pack(len(data)) + data)
        try:
            while view:
                view = view[os.write(self.process.stdin.fileno(), view) :]
        except BrokenPipeError:
            return False
        return True

    def answer(self) -> IndexBatch | None:
        """Return the next complete batch, if there is one."""
        if not self.ready and len(self.said) >= LENGTH.size:
            self.ready = True
            self.began = time.monotonic()
            del self.said[: LENGTH.size]
        if len(self.said) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self.said)[0]
        if len(self.said) < end:
            return None
        batch = IndexBatch.from_bytes(bytes(self.said[LENGTH.size : end]))
        del self.said[:end]
        self.began = time.monotonic()
        return batch

    @property
    def output(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def end(self) -> None:
        """End the process: let it exit if it is idle, kill it otherwise."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(0 if self.orders else _LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            # The process leads its own group and may be waiting for a git that does not end.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        finally:
            self.process.stdout.close()


class WorkerPool:
    """A group of worker processes.

    Not thread-safe: one per build. Leaving the context ends them, whatever they are doing.
    """

    def __init__(self, analyse: str, size: int, *, batch_seconds: float = _BATCH_SECONDS) -> None:
        self._analyse = analyse
        self._size = size
        self._batch_seconds = batch_seconds
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        with ExitStack() as all_of_them:
            for worker in self._workers:
                all_of_them.callback(worker.end)  # guard: an interrupt must not spare the other processes
        self._workers.clear()

    def batches(self, orders: Iterable[AnalysisRequest], patience: IndexDeadline) -> Iterator[IndexBatch]:
        """Yield the batch of each request as it arrives, until the time is over.

        Raises `Cancelled` and `WorkerPoolUnusable`.
        """
        waiting = deque(part for order in orders for part in _parts(order))
        for _ in range(min(self._size, len(waiting))):
            self._start()
        while waiting or any(worker.orders for worker in self._workers):
            for worker in list(self._workers):
                self._employ(worker, waiting)
            if patience.is_over:
                return
            heard = self._selector.select(patience.seconds(_LOOK_SECONDS))
            for key, _ in heard:
                yield from self._hear(key.data, waiting)
            for worker in list(self._workers):
                most = self._batch_seconds if worker.ready else _START_SECONDS
                if worker.orders and time.monotonic() - worker.began > most:
                    yield from self._bury(worker, waiting)

    def _start(self) -> None:
        # -P, and another directory: the working directory is a foreign repository with its own modules.
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cleveragents.context.index.build.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise WorkerPoolUnusable from error
        worker = _Worker(process)
        self._workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        path = [entry for entry in sys.path if entry.startswith("/")]
        worker.send(json.dumps({"path": path, "analyse": self._analyse}).encode("ascii"))

    def _employ(self, worker: _Worker, waiting: deque[AnalysisRequest]) -> None:
        while waiting and len(worker.orders) < _AT_ONCE:
            order = waiting.popleft()
            if not worker.orders:
                worker.began = time.monotonic()
            worker.orders.append(order)
            if not worker.send(order.to_bytes()):
                return

    def _hear(self, worker: _Worker, waiting: deque[AnalysisRequest]) -> Iterator[IndexBatch]:
        chunk = os.read(worker.output, 1 << 20)
        if not chunk:
            yield from self._bury(worker, waiting)
            return
        worker.said += chunk
        while (batch := worker.answer()) is not None:
            worker.orders.popleft()
            yield batch

    def _bury(self, worker: _Worker, waiting: deque[AnalysisRequest]) -> Iterator[IndexBatch]:
        """End a dead or stuck process and start another one."""
        self._selector.unregister(worker.output)
        self._workers.remove(worker)
        worker.end()
        if not worker.ready:
            raise WorkerPoolUnusable
        guilty = worker.orders.popleft() if worker.orders else None
        waiting.extendleft(reversed(worker.orders))
        if guilty is not None and len(guilty.entries) == 1:
            yield _given_up(guilty)
        elif guilty is not None:
            waiting.extend(replace(guilty, entries=[entry]) for entry in guilty.entries)
        self._start()


def _parts(order: AnalysisRequest) -> Iterator[AnalysisRequest]:
    """Split a request into requests that fit into a pipe."""
    head = len(json.dumps(str(order.root)))
    chosen: list[FileEntry] = []
    size = head
    for whole in order.entries:
        # A path in a commit may have any length; the analysis only needs its end.
        entry = whole if whole.on_disk else whole._replace(path=whole.path[-_PATH_LETTERS:])
        own = len(json.dumps(entry.path)) + 2 * len(entry.digest) + _ENTRY_BYTES
        if chosen and size + own > _ORDER_BYTES:  # guard: writing to a full pipe waits for its reader
            yield replace(order, entries=chosen)
            chosen, size = [], head
        chosen.append(entry)
        size += own
    yield replace(order, entries=chosen)


def _given_up(order: AnalysisRequest) -> IndexBatch:
    """Return the batch for a content whose analysis never ends."""
    (entry,) = order.entries
    analysis = opaque("its analysis does not end")
    content = IndexedContent(entry.digest, entry.size, analysis)
    segment = segment_of([content], [0], TermNumbers())
    return IndexBatch(segment, [entry.digest], [analysis_to_bytes(analysis)])
