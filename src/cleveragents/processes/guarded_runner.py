"""Run each command below a guard process, which ends everything that the command started.

Without bubblewrap, a command still gets few variables, its own session, an empty home, none of our
descriptors, limited time and output, and the end of all its processes. But it can read and write whatever the
user can, use the network, and read the memory and variables of the user's other processes.

No mode can end a process that another program started on the command's behalf (a container daemon, systemd,
cron), or take back data that was sent over an allowed network. If the guard itself is killed by force,
processes that both detached and emptied their environment are ended only with bubblewrap or a cgroup.

The module also lists the inputs of a command for cache keys. Every field of a `Command` counts unless it is
listed in `WITHOUT_EFFECT` with a reason, so a new field counts by default.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec.structs import asdict, replace

from cleveragents.core.errors import ToolRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.processes.bubblewrap import (
    HOME,
    TEMPORARY,
    BubblewrapProbe,
    arguments_for,
    seccomp_for,
    shared_probe,
)
from cleveragents.processes.environment import command_environment
from cleveragents.processes.guard import NOT_EXECUTED
from cleveragents.processes.guard_process import COMMAND_MARKER, GuardProcess, OutputTail
from cleveragents.processes.guard_protocol import GuardProgram, GuardReport
from cleveragents.processes.passthrough import (
    copy_home,
    keep_secrets_of,
    make_directory,
    mask_for,
    remove_directory,
)
from cleveragents.processes.ports import HOME_IN_ARGV, Command, CommandResult, StopSignal
from cleveragents.processes.program_lookup import (
    TOOL,
    check_command,
    ensure_network_denied,
    find_program,
)

__all__ = ["WITHOUT_EFFECT", "GuardedCommandRunner", "Isolation", "command_inputs", "guarded_program"]


Isolation = Literal["off", "auto", "required"]
_LOOK_SECONDS = 0.05
_LONGEST_GRACE_SECONDS = 3.0
_GUARD_SECONDS = 3.0
# The guard enforces the timeout itself. On a slow machine it may report late without hanging.
_LATE_GUARD_SECONDS = 60.0
_VISIBLE = (
    "commands see the sandbox, the system's directories and those on the PATH of `agents`: "
    "install the program in one of them, or add its directory to PATH"
)
_REFUSAL_WORDS = 500
_OUR_DOING = ("order", "timeout", "processes")
_LOST = "\n[the guard of the command was lost: {}]\n"
# A process namespace ends with its first process, and that process ends with the guard.
_ALL_ENDED = "all processes of the command were ended"
_FOUND_ENDED = "the processes that were found were ended; a hidden process may still run"

WITHOUT_EFFECT: Mapping[str, str] = {
    "root": "each sandbox has another path, which is replaced wherever it occurs",
    "environment": "part of the variables",
    "passed": "part of the variables, with their values",
    "markers": "differ in each attempt, and only identify the attempt",
    "timeout_seconds": "a command that times out has failed",
    "output_limit_bytes": "only limits the kept output",
}
"""The fields of a `Command` that are not inputs themselves, and why."""
_OWN = "{sandbox}"


class GuardedCommandRunner:
    """A `CommandRunner` with one guard process per command, isolated by bubblewrap where that works.

    `isolation`: "auto" runs without isolation, with a warning, where bubblewrap does not work; "required"
    refuses instead; "off" never isolates. `hidden` are places, such as the user's own checkout and our state
    directory, that no command sees or finds programs in; without bubblewrap only the program search is
    restricted. `allowed_names` are variables of this process that commands get. `grace_seconds`, at most 3,
    is the time between SIGTERM and SIGKILL, so that a cancelled command ends within 5 seconds.

    Stateless: any thread may share it. The calling thread reads the output and calls `on_output`, which must
    not block: a cancellation is noticed only between two calls of `on_output`.
    """

    def __init__(
        self,
        *,
        isolation: Isolation = "auto",
        hidden: tuple[Path, ...] = (),
        allowed_names: tuple[str, ...] = (),
        grace_seconds: float = 2.0,
        probe: BubblewrapProbe = shared_probe,
        monotonic: Callable[[], float] = time.monotonic,
        secrets: KnownSecrets | None = None,
    ) -> None:
        self._isolation = isolation
        self._hidden = tuple(place.absolute() for place in hidden)
        self._allowed_names = allowed_names
        self._grace_seconds = min(max(grace_seconds, 0.0), _LONGEST_GRACE_SECONDS)
        self._probe = probe
        self._monotonic = monotonic
        self._secrets = secrets or KnownSecrets()

    @property
    def isolates(self) -> bool:
        return self._isolation != "off" and self._probe.result().program is not None

    def inputs_of(self, command: Command) -> Mapping[str, JsonValue]:
        return command_inputs(
            command,
            os.environ,
            isolated=self.isolates,
            hidden=self._hidden,
            allowed_names=self._allowed_names,
        )

    def run(
        self, command: Command, stop: StopSignal, *, on_output: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        check_command(command)
        bubblewrap = self._bubblewrap()
        isolated = bubblewrap is not None
        ensure_network_denied(command, isolated=isolated)
        if stop.is_cancelled:
            return CommandResult(None, "", 0, 0.0, cancelled=True, isolated=isolated)
        started = time.monotonic()
        keep_secrets_of(self._allowed_names, os.environ, self._secrets)
        mask = mask_for(command.passed, os.environ, self._secrets)
        tail = OutputTail(command.output_limit_bytes, on_output, mask)  # guard: passed secrets stay secret
        with self._place(command, isolated) as place:
            program = self._program(command, place, bubblewrap)
            report = self._watch(program, command.input, stop, tail)
        tail.close()
        output, missing = tail.finish()
        if report["refused"] is not None:
            raise ToolRefused(TOOL, _why_refused(command, report["refused"], output))
        return CommandResult(
            None if report["cause"] in _OUR_DOING else _shell_code(report["code"]),
            output,
            missing,
            time.monotonic() - started,
            timed_out=report["cause"] == "timeout",
            cancelled=report["cause"] == "order",
            isolated=isolated,
            crowded=report["cause"] == "processes",
        )

    def _bubblewrap(self) -> str | None:
        """Return the path of bubblewrap if it is to be used; raise `ToolRefused` if it is required and
        missing.
        """
        if self._isolation == "off":
            return None
        result = self._probe.result()
        if result.program is None:
            if self._isolation != "auto":  # an unknown value refuses as well
                raise ToolRefused(TOOL, f"the command cannot be isolated: {result.remedy}")
            if self._probe.first_time():
                import structlog

                logger = structlog.get_logger(__name__)
                logger.warning("command.not_isolated", reason=result.problem, told=result.warning)
        return result.program

    @contextmanager
    def _place(self, command: Command, isolated: bool) -> Iterator[Path | None]:
        """Create the command's private directory for its home and temporary files; None if bubblewrap
        provides them.
        """
        if isolated and command.home is None:
            yield None
            return
        private = make_directory()
        try:
            if command.home is not None:
                copy_home(private / "home", command.home, command.argv[0])
            yield private
        finally:
            remove_directory(str(private))

    def _program(self, command: Command, private: Path | None, bubblewrap: str | None) -> GuardProgram:
        own = None if bubblewrap is not None else private
        return guarded_program(
            command,
            private,
            bubblewrap,
            places=(HOME, TEMPORARY) if own is None else (str(own / "home"), str(own / "tmp")),
            hidden=self._hidden,
            allowed_names=self._allowed_names,
            grace_seconds=self._grace_seconds,
        )

    def _watch(self, program: GuardProgram, feed: bytes, stop: StopSignal, tail: OutputTail) -> GuardReport:
        """Read output until the guard reports, disappears or hangs."""
        ordered = False
        now = self._monotonic
        late = now() + program["timeout_seconds"] + self._grace_seconds + _LATE_GUARD_SECONDS
        with GuardProcess(program, feed) as guard:
            while guard.report is None and not guard.lost and now() < late:
                tail.append(guard.read(_LOOK_SECONDS))
                if not ordered and stop.is_cancelled:
                    ordered = True
                    late = now() + self._grace_seconds + _GUARD_SECONDS
                    guard.end()
            if guard.report is None:  # the report may have arrived in time, but unread
                tail.append(guard.read(0))
            report = guard.report
            if report is None:
                cause = "order" if ordered else None if guard.lost else "timeout"
                report = {"code": guard.end_by_marker(), "cause": cause, "refused": None}
            elif report["cause"] is None and report["code"] and stop.is_cancelled:
                # A fast cancel can kill the processes before the guard receives the order.
                report = {**report, "cause": "order"}
            tail.append(guard.rest())
            if guard.report is None and not ordered:
                isolated = program["arguments"] is not None
                tail.append(_LOST.format(_ALL_ENDED if isolated else _FOUND_ENDED).encode())
        return report


def guarded_program(
    command: Command,
    private: Path | None,
    bubblewrap: str | None,
    *,
    places: tuple[str, str],
    hidden: tuple[Path, ...],
    allowed_names: tuple[str, ...],
    grace_seconds: float,
    searched: bool = False,
) -> GuardProgram:
    """Return the program that the guard runs for the command.

    `places` are the home and the temporary directory of the command; the files of `command.home` are in
    `private`. With `searched`, programs in `hidden` places can be used, too.
    """
    home, temporary = places
    if command.home is not None:
        command = replace(command, argv=tuple(word.replace(HOME_IN_ARGV, home) for word in command.argv))
    markers = {**command.markers, COMMAND_MARKER: uuid.uuid4().hex}
    environment = command_environment(
        replace(command, markers=markers),
        os.environ,
        home=home,
        temporary=temporary,
        hidden=() if searched else hidden,
        allowed_names=allowed_names,
    )
    isolated = bubblewrap is not None
    found = find_program(command, environment["PATH"], os.environ.get("PATH", ""), isolated=isolated)
    program: GuardProgram = {
        "executable": str(found),
        "argv": [*command.argv],
        "arguments": None,
        "environment": environment,
        "markers": markers,
        "directory": str(command.directory),
        "output": -1,
        "input": -1,
        "timeout_seconds": command.timeout_seconds,
        "grace_seconds": grace_seconds,
        "parent": 0,
        "path": [],
        "private": None if private is None else str(private),
        "processes": command.processes,
    }
    if bubblewrap is not None:
        # guard: bubblewrap runs outside, so no variable of the command (LD_PRELOAD) may reach it
        program["environment"] = markers
        program["directory"] = "/"
        program["executable"] = bubblewrap
        program["argv"] = [bubblewrap, "--", *command.argv]
        filtered = seccomp_for(bubblewrap)
        program["seccomp"] = None if filtered is None else filtered.hex()
        program["arguments"] = arguments_for(
            command,
            environment,
            bubblewrap=bubblewrap,
            program=found,
            hidden=hidden,
            home=private / "home" if private is not None and command.home is not None else None,
        )
    return program


def _shell_code(code: int | None) -> int:
    """Return the exit code as a shell reports it: 128 plus the signal's number for a killed process."""
    if code is None:
        return 128 + signal.SIGKILL
    return 128 - code if code < 0 else code


def _why_refused(command: Command, problem: str, output: str) -> str:
    if problem != NOT_EXECUTED:
        return f"{command.argv[0]!r} cannot be run: {problem}"
    said = " ".join(output.split())[-_REFUSAL_WORDS:]
    return f"{command.argv[0]!r} cannot be run: {said}; {_VISIBLE}"


def command_inputs(
    command: Command,
    inherited: Mapping[str, str],
    *,
    isolated: bool,
    hidden: tuple[Path, ...],
    allowed_names: tuple[str, ...],
) -> dict[str, JsonValue]:
    """Return the inputs of a command for a runner with these settings; see `CommandRunner.inputs_of`."""
    if command.home is not None:  # guard: its copies of the user's files are not examined here
        raise ValueError("a command with a home has inputs that are not listed")
    variables = command_environment(
        replace(command, markers={}),
        inherited,
        home=HOME,
        temporary=TEMPORARY,
        hidden=hidden,
        allowed_names=allowed_names,
    )
    facts = {name: value for name, value in asdict(command).items() if name not in WITHOUT_EFFECT}
    places = dict.fromkeys([str(command.root.parent), os.path.realpath(command.root.parent)])
    own = sorted(places, key=len, reverse=True)
    settings = {"variables": variables, "isolated": isolated, "hidden": hidden}
    return {name: _plain(value, own) for name, value in {**facts, **settings}.items()}


def _plain(value: object, own: list[str]) -> JsonValue:
    """Return the value as JSON, with the path of the sandbox's own directory replaced."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): _plain(found, own) for key, found in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(found, own) for found in value]
    text = str(value)
    for place in own:
        text = text.replace(place, _OWN)
    return text
