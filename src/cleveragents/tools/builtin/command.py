"""Runs a command in the sandbox. That it failed is its result, not an error of the call."""

from __future__ import annotations

import posixpath
from typing import Self

from pydantic import Field, model_validator

from cleveragents.core.errors import Cancelled, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "CommandArguments", "CommandOutcome", "CommandTool"]

_DEFAULT_SECONDS = 600.0
# A command that needs longer than a working day has hung.
_LONGEST_SECONDS = 8 * 3600.0
_HERE = ("", ".", "./")
_SHELL = ("/bin/sh", "-c")


class CommandArguments(Arguments):
    argv: list[str] = Field(default=[], description="the program and its arguments; no shell is involved")
    script: str = Field(
        default="", description="instead of argv: a text for /bin/sh, with pipes and variables"
    )
    directory: str = Field(default="", description="where to run it, relative to where the plan works")
    timeout_seconds: float = Field(
        default=_DEFAULT_SECONDS, gt=0, le=_LONGEST_SECONDS, description="when to end it, if it has not ended"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.argv) == bool(self.script):
            raise ValueError("give either `argv`, a list, or `script`, a text for the shell")
        if not self.words[0]:
            raise ValueError("`argv` names no program")
        if any("\0" in word for word in self.words):
            raise ValueError("there is a NUL character in it")
        return self

    @property
    def words(self) -> tuple[str, ...]:
        """What is run."""
        return (*_SHELL, self.script) if self.script else (*self.argv,)


class CommandOutcome(Result):
    exit_code: int | None = Field(description="none if it was ended because its time was over")
    output: str = Field(description="stdout and stderr as they came; the end of it, if it is too long")
    truncated: bool
    timed_out: bool
    seconds: float


class CommandTool(TypedTool[CommandArguments, CommandOutcome]):
    name = "command"
    description = "Runs a program in the sandbox, at most for `timeout_seconds`. No process outlives it."
    capability = Capability.COMMAND
    writes = True
    runs_commands = True
    arguments = CommandArguments
    result = CommandOutcome

    def run(self, arguments: CommandArguments, workplace: Workplace) -> CommandOutcome:
        directory = arguments.directory
        # Where the plan works is made when a command starts there; a directory below it is the plan's own.
        where = "" if directory in _HERE else posixpath.join(workplace.directory, directory)
        if workplace.files.kind(where) != "directory":
            raise ToolRefused(self.name, f"there is no directory {directory!r} to run it in")
        done = workplace.run(arguments.words, directory=directory, timeout_seconds=arguments.timeout_seconds)
        if done.cancelled:
            raise Cancelled(workplace.stop.reason)
        return CommandOutcome(
            exit_code=done.exit_code,
            output=done.output,
            truncated=done.truncated_bytes > 0,
            timed_out=done.timed_out,
            seconds=done.seconds,
        )


TOOL = CommandTool()
