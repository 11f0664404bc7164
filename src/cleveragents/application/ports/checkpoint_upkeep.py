"""What is done to the checkpoints of graphs between runs: copied, thinned out. No run needs any of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["CheckpointHead", "CheckpointUpkeep"]


@dataclass(frozen=True, slots=True)
class CheckpointHead:
    """Which checkpoint it is, and what is said of it."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    metadata: bytes


class CheckpointUpkeep(Protocol):
    """Every method is one atomic step; what returned survives kill -9."""

    def copy(self, source: str, target: str) -> None:
        """Gives the target thread all that the source thread has; what it has itself stays."""
        ...

    def forget(
        self,
        unwanted: Callable[[Sequence[CheckpointHead]], Collection[CheckpointHead]],
        thread_ids: Sequence[str] | None = None,
    ) -> None:
        """Forgets those that `unwanted` names among all of these threads (or of all threads): with their
        writes, and with the values that no other checkpoint is made of. It may be asked more than once."""
        ...
