"""A tool that runs an external agent in the sandbox. Nodes of actors use it; no model can call it.

Unlike with `command`, a failed agent is an error of the call, because no model reads its exit code.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from cleveragents.actors.model.actor import AGENT_PROCESSES, AGENT_SECONDS
from cleveragents.actors.model.rules import PROMPT, PROMPT_FILE
from cleveragents.core.errors import Cancelled, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import AGENT_TOOL
from cleveragents.processes.passthrough import shown_by
from cleveragents.processes.ports import HOME_IN_ARGV, CommandHome, CommandOptions, CommandResult
from cleveragents.processes.program_lookup import absence_of
from cleveragents.tools.ports import FixedTools, SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["AgentArguments", "AgentTool", "AgentToolResult", "AgentTools"]

_OUTPUT_BYTES = 64 << 10
_SHOWN_CHARACTERS = 2_000
_LAST_CHARACTERS = 300
# Linux's limit for one argument, including its terminator.
_LONGEST_WORD_BYTES = (128 << 10) - 1
_PROMPT_NAME = ".cleveragents-prompt.md"


class AgentArguments(Arguments):
    argv: list[str] = Field(min_length=1, description="the program and its arguments, run without a shell")
    prompt: str = Field(description="the prompt")
    prompt_by: Literal["stdin", "argument", "file"] = "stdin"
    variables: dict[str, str] = Field(default={}, description="environment variables to set")
    environment: list[str] = Field(default=[], description="names of the user's variables to pass through")
    home: list[str] = Field(default=[], description="paths below the user's home to copy")
    network: bool = False
    timeout_seconds: float = Field(default=AGENT_SECONDS, gt=0)
    processes: int = Field(default=AGENT_PROCESSES, ge=1)
    expect_exit: list[int] = Field(default=[0], min_length=1)
    install: str = Field(default="", description="how to install the program")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for word in self.words:
            if "\0" in word:
                raise ValueError("the argument contains a NUL character")
            if len(word.encode("utf-8", "surrogateescape")) > _LONGEST_WORD_BYTES:
                limit = f"the argument exceeds {(_LONGEST_WORD_BYTES + 1) >> 10} KiB"
                raise ValueError(f"{limit}; use `prompt_by: stdin` or `file`")
        return self

    @property
    def words(self) -> tuple[str, ...]:
        """The command line to run."""
        if self.prompt_by == "file":
            path = f"{HOME_IN_ARGV}/{_PROMPT_NAME}"
            return tuple(word.replace(PROMPT_FILE, path) for word in self.argv)
        if self.prompt_by == "stdin":
            return tuple(self.argv)
        if not any(PROMPT in word for word in self.argv):
            return (*self.argv, self.prompt)
        return tuple(word.replace(PROMPT, self.prompt) for word in self.argv)

    @property
    def terms(self) -> CommandOptions:
        told = self.prompt.encode("utf-8", "surrogateescape")
        files = {_PROMPT_NAME: told} if self.prompt_by == "file" else {}
        return CommandOptions(
            input=told if self.prompt_by == "stdin" else b"",
            environment=self.variables,
            passed=tuple(self.environment),
            home=CommandHome(tuple(self.home), files),
            readable=tuple(shown_by(self.argv)),
            network=self.network,
            processes=self.processes,
            output_limit_bytes=_OUTPUT_BYTES,
        )


class AgentToolResult(Result):
    exit_code: int
    output: str = Field(description="the end of the output")
    truncated: bool
    seconds: float


class AgentTool(TypedTool[AgentArguments, AgentToolResult]):
    name = AGENT_TOOL
    description = "Runs an external agent in the sandbox, for a node of an actor."
    capability = Capability.COMMAND
    writes = True
    runs_commands = True
    arguments = AgentArguments
    result = AgentToolResult

    def needs(self, arguments: AgentArguments, files: SandboxFiles) -> Capability:
        absence = absence_of(arguments.argv[0], arguments.install)
        if absence is not None:
            raise ToolRefused(self.name, absence)
        return Capability.NETWORK if arguments.network else Capability.COMMAND

    def run(self, arguments: AgentArguments, workplace: Workplace) -> AgentToolResult:
        seconds = arguments.timeout_seconds
        done = workplace.run(arguments.words, directory="", timeout_seconds=seconds, terms=arguments.terms)
        if done.cancelled:
            raise Cancelled(workplace.stop.reason)
        problem = _problem(arguments, done)
        if problem is not None:
            raise ToolRefused(self.name, f"{problem}{_said(done)}")
        assert done.exit_code is not None  # a stopped command has a problem
        return AgentToolResult(
            exit_code=done.exit_code,
            output=done.output,
            truncated=done.truncated_bytes > 0,
            seconds=done.seconds,
        )


class AgentTools(FixedTools):
    """A `ToolSource` for the tool that runs external agents.

    It lists no names, so the tool never appears in a list of tools.
    """

    def __init__(self) -> None:
        super().__init__(AgentTool())

    def names(self) -> tuple[str, ...]:
        return ()  # guard: an author grants the user's variables and files, not a model


def _problem(arguments: AgentArguments, done: CommandResult) -> str | None:
    """Return why the agent failed, or None."""
    if done.timed_out:
        return f"the agent was stopped after {done.seconds:.0f} seconds: it reached its time limit"
    if done.crowded:
        return f"the agent was stopped: it exceeded its limit of {arguments.processes} processes"
    if done.exit_code not in arguments.expect_exit:
        return f"the agent exited with code {done.exit_code}"
    return None


def _said(done: CommandResult) -> str:
    end = redact_text(done.output).strip()
    if not end:
        return "; no output"
    # The first line appears where there is room for only one, and the reason of a failure is usually the last
    # output.
    last = end.rpartition("\n")[2].strip()
    said = f"; last line of output: {last[-_LAST_CHARACTERS:]}"
    if last == end and len(end) <= _LAST_CHARACTERS:
        return said
    cut = f"…{end[-_SHOWN_CHARACTERS:]}" if len(end) > _SHOWN_CHARACTERS else end
    return f"{said}\nthe end of its output:\n{cut}"
