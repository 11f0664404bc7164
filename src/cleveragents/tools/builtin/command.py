"""Run a command in the sandbox. A failed command is a result, not an error of the call."""

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
# A command that needs longer than a working day hangs.
_LONGEST_SECONDS = 8 * 3600.0
_HERE = ("", ".", "./")
_SHELL = ("/bin/sh", "-c")


class CommandArguments(Arguments):
    argv: list[str] = Field(default=[], description="the program and its arguments; no shell is involved")
    script: str = Field(
        default="", description="instead of argv: a script for /bin/sh, with pipes and variables"
    )
    directory: str = Field(
        default="", description="where to run it, relative to the plan's working directory"
    )
    timeout_seconds: float = Field(
        default=_DEFAULT_SECONDS, gt=0, le=_LONGEST_SECONDS, description="the time limit"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.argv) == bool(self.script):
            raise ValueError("use either `argv`, a list, or `script`, a text for the shell")
        if not self.words[0]:
            raise ValueError("`argv` must start with a program")
        if any("\0" in word for word in self.words):
            raise ValueError("there is a NUL character in it")
        return self

    @property
    def words(self) -> tuple[str, ...]:
        """The command line to run."""
        return (*_SHELL, self.script) if self.script else (*self.argv,)


class CommandOutcome(Result):
    exit_code: int | None = Field(description="null if it reached its time limit")
    output: str = Field(description="stdout and stderr in order; only the end if it is too long")
    truncated: bool
    timed_out: bool
    seconds: float


class CommandTool(TypedTool[CommandArguments, CommandOutcome]):
    name = "command"
    description = "Runs a program in the sandbox for at most `timeout_seconds`. No process outlives it."
    capability = Capability.COMMAND
    writes = True
    runs_commands = True
    arguments = CommandArguments
    result = CommandOutcome

    def run(self, arguments: CommandArguments, workplace: Workplace) -> CommandOutcome:
        directory = arguments.directory
        # The working directory of the plan is created when a command starts; a directory below it must exist.
        where = "" if directory in _HERE else posixpath.join(workplace.directory, directory)
        if workplace.files.kind(where) != "directory":
            raise ToolRefused(self.name, f"no such directory: {directory!r}")
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
