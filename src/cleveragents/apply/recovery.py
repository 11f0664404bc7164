"""Complete or undo interrupted applies, after an error or the death of their process.

The files on disk decide whether an apply is completed or undone, so any process may repeat the recovery at
any time. The caller holds the resource's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cleveragents.apply.commit import is_committed, take_back_commit, wait_for_stragglers
from cleveragents.apply.exchange import sync_filesystem
from cleveragents.apply.journal import PREPARED, STAGING, ApplyJournal, JournalEntry
from cleveragents.apply.lock import try_resource_lock, unlock_index
from cleveragents.apply.moves import Mover, remove_staging
from cleveragents.apply.ports import Recovered
from cleveragents.core.errors import ApplyBusy, ApplyRefused, CleverAgentsError, GitFailed
from cleveragents.core.faults import FaultPoints

__all__ = ["Recovery", "is_absent"]


class Recovery:
    """Ends open entries of the journal. Holds no other state, so any thread may share it.

    `home` names the state directory if several share the database: entries of another home are ended only if
    their files are here.
    """

    def __init__(self, journal: ApplyJournal, faults: FaultPoints, *, full: bool, home: str = "") -> None:
        self._journal = journal
        self._faults = faults
        self._full = full
        self._home = home

    def recover(self) -> list[Recovered]:
        """End every entry whose resource is not locked."""
        found = [self._isolated(entry) for entry in self._open_here()]
        return [recovered for recovered in found if recovered is not None]

    def _isolated(self, entry: JournalEntry) -> Recovered | None:
        """End one entry; on failure it stays open and does not block the others."""
        try:
            return self._attempted(entry)
        except (OSError, CleverAgentsError) as error:
            import structlog

            log = structlog.get_logger()
            log.warning("apply.recovery_failed", plan_id=entry.plan_id, apply_id=entry.id, error=str(error))
            return None

    def recover_held(self, resource: Path, plan_id: str) -> None:
        """End every entry of this resource, whose lock the caller holds for the
        plan. Raises `ApplyRefused`.
        """
        for entry in self._open_here():
            if entry.resource == str(resource):
                if not wait_for_stragglers(entry):
                    raise ApplyBusy(str(resource))
                problem = f"cannot end the interrupted {entry.kind} of plan {entry.plan_id}"
                if is_absent(entry):
                    raise ApplyRefused(plan_id, f"{problem}: {entry.journal.staging} is out of reach")
                try:
                    self.conclude(entry)
                except (OSError, GitFailed) as error:
                    raise ApplyRefused(plan_id, f"{problem}: {error}") from error

    def give_up(self, plan_id: str) -> list[str]:
        """End the plan's entries without examining or moving files; return the resources of the entries that
        were open.

        Raises `ApplyBusy` while a process is applying.
        """
        given_up = []
        for entry in self._journal.open_entries(remote=False):
            if entry.plan_id != plan_id:
                continue
            with _held_if_there(Path(entry.resource)) as held:
                if not held or not wait_for_stragglers(entry):  # guard: never give up a running apply
                    raise ApplyBusy(entry.resource)
                if entry.journal.scratch:
                    with suppress(OSError):
                        unlock_index(Path(entry.journal.scratch))
                self._end(entry, done=False, left_alone=[file.path for file in entry.journal.files])
                self._journal.close(entry)
                given_up.append(entry.resource)
        return given_up

    def conclude(self, entry: JournalEntry) -> Recovered | None:
        """End the entry; return None if it had already ended or touched nothing."""
        recovered = None
        if entry.state == PREPARED:
            recovered = self._decided(entry)
        elif entry.state == STAGING:
            self._end(entry, done=False)
        self.clear(entry)
        return recovered

    def undo(self, entry: JournalEntry) -> list[str]:
        """Undo the moves of a failed apply; return the paths that others have changed since."""
        left_alone = self._back(entry)
        self._end(entry, done=False, left_alone=left_alone)
        self.clear(entry)
        return left_alone

    def clear(self, entry: JournalEntry) -> None:
        """Remove the entry's temporary files, unless they hold the only copy of something;
        close the entry.
        """
        if Path(entry.journal.staging, "old").exists() and not self._is_disposable(entry):
            self._journal.close(entry)
            return
        self.discard(entry)

    def discard(self, entry: JournalEntry) -> None:
        """Remove the entry's temporary files and close the entry."""
        if entry.journal.scratch:
            unlock_index(Path(entry.journal.scratch))
        gone = [remove_staging(directory) for directory in (entry.journal.staging, entry.journal.scratch)]
        # A git process that outlived its parent may still write there; the next recovery then removes them.
        if all(gone):
            self._journal.close(entry)

    def _open_here(self) -> list[JournalEntry]:
        return [entry for entry in self._journal.open_entries(remote=False) if self._is_here(entry)]

    def _is_here(self, entry: JournalEntry) -> bool:
        """Return whether the entry belongs to this state directory, or its staged files are here."""
        journal = entry.journal
        if journal.home not in ("", self._home):  # guard: another machine may have the same path
            return Path(journal.staging).is_dir()
        return True

    def _attempted(self, entry: JournalEntry) -> Recovered | None:
        if is_absent(entry):  # guard: an unreachable resource may come back, half done
            return None
        with try_resource_lock(Path(entry.resource)) as held:
            # Another process may have ended it meanwhile.
            present = self._journal.get(entry.id) if held else None
            if present is None or not wait_for_stragglers(present):
                return None
            return self.conclude(present)

    def _decided(self, entry: JournalEntry) -> Recovered:
        resource = Path(entry.resource)
        if not Path(entry.journal.staging, "old").is_dir():
            return self._lost(entry)
        commit = entry.journal.commit
        if commit is not None:
            complete = is_committed(commit, resource, entry.id)
        else:
            with Mover(resource, entry.journal, self._faults, "recover") as mover:
                complete = mover.is_complete()
        left_alone = [] if complete else self._back(entry)
        self._end(entry, done=complete, left_alone=left_alone)
        return Recovered(entry.plan_id, entry.id, entry.kind, complete, tuple(left_alone))

    def _lost(self, entry: JournalEntry) -> Recovered:
        """End an entry whose kept files are gone. Nothing can be moved back, so the user's files stay as they
        are.
        """
        paths = tuple(file.path for file in entry.journal.files)
        self._end(entry, done=False, left_alone=list(paths))
        return Recovered(entry.plan_id, entry.id, entry.kind, False, paths)

    def _back(self, entry: JournalEntry) -> list[str]:
        journal = entry.journal
        if journal.commit is not None:
            self._faults.reach("recover.commit.before")
            take_back_commit(journal.commit, Path(journal.scratch), Path(entry.resource), entry.id)
            self._faults.reach("recover.commit.after")
        with Mover(Path(entry.resource), entry.journal, self._faults, "recover") as mover:
            left_alone = mover.back()
        if self._full:
            sync_filesystem(entry.resource)
        return left_alone

    def _end(self, entry: JournalEntry, *, done: bool, left_alone: list[str] | None = None) -> None:
        self._faults.reach("recover.end.before")
        self._journal.end(entry, done=done, left_alone=left_alone or ())
        self._faults.reach("recover.end.after")

    def _is_disposable(self, entry: JournalEntry) -> bool:
        if not entry.journal.files:
            return True
        with Mover(Path(entry.resource), entry.journal, self._faults, "recover") as mover:
            return mover.holds_only_known()


def is_absent(entry: JournalEntry) -> bool:
    """Return whether the resource is unreachable: moved, or on an unmounted disk."""
    resource = Path(entry.resource)
    above = Path(entry.journal.staging).parent
    home = above.parent if above.name == "cleveragents" else above
    # An unmounted disk leaves an empty directory; a resource with a started apply is never empty.
    return not resource.is_dir() or not home.is_dir() or not any(resource.iterdir())


@contextmanager
def _held_if_there(resource: Path) -> Iterator[bool]:
    """Hold the lock of the resource if it is free; yield whether it is held. A missing resource counts as
    held.
    """
    if not resource.is_dir():
        yield True
        return
    with try_resource_lock(resource) as held:
        yield held
