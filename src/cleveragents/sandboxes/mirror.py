"""Mirrors of git remotes, one per address and state directory, and checkouts of their commits.

A remote is asked with the user's own git configuration, which says how to log in there; the address is in no
file of ours, and nothing that is said about it names who logs in. A mirror is only ever added to: it is never
pruned of objects, because sandboxes borrow them; it goes as a whole, when no plan and no resource names its
remote any more. Nothing here writes to the remote but `push`, which moves a
ref from where it was seen to be, or not at all.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cleveragents.access.model.project import RemoteAddress
from cleveragents.core.errors import GitFailed, RemoteUnreachable, SandboxMissing, SandboxRefused
from cleveragents.git.git_directory import GitDirectory
from cleveragents.git.plumbing import PrivateRepository, RunningGit, user_environment, within
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.storage.files.paths import remove_all

__all__ = ["REF_LOCKED", "Mirrors", "missing_branch"]

REF_LOCKED = ("failed to update ref", "failed to lock", "cannot lock ref")
"""How git's reason for a refused push begins while another push holds the ref. A hook's words come later."""

_PROTOCOLS = "file:git:http:https:ssh"
# How the user's own git gets there; all other variables of git's are kept from it.
_KEPT = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO")
_PINS = "refs/cleveragents/checkout"
_POLL_SECONDS = 0.05
_PAUSE_SECONDS = 0.5
# Longer than git moves refs in a mirror, once it has what they are to name.
_LOCK_SECONDS = 60.0
_NAMED = 5
_ALWAYS_SAID = (
    "Please make sure you have the correct access rights and the repository exists.",
    "fatal: Could not read from remote repository.",
)
_UNUSED_SECONDS = 24 * 3600.0
# Of a ref that was not moved: what the remote's git says of it, which is in brackets.
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


@dataclass(frozen=True, slots=True)
class Mirrors:
    """The mirrors below one directory. Stateless but for that: any thread and process may share it.

    One fetch at a time per mirror, by a lock of the kernel's. No call to a remote takes longer than
    `seconds`; one that does is ended, and a fetch leaves at most a part that nobody looks at. `sandboxes` is
    the directory of those that may borrow from them.
    """

    directory: Path
    seconds: float = 600.0
    sandboxes: Path | None = None

    def fetched(self, address: RemoteAddress) -> str:
        """The commit that the branch names now. `RemoteUnreachable`; `SandboxRefused` without the branch."""
        self.fetch(address)
        tip = self.value_of(address, address.ref)
        if tip is None:
            raise SandboxRefused(address.shown, missing_branch(address, self.mirrored(address)))
        return tip

    def branches(self, address: RemoteAddress) -> list[str]:
        """Those that the remote has now; nothing else of it is fetched. `RemoteUnreachable`."""
        with self._held(address):
            mirror = self._made(address)
        try:
            told = self._asked(address, mirror, "ls-remote", "--heads", "--", address.url)
        except GitFailed as error:
            raise RemoteUnreachable(address.shown, _without(address, error.problem)) from error
        lines = told.decode("utf-8", "replace").splitlines()
        return sorted(line.partition("refs/heads/")[2] for line in lines)

    def mirrored(self, address: RemoteAddress) -> list[str]:
        """The branches, as they were at the last fetch."""
        told = self.repository(address).git("for-each-ref", "--format=%(refname)", "refs/heads")
        return [ref.removeprefix("refs/heads/") for ref in told.decode("utf-8", "replace").splitlines()]

    def fetch(self, address: RemoteAddress, *wanted: str) -> None:
        """The mirror has every branch as the remote has it, or the wanted commits. `RemoteUnreachable`."""
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
                    # guard: the fetch of a killed process may still be at it, or have left its locks
                    if "cannot lock ref" not in error.problem or time.monotonic() >= until:
                        raise RemoteUnreachable(address.shown, _without(address, error.problem)) from error
                time.sleep(_PAUSE_SECONDS)

    def value_of(self, address: RemoteAddress, ref: str) -> str | None:
        """The commit of a ref, as it was at the last fetch; None if there is none."""
        told = self.repository(address).git(
            "rev-parse", "-q", "--verify", f"{ref}^{{commit}}", succeeds=(0, 1, 128)
        )
        return told.decode("ascii").strip() or None

    def contains(self, address: RemoteAddress, tip: str, commit: str) -> bool:
        """Whether the commit is `tip`, or lies behind it."""
        if self.value_of(address, commit) is None:
            return False
        return not self.repository(address).git("rev-list", "--max-count=1", commit, "--not", tip)

    def messages(self, address: RemoteAddress, base: str, tip: str) -> Iterator[tuple[str, str]]:
        """The commits that came after `base`, the last first, each with what it says."""
        # Of a history that was rewritten, the base may be nowhere any more.
        old = ("--not", base) if self.value_of(address, base) is not None else ()
        listed = self.repository(address).git("log", "-z", "--format=%H%n%B", tip, *old, "--")
        for one in listed.decode("utf-8", "replace").split("\0"):
            commit, _, message = one.partition("\n")
            if commit:
                yield commit, message

    def repository(self, address: RemoteAddress) -> PrivateRepository:
        """The mirror, for those who read in it."""
        return PrivateRepository(self._place(address))

    def checkout(self, address: RemoteAddress, commit: str) -> Path:
        """A directory with the files of that commit: a small repository that borrows the mirror's objects.
        Made once; nobody works in it. `SandboxRefused` if the remote does not have the commit any more."""
        place = self._place(address).with_suffix("") / commit
        if place.is_dir():
            with suppress(FileNotFoundError):  # it was discarded in this very moment
                os.utime(place)  # guard: what is used is not taken for unused
                return place
        if self.value_of(address, commit) is None:
            self._fetch_commit(address, commit)
        mirror = self._place(address)
        # So that whoever tidies up git repositories by hand leaves it alone.
        PrivateRepository(mirror).git("update-ref", f"{_PINS}/{commit}", commit)
        draft = place.with_name(f"{commit}.{secrets.token_hex(8)}.new")
        try:
            self._fill(draft, address, commit)
            draft.rename(place)
        except OSError:
            if not place.is_dir():  # guard: somebody else who made it at once made the same
                raise
        finally:
            if draft.exists():
                remove_all(draft)
        return place

    def name_of(self, checkout: Path) -> str | None:
        """Of a checkout: a name of its remote, the same on every machine, that is no path. None for another
        directory."""
        remote = checkout.parent
        if remote.parent != Path(os.path.realpath(self.directory)) or not _COMMIT.fullmatch(checkout.name):
            return None
        return f"remote:{remote.name}"

    def all_checkouts(self, address: RemoteAddress) -> Path:
        """A place that is none, and has the name that all checkouts of the remote have; nobody is asked."""
        return Path(os.path.realpath(self.directory)) / self._place(address).stem / ("0" * 40)

    def known(self, address: RemoteAddress) -> Path | None:
        """A checkout of the branch as it was when it was last fetched here; None if it never was."""
        tip = self.value_of(address, address.ref) if self._place(address).is_dir() else None
        return None if tip is None else self.checkout(address, tip)

    def unused(self, used: Collection[Path]) -> list[Path]:
        """Checkouts that none of these is, and that nobody has asked for of late."""
        found = sorted(path for path in self.directory.glob("*/*") if _COMMIT.fullmatch(path.name))
        return [path for path in found if path not in used and _is_old(path)]

    def unneeded(self, urls: Collection[str]) -> list[Path]:
        """Mirrors of remotes that have none of these addresses, from which no sandbox borrows, and that
        nobody has fetched of late."""
        needed = {self._place_of(url) for url in urls}
        found = [path for path in sorted(self.directory.glob("*.git")) if path not in needed]
        old = [path for path in found if _is_old(path.with_suffix(".lock"))]
        borrowed = self._borrowed() if old else ()
        return [path for path in old if path not in borrowed]

    def remove(self, mirror: Path, needed: Callable[[], Collection[str]]) -> bool:
        """Removes a mirror and its checkouts, unless somebody fetches, or it is needed by now: whoever is
        about to use it has a plan or a resource that says so, from before it fetches."""
        with self._lock(mirror) as descriptor:
            # guard: asked again while nobody can fetch
            if not _try(descriptor) or mirror not in self.unneeded(needed()):
                return False
            gone = [_set_aside(path) for path in (mirror.with_suffix(""), mirror) if path.exists()]
            for path in gone:
                remove_all(path)
        return True

    def discard(self, checkout: Path) -> bool:
        """Removes a checkout that was found unused, unless somebody has asked for it since."""
        if not _is_old(checkout):
            return False
        with suppress(FileNotFoundError):  # somebody else does the same
            remove_all(_set_aside(checkout))
        return True

    def drafts(self) -> list[Path]:
        """What somebody was making, or removing, when they died."""
        found = [*self.directory.glob("*.new"), *self.directory.glob("*/*.new")]
        return sorted(path for path in found if _is_old(path))

    def push(
        self, address: RemoteAddress, source: PrivateRepository, commit: str, ref: str, expected: str
    ) -> str:
        """Moves the remote's ref to that commit of `source` if it is where expected, or, empty, not there.

        Says what git had against it, empty if nothing. Whoever hears of something looks at the remote: an
        answer may have been lost on its way."""
        lease = f"--force-with-lease={ref}:{expected}"  # guard: never over what somebody else has pushed
        arguments = (*_PUSH, lease, "--", address.url, f"{commit}:{ref}")
        try:
            with self._started(source.directory, *arguments) as running:
                out, words = running.end()
        except GitFailed as error:
            return _without(address, error.problem)
        if not running.failed:
            return ""
        reasons = _REFUSED.findall(out.decode("utf-8", "replace"))
        return _without(address, " ".join("; ".join([*reasons, words]).split()) or "git did not say why")

    def applying(self, address: RemoteAddress) -> Path:
        """A directory that stands for the remote: whoever applies to it from here holds that."""
        place = self._place(address).with_suffix(".applying")
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def _borrowed(self) -> set[Path]:
        """Mirrors that sandboxes were made of, be it of plans that are in no database, or in another one."""
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
        """The mirror, which the caller holds."""
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
            self.fetch(address, commit)  # no branch has it any more, but the remote may
        except RemoteUnreachable as error:
            raise SandboxRefused(
                address.shown, f"it does not have commit {commit} any more ({error.problem})"
            ) from error

    def _fill(self, draft: Path, address: RemoteAddress, commit: str) -> None:
        draft.mkdir(parents=True)
        GitDirectory(
            settings={"core.bare": "false"},
            head=f"ref: {address.ref}",
            refs={address.ref: commit},
            borrowed=(self._place(address) / "objects",),
        ).write(draft / ".git")
        # Neutral: no filter runs, and no setting of the user's changes a byte.
        engine = PrivateRepository(draft / ".git")
        engine.git("read-tree", "--reset", "-u", commit, work_tree=draft, index=draft / ".git" / "index")

    @contextmanager
    def _held(self, address: RemoteAddress) -> Iterator[None]:
        """Nobody else of this state directory fetches. `RemoteUnreachable` if somebody does for too long."""
        with self._lock(self._place(address)) as descriptor:
            give_up = time.monotonic() + self.seconds
            while not _try(descriptor):
                if time.monotonic() >= give_up:
                    raise RemoteUnreachable(address.shown, "another fetch of it does not end")
                time.sleep(_POLL_SECONDS)
            os.utime(descriptor)  # guard: what is used is not taken for unused
            yield

    @contextmanager
    def _lock(self, mirror: Path) -> Iterator[int]:
        """The file that stands for the mirror, and says when it was last fetched. It is never removed: two
        might hold two files of one name."""
        file = mirror.with_suffix(".lock")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def missing_branch(address: RemoteAddress, there: Sequence[str]) -> str:
    """What is wrong with a remote that does not have the branch, and what to do about it."""
    if not there:
        return f"it has no branch {address.branch}, nor any other; push one first"
    more = f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
    named = f"it has {', '.join(there[:_NAMED])}{more}"
    return f"it has no branch {address.branch}; {named}: add the resource with one of them as its branch"


def _free_refs(mirror: Path, before: float) -> None:
    """Takes away locks of refs that a fetch left when it was killed; the caller holds the mirror."""
    for lock in [*mirror.glob("refs/**/*.lock"), *mirror.glob("packed-refs.lock")]:
        with suppress(FileNotFoundError):
            if lock.stat().st_mtime < before:  # guard: one that outlived its caller may still run
                lock.unlink()


def _set_aside(path: Path) -> Path:
    """Where it is now, as a draft: it is gone as a whole, and who is killed while removing it leaves nothing
    that looks like the whole. Whoever wants it makes another."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    path.rename(aside)
    return aside


def _is_old(path: Path) -> bool:
    """Whether nobody has used it of late; one that is not there is nobody's."""
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
    """The user's own, and nobody is asked for anything."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    asked = {"GIT_ALLOW_PROTOCOL": _PROTOCOLS, "SSH_ASKPASS_REQUIRE": "never"}
    return user_environment() | kept | asked


def _without(address: RemoteAddress, words: str) -> str:
    """git's words, without what is in the address of who logs in, and without what it says of every remote
    that it cannot read."""
    said = " ".join(words.split()).replace(address.url, address.shown)
    for phrase in _ALWAYS_SAID:
        said = said.replace(phrase, "").strip() or said
    return said.rstrip(".")
