"""Run git's plumbing commands in a controlled environment.

The process that started us (a git hook, for example) may have set GIT_DIR and similar variables, and a
repository's configuration may name programs to run: filters, hooks, file monitors. So no git variable is
passed on, the user's and the system's configuration are read only on request, and hooks are off.

The git program comes from an absolute entry of PATH. An empty or relative entry would mean the current
directory, which may be a repository with its own file `git`.

git never runs in the tree of a sandbox, or with a `.git` in it. An agent's commands can change both at any
time: they can write configuration that names programs, objects that are links to other files, and directories
that become links.

A process with a time limit is fed and read by `exchange`: after a timeout, `Popen.communicate` can be called
again, but forgets the input that is still unsent.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import TracebackType

from msgspec import Struct, field
from msgspec.structs import replace

from cleveragents.core.change import GITLINK, Difference, FileState
from cleveragents.core.errors import GitFailed, SandboxRefused, ToolRefused

__all__ = [
    "FACTS_FILE",
    "STREAMED",
    "TREE",
    "PrivateRepository",
    "RunningGit",
    "SecondsLeft",
    "changed_between",
    "ensure_no_sandbox",
    "exchange",
    "git_program",
    "index_line",
    "private_environment",
    "raw_change",
    "raw_changes",
    "run_git",
    "search_path",
    "user_environment",
    "within",
]


_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # Do not fetch missing objects: a repository may name the program to fetch them with. The second variable
    # is for versions of git that do not know the first.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C",
}
_NEUTRAL = {
    **_QUIET,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1",
}
# Variables with the places that git uses.
_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
# git's messages, untranslated because LC_ALL is set above. A file may have any of these names, so the
# position in the line counts.
_EMBEDDED = re.compile(r"^warning: adding embedded git repository: ", re.MULTILINE)
_NO_COMMIT = re.compile(r"^error: '.*' does not have a commit checked out$", re.MULTILINE)
_VANISHED = re.compile(r": No such file or directory$", re.MULTILINE)
# The mode that identifies a submodule's entry, and the mark of a split index.
_GITLINK_MODE = GITLINK.to_bytes(4, "big")
_SPLIT = b"link"
# Turns off programs that configuration could name, and warnings about line endings, which name files. The
# command line overrides all configuration.
_HARMLESS = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "core.safecrlf=false",
)

# Files from this size on are streamed into a pack, uncompressed: storing one then costs little more than a
# copy, in time and memory. Only for commands that store or check out: git shows no diff of such files.
STREAMED = {"core.bigFileThreshold": "1m", "pack.compression": "0", "core.looseCompression": "1"}

SecondsLeft = Callable[[], float]
"""A function that returns the seconds left. It is called repeatedly, and its exceptions are passed on."""
_LOOK_SECONDS = 0.1
_CHUNK_BYTES = 1 << 20

TREE = "tree"
"""The name of the directory with a sandbox's files."""

FACTS_FILE = "sandbox.json"
"""The file beside `TREE` that marks a sandbox; it exists before any command runs."""


def run_git(
    *arguments: str,
    environment: Mapping[str, str],
    directory: Path | None = None,
    feed: bytes = b"",
    succeeds: tuple[int, ...] = (0,),
    seconds_left: SecondsLeft | None = None,
) -> bytes:
    """Run git and return its stdout.

    Raises `GitFailed` with git's message unless it exits with one of `succeeds`, or if the time runs out.
    """
    with RunningGit(
        *arguments, environment=environment, directory=directory, seconds_left=seconds_left
    ) as running:
        return running.finish(feed, succeeds=succeeds)[0]


def within(seconds: float) -> SecondsLeft:
    """Return a function that returns the remaining time of `seconds` that start now."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


class RunningGit:
    """A running git command, so that the caller can do other work meanwhile.

    Leaving the block waits for the command, or with `seconds_left` ends it: no process of ours outlives its
    caller. A repository can block git forever, with a pipe in the place of a file, so a command that only
    reads should have a time limit. A command that writes is never ended, because it would leave half of its
    work. `late` is True if it was ended because the time ran out.

    Not thread-safe: use it in the thread that made it.
    """

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        directory: Path | None = None,
        seconds_left: SecondsLeft | None = None,
    ) -> None:
        self.late = False
        self._seconds_left = seconds_left
        self._began = time.monotonic()
        words = (word for word in arguments if not word.startswith("-") and "=" not in word)
        self._command = next(words, arguments[0])
        for place in (directory, *map(environment.get, _PLACES)):
            ensure_no_sandbox(place)
        program = git_program()
        try:
            self._process = subprocess.Popen(
                [program, *_HARMLESS, *arguments],
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ToolRefused("git", f"{program} or the directory {directory} does not exist") from error
        if seconds_left is not None:
            # guard: this process may exit before the waiting thread can end git
            atexit.register(self._process.kill)

    def finish(self, feed: bytes = b"", *, succeeds: tuple[int, ...] = (0,)) -> tuple[bytes, str]:
        """Wait, and return stdout and stderr. Raises `GitFailed`."""
        out, words = self.end(feed)
        if self._process.returncode not in succeeds:
            raise self.failure(words)
        return out, words

    def end(self, feed: bytes = b"") -> tuple[bytes, str]:
        """Wait, and return stdout and stderr whatever the exit code; see `failed`."""
        out, err = self._process.communicate(feed) if self._seconds_left is None else self._in_time(feed)
        return out, err.decode("utf-8", "backslashreplace").strip()

    def _in_time(self, feed: bytes) -> tuple[bytes, bytes]:
        assert self._seconds_left is not None
        told = exchange(self._process, feed, self._seconds_left)
        if told is not None:
            return told
        self.late = True
        self._kill()
        raise GitFailed(self._command, f"no answer within {time.monotonic() - self._began:.0f} s")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    @property
    def failed(self) -> bool:
        """Whether the exit code is not 0."""
        return self._process.returncode != 0

    def failure(self, words: str) -> GitFailed:
        """Return the error for a failed command."""
        return GitFailed(self._command, " ".join(words.split()) or f"exit code {self._process.returncode}")

    def __enter__(self) -> RunningGit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._seconds_left is not None:
            atexit.unregister(self._process.kill)
        if self._process.returncode is not None:
            return
        if self._seconds_left is None:
            self._process.communicate()
        else:
            self._kill()  # guard: it may never end


def user_environment() -> dict[str, str]:
    """Return the environment for the user's own repository: the user's, without git's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | _QUIET | {"PATH": search_path()}


def private_environment(directory: Path) -> dict[str, str]:
    """Return the environment for one of our git directories, without any configuration of the user."""
    return {"PATH": search_path(), **_NEUTRAL, "GIT_DIR": str(directory)}


class PrivateRepository(Struct, frozen=True):
    """One of our git directories, without a work tree of its own. Stateless: any thread may share it.

    Every call names its work tree and index, so that one object store serves the sandbox's files, the user's
    files and merges of both. `settings` override those in the directory. `objects` is an alternative object
    store.
    """

    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    objects: Path | None = None

    def git(
        self,
        *arguments: str,
        work_tree: Path | None = None,
        index: Path | None = None,
        feed: bytes = b"",
        succeeds: tuple[int, ...] = (0,),
    ) -> bytes:
        """Run git in this repository. Raises `GitFailed`."""
        with self.start(*arguments, work_tree=work_tree, index=index) as running:
            return running.finish(feed, succeeds=succeeds)[0]

    def start(
        self,
        *arguments: str,
        work_tree: Path | None = None,
        index: Path | None = None,
        seconds_left: SecondsLeft | None = None,
    ) -> RunningGit:
        """Start git in this repository; the caller finishes it."""
        environment = private_environment(self.directory)
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        if work_tree is not None:
            environment["GIT_WORK_TREE"] = str(work_tree)
        if self.objects is not None:
            environment["GIT_OBJECT_DIRECTORY"] = str(self.objects)
        settings = (word for name, value in self.settings.items() for word in ("-c", f"{name}={value}"))
        return RunningGit(
            *settings, *arguments, environment=environment, directory=work_tree, seconds_left=seconds_left
        )

    def text(self, *arguments: str, work_tree: Path | None = None, index: Path | None = None) -> str:
        """Run git and return one line of output."""
        return self.git(*arguments, work_tree=work_tree, index=index).decode("utf-8").strip()

    def tree_with(self, tree: str, lines: Iterable[bytes], scratch: Path) -> str:
        """Return a copy of `tree` with the entries in `lines` (see `index_line`) changed.

        `scratch` is an unused path for a temporary index.
        """
        try:
            self.git("read-tree", tree, index=scratch)
            options = ("update-index", "--replace", "-z", "--index-info")
            self.git(*options, index=scratch, feed=b"".join(lines))
            return self.text("write-tree", index=scratch)
        finally:
            scratch.unlink(missing_ok=True)

    def capture(self, work_tree: Path, index: Path) -> str:
        """Return the tree of all current files in `work_tree` that are not ignored.

        `index` caches the result, so that the next call reads only changed files. A nested repository that is
        not a submodule is left out; a submodule is recorded as its commit.
        """
        self.stage(work_tree, index)
        return self.text("write-tree", index=index)

    def stage(self, work_tree: Path, index: Path) -> tuple[str, ...]:
        """Update `index` to the work tree: the first half of `capture`. Submodules get their checked-out
        commit.

        Return the nested repositories that are not submodules. They are left out, because git would record
        only a commit's name for each.
        """
        before = index.with_name(index.name + ".before")
        before.unlink(missing_ok=True)
        if index.exists():
            # git replaces an index and never modifies one, so a hard link is a copy.
            before.hardlink_to(index)
        # guard: adding a submodule runs git inside it, with its own configuration
        submodules = self._gitlinks(index)
        try:
            nested: list[str] = []
            if not self._add(work_tree, index, submodules):
                # Rare. The staged entries may contain a nested repository's commit: start again.
                index.unlink(missing_ok=True)
                if before.exists():
                    before.replace(index)
                nested = self._nested(work_tree, index, submodules)
                if not self._add(work_tree, index, [*submodules, *nested]):  # guard: never a commit's name
                    problem = f"cannot distinguish nested repositories from submodules: {nested}"
                    raise GitFailed("add", problem)
        finally:
            before.unlink(missing_ok=True)
        if submodules:
            feed = b"".join(os.fsencode(path) + b"\0" for path in _reached(work_tree, submodules))
            options = ("--add", "--remove", "--replace", "-z", "--stdin")
            self.git("update-index", *options, work_tree=work_tree, index=index, feed=feed)
        return tuple(nested)

    def pack(self, revisions: Iterable[str], store: Path | None = None) -> None:
        """Pack the objects of these revisions into an object store: this repository's, unless `store` names
        another. Content in a pack of that store is not stored twice.
        """
        packs = (store or self.directory / "objects") / "pack"
        present = [f"--keep-pack={found.with_suffix('.pack').name}" for found in packs.glob("*.idx")]
        feed = "".join(f"{revision}\n" for revision in revisions).encode("ascii")
        self._streaming.git("pack-objects", "--revs", "-q", *present, str(packs / "pack"), feed=feed)

    @property
    def _streaming(self) -> PrivateRepository:
        return replace(self, settings={**self.settings, **STREAMED})

    def _gitlinks(self, index: Path) -> tuple[str, ...]:
        """Return the paths of submodules. Runs git only if the index seems to contain any."""
        data = index.read_bytes() if index.exists() else b""
        if _GITLINK_MODE not in data and _SPLIT not in data:
            return ()
        listed = os.fsdecode(self.git("ls-files", "--stage", "-z", index=index)).split("\0")[:-1]
        return tuple(entry.partition("\t")[2] for entry in listed if entry.startswith(f"{GITLINK:o} "))

    def _nested(self, work_tree: Path, index: Path, spared: Sequence[str]) -> list[str]:
        options = ("-z", "--others", "--exclude-standard")
        listed = self.git("ls-files", *options, work_tree=work_tree, index=index)
        nested = [name[:-1] for name in os.fsdecode(listed).split("\0") if name.endswith("/")]
        return [name for name in nested if name not in spared]

    def _add(self, work_tree: Path, index: Path, spared: Sequence[str], *, patience: int = 5) -> bool:
        """Add all files; return False if a repository was found that is not a submodule."""
        reached = _reached(work_tree, spared)
        pathspecs = [b".", *(b":(exclude,literal)" + os.fsencode(path) for path in reached)]
        options = ("--pathspec-from-file=-", "--pathspec-file-nul")
        streaming = self._streaming
        with streaming.start("add", "--all", *options, work_tree=work_tree, index=index) as running:
            words = running.end(b"\0".join(pathspecs))[1]
            if _NO_COMMIT.search(words):
                return False
            if not running.failed:
                return not _EMBEDDED.search(words)
            if not _VANISHED.search(words) or not patience:
                raise running.failure(words)
        # A file of an editor or a build disappeared between git's listing and reading.
        return self._add(work_tree, index, spared, patience=patience - 1)


def index_line(mode: int, name: str, path: str) -> bytes:
    """Return an entry in the format of `update-index -z --index-info`."""
    return f"{mode:o} {name}\t".encode() + os.fsencode(path) + b"\0"


def _reached(work_tree: Path, paths: Sequence[str]) -> list[str]:
    """Return the paths without those below a symbolic link, for which git records the link instead."""
    return [
        path
        for path in paths
        if not any((work_tree / parent).is_symlink() for parent in PurePosixPath(path).parents[:-1])
    ]


def exchange(
    process: subprocess.Popen[bytes], feed: bytes, seconds_left: SecondsLeft
) -> tuple[bytes, bytes] | None:
    """Feed the process and return stdout and stderr after it has ended; None if the time ran out."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    heard: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    unsent = memoryview(feed)
    os.set_blocking(process.stdin.fileno(), False)  # guard: the process may never read all of it
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stderr, selectors.EVENT_READ)
        while selector.get_map():
            if (left := seconds_left()) <= 0:
                return None
            for key, _ in selector.select(min(left, _LOOK_SECONDS)):
                if key.fileobj is process.stdin:
                    unsent = _sent(key.fd, unsent)
                    if not unsent:
                        selector.unregister(key.fileobj)
                        process.stdin.close()
                    continue
                chunk = os.read(key.fd, _CHUNK_BYTES)
                heard[key.fd].append(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
    process.stdout.close()
    process.stderr.close()
    while (left := seconds_left()) > 0:
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _LOOK_SECONDS))
            out, err = (b"".join(parts) for parts in heard.values())
            return out, err
    return None


def _sent(descriptor: int, unsent: memoryview) -> memoryview:
    """Send a part and return the rest; empty if the process no longer reads."""
    try:
        return unsent[os.write(descriptor, unsent[:_CHUNK_BYTES]) :]
    except BrokenPipeError:
        return unsent[:0]


def ensure_no_sandbox(place: Path | str | None) -> None:
    """Raise `SandboxRefused` if the path is the tree of a sandbox or inside one."""
    if place is None:
        return
    path = os.path.realpath(place)
    while f"{os.sep}{TREE}" in path:
        above, _, name = path.rpartition(os.sep)
        if name == TREE and os.path.lexists(f"{above}{os.sep}{FACTS_FILE}"):  # guard: see above
            raise SandboxRefused(path, "git must not run in a sandbox's files; use the repository itself")
        path = above


def search_path() -> str:
    """Return the user's PATH without entries that depend on the current directory."""
    return _absolute(os.environ.get("PATH", os.defpath))


def git_program() -> str:
    """Return the absolute path of git. Raises `ToolRefused` if there is none."""
    return _found_on(search_path())


@functools.lru_cache(maxsize=4)  # called before every start of git
def _absolute(path: str) -> str:
    entries = path.split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())  # guard: see above


@functools.lru_cache(maxsize=4)
def _found_on(path: str) -> str:
    found = shutil.which("git", path=path) if path else None
    if found is None:
        raise ToolRefused("git", "git is not installed, or not in an absolute entry of PATH")
    return found


def changed_between(repository: PrivateRepository, one: str, other: str) -> dict[str, Difference]:
    """Return every path whose state differs between two trees, with both states."""
    if one == other:
        return {}
    options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    return raw_changes(repository.git("diff-tree", *options, one, other))


def raw_changes(listed: bytes) -> dict[str, Difference]:
    """Parse the output of `git diff --raw -z`."""
    fields = os.fsdecode(listed).split("\0")[:-1]
    return {path: raw_change(facts) for facts, path in zip(fields[::2], fields[1::2], strict=True)}


def raw_change(facts: str) -> Difference:
    """Parse one entry of `git diff --raw`, without its path."""
    old_mode, new_mode, old, new, _ = facts[1:].split(" ")
    return Difference(_state(old_mode, old), _state(new_mode, new))


def _state(mode: str, name: str) -> FileState | None:
    number = int(mode, 8)
    return FileState(number, name) if number else None
