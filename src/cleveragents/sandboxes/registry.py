"""The registry of sandboxes: rows in the database and directories on disk, kept consistent.

A row and a directory cannot change in one step, so the order is fixed. To create: lock, row `making`,
directory, row `ready`. To remove: lock, row `removing`, directory, no row. The kernel releases the lock when
its holder dies. A row that is not `ready` while its lock is free therefore belongs to a dead process, and the
next caller recreates or removes the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from sqlalchemy import Connection

from cleveragents.access.model.project import remote_of
from cleveragents.core.clock import Clock, SystemClock
from cleveragents.core.errors import QuotaExceeded, SandboxBusy, SandboxMissing, SandboxRefused
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import Fence, IdentifierSource, UlidSource
from cleveragents.jobs.store.rows import ensure_owned
from cleveragents.sandboxes import rows as rows
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.lock import locked
from cleveragents.sandboxes.orphans import SandboxOrphan, find_orphans, remove_orphans
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.rows import MAKING, READY, REMOVING, SandboxRow
from cleveragents.storage.files.paths import disk_use, remove_all
from cleveragents.storage.outbox import append_to_outbox

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.ports import Progress, SandboxRequest, SandboxStrategy, StartTree
    from cleveragents.storage.database import Database

__all__ = ["SandboxRegistry"]

# Enough for a peer that is about to lock the same directory to finish or to hold the lock.
_LOCK_ATTEMPTS = 50
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class SandboxRegistry:
    """`Sandboxes` on a `Database`, below one directory. Holds no other state, so any thread may share it.

    `quota_bytes` limits the disk use of all sandboxes, checked before one is created; 0 means no limit. With
    `durability="full"`, the content of new sandboxes survives a power cut. `home` names the state directory
    if several share the database: sandboxes of another home are neither examined nor removed.
    """

    def __init__(
        self,
        database: Database,
        directory: Path,
        *,
        quota_bytes: int = 0,
        durability: Literal["normal", "full"] = "normal",
        clock: Clock | None = None,
        identifiers: IdentifierSource | None = None,
        faults: FaultPoints | None = None,
        strategies: Sequence[SandboxStrategy] | None = None,
        home: str | None = None,
    ) -> None:
        self._database = database
        self._home = home
        self._directory = directory
        self._quota_bytes = quota_bytes
        self._clock = clock or SystemClock()
        self._identifiers = identifiers or UlidSource()
        points = faults or NoFaults()
        durable = durability == "full"
        ours = (PrivateClone(points, durable=durable), DirectoryCopy(points, durable=durable))
        known = strategies if strategies is not None else ours
        self._strategies: Mapping[str, SandboxStrategy] = {strategy.name: strategy for strategy in known}

    @property
    def directory(self) -> Path:
        """The directory that contains all sandboxes."""
        return self._directory

    def create(self, request: SandboxRequest, *, progress: Progress | None = None) -> Sandbox:
        _ensure_plain_name(request)
        known = self.row(request.plan_id)
        if known is not None and known.state == READY and self._is_ours(known):
            return self._opened(known)
        strategy, origin = self._strategy_for(request)
        self._ensure_quota()
        place = self._place(request.plan_id)
        with self._claimed(place, request.plan_id):
            known = self.row(request.plan_id)
            ours = known is not None and self._is_ours(known)
            if known is not None and ours and known.state == READY:  # guard: a peer created it meanwhile
                return self._opened(known)
            if known is not None and ours:
                # Half created or half removed by a dead process: its lock was free.
                self._strategies[known.strategy].remove(request.plan_id, known.resource, known.directory)
            if progress is not None:
                address = remote_of(request.remote or "")
                progress(f"making a sandbox of {request.resource if address is None else address.shown}")
            sandbox = self._make(strategy, request, place, origin, progress)
        if progress is not None:
            for note in sandbox.notes:
                progress(note)
        return sandbox

    def open(self, plan_id: str, *, fence: Fence | None = None) -> Sandbox:
        return self._opened(self._ready_row(plan_id))

    def remove(self, plan_id: str) -> None:
        if self.row(plan_id) is None:
            return
        place = self._place(plan_id)
        with self._claimed(place, plan_id):
            row = self.row(plan_id)
            if row is None or not self._is_ours(row):  # guard: a peer removed it, or has its own
                remove_all(place.directory)
            else:
                self._take_away(row)

    def row(self, plan_id: str) -> SandboxRow | None:
        """Return the record of the plan's sandbox; None if there is none."""
        with self._database.read() as connection:
            return rows.find(connection, plan_id)

    def shown_row(self, plan_id: str) -> SandboxRow | None:
        """Return the record for a view: see `shared_reads`. Code that touches files calls `row`."""
        return self._database.read_shared(
            ("sandbox", plan_id), lambda connection: rows.find(connection, plan_id)
        )

    def rows(self) -> Sequence[SandboxRow]:
        """Return the records of all sandboxes on this machine."""
        return [row for row in self._all_rows() if self._is_ours(row)]

    def taken_over(self) -> frozenset[str]:
        """Return the plans on remotes whose sandbox is on another machine now. Their local sandboxes are
        obsolete.
        """
        return frozenset(row.plan_id for row in self._all_rows() if row.remote and not self._is_ours(row))

    def sizes(self) -> Mapping[str, int]:
        return {row.plan_id: self.measure(row.plan_id) for row in self.rows()}

    def used_bytes(self) -> int:
        """Return the last measured disk use of all sandboxes."""
        return sum(row.size_bytes for row in self.rows())

    def measure(self, plan_id: str) -> int:
        """Measure the disk use of the plan's sandbox and record it."""
        row = self.row(plan_id)
        if row is None:
            raise SandboxMissing(plan_id, str(self._place(plan_id).directory))
        size = disk_use(row.directory)

        def unit(connection: Connection) -> None:
            known = rows.find(connection, plan_id)
            if known is not None and self._is_ours(known):
                rows.put(connection, replace(known, size_bytes=size))

        self._database.write(unit)
        return size

    def leftovers(self, resources: Iterable[Path] = ()) -> Sequence[SandboxOrphan]:
        """Return orphans among the sandboxes, and orphaned pins in these repositories. Changes nothing."""
        return find_orphans(self, self._clock.now(), resources)

    def remove_orphans(self) -> Sequence[SandboxOrphan]:
        """Remove the orphans that are certainly ours, unused and without work; return them."""
        return remove_orphans(self, self._clock.now())

    def _strategy_for(self, request: SandboxRequest) -> tuple[SandboxStrategy, Sandbox | None]:
        """Return the strategy for the request, and the sandbox that `request.start` names, if any. The same
        strategy created that sandbox.

        Raises `SandboxMissing` if that sandbox is gone.
        """
        if request.start is not None:
            return self._origin(request.start)
        for strategy in self._strategies.values():
            if strategy.suits(request.resource):
                return strategy, None
        raise SandboxRefused(str(request.resource), "no such directory")

    def _origin(self, start: StartTree) -> tuple[SandboxStrategy, Sandbox]:
        row = self._ready_row(start.plan_id)
        return self._strategies[row.strategy], self._opened(row)

    def _all_rows(self) -> Sequence[SandboxRow]:
        with self._database.read() as connection:
            return rows.all_rows(connection)

    def _is_ours(self, row: SandboxRow) -> bool:
        """Return whether the sandbox belongs to this state directory, even under an earlier name of it."""
        if row.home in (None, self._home):
            return True
        return row.remote is None and row.directory.parent == self._directory and row.directory.is_dir()

    def _place(self, plan_id: str) -> SandboxLayout:
        return SandboxLayout(self._directory / plan_id)

    @contextmanager
    def _claimed(self, place: SandboxLayout, plan_id: str) -> Iterator[None]:
        """Hold the lock of a sandbox that may not exist yet. Raises `SandboxBusy`."""
        with ExitStack() as held:
            for _ in range(_LOCK_ATTEMPTS):
                place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                # A peer may remove the directory between any two of these steps.
                with suppress(SandboxMissing, FileNotFoundError):
                    place.lock.touch()
                    held.enter_context(locked(place.lock, plan_id))
                    break
            else:
                raise SandboxBusy(plan_id)
            yield

    def _ensure_quota(self) -> None:
        if self._quota_bytes:
            used = self.used_bytes()
            if used >= self._quota_bytes:
                raise QuotaExceeded(used, self._quota_bytes)

    def _make(
        self,
        strategy: SandboxStrategy,
        request: SandboxRequest,
        place: SandboxLayout,
        origin: Sandbox | None,
        progress: Progress | None,
    ) -> Sandbox:
        now = self._clock.now()
        row = SandboxRow(
            plan_id=request.plan_id,
            strategy=strategy.name,
            directory=place.directory,
            state=MAKING,
            resource=request.resource,
            size_bytes=0,
            created_at=now,
            home=self._home,
            remote=request.remote,
        )
        self._register(row, request.fence)
        try:
            sandbox = strategy.create(request, place.directory, origin, progress=progress)
            self._ready(row, place.read_facts(request.plan_id).size_bytes, sandbox.base, request.fence)
        except BaseException:
            # The error explains the failure; no trace of the sandbox stays.
            self._take_away(row)
            raise
        return sandbox

    def _register(self, row: SandboxRow, fence: Fence | None) -> None:
        def unit(connection: Connection) -> None:
            ensure_owned(connection, fence)
            rows.put(connection, row)

        self._database.write(unit)

    def _ready(self, row: SandboxRow, size_bytes: int, base: str, fence: Fence | None = None) -> None:
        event = self._event(EventType.SANDBOX_CREATED, row, {"base": base})

        def unit(connection: Connection) -> None:
            ensure_owned(connection, fence)
            rows.put(connection, replace(row, state=READY, size_bytes=size_bytes))
            append_to_outbox(connection, event)

        self._database.write(unit)

    def _take_away(self, row: SandboxRow) -> None:
        """Remove the sandbox. The row is deleted last, so that any process can see an incomplete removal."""
        if row.state == READY:
            self._database.write(lambda connection: rows.set_state(connection, row, REMOVING))
        self._strategies[row.strategy].remove(row.plan_id, row.resource, row.directory)
        remove_all(row.directory)
        event = self._event(EventType.SANDBOX_REMOVED, row, {})

        def unit(connection: Connection) -> None:
            dropped = rows.drop(connection, row)
            if dropped and row.state != MAKING:  # guard: report it once, and only after its creation
                append_to_outbox(connection, event)

        self._database.write(unit)

    def _ready_row(self, plan_id: str) -> SandboxRow:
        row = self.row(plan_id)
        if row is not None and not self._is_ours(row):
            raise SandboxMissing(plan_id, f"{row.directory}, on the machine with state {row.home}")
        if row is None or row.state != READY:
            raise SandboxMissing(plan_id, str(self._place(plan_id).directory))
        return row

    def _opened(self, row: SandboxRow) -> Sandbox:
        sandbox = self._strategies[row.strategy].open(row.plan_id, row.resource, row.directory)
        sandbox.vacate()  # guard: a killed worker reset nothing, and a person may go there next
        return sandbox

    def _event(self, kind: EventType, row: SandboxRow, more: Mapping[str, JsonValue]) -> DomainEvent:
        payload: dict[str, JsonValue] = {"strategy": row.strategy, "resource": _shown(row.resource), **more}
        return DomainEvent(kind, row.plan_id, self._identifiers.new(), self._clock.now(), payload)


def _ensure_plain_name(request: SandboxRequest) -> None:
    """Raise `SandboxRefused` unless the plan's id can name a directory and a ref."""
    if not _PLAIN_NAME.fullmatch(request.plan_id):
        raise SandboxRefused(str(request.resource), f"invalid plan id {request.plan_id!r}")


def _shown(path: Path) -> str:
    """Return the path as valid Unicode text."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")
