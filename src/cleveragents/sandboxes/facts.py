"""What is written down of a sandbox when it is complete, and where its parts are."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cleveragents.core.errors import SandboxMissing
from cleveragents.core.records import facts_of, record_of
from cleveragents.git.git_directory import flush, flush_all
from cleveragents.git.plumbing import FACTS_FILE, TREE

__all__ = ["SandboxFacts", "SandboxLayout"]


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """`plain`: no setting stands between a file's bytes and its object, so that no git process is needed to
    name it, unless a .gitattributes file says otherwise. `head` is the commit that was pinned, `branch`
    the user's name for it. `traits` are git's settings for where the sandbox's files are; those of the
    engine's are for the user's. `durable`: what is kept of it survives a power cut.

    `exact`: its trees hold the bytes of files, whatever settings and attributes say; sandboxes of earlier
    versions, and those of remotes, hold what git would commit. `converts`: the user's settings make git
    commit other bytes, even where no .gitattributes file does. `filters` names the user's filter programs,
    which never run here."""

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


@dataclass(frozen=True, slots=True)
class SandboxLayout:
    """The parts of a sandbox's directory.

    `tree` is what commands and tools see. `engine` is a git directory of ours that they are not given: a
    sandbox's own `.git` may say anything by the time we look, and we never read it.
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
        """A git directory with the user's rules for line endings and the like; it may be missing."""
        return self.engine / "converting"

    @property
    def index(self) -> Path:
        """The stat cache of `tree`; replaced, never written into."""
        return self.engine / "index"

    @property
    def base_index(self) -> Path:
        """The index as it was when the sandbox was made."""
        return self.engine / "base.index"

    @property
    def brought(self) -> Path:
        """The names of the ignored files that came with it; it may be missing."""
        return self.engine / "brought.json"

    @property
    def repositories(self) -> Path:
        """The directories from which a `.git` was removed; it may be missing."""
        return self.engine / "repositories.json"

    @property
    def set_aside(self) -> Path:
        """Where ignored files are while they are not to be seen; there for no longer than that."""
        return self.directory / "set-aside"

    @property
    def nothing(self) -> Path:
        """An empty directory: the work tree for git where only the index has a say."""
        path = self.engine / "nothing"
        path.mkdir(exist_ok=True)
        return path

    @property
    def occupied(self) -> Path:
        """Marked while programs may be running in the tree, and where their process was killed."""
        return self.engine / "occupied"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def facts_file(self) -> Path:
        return self.directory / FACTS_FILE

    def scratch(self, what: str) -> Path:
        """A name that nobody else uses, so that what a killed process left is in nobody's way."""
        return self.engine / f"{what}-{secrets.token_hex(8)}"

    def write_facts(self, facts: SandboxFacts) -> None:
        """From now on the sandbox is complete."""
        draft = self.directory / f"{FACTS_FILE}.new"
        draft.write_text(json.dumps(facts_of(facts)), encoding="utf-8")
        if facts.durable:
            flush(draft)
            flush_all(self.engine)  # guard: complete facts of half a sandbox
        draft.replace(self.facts_file)
        if facts.durable:
            flush(self.directory)

    def read_facts(self, plan_id: str) -> SandboxFacts:
        """`SandboxMissing` unless it is complete."""
        try:
            return record_of(SandboxFacts, json.loads(self.facts_file.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SandboxMissing(plan_id, str(self.directory)) from error
        except (ValueError, KeyError, TypeError) as error:
            # What a power cut leaves of a file that was written and renamed.
            raise SandboxMissing(plan_id, f"{self.facts_file} is damaged") from error
