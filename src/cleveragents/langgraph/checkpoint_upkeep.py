"""The rest of what LangGraph knows to do with checkpoints: to copy a thread, to prune it, to forget a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence

from cleveragents.application.ports.checkpoint_upkeep import CheckpointHead, CheckpointUpkeep
from cleveragents.application.ports.checkpoints import CheckpointStore
from cleveragents.errors import InvalidPayload
from cleveragents.langgraph.checkpoint_saver import DatabaseCheckpointSaver

__all__ = ["UpkeepCheckpointSaver"]

_DELTAS = "counters_since_delta_snapshot"


class UpkeepCheckpointSaver(DatabaseCheckpointSaver):
    """A saver that can also tidy up. No run's fence holds it back: whoever tidies up is not a run."""

    def __init__(self, store: CheckpointStore, upkeep: CheckpointUpkeep) -> None:
        super().__init__(store)
        self._upkeep = upkeep

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._upkeep.copy(source_thread_id, target_thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Leaves the newest checkpoint of each namespace, or with `delete` none. What a channel of deltas is
        put together from stays whole."""
        if strategy == "delete":
            self._upkeep.forget(lambda heads: heads, thread_ids)
        elif strategy == "keep_latest":
            self._upkeep.forget(_all_but_the_newest, thread_ids)
        else:
            raise InvalidPayload("prune", f"{strategy!r} is neither keep_latest nor delete")

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Looks at every checkpoint there is."""
        wanted = set(run_ids)
        if wanted:
            self._upkeep.forget(
                lambda heads: [head for head in heads if _about(head).get("run_id") in wanted]
            )

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)


def _all_but_the_newest(heads: Sequence[CheckpointHead]) -> Collection[CheckpointHead]:
    newest: dict[tuple[str, str], CheckpointHead] = {}
    for head in heads:
        place = (head.thread_id, head.namespace)
        if place not in newest or head.checkpoint_id > newest[place].checkpoint_id:
            newest[place] = head
    whole = {place for place, head in newest.items() if _DELTAS in _about(head)}
    doomed: list[CheckpointHead] = []
    for head in heads:
        place = (head.thread_id, head.namespace)
        if place in whole:  # guard: deltas need those before them
            continue
        if head is not newest[place]:
            doomed.append(head)
    return doomed


def _about(head: CheckpointHead) -> dict[str, object]:
    about: dict[str, object] = json.loads(head.metadata)
    return about
