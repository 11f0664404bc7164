"""A LangGraph checkpointer on the CleverAgents database.

A long value is stored once per version, separate from the checkpoints that use it. A short value is stored
inside the checkpoint, which is cheaper. Versions end in random digits: two branches that continue from the
same checkpoint use the same version numbers, and each must find its own values.

The writes of a task are stored when the task ends, and describe its step completely; the checkpoint that
LangGraph then creates adds no information. So if exactly one task follows, the checkpoint is held back and
stored together with the writes of that task: one transaction per step instead of two. A process that is
killed in between continues from the writes of the previous step.

Values are serialised as plain values and LangGraph's own markers. A format that names classes could make the
reader import and call these classes. So such values are never written, and never loaded, even if another
program wrote them into the database.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from secrets import token_hex
from typing import Any, TypeVar

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.constants import START
from langgraph.types import Interrupt, Overwrite, Send
from typing_extensions import override

from cleveragents.actors.store.checkpoint_rows import Blob, StoredCheckpoint, StoredWrite
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.errors import InvalidPayload
from cleveragents.core.identifiers import Fence, TurnFence

__all__ = ["DatabaseCheckpointSaver", "PlainSerializer"]


R = TypeVar("R")
_SHORT_CHARACTERS = 64
_BRANCH = "branch:to:"

_WAYS = (_BRANCH, "join:", "__")
"""Prefixes of the channels that trigger a task."""

_KEPT: Blob = ("", b"")
"""Marks a value that the store already has from an earlier checkpoint."""

_KINDS = ("null", "bytes", "bytearray", "msgpack")
_PLAIN = (type(None), bool, int, float, str, bytes, bytearray)
# Without these options, objects would be written like plain values and read back as something else.
_STRICT = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


@dataclass(slots=True)
class _Step:
    """A step with a single task.

    `held` is the step's checkpoint while it is held back; `written` resolves to True if the task's writes
    were stored.
    """

    checkpoint_id: str
    held: StoredCheckpoint | None = None
    written: asyncio.Future[bool] | None = None


class DatabaseCheckpointSaver(BaseCheckpointSaver[str]):
    """Checkpoints of one run's graphs in a `SqlCheckpointStore`, written under the run's fence.

    Without a fence, any caller may write. With a fence, a worker that lost its job gets `StaleFence`. Values
    must be plain (`PlainSerializer`), otherwise `InvalidPayload` is raised. Deleting a thread also deletes
    the threads below it (`id/…`).

    With `history`, the saver is stateless, and any thread and loop may share it. Without `history`, the saver
    belongs to one run and its loop. Each checkpoint then replaces those before its parent, so a thread can
    continue only from its latest state. A checkpoint that is followed by a single task is held back until
    that task writes, and is stored together with these writes. Before anything else is written or read in its
    namespace or below, the checkpoint is stored.

    The asynchronous methods serialise values immediately, so that later changes do not affect them. They
    access the database on the loop's default executor, because waiting for a busy database on the loop would
    block all its runs. A cancelled call may still be carried out.
    """

    def __init__(
        self, store: SqlCheckpointStore, *, fence: Fence | TurnFence | None = None, history: bool = True
    ) -> None:
        super().__init__(serde=PlainSerializer())
        self._store = store
        self._fence = fence
        self._history = history
        self._steps: dict[str, _Step] = {}

    # ── reading ──

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = config["configurable"]
        found = self._store.get(
            str(place["thread_id"]), place.get("checkpoint_ns", ""), place.get("checkpoint_id") or None
        )
        return None if found is None else self._tuple(found)

    @override
    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        return islice(self._matching(config, filter or {}, before), limit)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        await self._keep_held(config["configurable"].get("checkpoint_ns", ""))
        return await _aside(self.get_tuple, config)

    @override
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for namespace in tuple(self._steps):
            await self._keep_held(namespace)
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (following := await _aside(next, found, None)) is not None:
            yield following

    # ── writing ──

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = self._stored(config, checkpoint, metadata, new_versions)
        self._put(stored)
        return _config(stored.thread_id, stored.namespace, stored.checkpoint_id)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._keep_writes(config, self._stored_writes(writes, task_id, task_path))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = self._stored(config, checkpoint, metadata, new_versions)
        before = self._steps.get(stored.namespace)
        if before is not None and before.written is not None:  # guard: its parent is stored with those writes
            await asyncio.shield(before.written)
        await self._keep_held(stored.namespace)
        if not await self._is_held(stored, checkpoint):
            await _aside(self._put, stored)
        return _config(stored.thread_id, stored.namespace, stored.checkpoint_id)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        stored = self._stored_writes(writes, task_id, task_path)
        place = config["configurable"]
        namespace = place.get("checkpoint_ns", "")
        step = self._steps.get(namespace)
        if step is None or step.checkpoint_id != place["checkpoint_id"]:
            await self._keep_held(namespace)
            await _aside(self._keep_writes, config, stored)
            return
        held, step.held = step.held, None
        step.written = asyncio.get_running_loop().create_future()
        kept = False
        try:
            await self._keep_held(namespace)
            await _aside(self._keep_writes, config, stored, held)
            kept = True
        finally:
            step.written.set_result(kept)

    def delete_thread(self, thread_id: str) -> None:
        self._store.delete_threads(str(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        self._steps.clear()
        await _aside(self.delete_thread, thread_id)

    # ── other methods of the interface ──

    def get_next_version(self, current: str | None, channel: None) -> str:
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:010}.{token_hex(6)}"

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> DatabaseCheckpointSaver:
        """Return this saver unchanged: instances of classes are never plain, so no class can be allowed."""
        return self

    # ── to and from the store ──

    def _stored(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> StoredCheckpoint:
        place = config["configurable"]
        versions = checkpoint["channel_versions"]
        short: dict[str, object] = {}
        long: dict[str, tuple[str, Blob]] = {}
        for channel, value in checkpoint["channel_values"].items():
            if _is_short(value) or channel not in versions:
                short[channel] = value
            else:
                blob = self.serde.dumps_typed(value) if channel in new_versions else _KEPT
                long[channel] = (str(versions[channel]), blob)
        about = get_serializable_checkpoint_metadata(config, metadata)
        return StoredCheckpoint(
            str(place["thread_id"]),
            place.get("checkpoint_ns", ""),
            checkpoint["id"],
            place.get("checkpoint_id") or None,
            self.serde.dumps_typed({**checkpoint, "channel_values": short}),
            json.dumps(about).encode(),
            long,
            supersedes=not self._history,
        )

    def _stored_writes(
        self, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Sequence[StoredWrite]:
        return [
            StoredWrite(
                task_id,
                WRITES_IDX_MAP.get(channel, number),
                channel,
                self.serde.dumps_typed(value),
                task_path,
            )
            for number, (channel, value) in enumerate(writes)
        ]

    async def _keep_held(self, namespace: str) -> None:
        """Store the held checkpoints of the namespace and of the namespaces above it, outermost first."""
        waiting: list[StoredCheckpoint] = []
        for name in sorted(self._steps, key=len):
            step = self._steps[name]
            if step.held is not None and _is_within(namespace, name):
                waiting.append(step.held)
                step.held = None
        for held in waiting:
            await _aside(self._put, held)

    async def _is_held(self, stored: StoredCheckpoint, checkpoint: Checkpoint) -> bool:
        """Hold the checkpoint back if its parent's writes are stored and exactly one task follows; return
        whether it is held.
        """
        before = self._steps.pop(stored.namespace, None)
        if self._history or not _is_followed_by_one(checkpoint):
            return False
        step = self._steps[stored.namespace] = _Step(stored.checkpoint_id)
        if stored.parent_id is not None:
            if before is None or before.checkpoint_id != stored.parent_id or before.written is None:
                return False
            # LangGraph waits for checkpoints, not for writes.
            if not await asyncio.shield(before.written):  # guard: the next call starts after it is stored
                return False
        step.held = stored
        return True

    def _put(self, stored: StoredCheckpoint) -> None:
        self._store.put(stored, fence=self._fence)

    def _keep_writes(
        self, config: RunnableConfig, writes: Sequence[StoredWrite], held: StoredCheckpoint | None = None
    ) -> None:
        place = config["configurable"]
        self._store.put_writes(
            str(place["thread_id"]),
            place.get("checkpoint_ns", ""),
            place["checkpoint_id"],
            writes,
            # An error or an interrupt may be replaced by a later one; the result of a task stays.
            replace=all(write.channel in WRITES_IDX_MAP for write in writes),
            fence=self._fence,
            checkpoint=held,
        )

    def _tuple(self, found: StoredCheckpoint) -> CheckpointTuple:
        checkpoint: Checkpoint = self.serde.loads_typed(found.checkpoint)
        for channel, (_, blob) in found.values.items():
            checkpoint["channel_values"][channel] = self.serde.loads_typed(blob)
        parent = None
        if found.parent_id is not None:
            parent = _config(found.thread_id, found.namespace, found.parent_id)
        return CheckpointTuple(
            _config(found.thread_id, found.namespace, found.checkpoint_id),
            checkpoint,
            json.loads(found.metadata),
            parent,
            [(write.task_id, write.channel, self.serde.loads_typed(write.value)) for write in found.writes],
        )

    def _matching(
        self, config: RunnableConfig | None, wanted: Mapping[str, Any], before: RunnableConfig | None
    ) -> Iterator[CheckpointTuple]:
        place = {} if config is None else config["configurable"]
        thread_id = place.get("thread_id")
        checkpoint_id = place.get("checkpoint_id")
        for found in self._store.list(
            None if thread_id is None else str(thread_id),
            namespace=place.get("checkpoint_ns"),
            before=None if before is None else before["configurable"]["checkpoint_id"],
        ):
            if checkpoint_id and found.checkpoint_id != checkpoint_id:
                continue
            about = json.loads(found.metadata)
            if all(name in about and about[name] == value for name, value in wanted.items()):
                yield self._tuple(found)


async def _aside(call: Callable[..., R], *arguments: Any) -> R:
    """Run a blocking call on the default executor."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def _is_followed_by_one(checkpoint: Checkpoint) -> bool:
    """Return whether exactly one task follows.

    With several tasks, the writes of one task could be stored before the checkpoint that is held back for
    another task. With no task, the checkpoint would never be stored.
    """
    ways = [name for name in checkpoint.get("updated_channels") or () if name.startswith(_WAYS)]
    return len(ways) == 1 and (ways[0] == START or ways[0].startswith(_BRANCH))


def _is_within(namespace: str, other: str) -> bool:
    return not other or namespace == other or namespace.startswith(f"{other}|")


def _is_short(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _SHORT_CHARACTERS
    return value is None or isinstance(value, bool | int | float)


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


class PlainSerializer(JsonPlusSerializer):
    """LangGraph's serialiser, restricted to JSON values, bytes and LangGraph's markers.

    Raises `InvalidPayload`. An error is stored as text, because a task's error is only displayed; no run
    continues from it.
    """

    def __init__(self) -> None:
        super().__init__(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if obj is not None and not isinstance(obj, bytes | bytearray):
            try:
                return "msgpack", ormsgpack.packb(obj, default=_told, option=_STRICT)
            except ormsgpack.MsgpackEncodeError:
                _ensure_plain(obj)
        try:
            kind, content = super().dumps_typed(obj)
        except (ormsgpack.MsgpackEncodeError, RecursionError) as error:
            raise InvalidPayload("a value of a graph", str(error)) from error
        return kind, bytes(content)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] not in _KINDS:  # guard: other kinds revive objects
            raise InvalidPayload("a value of a graph", f"stored with the unknown format {data[0]!r}")
        return super().loads_typed(data)


def _told(value: object) -> str:
    """Convert an error to text; reject everything else."""
    if isinstance(value, BaseException):
        return repr(value)
    raise TypeError(type(value).__qualname__)


def _ensure_plain(value: object) -> None:
    """Raise `InvalidPayload` if the value is not plain."""
    if isinstance(value, list) or type(value) is tuple:
        for item in value:
            _ensure_plain(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            _ensure_plain(key)
            _ensure_plain(item)
    elif isinstance(value, Send):
        _ensure_plain(value.arg)
    elif isinstance(value, Interrupt | Overwrite):
        _ensure_plain(value.value)
    elif type(value) not in _PLAIN:  # guard: nothing names a class
        raise InvalidPayload("a value of a graph", f"{type(value).__qualname__} is not a plain value")
