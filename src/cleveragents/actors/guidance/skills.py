"""Skills: folders with a `SKILL.md` that says how something is done, read by an actor when it needs it.

The user's are in `~/.config/cleveragents/skills`; a repository's in `.cleveragents/skills` and `skills`, and
they count once they are trusted: unlike general instructions a skill is there to be followed step by step,
with commands to run. What was trusted is what is read: the text, and that of its other files, comes from the
trust store, not from the sandbox, in which a plan can write.
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
    """One skill: `text` is what its file says after the head. `folder` is where its other files are: in the
    repository, relative to its root; of the user's own, an absolute path."""

    name: str
    description: str
    text: str
    folder: str
    own: bool
    look: LookAt | None = field(default=None, compare=False)
    root: str = ""
    """Of a repository's: how its other files are seen, with whether they are trusted; and where it is."""


@dataclass(frozen=True, slots=True)
class Skills:
    """Those that may be used, by name, and what the user should know of the others."""

    found: tuple[Skill, ...] = ()
    notes: tuple[str, ...] = ()


def user_skills_directory(environment: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/cleveragents/skills`."""
    return user_file_path(environment).with_name("skills")


def load_skills(resource: Path, trust: SqlTrustStore, user_directory: Path) -> Skills:
    """All that counts in that repository. Of two of one name the user's counts. One with a mistake is left
    out, with a note: it is no reason to do nothing."""
    found: dict[str, Skill] = {}
    notes: list[str] = []
    look = partial(trust.look, resource)
    for name in _names(user_directory, ""):
        path = user_directory / name / SKILL_FILE
        try:
            content = read_inside(path.parent, SKILL_FILE)  # a link to the folder is the user's own
            if content is not None:
                found[name] = parse_skill(content, str(path), str(path.parent), own=True)
        except ConfigurationError as error:
            notes.append(str(error))
    for folder in (f"{parent}/{name}" for parent in SKILL_FOLDERS for name in _names(resource, parent)):
        try:
            brought = trust.look(resource, f"{folder}/{SKILL_FILE}")
            if brought is None:
                continue
            if not brought.trusted:  # guard: what a repository brings is not followed before it is trusted
                path = resource / brought.path
                notes.append(f"the skill {path} is not trusted; read it, then trust it")
                continue
            skill = parse_skill(brought.content, str(resource / brought.path), folder, own=False)
            found.setdefault(skill.name, replace(skill, look=look, root=str(resource)))
        except ConfigurationError as error:
            notes.append(str(error))
    return Skills(tuple(found[name] for name in sorted(found)), tuple(notes))


def parse_skill(content: bytes, source: str, folder: str, *, own: bool) -> Skill:
    """The skill of a file. `ConfigurationError` names every mistake."""
    text = content.decode("utf-8", "replace")
    front = _FRONT.match(text)
    if front is None:
        raise ConfigurationError(source, "must begin with a head: `---`, `name: …`, `description: …`, `---`")
    values = read_yaml(front.group(1).encode(), source, _KIND).data
    if not isinstance(values, Mapping):
        values = {}
    name, description = values.get("name"), values.get("description")
    problems: list[str] = []
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append("`name` must be of small letters, digits and single `-`, at most 64 characters")
    elif name != folder.rpartition("/")[2]:
        problems.append(f"`name` is {name!r}, and must be that of its folder")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= _LONGEST_DESCRIPTION:
        problems.append(f"`description` must say in 1 to {_LONGEST_DESCRIPTION} characters when it is of use")
    if problems:
        raise ConfigurationError(source, "; ".join(problems))
    told = " ".join(str(description).split())
    return Skill(str(name), told, text[front.end() :].strip(), folder, own)


def _names(root: Path, folder: str) -> list[str]:
    """The folders there, in order; none if it leads out of the root."""
    return [name for name in names_inside(root, folder) if not name.startswith(".")][:_MOST_SKILLS]
