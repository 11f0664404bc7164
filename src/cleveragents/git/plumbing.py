"""Runs git's plumbing, with an environment of our own making.

Whatever called us may have GIT_DIR and the like set (a hook does), and a repository's own configuration may
name programs to run: filters, hooks, file monitors. So no variable of git's is passed on, the user's and the
system's configuration are not read unless asked for, and hooks are off.

Feeds a process and hears it out, for as long as there is time.

`Popen.communicate` can be called again after its time was up, but then forgets what it had still to send.

Which git is run, and where it never is.

It is one that an absolute entry of PATH names. An empty or relative entry means the directory that a program
is started in: a repository's, where a file `git` is not git.

It is never run in the tree of a sandbox, nor with a `.git` in one. Commands of an agent write there, at any
time: configuration that names programs, objects that are links to other files, directories that become links.
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
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import TracebackType

from cleveragents.core.change import GITLINK
from cleveragents.core.errors import GitFailed, SandboxRefused, ToolRefused

__all__ = [
    "FACTS_FILE",
    "TREE",
    "PrivateRepository",
    "RunningGit",
    "SecondsLeft",
    "ensure_no_sandbox",
    "exchange",
    "git_program",
    "index_line",
    "private_environment",
    "run_git",
    "search_path",
    "user_environment",
    "within",
]


_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # A missing object is missing: a repository may say which program to run to fetch it. The second is for
    # versions of git that do not know the first.
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
# What tells git where to look.
_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
# Words of git's, which are not translated: LC_ALL is set above. A file may be called like any of them, so it
# counts where in a line they are.
_EMBEDDED = re.compile(r"^warning: adding embedded git repository: ", re.MULTILINE)
_NO_COMMIT = re.compile(r"^error: '.*' does not have a commit checked out$", re.MULTILINE)
_VANISHED = re.compile(r": No such file or directory$", re.MULTILINE)
# How an entry for a submodule begins to differ from all others, and what says that entries are elsewhere.
_GITLINK_MODE = GITLINK.to_bytes(4, "big")
_SPLIT = b"link"
# Programs that configuration could name, and warnings about line ends, which name files; the command line has
# the last word.
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

SecondsLeft = Callable[[], float]
"""How long it may still take. It is asked again and again, and what it raises is passed on."""
_LOOK_SECONDS = 0.1
_CHUNK_BYTES = 1 << 20

TREE = "tree"
"""What the directory with a sandbox's files is called."""

FACTS_FILE = "sandbox.json"
"""The file beside `TREE` that makes it a sandbox: it is there before any command runs."""


def run_git(
    *arguments: str,
    environment: Mapping[str, str],
    directory: Path | None = None,
    feed: bytes = b"",
    succeeds: tuple[int, ...] = (0,),
    seconds_left: SecondsLeft | None = None,
) -> bytes:
    """What git writes to stdout. `GitFailed` with git's own words unless it exits with one of `succeeds`, or
    if there are no seconds left."""
    with RunningGit(
        *arguments, environment=environment, directory=directory, seconds_left=seconds_left
    ) as running:
        return running.finish(feed, succeeds=succeeds)[0]


def within(seconds: float) -> SecondsLeft:
    """So many, from now on."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


class RunningGit:
    """A git command that was started, so that something else can be done meanwhile.

    Leaving the block waits for its end, whatever happened in it, or with `seconds_left` ends it: no process
    of ours outlives its caller. A repository can make git wait for ever, with a pipe in the place of a file:
    so whoever only reads says how long. One that writes is never ended: it would leave half of its work.
    `late` tells whether it was ended because there were no seconds left.
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
            raise ToolRefused("git", f"{program} or the directory {directory} is gone") from error
        if seconds_left is not None:
            # guard: we may end before the thread that waits for it, which then does so no more
            atexit.register(self._process.kill)

    def finish(self, feed: bytes = b"", *, succeeds: tuple[int, ...] = (0,)) -> tuple[bytes, str]:
        """What it wrote to stdout and to stderr. `GitFailed`."""
        out, words = self.end(feed)
        if self._process.returncode not in succeeds:
            raise self.failure(words)
        return out, words

    def end(self, feed: bytes = b"") -> tuple[bytes, str]:
        """The same, however it went; `failed` tells."""
        out, err = self._process.communicate(feed) if self._seconds_left is None else self._in_time(feed)
        return out, err.decode("utf-8", "backslashreplace").strip()

    def _in_time(self, feed: bytes) -> tuple[bytes, bytes]:
        assert self._seconds_left is not None
        told = exchange(self._process, feed, self._seconds_left)
        if told is not None:
            return told
        self.late = True
        self._kill()
        raise GitFailed(self._command, f"it did not answer in {time.monotonic() - self._began:.0f} s")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    @property
    def failed(self) -> bool:
        """Whether it ended with another exit code than 0."""
        return self._process.returncode != 0

    def failure(self, words: str) -> GitFailed:
        """What to raise of it."""
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
    """The environment for reading the user's own repository: theirs, without git's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | _QUIET | {"PATH": search_path()}


def private_environment(directory: Path) -> dict[str, str]:
    """The environment for a git directory of ours: nothing of the user's has a say."""
    return {"PATH": search_path(), **_NEUTRAL, "GIT_DIR": str(directory)}


@dataclass(frozen=True, slots=True)
class PrivateRepository:
    """A git directory of ours, with no work tree of its own. Stateless: any thread may share it.

    Every call names the work tree and the index it is about, so that one object store serves the sandbox's
    files, the user's files and what is merged of both. `settings` come before those in the directory.
    `objects` is another object store to use.
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
        """Runs git here. `GitFailed`."""
        with self.start(*arguments, work_tree=work_tree, index=index) as running:
            return running.finish(feed, succeeds=succeeds)[0]

    def start(
        self,
        *arguments: str,
        work_tree: Path | None = None,
        index: Path | None = None,
        seconds_left: SecondsLeft | None = None,
    ) -> RunningGit:
        """Starts git here; the caller finishes it."""
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
        """One line of output."""
        return self.git(*arguments, work_tree=work_tree, index=index).decode("utf-8").strip()

    def tree_with(self, tree: str, lines: Iterable[bytes], scratch: Path) -> str:
        """The tree with these entries (`index_line`) changed; `scratch` is a free name for an index."""
        try:
            self.git("read-tree", tree, index=scratch)
            options = ("update-index", "--replace", "-z", "--index-info")
            self.git(*options, index=scratch, feed=b"".join(lines))
            return self.text("write-tree", index=scratch)
        finally:
            scratch.unlink(missing_ok=True)

    def capture(self, work_tree: Path, index: Path) -> str:
        """The tree of all files in `work_tree` that are not ignored, as they are now.

        `index` remembers what was looked at, so that the next time only changed files are read. A repository
        inside the work tree that is no submodule of it is left out; of a submodule, its commit is taken.
        """
        self.stage(work_tree, index)
        return self.text("write-tree", index=index)

    def stage(self, work_tree: Path, index: Path) -> tuple[str, ...]:
        """The first half of `capture`: brings `index` up to date. Submodules get the commit that is checked
        out in them.

        Returns the repositories found inside that are not submodules: git would keep of each nothing but a
        commit's name, so they are left out.
        """
        before = index.with_name(index.name + ".before")
        before.unlink(missing_ok=True)
        if index.exists():
            # git replaces an index and never writes into one, so a second name for it is a copy.
            before.hardlink_to(index)
        # guard: adding a submodule runs git inside it, with what its own configuration says
        submodules = self._gitlinks(index)
        try:
            nested: list[str] = []
            if not self._add(work_tree, index, submodules):
                # Seldom. What was staged so far may hold such a commit's name: begin again.
                index.unlink(missing_ok=True)
                if before.exists():
                    before.replace(index)
                nested = self._nested(work_tree, index, submodules)
                if not self._add(work_tree, index, [*submodules, *nested]):  # guard: never a commit's name
                    problem = f"repositories inside others cannot be told from submodules: {nested}"
                    raise GitFailed("add", problem)
        finally:
            before.unlink(missing_ok=True)
        if submodules:
            feed = b"".join(os.fsencode(path) + b"\0" for path in _reached(work_tree, submodules))
            options = ("--add", "--remove", "--replace", "-z", "--stdin")
            self.git("update-index", *options, work_tree=work_tree, index=index, feed=feed)
        return tuple(nested)

    def _gitlinks(self, index: Path) -> tuple[str, ...]:
        """The paths of submodules. git is asked only if the index looks as if it held any."""
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
        """Whether it was all ordinary: no repository was met that is not a submodule."""
        reached = _reached(work_tree, spared)
        pathspecs = [b".", *(b":(exclude,literal)" + os.fsencode(path) for path in reached)]
        options = ("--pathspec-from-file=-", "--pathspec-file-nul")
        with self.start("add", "--all", *options, work_tree=work_tree, index=index) as running:
            words = running.end(b"\0".join(pathspecs))[1]
            if _NO_COMMIT.search(words):
                return False
            if not running.failed:
                return not _EMBEDDED.search(words)
            if not _VANISHED.search(words) or not patience:
                raise running.failure(words)
        # An editor's or a build's file that was there when git looked, and not when it read.
        return self._add(work_tree, index, spared, patience=patience - 1)


def index_line(mode: int, name: str, path: str) -> bytes:
    """An entry, as `update-index -z --index-info` reads it."""
    return f"{mode:o} {name}\t".encode() + os.fsencode(path) + b"\0"


def _reached(work_tree: Path, paths: Sequence[str]) -> list[str]:
    """Those that no symbolic link is on the way to; git takes the link instead of what was behind it."""
    return [
        path
        for path in paths
        if not any((work_tree / parent).is_symlink() for parent in PurePosixPath(path).parents[:-1])
    ]


def exchange(
    process: subprocess.Popen[bytes], feed: bytes, seconds_left: SecondsLeft
) -> tuple[bytes, bytes] | None:
    """What it wrote to stdout and stderr, and it has ended; None if there was no time for that."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    heard: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    unsent = memoryview(feed)
    os.set_blocking(process.stdin.fileno(), False)  # guard: it may never read all of it
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
    """What is left to send; nothing if nobody reads it any more."""
    try:
        return unsent[os.write(descriptor, unsent[:_CHUNK_BYTES]) :]
    except BrokenPipeError:
        return unsent[:0]


def ensure_no_sandbox(place: Path | str | None) -> None:
    """`SandboxRefused` if the path is, or is in, the tree of a sandbox."""
    if place is None:
        return
    path = os.path.realpath(place)
    while f"{os.sep}{TREE}" in path:
        above, _, name = path.rpartition(os.sep)
        if name == TREE and os.path.lexists(f"{above}{os.sep}{FACTS_FILE}"):  # guard: see above
            raise SandboxRefused(
                path, "git does not run on the files of a sandbox; use the repository itself"
            )
        path = above


def search_path() -> str:
    """The user's PATH, without entries that depend on where one is."""
    return _absolute(os.environ.get("PATH", os.defpath))


def git_program() -> str:
    """Its absolute path. `ToolRefused` if there is none."""
    return _found_on(search_path())


@functools.lru_cache(maxsize=4)  # asked for before each git that is started
def _absolute(path: str) -> str:
    entries = path.split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())  # guard: see above


@functools.lru_cache(maxsize=4)
def _found_on(path: str) -> str:
    found = shutil.which("git", path=path) if path else None
    if found is None:
        raise ToolRefused("git", "the git command is not installed, or no absolute entry of PATH leads to it")
    return found
