"""The facts that a sandbox needs about the user's repository, from two concurrent git processes.

The facts are read with the user's own configuration, because it determines the content of the files. This
module writes only one ref, which keeps a base from being pruned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from cleveragents.core.errors import GitFailed, SandboxRefused
from cleveragents.git.plumbing import PrivateRepository, RunningGit, run_git, user_environment
from cleveragents.processes.environment import is_inside
from cleveragents.processes.program_lookup import secret_places

__all__ = [
    "MODULES",
    "UserRepository",
    "content_of",
    "is_object_store",
    "look_at",
    "pin",
    "pinned_in",
    "submodule_paths",
    "unpin",
]


_FACTS = (
    "--is-bare-repository",
    "--absolute-git-dir",
    "--git-common-dir",
    "--show-object-format",
    "--show-toplevel",
    "HEAD^{commit}",
    "HEAD^{tree}",
    "--symbolic-full-name",
    "HEAD",
)
_LIST = ("config", "--list", "--show-scope", "-z")
_OWN = ("system", "global")
# Entries that git itself creates, including temporary ones of a fetch or of maintenance.
_STORE_ENTRY = re.compile(r"pack|info|[0-9a-f]{2}|tmp_obj\w*(?:-\w+)*|incoming-\w+|maintenance\.lock")
_PIN = "refs/cleveragents/base/"
_DEEPEST_ALTERNATES = 6
_REF_ATTEMPTS = 20

MODULES = ".gitmodules"
_PATHS = r"^submodule\..*\.path$"


class UserRepository(Struct, frozen=True):
    """A snapshot of a repository.

    `git_dir` has its HEAD and index, `common_dir` its objects and refs; they differ in a linked worktree.
    `head` and `head_tree` are None before the first commit; `branch` is None for a detached HEAD.
    `settings` is its effective configuration, the last value of each name in lower case; `own_settings` are
    those set by the user or the system, not by the repository.
    """

    root: Path
    git_dir: Path
    common_dir: Path
    object_format: str
    head: str | None
    head_tree: str | None
    branch: str | None
    settings: Mapping[str, str]
    own_settings: Mapping[str, str]

    @property
    def object_stores(self) -> tuple[Path, ...]:
        """The repository's own object store, then the stores it borrows from. Commands can read these
        directories, so a directory that is not an object store is excluded, even if the repository names it.
        """
        found = [self.common_dir / "objects"]
        secret = secret_places(Path.home().resolve())
        for _ in range(_DEEPEST_ALTERNATES):
            # guard: any directory may be named there
            borrowed = [
                store
                for known in found
                for store in _alternates(known)
                if store not in found and is_object_store(store) and not is_inside(store, secret)
            ]
            if not borrowed:
                break
            found += dict.fromkeys(borrowed)
        return tuple(found)

    @property
    def is_partial(self) -> bool:
        """Whether the repository is a partial clone, which fetches objects on demand."""
        return any(name.startswith("remote.") and name.endswith(".promisor") for name in self.settings)

    def flag(self, name: str, *, otherwise: bool) -> bool:
        """Return a boolean setting as git would read it; `otherwise` if it is not set."""
        value = self.settings.get(name)
        return otherwise if value is None else value.lower() not in ("false", "no", "off", "0")

    @property
    def user_exclude(self) -> bytes:
        """The ignore rules in the file named by a setting of the user or the repository."""
        return _named_file(self.settings, "core.excludesfile", "ignore")

    @property
    def own_exclude(self) -> bytes:
        """The user's own ignore rules for every repository."""
        return _named_file(self.own_settings, "core.excludesfile", "ignore")

    @property
    def user_attributes(self) -> bytes:
        """The attributes in the file named by a setting of the user or the repository."""
        return _named_file(self.settings, "core.attributesfile", "attributes")

    @property
    def own_attributes(self) -> bytes:
        """The user's own attributes for every repository."""
        return _named_file(self.own_settings, "core.attributesfile", "attributes")


def look_at(resource: Path) -> UserRepository:
    """Return the facts of a repository. Raises `SandboxRefused`, with the reason, if it cannot have
    sandboxes.
    """
    if "\n" in str(resource):
        raise SandboxRefused(str(resource), "the name contains a line break, which git does not support")
    environment = user_environment()
    with (
        RunningGit("rev-parse", *_FACTS, environment=environment, directory=resource) as facts,
        RunningGit(*_LIST, environment=environment, directory=resource) as settings,
    ):
        told, words = facts.finish(succeeds=(0, 128))
        lines = os.fsdecode(told).split("\n")
        if lines[0] == "true":
            raise SandboxRefused(
                str(resource), "this is a bare repository, without a working tree; clone it and use the clone"
            )
        if len(lines) < 6:
            raise SandboxRefused(str(resource), words or "this is not a git repository")
        if not Path(lines[4]).samefile(resource):
            raise SandboxRefused(
                str(resource), f"the directory is inside the repository {lines[4]}; use that repository"
            )
        configured = list(_scoped(settings.finish()[0]))
    common = (resource / lines[2]).resolve()
    if not is_object_store(common / "objects"):
        raise SandboxRefused(str(resource), f"{common / 'objects'} contains other files than git objects")
    head, tree, name = lines[5:8] if len(lines) >= 9 else (None, None, None)
    return UserRepository(
        root=resource,
        git_dir=Path(lines[1]),
        common_dir=common,
        object_format=lines[3],
        head=head,
        head_tree=tree,
        branch=_unborn_branch(resource) if head is None else name if name != "HEAD" else None,
        settings={name: value for _, name, value in configured},
        own_settings={name: value for scope, name, value in configured if scope in _OWN},
    )


def _pin_name(plan_id: str) -> str:
    """Return the ref that keeps the plan's base."""
    return f"{_PIN}{plan_id}"


def pin(repository: UserRepository, plan_id: str, commit: str) -> None:
    """Keep the commit from being pruned until `unpin`.

    If refs are files, writes the file as git does, including the lock: a git process would take a tenth of
    the time that creating a sandbox takes. No other program writes a ref with this name.
    """
    name = _pin_name(plan_id)
    if "extensions.refstorage" not in repository.settings and _write_ref(
        repository.common_dir / name, commit
    ):
        return
    run_git("update-ref", name, commit, environment=_refs_environment(repository.common_dir))


def pinned_in(resource: Path) -> tuple[Path, dict[str, str]]:
    """Return the repository's common directory, and the pinned commit of each plan."""
    environment = user_environment()
    common = run_git("rev-parse", "--git-common-dir", environment=environment, directory=resource)
    listed = run_git(
        "for-each-ref", "--format=%(objectname) %(refname)", _PIN, environment=environment, directory=resource
    )
    rows = [line.split(" ", 1) for line in listed.decode().splitlines()]
    directory = (resource / os.fsdecode(common).rstrip("\n")).resolve()
    return directory, {name.removeprefix(_PIN): commit for commit, name in rows}


def unpin(common_dir: Path, plan_id: str) -> None:
    """Remove the plan's pin. Does nothing if the repository or the pin is gone."""
    if not (common_dir / "objects").is_dir():
        return
    name = _pin_name(plan_id)
    # Left by a killed process of ours; no other program locks a ref with this name for long.
    Path(f"{common_dir / name}.lock").unlink(missing_ok=True)
    run_git("update-ref", "-d", name, environment=_refs_environment(common_dir))


def _write_ref(path: Path, commit: str) -> bool:
    """Write the ref; return False if that fails. git may remove empty ref directories at any moment."""
    lock = Path(f"{path}.lock")
    for _ in range(_REF_ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with lock.open("x", encoding="ascii") as file:
                file.write(f"{commit}\n")
            lock.rename(path)
            return True
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return False


def _refs_environment(common_dir: Path) -> dict[str, str]:
    """Return the environment in which git changes a ref without a reflog and waits for other changes."""
    settings = {"core.logAllRefUpdates": "false", "core.packedRefsTimeout": "60000"}
    environment = user_environment() | {"GIT_DIR": str(common_dir), "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return environment


def content_of(path: Path) -> bytes:
    """Return the content of the file; empty if it does not exist or cannot be read."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def is_object_store(directory: Path) -> bool:
    """Return whether the directory holds only git objects."""
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError:
        return False
    return bool(names) and all(_STORE_ENTRY.fullmatch(name) for name in names)


def _unborn_branch(resource: Path) -> str | None:
    """Return the branch of the first commit to come."""
    environment = user_environment()
    try:
        said = run_git("symbolic-ref", "HEAD", environment=environment, directory=resource)
    except GitFailed as error:
        raise SandboxRefused(str(resource), f"the repository's HEAD is invalid: {error.problem}") from error
    return os.fsdecode(said).strip()


def _scoped(listed: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield scope, name and value of each setting, in order of increasing precedence."""
    fields = os.fsdecode(listed).split("\0")[:-1]
    for scope, item in zip(fields[::2], fields[1::2], strict=True):
        name, _, value = item.partition("\n")
        yield scope, name, value


def _named_file(settings: Mapping[str, str], name: str, default: str) -> bytes:
    """Return the content of the file that a setting names, or of git's default file."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    named = settings.get(name)
    return content_of(Path(named).expanduser() if named else home / "git" / default)


def _alternates(store: Path) -> list[Path]:
    lines = os.fsdecode(content_of(store / "info" / "alternates")).splitlines()
    return [(store / line).resolve() for line in lines if line and not line.startswith("#")]


def submodule_paths(repository: PrivateRepository, content: bytes) -> frozenset[str] | None:
    """Return the submodule paths in the content of a .gitmodules file; None if git cannot read it."""
    options = ("--no-includes", "--file", "-", "-z", "--get-regexp", _PATHS)
    try:
        listed = repository.git("config", *options, feed=content, succeeds=(0, 1))
    except GitFailed:
        return None
    return frozenset(row.partition("\n")[2] for row in os.fsdecode(listed).split("\0")[:-1])
