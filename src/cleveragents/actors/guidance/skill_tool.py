"""The tool that reads a skill. It exists only if usable skills exist."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from posixpath import normpath

from pydantic import Field

from cleveragents.access.trust.repository_files import read_inside
from cleveragents.actors.guidance.skills import Skill, Skills
from cleveragents.core.errors import ConfigurationError, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.tools.ports import FixedTools, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["SkillArguments", "SkillResult", "SkillTool", "SkillTools"]

_LARGEST_BYTES = 200_000


class SkillArguments(Arguments):
    name: str = Field(description="the name of the skill")
    file: str = Field(default="", description="another file of the skill, relative to its folder")


class SkillResult(Result):
    name: str
    folder: str = Field(description="the folder of its other files, if it is in the sandbox; else empty")
    text: str


class SkillTool(TypedTool[SkillArguments, SkillResult]):
    name = "skill"
    description = (
        "Reads a skill: instructions for a kind of task. With `file`, reads another file of its folder."
    )
    capability = Capability.READ
    arguments = SkillArguments
    result = SkillResult

    def __init__(self, skills: tuple[Skill, ...]) -> None:
        self._skills = {skill.name: skill for skill in skills}

    def run(self, arguments: SkillArguments, workplace: Workplace) -> SkillResult:
        skill = self._skills.get(arguments.name)
        if skill is None:
            near = get_close_matches(arguments.name, [*self._skills], n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"available: {', '.join(self._skills)}"
            raise ToolRefused(self.name, f"there is no skill {arguments.name!r}; {hint}")
        text = self._file(skill, arguments.file) if arguments.file else skill.text
        return SkillResult(name=skill.name, folder="" if skill.own else skill.folder, text=text)

    def _file(self, skill: Skill, name: str) -> str:
        try:
            # guard: only files inside the skill's folder
            content = read_inside(Path(skill.folder), name) if skill.own else self._brought(skill, name)
        except ConfigurationError as error:
            raise ToolRefused(self.name, f"{name!r} {error.problem}") from None
        if content is None:
            raise ToolRefused(self.name, f"the skill {skill.name!r} has no file {name!r}")
        return content[:_LARGEST_BYTES].decode("utf-8", "replace")

    def _brought(self, skill: Skill, name: str) -> bytes | None:
        """Return the trusted content of a file in a repository's skill. None if the file is not inside the
        skill's folder or does not exist. Raises `ToolRefused` if it is not trusted.
        """
        path = normpath(f"{skill.folder}/{name}")
        if skill.look is None or not path.startswith(f"{skill.folder}/"):  # guard: inside its folder
            return None
        file = skill.look(path)
        if file is not None and not file.trusted:  # guard: an actor follows all files of a skill
            hint = f"the user may read {skill.root}/{path}, then trust it"
            raise ToolRefused(self.name, f"{name!r} of the skill {skill.name!r} is not trusted; {hint}")
        return None if file is None else file.content


class SkillTools(FixedTools):
    """A `ToolSource` with the tool that reads skills, or without tools if there are no skills. Any thread may
    use it.
    """

    def __init__(self, skills: Skills) -> None:
        super().__init__(*([SkillTool(skills.found)] if skills.found else []))
