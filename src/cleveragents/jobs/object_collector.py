"""Python's collector of unreachable objects, which takes it easy while a worker works.

It looks at young objects after every 700 of them, and now and then at all there are: hundreds of thousands
that belong to modules and live as long as the process. For plans at work that was a tenth of all they took.
So what there is when the first worker comes is left alone until the last one has gone, and young objects are
looked at less often.
"""

from __future__ import annotations

import gc
import threading

__all__ = ["COLLECTOR", "CollectorPause"]

_YOUNG_OBJECTS = 10_000


class CollectorPause:
    """The collector of this process, calm while anybody holds it so.

    Thread safety:
        Owner: the module; any thread may hold and let go, as often as it holds.
        Lock: `_lock` guards the number of holders, what was set before and what is ours to thaw, while the
            collector is told.
        Guarantee: it is calm from before the first `hold` returns until the last holder lets go; then it is
            as it was before.
    Cancel safety: who is interrupted before `hold` returns may have made it calm for good, and nothing else.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before = gc.get_threshold()
        self._froze = False

    def hold(self) -> None:
        """Until `release_hold`, objects that are there now are not looked at."""
        with self._lock:
            self._holders += 1
            if self._holders > 1:
                return
            self._before = gc.get_threshold()
            youngest, *older = self._before
            if 0 < youngest < _YOUNG_OBJECTS:  # guard: who has turned it off wants none of it
                gc.set_threshold(_YOUNG_OBJECTS, *older)
            self._froze = gc.get_freeze_count() == 0
            if self._froze:
                gc.freeze()

    def release_hold(self) -> None:
        """What is unreachable of them by now is found again."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
            if self._froze:  # guard: what somebody else froze is theirs to thaw
                gc.unfreeze()
            gc.set_threshold(*self._before)


COLLECTOR = CollectorPause()
"""The one of this process."""
