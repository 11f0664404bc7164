"""Mirrors of git remotes, one per address and state directory, and checkouts of their commits.

Remotes are accessed with the user's own git configuration, which provides credentials. Our files do not store
the address, and no message reveals credentials. A mirror only grows: its objects are never pruned, because
sandboxes borrow them. It is removed as a whole, once no plan or resource uses its remote. Only `push` writes
to the remote, and it moves a ref only if the ref has the expected value.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from cleveragents.access.model.project import RemoteAddress
from cleveragents.core.errors import GitFailed, RemoteUnreachable, SandboxMissing, SandboxRefused
from cleveragents.git.git_directory import GitDirectory
from cleveragents.git.plumbing import PrivateRepository, RunningGit, user_environment, within
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.storage.files.paths import remove_all

__all__ = ["REF_LOCKED", "Mirrors", "missing_branch"]

REF_LOCKED = ("failed to update ref", "failed to lock", "cannot lock ref")
"""The beginnings of git's reason for a refused push while another push holds the ref. A hook's output comes
later.
"""

_PROTOCOLS = "file:git:http:https:ssh"
# How the user's own git connects; all other variables of git are dropped.
_KEPT = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO")
_PINS = "refs/cleveragents/checkout"
_POLL_SECONDS = 0.05
_PAUSE_SECONDS = 0.5
# Longer than git needs to move refs in a mirror once it has their objects.
_LOCK_SECONDS = 60.0
_NAMED = 5
_ALWAYS_SAID = (
    "Please make sure you have the correct access rights and the repository exists.",
    "fatal: Could not read from remote repository.",
)
_UNUSED_SECONDS = 24 * 3600.0
# The line for a ref that was not moved; the remote's reason is in parentheses.
_REFUSED = re.compile(r"^!\t.*\((.*)\)$", re.MULTILINE)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FETCH = (
    "fetch",
    "--quiet",
    "--prune",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
    "--force",
)
_PUSH = ("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")


class Mirrors(Struct, frozen=True):
    """The mirrors below one directory. Holds no other state: any thread and process may share it.

    A kernel lock allows one fetch per mirror at a time. A call to a remote that takes longer than `seconds`
    is ended; an ended fetch leaves at most unused objects. `sandboxes` is the directory of the sandboxes that
    may borrow from the mirrors.
    """

    directory: Path
    seconds: float = 600.0
    sandboxes: Path | None = None

    def fetched(self, address: RemoteAddress) -> str:
        """Fetch, and return the commit of the branch. Raises `RemoteUnreachable`, and `SandboxRefused` if the
        remote lacks the branch.
        """
        self.fetch(address)
        tip = self.value_of(address, address.ref)
        if tip is None:
            raise SandboxRefused(address.shown, missing_branch(address, self.mirrored(address)))
        return tip

    def branches(self, address: RemoteAddress) -> list[str]:
        """Return the remote's current branches without fetching them. Raises `RemoteUnreachable`."""
        with self._held(address):
            mirror = self._made(address)
        try:
            told = self._asked(address, mirror, "ls-remote", "--heads", "--", address.url)
        except GitFailed as error:
            raise RemoteUnreachable(address.shown, _without(address, error.problem)) from error
        lines = told.decode("utf-8", "replace").splitlines()
        return sorted(line.partition("refs/heads/")[2] for line in lines)

    def mirrored(self, address: RemoteAddress) -> list[str]:
        """Return the branches as of the last fetch."""
        told = self.repository(address).git("for-each-ref", "--format=%(refname)", "refs/heads")
        return [ref.removeprefix("refs/heads/") for ref in told.decode("utf-8", "replace").splitlines()]

    def fetch(self, address: RemoteAddress, *wanted: str) -> None:
        """Fetch every branch, or the given commits. Raises `RemoteUnreachable`."""
        refs = wanted or ("+refs/heads/*:refs/heads/*",)
        with self._held(address):
            mirror = self._made(address)
            until = time.monotonic() + _LOCK_SECONDS
            while True:
                _free_refs(mirror, time.time() - _LOCK_SECONDS)
                try:
                    self._asked(address, mirror, *_FETCH, "--", address.url, *refs)
                    return
                except GitFailed as error:
                    # guard: the fetch of a killed process may still run, or have left its locks
                    if "cannot lock ref" not in error.problem or time.monotonic() >= until:
                        raise RemoteUnreachable(address.shown, _without(address, error.problem)) from error
                time.sleep(_PAUSE_SECONDS)

    def value_of(self, address: RemoteAddress, ref: str) -> str | None:
        """Return the commit of a ref as of the last fetch; None if the ref does not exist."""
        told = self.repository(address).git(
            "rev-parse", "-q", "--verify", f"{ref}^{{commit}}", succeeds=(0, 1, 128)
        )
        return told.decode("ascii").strip() or None

    def contains(self, address: RemoteAddress, tip: str, commit: str) -> bool:
        """Return whether the commit is `tip` or one of its ancestors."""
        if self.value_of(address, commit) is None:
            return False
        return not self.repository(address).git("rev-list", "--max-count=1", commit, "--not", tip)

    def messages(self, address: RemoteAddress, base: str, tip: str) -> Iterator[tuple[str, str]]:
        """Yield the commits after `base`, newest first, with their messages."""
        # After a rewrite of the history, the base may no longer exist.
        old = ("--not", base) if self.value_of(address, base) is not None else ()
        listed = self.repository(address).git("log", "-z", "--format=%H%n%B", tip, *old, "--")
        for one in listed.decode("utf-8", "replace").split("\0"):
            commit, _, message = one.partition("\n")
            if commit:
                yield commit, message

    def repository(self, address: RemoteAddress) -> PrivateRepository:
        """Return the mirror for reading."""
        return PrivateRepository(self._place(address))

    def checkout(self, address: RemoteAddress, commit: str) -> Path:
        """Return a directory with the files of that commit: a small repository that borrows the mirror's
        objects.

        Created once and never modified. Raises `SandboxRefused` if the remote no longer has the commit.
        """
        place = self._place(address).with_suffix("") / commit
        if place.is_dir():
            with suppress(FileNotFoundError):  # it was discarded in this very moment
                os.utime(place)  # guard: a used checkout must not look unused
                return place
        if self.value_of(address, commit) is None:
            self._fetch_commit(address, commit)
        mirror = self._place(address)
        # Keeps a manual `git gc` from pruning the commit.
        PrivateRepository(mirror).git("update-ref", f"{_PINS}/{commit}", commit)
        draft = place.with_name(f"{commit}.{secrets.token_hex(8)}.new")
        try:
            self._fill(draft, address, commit)
            draft.rename(place)
        except OSError:
            if not place.is_dir():  # guard: a concurrent caller made the same checkout
                raise
        finally:
            if draft.exists():
                remove_all(draft)
        return place

    def name_of(self, checkout: Path) -> str | None:
        """Return a name for the remote of a checkout. The name is not a path, and is the same on every
        machine. None if the directory is not a checkout.
        """
        remote = checkout.parent
        if remote.parent != Path(os.path.realpath(self.directory)) or not _COMMIT.fullmatch(checkout.name):
            return None
        return f"remote:{remote.name}"

    def all_checkouts(self, address: RemoteAddress) -> Path:
        """Return a path that stands for all checkouts of the remote: `name_of` returns their name for it. The
        path does not exist. Does not contact the remote.
        """
        return Path(os.path.realpath(self.directory)) / self._place(address).stem / ("0" * 40)

    def known(self, address: RemoteAddress) -> Path | None:
        """Return a checkout of the branch as of the last fetch; None if the branch was never fetched."""
        tip = self.value_of(address, address.ref) if self._place(address).is_dir() else None
        return None if tip is None else self.checkout(address, tip)

    def unused(self, used: Collection[Path]) -> list[Path]:
        """Return the checkouts that are not in `used` and were not requested recently."""
        found = sorted(path for path in self.directory.glob("*/*") if _COMMIT.fullmatch(path.name))
        return [path for path in found if path not in used and _is_old(path)]

    def unneeded(self, urls: Collection[str]) -> list[Path]:
        """Return the mirrors that can be removed: their remote is not in `urls`, no sandbox borrows from
        them, and they were not fetched recently.
        """
        needed = {self._place_of(url) for url in urls}
        found = [path for path in sorted(self.directory.glob("*.git")) if path not in needed]
        old = [path for path in found if _is_old(path.with_suffix(".lock"))]
        borrowed = self._borrowed() if old else ()
        return [path for path in old if path not in borrowed]

    def remove(self, mirror: Path, needed: Callable[[], Collection[str]]) -> bool:
        """Remove a mirror and its checkouts; return False if it is being fetched or is needed again.

        `needed` returns the addresses in use. It includes a new user of the mirror: a plan or a resource is
        stored before its first fetch.
        """
        with self._lock(mirror) as descriptor:
            # guard: checked again while no fetch can start
            if not _try(descriptor) or mirror not in self.unneeded(needed()):
                return False
            gone = [_set_aside(path) for path in (mirror.with_suffix(""), mirror) if path.exists()]
            for path in gone:
                remove_all(path)
        return True

    def discard(self, checkout: Path) -> bool:
        """Remove an unused checkout; return False if it was requested meanwhile."""
        if not _is_old(checkout):
            return False
        with suppress(FileNotFoundError):  # another process removes it, too
            remove_all(_set_aside(checkout))
        return True

    def drafts(self) -> list[Path]:
        """Return the stale files of processes that died while creating or removing something."""
        found = [*self.directory.glob("*.new"), *self.directory.glob("*/*.new")]
        return sorted(path for path in found if _is_old(path))

    def push(
        self, address: RemoteAddress, source: PrivateRepository, commit: str, ref: str, expected: str
    ) -> str:
        """Move the remote's ref to a commit of `source` if the ref has the expected value; an empty value
        means that the ref must not exist.

        Return git's reason for a refusal, or an empty text. After a failure the caller must check the remote:
        the push may have succeeded and only its answer been lost.
        """
        lease = f"--force-with-lease={ref}:{expected}"  # guard: never overwrite another push
        arguments = (*_PUSH, lease, "--", address.url, f"{commit}:{ref}")
        try:
            with self._started(source.directory, *arguments) as running:
                out, words = running.end()
        except GitFailed as error:
            return _without(address, error.problem)
        if not running.failed:
            return ""
        reasons = _REFUSED.findall(out.decode("utf-8", "replace"))
        return _without(address, " ".join("; ".join([*reasons, words]).split()) or "git gave no reason")

    def applying(self, address: RemoteAddress) -> Path:
        """Return a directory that represents the remote: an apply from this machine locks it."""
        place = self._place(address).with_suffix(".applying")
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def _borrowed(self) -> set[Path]:
        """Return the mirrors that sandboxes borrow from. Sandboxes whose plans are in another database, or in
        none, are included.
        """
        found: set[Path] = set()
        for path in () if self.sandboxes is None else self.sandboxes.glob("*"):
            with suppress(SandboxMissing):
                checkout = Path(SandboxLayout(path).read_facts(path.name).resource)
                found.add(self.directory / f"{checkout.parent.name}.git")
        return found

    def _place(self, address: RemoteAddress) -> Path:
        return self._place_of(address.url)

    def _place_of(self, url: str) -> Path:
        return self.directory / f"{sha256(url.encode()).hexdigest()[:24]}.git"

    def _asked(self, address: RemoteAddress, git_directory: Path, *arguments: str) -> bytes:
        with self._started(git_directory, *arguments) as running:
            return running.finish()[0]

    def _started(self, git_directory: Path, *arguments: str) -> RunningGit:
        environment = _environment() | {"GIT_DIR": str(git_directory)}
        return RunningGit(*arguments, environment=environment, seconds_left=within(self.seconds))

    def _made(self, address: RemoteAddress) -> Path:
        """Return the mirror, creating it if needed. The caller holds its lock."""
        place = self._place(address)
        if not place.is_dir():
            draft = place.with_name(f"{place.name}.{secrets.token_hex(8)}.new")
            GitDirectory(settings={"core.bare": "true"}).write(draft)
            draft.rename(place)
        return place

    def _fetch_commit(self, address: RemoteAddress, commit: str) -> None:
        self.fetch(address)
        if self.value_of(address, commit) is not None:
            return
        try:
            self.fetch(address, commit)  # no branch contains it any more, but the remote may still have it
        except RemoteUnreachable as error:
            raise SandboxRefused(
                address.shown, f"the remote no longer has commit {commit} ({error.problem})"
            ) from error

    def _fill(self, draft: Path, address: RemoteAddress, commit: str) -> None:
        draft.mkdir(parents=True)
        GitDirectory(
            settings={"core.bare": "false"},
            head=f"ref: {address.ref}",
            refs={address.ref: commit},
            borrowed=(self._place(address) / "objects",),
        ).write(draft / ".git")
        # Neutral: no filter runs, and no setting of the user changes a byte.
        engine = PrivateRepository(draft / ".git")
        engine.git("read-tree", "--reset", "-u", commit, work_tree=draft, index=draft / ".git" / "index")

    @contextmanager
    def _held(self, address: RemoteAddress) -> Iterator[None]:
        """Hold the fetch lock of a mirror in this state directory. Raises `RemoteUnreachable` on timeout."""
        with self._lock(self._place(address)) as descriptor:
            give_up = time.monotonic() + self.seconds
            while not _try(descriptor):
                if time.monotonic() >= give_up:
                    raise RemoteUnreachable(
                        address.shown, "timed out waiting for another fetch from the remote"
                    )
                time.sleep(_POLL_SECONDS)
            os.utime(descriptor)  # guard: a used mirror must not look unused
            yield

    @contextmanager
    def _lock(self, mirror: Path) -> Iterator[int]:
        """Open the lock file of a mirror. The modification time of the file is the time of the last fetch.

        The file is never removed: otherwise two processes could lock two files with the same name.
        """
        file = mirror.with_suffix(".lock")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def missing_branch(address: RemoteAddress, there: Sequence[str]) -> str:
    """Describe a remote that lacks the branch, with a remedy."""
    if not there:
        return f"the remote has no branch {address.branch} and no other branch; push one first"
    more = f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
    named = f"the remote has {', '.join(there[:_NAMED])}{more}"
    return f"the remote has no branch {address.branch}; {named}. Add the resource with one of these branches"


def _free_refs(mirror: Path, before: float) -> None:
    """Remove ref locks that a killed fetch left; the caller holds the mirror's lock."""
    for lock in [*mirror.glob("refs/**/*.lock"), *mirror.glob("packed-refs.lock")]:
        with suppress(FileNotFoundError):
            if lock.stat().st_mtime < before:  # guard: a fetch that outlived its caller may still run
                lock.unlink()


def _set_aside(path: Path) -> Path:
    """Rename the path to a draft before its removal, so that it disappears as a whole, even if the removal is
    interrupted. Return the draft.
    """
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    path.rename(aside)
    return aside


def _is_old(path: Path) -> bool:
    """Return whether a path was not used recently, or does not exist."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime < time.time() - _UNUSED_SECONDS
    return True


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _environment() -> dict[str, str]:
    """Return the user's environment for git, without prompts."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    asked = {"GIT_ALLOW_PROTOCOL": _PROTOCOLS, "SSH_ASKPASS_REQUIRE": "never"}
    return user_environment() | kept | asked


def _without(address: RemoteAddress, words: str) -> str:
    """Return git's message without credentials and without phrases that it prints for every unreadable
    remote.
    """
    said = " ".join(words.split()).replace(address.url, address.shown)
    for phrase in _ALWAYS_SAID:
        said = said.replace(phrase, "").strip() or said
    return said.rstrip(".")
