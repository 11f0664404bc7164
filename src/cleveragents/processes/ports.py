"""Commands in a sandbox: the request, the result and the runner's contract.

A command is limited in time and output, and none of its processes outlives the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct, field

from cleveragents.core.json_value import JsonValue

__all__ = [
    "HOME_IN_ARGV",
    "NETWORK_NOT_DENIED",
    "Command",
    "CommandHome",
    "CommandOptions",
    "CommandResult",
    "CommandRunner",
    "StopSignal",
]

HOME_IN_ARGV = "{home}"
"""A placeholder for the command's home directory in `argv`, for commands with a `home`."""

NETWORK_NOT_DENIED = (
    "the profile denies the network, and without bubblewrap the network cannot be denied; "
    "install bubblewrap, or choose a profile that does not deny the network, such as supervised"
)
"""The reason why a runner without isolation refuses a command whose network is denied."""


class StopSignal(Protocol):
    """The cancellation signal of a running call, such as a `CancellationToken`."""

    @property
    def is_cancelled(self) -> bool: ...

    @property
    def reason(self) -> str | None: ...

    def wait(self, timeout: float | None) -> bool:
        """Block until cancelled or until `timeout` seconds have passed; return whether it is cancelled."""
        ...

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if cancelled."""
        ...


class CommandHome(Struct, frozen=True):
    """The content of a command's temporary home directory.

    `copied` are paths below the user's home; missing ones are skipped. `files` are created with the given
    content.
    """

    copied: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


class CommandOptions(Struct, frozen=True, kw_only=True):
    """Options of a command beyond its program: input, variables, passthrough, readable places, network,
    limits.
    """

    input: bytes = b""
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    passed: tuple[str, ...] = ()
    home: CommandHome | None = None
    readable: tuple[Path, ...] = ()
    network: bool = False
    processes: int | None = None
    output_limit_bytes: int = 1 << 20


class Command(Struct, frozen=True):
    """A program to run, with the files, variables and network that it may use.

    `root` is the sandbox's tree, the only writable place besides a private temporary directory; the command
    starts in `directory`, inside `root`. `readable` lists further directories it may read, such as the object
    store that the sandbox borrows. Besides the few variables that every command gets, it gets `environment`,
    and those variables of this process that `passed` names. `markers` identify its attempt. With a `home`,
    `{home}` in `argv` is replaced by the path of the home directory.
    With `network_denied`, the policy denies the network, so a runner that cannot isolate refuses the command.
    """

    argv: tuple[str, ...]
    root: Path
    directory: Path
    timeout_seconds: float = 600.0
    network: bool = False
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    markers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    input: bytes = b""
    output_limit_bytes: int = 1 << 20
    passed: tuple[str, ...] = ()
    home: CommandHome | None = None
    processes: int | None = None
    network_denied: bool = False


class CommandResult(Struct, frozen=True):
    """The outcome of a command.

    `output` holds stdout and stderr in the order they arrived; if it is too long, only the tail, with a first
    line that says how much is missing. `exit_code` is None if the runner ended the command: `timed_out`,
    `cancelled`, or `crowded` (too many processes). If a signal ended it, the code is 128 plus the signal's
    number, as in a shell.
    """

    exit_code: int | None
    output: str
    truncated_bytes: int
    seconds: float
    timed_out: bool = False
    cancelled: bool = False
    isolated: bool = False
    crowded: bool = False


class CommandRunner(Protocol):
    """A runner of commands. Any thread may call it."""

    @property
    def isolates(self) -> bool:
        """Whether commands are isolated from the rest of the machine (bubblewrap) or merely supervised."""
        ...

    def inputs_of(self, command: Command) -> Mapping[str, JsonValue]:
        """Return everything that affects the command, except the files below `root`, for cache keys:
        arguments, directory, variables with their values, isolation, network.

        The result does not contain the path of the sandbox, so it is the same in every sandbox. It may hold
        secrets; use it only for a keyed hash. Raises `ValueError` for a command with a home.
        """
        ...

    def run(
        self, command: Command, stop: StopSignal, *, on_output: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        """Run the command until it ends.

        On return or error, no process that it started is alive, even if it ignored SIGTERM, double-forked or
        called `setsid`, and even if this process is killed. Without isolation and without a cgroup, a process
        survives if it detaches, drops its variables and kills its guard; the output then says that a hidden
        process may still run.

        `on_output` receives the complete output as it arrives; if it raises, the command is ended and the
        error is raised. Raises `ToolRefused` if the program does not exist or cannot run, `InvalidToolCall`
        if `argv` names none, and `OutsideSandbox` if `directory` is not in `root`.
        """
        ...
