"""A long-running program below a guard, with messages over its standard streams: an MCP server or an agent.

The guard is the same as for commands: a subreaper that ends the whole tree on request and when we die.
Everything runs on the event loop's thread, which must outlive the program, because the guard treats the end
of that thread as our death.

A program writes one message per line. Lines are limited in size, and lines that are not messages are skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from msgspec.structs import replace

from cleveragents.core.errors import ToolRefused
from cleveragents.core.identifiers import MARKER_VARIABLE
from cleveragents.core.text.redaction import KnownSecrets, redact_text
from cleveragents.processes import guard
from cleveragents.processes.bubblewrap import (
    HOME,
    TEMPORARY,
    BubblewrapProbe,
    shared_probe,
)
from cleveragents.processes.cgroup import end_cgroup, make_cgroup
from cleveragents.processes.guard_process import COMMAND_MARKER, OutputTail
from cleveragents.processes.guard_protocol import GuardProgram, GuardReport
from cleveragents.processes.guarded_runner import Isolation, guarded_program
from cleveragents.processes.passthrough import (
    NO_SECRETS,
    SecretMask,
    copy_home,
    keep_secrets_of,
    remove_directory,
)
from cleveragents.processes.ports import Command
from cleveragents.processes.program_lookup import ensure_network_denied

__all__ = [
    "GARBAGE_BYTES",
    "MESSAGE_BYTES",
    "ProgramEnvironment",
    "ProtocolFaults",
    "StdioProcess",
    "bubblewrap_for",
    "next_message",
    "stdio_program",
]


MESSAGE_BYTES = 8 << 20
"""The limit for one line; a longer one is not a usable message."""
_COMPLAINT_BYTES = 4096
_COMPLAINT_SHOWN = 600
_CHUNK_BYTES = 65536
_LEAVE_SECONDS = 1.0
_STUCK_SECONDS = 3.0
_PACKAGES = Path(guard.__file__).parents[2]
_GUARD_NEEDS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

_LONGEST_SECONDS = 30 * 24 * 3600.0

GARBAGE_BYTES = 1 << 20
"""The limit for lines that are not messages. Some programs greet or log on the wrong stream; beyond this
limit the program is given up.
"""
_PRINTED_BYTES = 4_000
T = TypeVar("T")


class StdioProcess:
    """A running program. Not thread-safe: only the event loop that created it uses it."""

    def __init__(self, program: GuardProgram, mask: SecretMask = NO_SECRETS) -> None:
        self._program = program
        self._marker = program["markers"][COMMAND_MARKER]
        self._cgroup = make_cgroup(program["markers"].get(MARKER_VARIABLE, ""))
        self._complaints = OutputTail(_COMPLAINT_BYTES, mask=mask)
        self._said = bytearray()
        self._watched: dict[int, Callable[[bytes], None]] = {}
        self._ending: asyncio.Task[None] | None = None
        self._hearing: asyncio.ReadTransport | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.report: GuardReport | None = None
        self.over = asyncio.Event()
        with ExitStack() as theirs:
            self._socket, their_socket = socket.socketpair()
            theirs.callback(their_socket.close)
            # Separate streams: some programs treat a socket that they both read and write as closed.
            self._heard, heard_in = os.pipe()
            theirs.callback(os.close, heard_in)
            self._output, output_in = os.pipe()
            theirs.callback(os.close, output_in)
            unused = theirs.enter_context(ExitStack())
            unused.callback(self._end_cgroup)
            program = {
                **program,
                "input": their_socket.fileno(),
                "output": heard_in,
                "errors": output_in,
                "parent": os.getpid(),
                "cgroup": None if self._cgroup is None else str(self._cgroup),
                "path": [str(_PACKAGES), *(entry for entry in sys.path if entry.startswith("/"))],
            }
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output_in,
                pass_fds=(heard_in, output_in, their_socket.fileno()),
                env={name: os.environ[name] for name in _GUARD_NEEDS if name in os.environ}
                | program["markers"],
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
            unused.pop_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._control = self._process.stdin
        self._reports = self._process.stdout
        self._order(json.dumps(program).encode() + b"\n")
        self._watch(self._output, self._complaints.append)
        self._watch(self._reports.fileno(), self._hear)

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the program's output and input streams; the length of a line is limited."""
        if self._streams is None:
            loop = asyncio.get_running_loop()
            reader = asyncio.StreamReader(limit=MESSAGE_BYTES)
            self._hearing, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._heard, "rb", 0)
            )
            _, writer = await asyncio.open_unix_connection(sock=self._socket)
            self._streams = reader, writer
        return self._streams

    @property
    def isolated(self) -> bool:
        """Whether the program is isolated from the rest of the machine."""
        return self._program["arguments"] is not None

    @property
    def complaint(self) -> str:
        """The end of the program's stderr, without secrets; empty if it wrote nothing."""
        text, _ = self._complaints.finish()
        return redact_text(" ".join(text.split())[-_COMPLAINT_SHOWN:])

    async def end(self) -> None:
        """End the program and everything it started. Closing its input first asks it to exit.

        Cancelling the caller does not interrupt this.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        try:
            self._close_input()
            if not await self._is_over(_LEAVE_SECONDS):
                self._order(b"end\n")
                await self._is_over(self._program["grace_seconds"] + _STUCK_SECONDS)
            self._control.close()
            await asyncio.to_thread(self._bury)
        finally:
            self._close()

    async def _is_over(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()
        return self.over.is_set()

    def _close_input(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _bury(self) -> None:
        if self.report is None:  # guard: a killed or stuck guard has left processes behind
            self._end_by_marker()
        self._process.wait(_STUCK_SECONDS)
        self._end_cgroup()  # guard: fully detached processes are still in it

    def _end_by_marker(self) -> None:
        from cleveragents.processes.process_tree import Tree, descendants, end_tree, marked

        def find() -> Tree:
            self._process.poll()  # a dead child of ours must not look alive
            return {**marked(COMMAND_MARKER, self._marker), **descendants(self._process.pid)}

        end_tree(find, grace_seconds=0)
        self._process.kill()

    def _end_cgroup(self) -> None:
        if self._cgroup is not None:
            end_cgroup(self._cgroup)

    def _close(self) -> None:
        loop = asyncio.get_running_loop()
        for descriptor in self._watched:
            loop.remove_reader(descriptor)
        self._watched.clear()
        if self._streams is None:
            self._socket.close()
        else:
            self._streams[1].transport.abort()
        if self._hearing is None:
            os.close(self._heard)
        else:
            self._hearing.close()
        self._control.close()
        self._reports.close()
        os.close(self._output)
        if self._program["private"] is not None:
            remove_directory(self._program["private"])

    def _watch(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        os.set_blocking(descriptor, False)
        self._watched[descriptor] = take
        asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)

    def _read(self, descriptor: int) -> None:
        try:
            chunk = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._watched[descriptor](chunk)
        if not chunk:
            asyncio.get_running_loop().remove_reader(descriptor)
            del self._watched[descriptor]

    def _hear(self, chunk: bytes) -> None:
        self._said += chunk
        if self._said.endswith(b"\n"):
            self.report = json.loads(self._said)
        if self.report is not None or not chunk:
            self.over.set()

    def _order(self, line: bytes) -> None:
        view = memoryview(line)
        with suppress(BrokenPipeError):  # the guard is gone; its report, or the lack of one, shows why
            while view:
                view = view[self._control.write(view) or 0 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnvironment:
    """The settings that the programs of one stage share.

    `root` is the sandbox's tree; the programs start in `directory`, inside it. Unless `writable`, an isolated
    program can read the tree but not change it. `markers` identify the attempt, so that a search for its
    processes finds these, too. Secrets of the user that the programs receive are added to `secrets`. The
    other fields are the same as for commands.
    """

    root: Path
    directory: Path
    writable: bool = True
    network: bool = False
    readable: tuple[Path, ...] = ()
    markers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    isolation: Isolation = "auto"
    hidden: tuple[Path, ...] = ()
    allowed_names: tuple[str, ...] = ()
    grace_seconds: float = 2.0
    probe: BubblewrapProbe = shared_probe
    secrets: KnownSecrets = field(default_factory=KnownSecrets)
    network_denied: bool = False


def bubblewrap_for(place: ProgramEnvironment, who: str) -> str | None:
    """Return the path of bubblewrap, or None. Raises `ToolRefused` if it is required and missing."""
    if place.isolation == "off":
        return None
    result = place.probe.result()
    if result.program is None and place.isolation != "auto":
        raise ToolRefused(who, f"isolation is required: {result.remedy}")
    return result.program


def stdio_program(
    command: Command,
    place: ProgramEnvironment,
    private: Path,
    bubblewrap: str | None,
    own_places: tuple[str, str] | None = None,
) -> GuardProgram:
    """Return the program that the guard runs. `private` is its own directory, which the caller removes.

    Its home and temporary directory are empty unless `own_places` are given or the command defines its home.
    Raises `ToolRefused` if the program does not exist, or if a denied network cannot be enforced.
    """
    ensure_network_denied(command, isolated=bubblewrap is not None)
    empty = (str(private / "home"), str(private / "tmp")) if bubblewrap is None else (HOME, TEMPORARY)
    if command.home is not None:
        copy_home(private / "home", command.home, command.argv[0])
    keep_secrets_of(place.allowed_names, os.environ, place.secrets)
    return guarded_program(
        replace(command, markers=place.markers, timeout_seconds=_LONGEST_SECONDS),
        private,
        bubblewrap,
        places=own_places or empty,
        hidden=place.hidden,
        allowed_names=place.allowed_names,
        grace_seconds=place.grace_seconds,
        searched=own_places is not None,
    )


class ProtocolFaults:
    """The reason why a program's messages are no longer read, if any. Used by the loop that owns the
    connection.
    """

    def __init__(self) -> None:
        self.found = ""
        self.printed = ""
        """The last text on stdout that was not a message."""
        self.garbage_bytes = 0

    def pass_over(self, line: bytes) -> None:
        """Count a line that is not a message. If there are too many, set `found`, which stops the reading."""
        self.garbage_bytes += len(line)
        self.printed = line[-_PRINTED_BYTES:].decode("utf-8", "replace").strip() or self.printed
        if self.garbage_bytes > GARBAGE_BYTES:  # guard: it would keep us busy forever
            self.found = "the process keeps writing lines that are not messages"


async def next_message(
    reader: asyncio.StreamReader, parse: Callable[[bytes], T], faults: ProtocolFaults
) -> T | None:
    """Return the next message: the result of `parse` for the next line that it does not reject with
    `ValueError`. None at the end of the stream, or once `faults` has a reason to stop reading.
    """
    while not faults.found:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:  # bounds memory for any input
            faults.found = "the process sent a message that is too long"
            return None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        try:
            return parse(line)
        except ValueError:
            faults.pass_over(line)
    return None
