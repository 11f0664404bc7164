"""How many threads share one short lock without queueing up in it for good.

The interpreter gives a lock to a thread that sleeps in it as soon as it is free, before that thread can run.
So once some threads sleep in a lock that all of them need again and again, everybody else finds it taken
and falls asleep in it, too: each turn then costs a switch of threads, where threads that come upon a free
lock take thousands of turns between two switches. One interrupted turn starts such a convoy, and it ends only
when somebody stays away for a moment.
"""

from __future__ import annotations

import time

__all__ = ["stand_back"]

_STAND_BACK_SECONDS = 0.0001


def stand_back() -> None:
    """For who had to wait for a turn, after it: stays away until those who sleep in the lock had theirs."""
    time.sleep(_STAND_BACK_SECONDS)
