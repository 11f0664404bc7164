"""The facts recorded about a complete sandbox, and the layout of its directory."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from cleveragents.core.errors import SandboxMissing
from cleveragents.core.records import facts_of, record_of
from cleveragents.git.git_directory import flush, flush_all
from cleveragents.git.plumbing import FACTS_FILE, TREE

__all__ = ["SandboxFacts", "SandboxLayout"]


class SandboxFacts(Struct, frozen=True):
    """The facts of a sandbox, fixed when it is created.

    `plain`: no setting converts a file's bytes, so no git process is needed to name its object unless a
    .gitattributes file exists. `head` is the pinned commit and `branch` the user's branch. `traits` are git's
    settings for the sandbox's file system; the engine has those for the user's file system. `durable`: its
    content survives a power cut. `exact`: its trees hold the bytes of files regardless of settings and
    attributes; sandboxes of earlier versions and of remotes hold the bytes that git would commit. `converts`:
    the user's settings make git commit other bytes, even without a .gitattributes file. `filters` names the
    user's filter programs, which never run in a sandbox.
    """

    plan_id: str
    strategy: str
    resource: str
    base: str
    object_format: str
    plain: bool
    size_bytes: int
    head: str | None = None
    branch: str | None = None
    common_dir: str | None = None
    gitlinks: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    traits: Mapping[str, str] = field(default_factory=dict)
    durable: bool = False
    exact: bool = False
    converts: bool = False
    filters: tuple[str, ...] = ()


class SandboxLayout(Struct, frozen=True):
    """The parts of a sandbox's directory.

    `tree` is visible to commands and tools. `engine` is our own git directory, hidden from them: commands can
    change the sandbox's own `.git`, so we never rely on it.
    """

    directory: Path

    @property
    def tree(self) -> Path:
        return self.directory / TREE

    @property
    def engine(self) -> Path:
        return self.directory / "engine"

    @property
    def converting(self) -> Path:
        """A git directory with the user's rules for line endings and other conversions; may be missing."""
        return self.engine / "converting"

    @property
    def index(self) -> Path:
        """The stat cache of `tree`; replaced, never modified in place."""
        return self.engine / "index"

    @property
    def base_index(self) -> Path:
        """The index as it was when the sandbox was created."""
        return self.engine / "base.index"

    @property
    def brought(self) -> Path:
        """The names of the ignored files that were copied into the sandbox; may be missing."""
        return self.engine / "brought.json"

    @property
    def repositories(self) -> Path:
        """The directories from which a `.git` was removed; may be missing."""
        return self.engine / "repositories.json"

    @property
    def set_aside(self) -> Path:
        """The temporary location of ignored files while they are hidden."""
        return self.directory / "set-aside"

    @property
    def nothing(self) -> Path:
        """An empty directory: the work tree for git commands that only use the index."""
        path = self.engine / "nothing"
        path.mkdir(exist_ok=True)
        return path

    @property
    def occupied(self) -> Path:
        """A marker file, set while programs may run in the tree; it stays if their process was killed."""
        return self.engine / "occupied"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def facts_file(self) -> Path:
        return self.directory / FACTS_FILE

    def scratch(self, what: str) -> Path:
        """Return a unique path, so that files left by a killed process never collide."""
        return self.engine / f"{what}-{secrets.token_hex(8)}"

    def write_facts(self, facts: SandboxFacts) -> None:
        """Write the facts; from then on the sandbox is complete."""
        draft = self.directory / f"{FACTS_FILE}.new"
        draft.write_text(json.dumps(facts_of(facts)), encoding="utf-8")
        if facts.durable:
            flush(draft)
            flush_all(self.engine)  # guard: never complete facts for an incomplete sandbox
        draft.replace(self.facts_file)
        if facts.durable:
            flush(self.directory)

    def read_facts(self, plan_id: str) -> SandboxFacts:
        """Return the facts. Raises `SandboxMissing` unless the sandbox is complete."""
        try:
            return record_of(SandboxFacts, json.loads(self.facts_file.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SandboxMissing(plan_id, str(self.directory)) from error
        except (ValueError, KeyError, TypeError) as error:
            # A power cut can truncate a file that was written and renamed.
            raise SandboxMissing(plan_id, f"{self.facts_file} is damaged") from error
