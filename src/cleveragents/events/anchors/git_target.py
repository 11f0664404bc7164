"""Anchors on a branch of a git remote: one file, one commit per line.

A remote that refuses non-fast-forward pushes keeps every anchor, whatever happens to this machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from cleveragents.access.model.project import RemoteAddress
from cleveragents.core.errors import AnchorFailed, GitFailed, RemoteUnreachable
from cleveragents.events.anchors.targets import MAX_BYTES
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.mirror import REF_LOCKED, Mirrors

__all__ = ["FILE", "GitTarget"]

FILE = "anchors.jsonl"
"""The file on the branch."""

_SECONDS = 120.0
_TRIES = 10
_PAUSE_SECONDS = 0.05
_IDENTITY = {"user.name": "CleverAgents", "user.email": "cleveragents@localhost"}


@dataclass(frozen=True, slots=True)
class GitTarget:
    """The file `anchors.jsonl` on one branch. Stateless except for a mirror of the remote below `mirrors`.

    Each commit follows the fetched tip and is pushed only if the branch has not moved: a branch is never
    forced. A slower writer fetches and tries again. The user's git settings control the login; hooks and
    settings of the mirror are not used.
    """

    address: RemoteAddress
    mirrors: Path

    @property
    def name(self) -> str:
        return f"{self.address.shown}#{self.address.branch}"

    def read(self) -> bytes:
        try:
            return self._content(self._fetched())
        except (RemoteUnreachable, GitFailed) as error:
            raise AnchorFailed(self.name, error.problem) from error

    def append(self, line: str) -> None:
        try:
            self._append(line.encode() + b"\n")
        except (RemoteUnreachable, GitFailed) as error:
            raise AnchorFailed(self.name, error.problem) from error

    @property
    def _remotes(self) -> Mirrors:
        return Mirrors(self.mirrors, seconds=_SECONDS)

    @property
    def _repository(self) -> PrivateRepository:
        return PrivateRepository(self._remotes.repository(self.address).directory, _IDENTITY)

    def _fetched(self) -> str:
        """Return the tip of the branch; empty if there is no such branch yet."""
        self._remotes.fetch(self.address)
        return self._remotes.value_of(self.address, self.address.ref) or ""

    def _append(self, line: bytes) -> None:
        remotes, address = self._remotes, self.address
        tip = self._fetched()
        for _ in range(_TRIES):
            commit = self._commit(tip, line)
            problem = remotes.push(address, self._repository, commit, address.ref, tip)
            if not problem:
                return
            before, tip = tip, self._fetched()
            if tip and remotes.contains(address, tip, commit):  # only the answer was lost
                return
            if tip == before and not problem.startswith(REF_LOCKED):
                raise AnchorFailed(self.name, f"the remote did not accept the anchor: {problem}")
            time.sleep(_PAUSE_SECONDS)
        raise AnchorFailed(self.name, f"the branch moved during each of {_TRIES} tries")

    def _commit(self, tip: str, line: bytes) -> str:
        """Return a commit on `tip` with one more line. Other files on the branch stay."""
        repository = self._repository
        before = self._content(tip)
        content = before if before.endswith(b"\n") or not before else before + b"\n"
        blob = repository.git("hash-object", "-w", "--stdin", feed=content + line).decode("ascii").strip()
        listed = repository.git("ls-tree", "-z", tip).split(b"\0")[:-1] if tip else []
        others = [entry for entry in listed if entry.partition(b"\t")[2] != FILE.encode()]
        entries = [*others, f"100644 blob {blob}\t{FILE}".encode()]
        tree = repository.git("mktree", "-z", feed=b"".join(entry + b"\0" for entry in entries))
        parent = ("-p", tip) if tip else ()
        arguments = ("commit-tree", *parent, "-m", "Anchor the audit log", tree.decode("ascii").strip())
        return repository.text(*arguments)

    def _content(self, tip: str) -> bytes:
        if not tip:
            return b""
        repository = self._repository
        listed = repository.git("ls-tree", "-z", tip, "--", FILE).decode("utf-8", "replace")
        if not listed:
            return b""
        mode, kind, blob = listed.partition("\t")[0].split(" ")
        if kind != "blob":
            raise AnchorFailed(self.name, f"{FILE} is a {kind} (mode {mode}), not a file")
        if int(repository.text("cat-file", "-s", blob)) > MAX_BYTES:
            raise AnchorFailed(
                self.name, f"{FILE} is larger than {MAX_BYTES // 1024**2} MiB; start a new one"
            )
        return repository.git("cat-file", "blob", blob)
