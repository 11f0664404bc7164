"""Opening of a snapshot on another thread, and its closing after the last use.

Opening may hang or end too late, and abandoned strategies still read the snapshot. So the snapshot counts its
users. The last user closes it, on any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Final

from cleveragents.context.code_index import CodeIndex, CodePlace, CodeSnapshot, IndexProgress
from cleveragents.context.model.code import CodeFile
from cleveragents.context.pipeline.renderings import NoCode
from cleveragents.context.pipeline.steps import Deadline
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.errors import Closed, SourceMissing

__all__ = ["HeldSnapshot", "OpenedCode", "PendingSnapshot", "nothing_opened"]

_MOST_NOTES: Final = 20
_MOST_FILES: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class OpenedCode:
    """An open snapshot with copies of its most used data: its files by path and its notes.

    If `is_code` is False, it stands for code that could not be opened.
    """

    held: HeldSnapshot
    files: dict[str, CodeFile]
    notes: tuple[str, ...]
    is_code: bool = True

    @property
    def code(self) -> CodeSnapshot:
        return self.held.code


class HeldSnapshot:
    """A snapshot with a count of its users.

    Thread safety:
        Owner: the opener holds it first.
        Lock: `_lock` guards the count; held for arithmetic only, the snapshot is closed outside it.
        Guarantee: it is closed exactly once, after the last user released it, and cannot be acquired
            afterwards.
    Cancel safety: an interrupted user releases it on the way out; one that hangs keeps it open.
    """

    def __init__(self, manager: AbstractContextManager[CodeSnapshot], code: CodeSnapshot) -> None:
        self.code = code
        self._manager = manager
        self._lock = threading.Lock()
        self._users = 1
        self._opener_holds = True

    @contextmanager
    def held(self) -> Iterator[CodeSnapshot]:
        """Hold the snapshot open within the block. Raises `Closed` if it is already closed."""
        with self._lock:
            if self._users == 0:  # guard: a closed snapshot must not be used
                raise Closed("the code snapshot")
            self._users += 1
        try:
            yield self.code
        finally:
            with self._lock:
                last = self._one_less()
            self._close_if(last)

    def release_hold(self) -> None:
        """Release the opener's hold; only the first call counts."""
        with self._lock:
            if not self._opener_holds:  # guard: a second call would release it for another user
                return
            self._opener_holds = False
            last = self._one_less()
        self._close_if(last)

    def _one_less(self) -> bool:
        """Under the lock: remove a user and return whether it was the last."""
        self._users -= 1
        return self._users == 0

    def _close_if(self, last: bool) -> None:
        if last:  # guard: closed exactly when the last user has gone
            with suppress(Exception):
                self._manager.__exit__(None, None, None)


class PendingSnapshot:
    """A snapshot on its way from the thread that opens it to the thread that requested it, which may have
    given up.

    Thread safety:
        Owner: the question that asked.
        Lock: `_lock` guards the opened snapshot and whether the caller gave up; held for arithmetic only.
        Guarantee: a snapshot that was opened is either taken or closed.
    Cancel safety: if `take` is called before an abandoned step has opened the snapshot, the step closes it
        when it is opened.
    """

    def __init__(
        self,
        index: CodeIndex,
        place: CodePlace,
        progress: IndexProgress | None,
        most_files: int = _MOST_FILES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._clock = clock
        self._most_files = most_files
        self._place = place
        self._progress = _quiet(progress)
        self._lock = threading.Lock()
        self._opened: OpenedCode | None = None
        self._given_up = False

    def open(self, seconds: float, cancelled: CancelSignal) -> SourceMissing | None:
        """Open the snapshot. Return None, or the reason why there is nothing to open."""
        deadline = Deadline(self._clock, seconds)
        try:
            manager = self._index.open(
                self._place, seconds=seconds, progress=self._progress, cancelled=cancelled
            )
            held = HeldSnapshot(manager, manager.__enter__())
        except SourceMissing as missing:
            return missing
        in_time = deadline.left > 0
        try:
            opened = OpenedCode(held, _files(held.code, self._most_files), _notes(held.code, in_time))
        except BaseException:
            held.release_hold()
            raise
        if not self._offer(opened):
            held.release_hold()
        return None

    def take(self) -> OpenedCode | None:
        """Return the snapshot if it is open, else None. A snapshot that is opened after this call is closed
        at once.
        """
        with self._lock:
            self._given_up = True
            return self._opened

    def _offer(self, opened: OpenedCode) -> bool:
        with self._lock:
            if self._given_up:  # guard: no caller is left to close it
                return False
            self._opened = opened
            return True


def nothing_opened(place: CodePlace) -> OpenedCode:
    """Return a placeholder for code that could not be opened."""
    code = NoCode(place)
    return OpenedCode(HeldSnapshot(nullcontext(code), code), {}, (), is_code=False)


def _quiet(progress: IndexProgress | None) -> IndexProgress | None:
    """Return a progress listener whose errors are ignored."""
    if progress is None:
        return None
    told: Callable[[int, int], None] = progress

    def tell(done: int, of: int) -> None:
        with suppress(Exception):
            told(done, of)

    return tell


def _files(code: CodeSnapshot, most: int) -> dict[str, CodeFile]:
    files: dict[str, CodeFile] = {}
    for file in code.files:
        if type(file) is not CodeFile or type(file.path) is not str:
            raise TypeError("the index returned an invalid file")
        files[file.path] = file
        if len(files) > most:  # guard: a list without an end would fill the memory
            raise ValueError(f"there are more than {most:,} files")
    return files


def _notes(code: CodeSnapshot, in_time: bool) -> tuple[str, ...]:
    """Return the notes of a snapshot.

    For an incomplete snapshot, a note advises to ask again. If there was enough time (`in_time`), there is no
    such note, because asking again would not help.
    """
    status = code.status
    notes = [str(note) for note in status.notes[:_MOST_NOTES]]
    if not status.complete:
        advice = "" if in_time else " so far; ask again for more"
        notes.append(f"only {status.indexed} of {status.files} files are indexed{advice}")
    return tuple(notes)
