"""Shell commands: run in a sandbox, bounded in time and output, and gone when the call is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

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
"""Stands for the command's home directory in the words of one that is given a home."""

NETWORK_NOT_DENIED = (
    "the profile denies the network, and without bubblewrap the network cannot be denied; "
    "install bubblewrap, or choose a profile that does not deny the network, such as supervised"
)
"""Why a runner that cannot isolate refuses a command whose network is denied."""


class StopSignal(Protocol):
    """What a running call watches: `CancellationToken` and its views are one."""

    @property
    def is_cancelled(self) -> bool: ...

    @property
    def reason(self) -> str | None: ...

    def wait(self, timeout: float | None) -> bool:
        """Blocks until cancelled (True), or for so many seconds."""
        ...

    def raise_if_cancelled(self) -> None:
        """Returns, or raises `Cancelled`."""
        ...


@dataclass(frozen=True, slots=True)
class CommandHome:
    """What a command finds in its home directory, which is empty otherwise and gone when it ends: copies of
    what is at these paths below the user's home, as far as they are there, and files with these contents."""

    copied: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """What one command has that others have not: an input, variables, ours by name, things in its home, other
    places that it may read, the network; and how many processes it may have at once."""

    input: bytes = b""
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    passed: tuple[str, ...] = ()
    home: CommandHome | None = None
    readable: tuple[Path, ...] = ()
    network: bool = False
    processes: int | None = None
    output_limit_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Command:
    """What to run and what it may see.

    `root` is the sandbox's tree, the only place it can write (besides a private temporary directory);
    `directory` is where it starts, inside `root`. `readable` are further directories it may read, such as the
    object store that the sandbox borrows. `environment` is added to the few variables that every command
    gets, and so are ours of the names `passed`, where they are set; nothing else of ours reaches it.
    `markers` name the attempt it belongs to. With a `home`, `{home}` in its words is where that is.
    `network_denied`: the policy denies the network, so a runner that cannot isolate refuses the command.
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


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How it ended. `output` holds stdout and stderr as they came; when too long, the tail, with a line that
    says how much is missing. `exit_code` is None when it was ended by us: `timed_out`, `cancelled`, or
    `crowded`, with more processes than it may have; for one that a signal ended it is 128 and the signal's
    number, as in a shell."""

    exit_code: int | None
    output: str
    truncated_bytes: int
    seconds: float
    timed_out: bool = False
    cancelled: bool = False
    isolated: bool = False
    crowded: bool = False


class CommandRunner(Protocol):
    """Runs commands. Any thread may call it."""

    @property
    def isolates(self) -> bool:
        """Whether commands are kept from the rest of the machine (bubblewrap), or merely watched."""
        ...

    def inputs_of(self, command: Command) -> Mapping[str, JsonValue]:
        """Everything but the files below `root` that decides what the command does here, for cache keys:
        words, directory, variables with their values, isolation, network.

        Two sandboxes give the same answer: their own directory is left out of it. The answer may hold
        secrets; use it for a keyed hash only. `ValueError` for a command with a home.
        """
        ...

    def run(
        self, command: Command, stop: StopSignal, *, on_output: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        """Runs it to its end. When this returns, or raises, no process that it started is alive: also
        those that ignored SIGTERM, double-forked or called `setsid`; also if this process is killed. Without
        isolation and without a cgroup, one that detaches, drops its variables and kills its guard survives;
        the output then says that a hidden process may still run.

        `on_output` gets the output as it comes, all of it; if it raises, the command is ended, and that is
        raised. `ToolRefused` when the program does not exist or cannot be run, `InvalidToolCall` when there
        is none, `OutsideSandbox` when `directory` is not in `root`.
        """
        ...
