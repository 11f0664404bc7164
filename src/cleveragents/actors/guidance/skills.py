"""Skills: folders with a `SKILL.md` that describes how to do something, read by an actor on demand.

The user's skills are in `~/.config/cleveragents/skills`, a repository's in `.cleveragents/skills` and
`skills`. A repository's skills must be trusted first: unlike general instructions, a skill is followed step
by step and contains commands to run. The texts are read from the trust store, not from the sandbox, which a
plan can change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from cleveragents.access.trust.repository_files import RepositoryFile, names_inside, read_inside
from cleveragents.access.trust.sql_trust_store import SqlTrustStore
from cleveragents.config.loader import user_file_path
from cleveragents.config.yaml.document import DocumentKind, read_yaml
from cleveragents.core.errors import ConfigurationError

__all__ = [
    "SKILL_FILE",
    "SKILL_FOLDERS",
    "Skill",
    "Skills",
    "load_skills",
    "parse_skill",
    "user_skills_directory",
]

SKILL_FILE = "SKILL.md"
SKILL_FOLDERS = (".cleveragents/skills", "skills")

_MOST_SKILLS = 100
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!-)){0,63}(?<!-)")
_LONGEST_DESCRIPTION = 1024
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.MULTILINE | re.DOTALL)
_KIND = DocumentKind(
    "head of a skill",
    "`name: …`",
    lambda source, problems: ConfigurationError(source, "; ".join(problems)),
)


LookAt: TypeAlias = Callable[[str], RepositoryFile | None]


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill. `text` is the content of its file after the front matter. `folder` is the directory with its
    other files: relative to the repository's root, or an absolute path for a skill of the user.
    """

    name: str
    description: str
    text: str
    folder: str
    own: bool
    look: LookAt | None = field(default=None, compare=False)
    root: str = ""
    """`look` and `root` are set for a repository's skill: `look` reads its other files with their trust, and
    `root` is the repository.
    """


@dataclass(frozen=True, slots=True)
class Skills:
    """The usable skills by name, and notes for the user about the others."""

    found: tuple[Skill, ...] = ()
    notes: tuple[str, ...] = ()


def user_skills_directory(environment: Mapping[str, str]) -> Path:
    """Return `$XDG_CONFIG_HOME/cleveragents/skills`."""
    return user_file_path(environment).with_name("skills")


def load_skills(resource: Path, trust: SqlTrustStore, user_directory: Path) -> Skills:
    """Load the skills for a repository.

    A skill of the user takes precedence over a skill of the repository with the same name. An invalid skill
    is skipped with a note.
    """
    found: dict[str, Skill] = {}
    notes: list[str] = []
    look = partial(trust.look, resource)
    for name in _names(user_directory, ""):
        path = user_directory / name / SKILL_FILE
        try:
            content = read_inside(path.parent, SKILL_FILE)  # the user may link the folder
            if content is not None:
                found[name] = parse_skill(content, str(path), str(path.parent), own=True)
        except ConfigurationError as error:
            notes.append(str(error))
    for folder in (f"{parent}/{name}" for parent in SKILL_FOLDERS for name in _names(resource, parent)):
        try:
            brought = trust.look(resource, f"{folder}/{SKILL_FILE}")
            if brought is None:
                continue
            if not brought.trusted:  # guard: a skill of a repository is not followed before it is trusted
                path = resource / brought.path
                notes.append(f"the skill {path} is not trusted; read it, then trust it")
                continue
            skill = parse_skill(brought.content, str(resource / brought.path), folder, own=False)
            found.setdefault(skill.name, replace(skill, look=look, root=str(resource)))
        except ConfigurationError as error:
            notes.append(str(error))
    return Skills(tuple(found[name] for name in sorted(found)), tuple(notes))


def parse_skill(content: bytes, source: str, folder: str, *, own: bool) -> Skill:
    """Parse a skill. Raises `ConfigurationError` with every mistake."""
    text = content.decode("utf-8", "replace")
    front = _FRONT.match(text)
    if front is None:
        raise ConfigurationError(
            source, "must start with front matter: `---`, `name: …`, `description: …`, `---`"
        )
    values = read_yaml(front.group(1).encode(), source, _KIND).data
    if not isinstance(values, Mapping):
        values = {}
    name, description = values.get("name"), values.get("description")
    problems: list[str] = []
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append("`name` must be lowercase letters, digits and single hyphens, at most 64 characters")
    elif name != folder.rpartition("/")[2]:
        problems.append(f"`name` is {name!r}, but must match its folder")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= _LONGEST_DESCRIPTION:
        problems.append(f"`description` must have 1 to {_LONGEST_DESCRIPTION} characters")
    if problems:
        raise ConfigurationError(source, "; ".join(problems))
    told = " ".join(str(description).split())
    return Skill(str(name), told, text[front.end() :].strip(), folder, own)


def _names(root: Path, folder: str) -> list[str]:
    """Return the names of the subfolders, sorted; none if the folder leads outside the root."""
    return [name for name in names_inside(root, folder) if not name.startswith(".")][:_MOST_SKILLS]
