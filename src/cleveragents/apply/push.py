"""Apply to a remote: one commit on top of the known branch, pushed only if the branch has not moved.

Before a push, the intent and the expected commit of the branch are recorded under the fence of the job. So at
most one push succeeds from one state of the branch, however many workers try, including suspended workers
that wake up. Each commit names its journal entry, by which other workers find out that the push succeeded.
"""

from __future__ import annotations

from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

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
"""The prefix of the line in a commit message that names the journal entry."""

_NAME, _MAIL = "CleverAgents", "cleveragents@localhost"


class RemoteEngine(Struct, frozen=True):
    """The parts that all applies to remotes share."""

    journal: ApplyJournal
    mirrors: Mirrors
    identifiers: IdentifierSource
    faults: FaultPoints
    home: str

    def landed(self, plan_id: str, address: RemoteAddress, base: str) -> PushedCommit | None:
        """Return a commit that an attempt pushed without recording it. The mirror must be freshly fetched."""
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
        """Record the apply of a pushed commit as done, even if it was recorded as not done before the push
        succeeded. Raises `StaleFence`.
        """
        entry = landed.entry
        if not self.journal.end(entry, done=True, fence=fence):
            known = self.journal.get(entry.id)
            if known is not None and known.state == DONE:  # guard: another worker recorded it meanwhile
                return _applied(landed)
            # It was recorded as not done before its push succeeded.
            entry = replace(entry, id=self.identifiers.new(), state=DONE)
            self.journal.record_empty(entry, fence)
        self.journal.close(entry)
        return _applied(replace(landed, entry=entry))


class PushedCommit(Struct, frozen=True):
    """A commit that an attempt of this apply has pushed to the branch."""

    entry: JournalEntry
    commit: str

    def target(self, address: RemoteAddress) -> PushTarget:
        """Return the target of the push. The branch already has the commit, so nothing is left to move."""
        facts = self.entry.journal.commit
        ref = address.ref if facts is None else facts.ref
        return PushTarget(address, ref, self.commit, self.commit)


class PushTarget(Struct, frozen=True):
    """The ref to move: `tip` is the new commit's parent. `expected` is the current commit of `ref`; empty if
    the branch does not exist.
    """

    address: RemoteAddress
    ref: str
    tip: str
    expected: str


class PushPreparation(PreparedMerge):
    """A `Preparation` of a push. Not thread-safe: use it in the block that prepared it, once."""

    def __init__(
        self,
        engine: RemoteEngine,
        repository: PrivateRepository,
        target: PushTarget,
        merge_input: MergeInput,
        merge: MergeResult,
        *,
        landed: PushedCommit | None,
        message: str,
        fence: Fence | None,
    ) -> None:
        super().__init__(merge_input, merge, engine.faults)
        self._engine = engine
        self._repository = repository
        self._target = target
        self._landed = landed
        self._message = message
        self._fence = fence

    @property
    def landed(self) -> bool:
        return self._landed is not None

    def commit_apart(self, message: str) -> tuple[str, str] | None:
        raise ApplyRefused(self._merge_input.plan_id, "a result for a git remote is pushed by its apply")

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
        merge_input, resource = self._merge_input, str(self._target.address)
        return JournalEntry(
            self._engine.identifiers.new(), merge_input.plan_id, resource, merge_input.kind, PREPARED, journal
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
        # If this fails, the next owner of the job finds the commit in the branch.
        applied = engine.record_landed(PushedCommit(entry, new), self._fence)
        self._reach("done.after")
        return applied

    def _not_pushed(self, entry: JournalEntry, new: str, words: str) -> None:
        """Check the outcome of a push without an answer. Return if the push succeeded; otherwise raise an
        error with the reason.

        While the remote is unreachable the outcome is unknown, so the entry stays open. Raises `RemoteMoved`,
        `RemoteHeld`, `ApplyRefused`, `RemoteUnreachable`.
        """
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
        raise ApplyRefused(entry.plan_id, f"{target.address.shown} refused the push: {words}")

    def _commit(self, entry: JournalEntry, commit: CommitRequest | None) -> str:
        user = UserGit(self._repository.directory, self._repository.directory)
        if user.signs_commits():  # guard: never skip a required signature
            raise ApplyRefused(
                entry.plan_id, "commit.gpgSign is set, but this worker cannot sign; unset it for this worker"
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
    """Return a default author for a machine without a git identity."""
    said = {"NAME": _NAME, "EMAIL": _MAIL}
    return {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in said.items()}
