"""What keeps a worker from its store: since when, and told when it begins and when it is over."""

from __future__ import annotations

from typing import Literal

from cleveragents.core.errors import (
    CleverAgentsError,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    StoreFull,
)
from cleveragents.jobs.worker.log import worker_log

__all__ = ["NO_STORE", "StoreTrouble"]

NO_STORE = (StoreFull, DatabaseUnreachable, DatabaseUnusable, DatabaseFailed)
"""The store as a whole cannot be used until somebody sees to it; one that is busy is not meant."""

_Doing = Literal["claiming", "writing", "reclaiming", "looking"]


class StoreTrouble:
    """Which uses of the store fail, each since when. A use that succeeds is over its trouble; one that wrote
    something is a proof for all of them.

    Thread safety:
        Owner: the table of attempts; every thread of the worker shares it.
        Lock: none; each step is one operation on a dictionary, which is atomic.
        Guarantee: however often a use fails, that is told once until it succeeds.
    Cancel safety: no call waits.
    """

    def __init__(self) -> None:
        self._met: dict[_Doing, tuple[float, CleverAgentsError]] = {}

    def met(self, doing: _Doing, error: Exception, now: float) -> bool:
        """Whether the error means that the store cannot be used; told if that is new."""
        if not isinstance(error, NO_STORE):
            return False
        fresh = now, error
        if self._met.setdefault(doing, fresh) is fresh:
            worker_log().warning("worker.store_waits", doing=doing, problem=str(error))
        return True

    def over(self, doing: _Doing) -> None:
        """That use of it succeeded."""
        if self._met and self._met.pop(doing, None) is not None:
            worker_log().warning("worker.store_goes_on", doing=doing)

    def wrote(self) -> None:
        """Something was kept by it, whatever the use."""
        for doing in tuple(self._met):
            self.over(doing)

    def since(self, then: float) -> CleverAgentsError | None:
        """What has kept it from being used from that moment on, or for longer."""
        for began, error in tuple(self._met.values()):
            if began <= then:
                return error
        return None
