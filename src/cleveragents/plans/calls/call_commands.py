"""The commands of one tool call: in its sandbox, with what it has leave for, no longer than it may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cleveragents.core.errors import ToolRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.processes.ports import (
    Command,
    CommandResult,
    CommandRunner,
    CommandTerms,
    StopSignal,
)
from cleveragents.sandboxes.ports import Sandbox
from cleveragents.sandboxes.working_directory import working_directory
from cleveragents.tools.timed_tool import EitherStop

__all__ = ["CallCommands"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCommands:
    """`CommandsHere` of one call. `has_leave` tells whether the call was allowed to use the network, where
    that is not allowed to all. `network_denied`: the policy denies it. `ended` ends a command, and is no
    cancel."""

    tool: str
    runner: CommandRunner
    sandbox: Sandbox
    directory: str
    environment: Mapping[str, str]
    markers: Mapping[str, str]
    network: bool
    network_denied: bool
    has_leave: Callable[[], bool]
    limit_seconds: float
    stop: StopSignal
    ended: StopSignal | None = None
    on_output: Callable[[bytes], None] | None = None

    def __call__(
        self,
        argv: tuple[str, ...],
        *,
        directory: str,
        timeout_seconds: float,
        terms: CommandTerms | None = None,
    ) -> CommandResult:
        terms = terms or CommandTerms()
        if terms.network and not self.network and not self.has_leave():  # guard: no other leave is one for it
            raise ToolRefused(self.tool, "it wants the network, which it was not allowed to use")
        command = self._command(argv, directory, timeout_seconds, terms)
        stop = self.stop if self.ended is None else EitherStop(self.stop, self.ended)
        done = self.runner.run(command, stop, on_output=self.on_output)
        if done.cancelled and not self.stop.is_cancelled:  # guard: a command that was ended is no cancel
            return replace(done, cancelled=False)
        return done

    def inputs_of(self, argv: tuple[str, ...]) -> Mapping[str, JsonValue]:
        """What decides the outcome of this command, besides the files of the sandbox."""
        return self.runner.inputs_of(self._command(argv, "", self.limit_seconds, CommandTerms()))

    def _command(
        self, argv: tuple[str, ...], directory: str, timeout_seconds: float, terms: CommandTerms
    ) -> Command:
        return Command(
            argv=argv,
            root=self.sandbox.root,
            directory=working_directory(self.sandbox.root, self.directory) / directory,
            timeout_seconds=min(timeout_seconds, self.limit_seconds),
            network=self.network or terms.network,
            readable=(*self.sandbox.readable, *terms.readable),
            environment={**self.environment, **terms.environment},
            markers=self.markers,
            input=terms.input,
            output_limit_bytes=terms.output_limit_bytes,
            passed=terms.passed,
            home=terms.home,
            processes=terms.processes,
            network_denied=self.network_denied,
        )
