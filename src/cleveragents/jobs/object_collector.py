"""Tuning of Python's garbage collector while a worker runs.

The collector scans young objects after every 700 allocations, and occasionally all objects: hundreds of
thousands that belong to modules and live as long as the process. These scans took a tenth of the total time
of running plans. So from the start of the first worker to the end of the last one, existing objects are
frozen (excluded from collection), and young objects are scanned less often.
"""

from __future__ import annotations

import gc
import threading

__all__ = ["COLLECTOR", "CollectorPause"]

_YOUNG_OBJECTS = 10_000


class CollectorPause:
    """The garbage collector of this process, relaxed while there is at least one holder.

    Thread safety:
        Owner: the module; any thread may call `hold` and `release_hold`, in pairs.
        Lock: `_lock` guards the number of holders, the previous settings and whether we froze objects,
            including the calls to the collector.
        Guarantee: the collector is relaxed from before the first `hold` returns until the last holder
            releases it; then the previous settings are restored.
    Cancel safety: an interrupt before `hold` returns may leave the collector relaxed permanently; it has no
        other effect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before = gc.get_threshold()
        self._froze = False

    def hold(self) -> None:
        """Exclude all current objects from collection until `release_hold`."""
        with self._lock:
            self._holders += 1
            if self._holders > 1:
                return
            self._before = gc.get_threshold()
            youngest, *older = self._before
            if 0 < youngest < _YOUNG_OBJECTS:  # guard: respects a collector that is turned off
                gc.set_threshold(_YOUNG_OBJECTS, *older)
            self._froze = gc.get_freeze_count() == 0
            if self._froze:
                gc.freeze()

    def release_hold(self) -> None:
        """Include the frozen objects in collection again."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
            if self._froze:  # guard: objects that other code froze stay frozen
                gc.unfreeze()
            gc.set_threshold(*self._before)


COLLECTOR = CollectorPause()
"""The instance of this process."""
