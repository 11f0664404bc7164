"""The registry of sandboxes: rows in the database, directories on disk, and never one mistaken for another.

A row and a directory cannot change in one step, so the order is fixed: lock, row `making`, directory, row
`ready`; and back: lock, row `removing`, directory, no row. The lock is the kernel's and ends with its holder:
a row that is not `ready` while nobody holds its lock is the work of a dead process, and is made anew or
taken away by whoever comes next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection

from cleveragents.access.model.project import remote_of
from cleveragents.core.clock import Clock, SystemClock
from cleveragents.core.errors import QuotaExceeded, SandboxBusy, SandboxMissing, SandboxRefused
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import Fence, IdentifierSource, UlidSource
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.store.rows import ensure_owned
from cleveragents.sandboxes import rows as rows
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.lock import locked
from cleveragents.sandboxes.orphans import SandboxOrphan, find_orphans, remove_orphans
from cleveragents.sandboxes.ports import SandboxRequest, SandboxStrategy, StartTree
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.rows import MAKING, READY, REMOVING, SandboxRow
from cleveragents.storage.database import Database
from cleveragents.storage.files.paths import disk_use, remove_all
from cleveragents.storage.outbox import append_to_outbox

__all__ = ["SandboxRegistry"]

# A peer that is about to lock the same directory is done with it within this time, or has it.
_LOCK_ATTEMPTS = 50
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class SandboxRegistry:
    """`Sandboxes` on a `Database`, below one directory. Stateless but for these, so any thread may share it.

    `quota_bytes` bounds what all sandboxes together may use; 0 is no bound. It is checked before one is made.
    `durability="full"`: what new sandboxes keep survives a power cut, too. `home` names the state directory
    where several share the database: what another one has is neither looked at nor removed here.
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
        """Where all of them are."""
        return self._directory

    def create(self, request: SandboxRequest, *, progress: Callable[[str], None] | None = None) -> Sandbox:
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
            if known is not None and ours and known.state == READY:  # guard: a peer made it while we came
                return self._opened(known)
            if known is not None and ours:
                # Half made, or half removed, by a process that is dead: its lock was free.
                self._strategies[known.strategy].remove(request.plan_id, known.resource, known.directory)
            if progress is not None:
                address = remote_of(request.remote or "")
                progress(f"making a sandbox of {request.resource if address is None else address.shown}")
            sandbox = self._make(strategy, request, place, origin)
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
            if row is None or not self._is_ours(row):  # guard: a peer removed it, or has one of its own
                remove_all(place.directory)
            else:
                self._take_away(row)

    def row(self, plan_id: str) -> SandboxRow | None:
        """What is known of the plan's sandbox."""
        with self._database.read() as connection:
            return rows.find(connection, plan_id)

    def rows(self) -> Sequence[SandboxRow]:
        """What is known of every sandbox that is here."""
        return [row for row in self._all_rows() if self._is_ours(row)]

    def taken_over(self) -> frozenset[str]:
        """Plans on remotes whose sandbox another machine has: one that is here is of no use any more."""
        return frozenset(row.plan_id for row in self._all_rows() if row.remote and not self._is_ours(row))

    def sizes(self) -> Mapping[str, int]:
        return {row.plan_id: self.measure(row.plan_id) for row in self.rows()}

    def used_bytes(self) -> int:
        """What all sandboxes use, as far as it was measured."""
        return sum(row.size_bytes for row in self.rows())

    def measure(self, plan_id: str) -> int:
        """Looks at every file of the plan's sandbox, and remembers what they use."""
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
        """What should not be there: of sandboxes, and of pins in these repositories. Changes nothing."""
        return find_orphans(self, self._clock.now(), resources)

    def mend(self) -> Sequence[SandboxOrphan]:
        """Takes away what of it is certainly ours, unused and without work in it; returns that."""
        return remove_orphans(self, self._clock.now())

    def _strategy_for(self, request: SandboxRequest) -> tuple[SandboxStrategy, Sandbox | None]:
        """The strategy, and the sandbox whose tree it begins with, which that strategy made. `SandboxMissing`
        if that is gone."""
        if request.start is not None:
            return self._origin(request.start)
        for strategy in self._strategies.values():
            if strategy.suits(request.resource):
                return strategy, None
        raise SandboxRefused(str(request.resource), "there is no such directory")

    def _origin(self, start: StartTree) -> tuple[SandboxStrategy, Sandbox]:
        row = self._ready_row(start.plan_id)
        return self._strategies[row.strategy], self._opened(row)

    def _all_rows(self) -> Sequence[SandboxRow]:
        with self._database.read() as connection:
            return rows.all_rows(connection)

    def _is_ours(self, row: SandboxRow) -> bool:
        """Whether its directory is on this machine. One that is there is, whatever we were called then."""
        if row.home in (None, self._home):
            return True
        return row.remote is None and row.directory.parent == self._directory and row.directory.is_dir()

    def _place(self, plan_id: str) -> SandboxLayout:
        return SandboxLayout(self._directory / plan_id)

    @contextmanager
    def _claimed(self, place: SandboxLayout, plan_id: str) -> Iterator[None]:
        """The lock of a sandbox that may not exist yet. `SandboxBusy`."""
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
            sandbox = strategy.create(request, place.directory, origin)
            self._ready(row, place.read_facts(request.plan_id).size_bytes, sandbox.base, request.fence)
        except BaseException:
            # Whoever asked is told why; nothing of it stays.
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
        """Everything of it, the row last: until then any process can see what is left to do."""
        if row.state == READY:
            self._database.write(lambda connection: rows.set_state(connection, row, REMOVING))
        self._strategies[row.strategy].remove(row.plan_id, row.resource, row.directory)
        remove_all(row.directory)
        event = self._event(EventType.SANDBOX_REMOVED, row, {})

        def unit(connection: Connection) -> None:
            dropped = rows.drop(connection, row)
            if dropped and row.state != MAKING:  # guard: told once, and only of what was told to be there
                append_to_outbox(connection, event)

        self._database.write(unit)

    def _ready_row(self, plan_id: str) -> SandboxRow:
        row = self.row(plan_id)
        if row is not None and not self._is_ours(row):
            raise SandboxMissing(plan_id, f"{row.directory}, on the machine with the state named {row.home}")
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
    """The plan's id names a directory and a ref."""
    if not _PLAIN_NAME.fullmatch(request.plan_id):
        raise SandboxRefused(str(request.resource), f"{request.plan_id!r} cannot name a directory")


def _shown(path: Path) -> str:
    """The path as text that any store takes."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")
