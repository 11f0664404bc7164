"""An apply to a remote that is decided: one commit on the branch as it was seen, pushed if it still is there.

Whoever pushes has written down before that it is about to, under the fence of its job, with the commit that
it expects the branch to be at. So however many try, stopped ones that wake up among them, one push at most
gets through from one state of the branch; and each commit carries the name of its entry in the journal, by
which everybody else finds out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from cleveragents.access.model.project import RemoteAddress, branch_of
from cleveragents.apply.journal import (
    DONE,
    PREPARED,
    ApplyJournal,
    CommitFacts,
    Journal,
    JournalEntry,
    MovedFile,
)
from cleveragents.apply.merge import MergeResult
from cleveragents.apply.ports import Applied, CommitRequest
from cleveragents.apply.preparation import MergeInput, PreparedMerge
from cleveragents.apply.user_git import UserGit
from cleveragents.core.change import Difference
from cleveragents.core.errors import ApplyRefused, RemoteHeld, RemoteMoved
from cleveragents.core.faults import FaultPoints
from cleveragents.core.identifiers import Fence, IdentifierSource
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.mirror import REF_LOCKED, Mirrors

__all__ = ["APPLY_MARK", "PushPreparation", "PushTarget", "PushedCommit", "RemoteEngine"]

APPLY_MARK = "CleverAgents-Apply: "
"""Begins the line of a commit's message that names the entry in the journal."""

_NAME, _MAIL = "CleverAgents", "cleveragents@localhost"


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """What all applies to remotes share."""

    journal: ApplyJournal
    mirrors: Mirrors
    identifiers: IdentifierSource
    faults: FaultPoints
    home: str

    def landed(self, plan_id: str, address: RemoteAddress, base: str) -> PushedCommit | None:
        """What an attempt pushed of which nobody knows that it was done. The mirror was fetched just now."""
        attempts = {f"{APPLY_MARK}{one.id}": one for one in self.journal.since_last_done(plan_id)}
        refs = dict.fromkeys(one.journal.commit.ref for one in attempts.values() if one.journal.commit)
        for ref in refs:
            tip = self.mirrors.value_of(address, ref)
            for commit, message in self.mirrors.messages(address, base, tip) if tip else ():
                for line in message.splitlines():
                    if line in attempts:
                        return PushedCommit(attempts[line], commit)
        return None

    def record_landed(self, landed: PushedCommit, fence: Fence | None) -> Applied:
        """It is done, in our records, too, whatever somebody believed of it meanwhile. `StaleFence`."""
        entry = landed.entry
        if not self.journal.end(entry, done=True, fence=fence):
            known = self.journal.get(entry.id)
            if known is not None and known.state == DONE:  # guard: somebody else has said so meanwhile
                return _applied(landed)
            # It counted as not done before its push got through.
            entry = replace(entry, id=self.identifiers.new(), state=DONE)
            self.journal.record_empty(entry, fence)
        self.journal.close(entry)
        return _applied(replace(landed, entry=entry))


@dataclass(frozen=True, slots=True)
class PushedCommit:
    """A commit of the branch that some attempt of this very apply has pushed."""

    entry: JournalEntry
    commit: str

    def target(self, address: RemoteAddress) -> PushTarget:
        """Where it is: there is nothing to be moved any more."""
        facts = self.entry.journal.commit
        ref = address.ref if facts is None else facts.ref
        return PushTarget(address, ref, self.commit, self.commit)


@dataclass(frozen=True, slots=True)
class PushTarget:
    """What is to be moved, and from where: the new commit's parent is `tip`. `expected` is what `ref` names
    now; empty if there is no such branch."""

    address: RemoteAddress
    ref: str
    tip: str
    expected: str


class PushPreparation(PreparedMerge):
    """`Preparation` of a push. Not thread-safe: use it in the block that prepared it, once."""

    def __init__(
        self,
        engine: RemoteEngine,
        repository: PrivateRepository,
        target: PushTarget,
        wish: MergeInput,
        merge: MergeResult,
        *,
        landed: PushedCommit | None,
        message: str,
        fence: Fence | None,
    ) -> None:
        super().__init__(wish, merge, engine.faults)
        self._engine = engine
        self._repository = repository
        self._target = target
        self._landed = landed
        self._message = message
        self._fence = fence

    @property
    def landed(self) -> bool:
        return self._landed is not None

    def apply(self, commit: CommitRequest | None = None) -> Applied:
        self._use()
        entry = self._entry()
        if self._landed is not None:
            return self._engine.record_landed(self._landed, self._fence)
        if not self._merge.changes:
            self._engine.journal.record_empty(replace(entry, state=DONE), self._fence)
            return Applied(entry.id, {})
        return self._pushed(entry, commit)

    def _entry(self) -> JournalEntry:
        files = tuple(
            MovedFile(path, step.before, step.after, "", "") for path, step in self._merge.changes.items()
        )
        journal = Journal(
            "",
            base=self._merge.base,
            ours=self._merge.ours,
            merged=self._merge.merged,
            files=files,
            home=self._engine.home,
            renames=self._merge.renames,
        )
        wish, resource = self._wish, str(self._target.address)
        return JournalEntry(
            self._engine.identifiers.new(), wish.plan_id, resource, wish.kind, PREPARED, journal
        )

    def _pushed(self, entry: JournalEntry, commit: CommitRequest | None) -> Applied:
        engine, target = self._engine, self._target
        new = self._commit(entry, commit)
        facts = CommitFacts("", target.ref, target.expected, new, "", "")
        entry = replace(entry, journal=replace(entry.journal, commit=facts))
        self._reach("journal.before")
        engine.journal.announce(entry, self._fence)
        self._reach("push.before")
        words = engine.mirrors.push(target.address, self._repository, new, target.ref, target.expected)
        self._reach("push.after")
        if words:
            self._not_pushed(entry, new, words)
        # If this cannot be kept, whoever gets the job finds the commit in the branch.
        applied = engine.record_landed(PushedCommit(entry, new), self._fence)
        self._reach("done.after")
        return applied

    def _not_pushed(self, entry: JournalEntry, new: str, words: str) -> None:
        """Returns if it was, and only the answer was lost. While the remote cannot be asked, the entry stays
        open: nobody knows. `RemoteMoved`, `ApplyRefused`, `RemoteUnreachable`."""
        engine, target = self._engine, self._target
        engine.mirrors.fetch(target.address)
        now = engine.mirrors.value_of(target.address, target.ref) or ""
        if now and engine.mirrors.contains(target.address, now, new):
            return
        engine.journal.end(entry, done=False, fence=self._fence)
        engine.journal.close(entry)
        branch = branch_of(target.ref)
        if now != target.expected:
            raise RemoteMoved(target.address.shown, branch)
        if words.startswith(REF_LOCKED):
            raise RemoteHeld(target.address.shown, branch, words)
        raise ApplyRefused(entry.plan_id, f"{target.address.shown} did not take it: {words}")

    def _commit(self, entry: JournalEntry, commit: CommitRequest | None) -> str:
        user = UserGit(self._repository.directory, self._repository.directory)
        if user.signs_commits():  # guard: a commit that should be signed is not made without
            raise ApplyRefused(
                entry.plan_id, "commit.gpgSign is set, and only your own git signs; unset it for this worker"
            )
        variables = {} if user.has_identity() else _identity()
        text = (commit.message if commit else "").strip() or self._message
        marks = f"CleverAgents-Plan: {entry.plan_id}\n{APPLY_MARK}{entry.id}\n"
        feed = f"{text}\n\n{marks}".encode("utf-8", "backslashreplace")
        arguments = ("commit-tree", "-p", self._target.tip, "-F", "-", self._merge.merged)
        return user.git(*arguments, feed=feed, variables=variables).decode("ascii").strip()


def _applied(landed: PushedCommit) -> Applied:
    entry = landed.entry
    changes = {file.path: Difference(file.before, file.after) for file in entry.journal.files}
    return Applied(entry.id, MappingProxyType(changes), landed.commit, entry.journal.renames)


def _identity() -> dict[str, str]:
    """Who it is by, on a machine whose user never said who they are."""
    said = {"NAME": _NAME, "EMAIL": _MAIL}
    return {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in said.items()}
