"""Isolation with bubblewrap: the probe for this machine, the options of a command, the seccomp filter.

An isolated command sees the system's directories read-only, a private and empty home and /tmp, the programs
on its PATH, the directories that the caller lists as readable, and the sandbox. Only the sandbox is writable.
The command has its own process namespace, and no network unless it is enabled. It can read the machine's
files in /proc but not write them, even as root.

Where bubblewrap supports it, the command cannot create user namespaces, and a seccomp filter denies system
calls that no build needs.

Isolation does not cover the kernel's other interfaces, CPU time, memory, disk space, or the names in
/etc/passwd. With `network`, the command reaches every service that listens on this machine, including
abstract sockets.

The seccomp filter is assembled as classic BPF for x86-64 (including 32-bit programs) and 64-bit ARM; other
architectures get no filter. Kernel vulnerabilities are often found in the denied calls, and building and
testing software needs none of them. A denied call fails with EPERM. `clone3` fails with ENOSYS, because a
filter cannot see its flags; the C library then falls back to `clone`. Creating a socket of a family that
network namespaces do not cover fails with EAFNOSUPPORT.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.processes.environment import (
    installations,
    is_directory,
    is_inside_spelled,
    real_path,
    search_path,
    spellings,
)
from cleveragents.processes.program_lookup import interpreter_homes, look_up, tool_directories

if TYPE_CHECKING:
    from cleveragents.processes.ports import Command

__all__ = [
    "HOME",
    "TEMPORARY",
    "BubblewrapProbe",
    "arguments_for",
    "filter_for",
    "hardening_of",
    "seccomp_for",
    "shared_probe",
]


HOME = "/home/agent"
TEMPORARY = f"{os.sep}tmp"
_SYSTEM = ("/usr", "/nix/store", "/run/current-system/sw")
_OFTEN_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_PLACES = tuple(map(Path, (*_SYSTEM, *_OFTEN_LINKS)))
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf"),
    *("localtime", "timezone", "locale.alias", "locale.conf", "os-release", "lsb-release", "debian_version"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust", "crypto-policies", "ca-certificates"),
    *("mime.types", "protocols", "services", "hosts", "host.conf", "gai.conf", "terminfo", "fonts", "perl"),
    *("java", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "maven"),
)
_NETWORK_ETC = ("resolv.conf",)
# Machine-wide files in /proc. The kernel checks for uid 0 there, not for a capability, and bubblewrap
# covers only those whose directory looks writable.
_MACHINE = (
    *("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "asound", "driver", "dynamic_debug"),
    *("mtrr", "pressure", "latency_stats", "timer_stats", "slabinfo"),
)
# Interpreters registered here run outside the sandbox. Automount may mount this directory, writable, on
# access.
_FORMATS = "/proc/sys/fs/binfmt_misc"
_PROBE_SECONDS = 60.0
_DISABLE_USERNS = "--disable-userns"
_NO_USERNS = ("--unshare-user", _DISABLE_USERNS)
_MEANING = "the commands can read and change whatever you can, and use the network"
_ADVICE = "install bubblewrap and allow user namespaces"
_REMEDY = "install bubblewrap and allow user namespaces, or set sandbox.isolation to auto or off"

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_GREATER_OR_EQUAL, _JUMP_IF_ANY_BIT, _JUMP, _RETURN = (
    *(0x20, 0x15, 0x35, 0x45),
    *(0x05, 0x06),
)
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
# Offsets in struct seccomp_data. For arguments: the lower half, the only part that the kernel reads here.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: they type into another terminal
_X32 = 0x40000000
# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: confined to a network namespace, unlike AF_VSOCK.
_FAMILIES = (1, 2, 10, 16)
_SYS_SOCKET = 1
# Added in Linux 5.1 and later, with the same number on every architecture.
_NEWER = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
_NAMES = (
    *("mount", "umount2", "pivot_root", "unshare", "setns", "keyctl", "add_key", "request_key", "bpf"),
    *("perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load", "init_module", "finit_module"),
    *("delete_module", "reboot", "swapon", "swapoff", "acct", "quotactl", "open_by_handle_at"),
    *("settimeofday", "clock_settime", "lookup_dcookie", "nfsservctl"),
)


class ProbeResult(Struct, frozen=True):
    """The result of probing bubblewrap: `program` is its path if it works, else `problem` is the reason."""

    program: str | None
    problem: str = ""

    @property
    def remedy(self) -> str:
        return f"{self.problem}; {_REMEDY}"

    @property
    def warning(self) -> str:
        """The warning shown when commands run without isolation."""
        return f"commands are not isolated on this machine: {self.problem}; {_MEANING}; {_ADVICE}"


class BubblewrapProbe:
    """A cached check of whether bubblewrap works on this machine: installed, and namespaces allowed.

    Thread safety:
        Owner: the module, one for the process; any thread may share it.
        Lock: `_lock` guards the result. It is held during the probe, some milliseconds, so that concurrent
            callers share one result instead of probing themselves; they share a timeout, too.
        Guarantee: the probe runs once, and again only after a timeout: a slow machine must not disable
            isolation for good. `first_time` is True for one caller.
    Cancel safety: the next caller repeats an interrupted probe.
    """

    def __init__(self, name: str = "bwrap", *, seconds: float = _PROBE_SECONDS) -> None:
        self._name = name
        self._seconds = seconds
        self._lock = threading.Lock()
        self._result: ProbeResult | None = None
        self._late: ProbeResult | None = None
        self._told = False

    def result(self) -> ProbeResult:
        known = self._late
        with self._lock:
            if self._result is not None:
                return self._result
            late = self._late
            if late is not None and late is not known:  # guard: callers that waited share the timeout
                return late
            try:
                self._result = _try(self._name, self._seconds)
            except subprocess.TimeoutExpired as error:
                self._late = ProbeResult(None, f"bubblewrap cannot be run ({error})")
                return self._late
            return self._result

    def is_known_to_work(self) -> bool:
        """Return whether an earlier probe succeeded; never probe."""
        with self._lock:
            return self._result is not None and self._result.program is not None

    def first_time(self) -> bool:
        """Return True for the first caller, which then warns the user."""
        with self._lock:
            told, self._told = self._told, True
            return not told


def _try(name: str, seconds: float) -> ProbeResult:
    """Run the probe. Raises `subprocess.TimeoutExpired`."""
    found = look_up(name, os.environ.get("PATH", os.defpath))
    if found is None:
        return ProbeResult(None, "bubblewrap (bwrap) is not installed")
    program = str(found)
    try:
        done = _tried(program, _namespaces(network=False), seconds)
    except OSError as error:
        return ProbeResult(None, f"bubblewrap cannot be run ({error})")
    if done.returncode != 0:
        words = " ".join(done.stderr.decode("utf-8", "backslashreplace").split())
        return ProbeResult(None, f"bubblewrap does not work here ({words})")
    return ProbeResult(program)


def _tried(
    program: str, options: Iterable[str], seconds: float, passed: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [program, *options, *_system(network=False), "--", "true"],
        env={"PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=False,
        pass_fds=passed,
    )


def _namespaces(network: bool) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if os.geteuid() != 0:
        yield "--unshare-user"
    if not network:
        yield "--unshare-net"
    yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox")


def _system(network: bool) -> Iterator[str]:
    for path in _SYSTEM:
        yield from ("--ro-bind-try", path, path)
    for path in _OFTEN_LINKS:
        link = Path(path)
        if link.is_symlink():
            yield from ("--symlink", str(link.readlink()), path)
        else:
            yield from ("--ro-bind-try", path, path)
    for name in (*_ETC, *_NETWORK_ETC) if network else _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev")
    for name in _MACHINE:  # guard: root could make the kernel run a program outside (core_pattern)
        yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
    if is_directory(Path(_FORMATS)):
        yield from ("--tmpfs", _FORMATS, "--remount-ro", _FORMATS)
    for path in (TEMPORARY, f"/var{TEMPORARY}", HOME):
        yield from ("--tmpfs", path)


shared_probe = BubblewrapProbe()


@cache
def _can_disable_userns(program: str) -> bool:
    """Return whether bubblewrap can forbid user namespaces, in which a command would be root."""
    if _DISABLE_USERNS not in _help_of(program):
        return False
    options = [*_namespaces(network=False), *_NO_USERNS]
    with suppress(OSError, subprocess.SubprocessError):
        return _tried(program, options, _PROBE_SECONDS).returncode == 0
    return False


@cache
def seccomp_for(program: str) -> bytes | None:
    """Return the seccomp filter for commands; None if this bubblewrap or architecture does not support it."""
    wanted = filter_for() if "--seccomp" in _help_of(program) else None
    if wanted is None:
        return None
    with suppress(OSError, subprocess.SubprocessError), tempfile.TemporaryFile() as file:
        file.write(wanted)
        file.seek(0)
        options = [*_namespaces(network=False), "--seccomp", str(file.fileno())]
        tried = _tried(program, options, _PROBE_SECONDS, passed=(file.fileno(),))
        return wanted if tried.returncode == 0 else None
    return None


def hardening_of(program: str) -> list[str]:
    """Describe the protection of this bubblewrap beyond namespaces."""
    userns = "user namespaces disabled" if _can_disable_userns(program) else "user namespaces allowed"
    return [userns, "no seccomp filter" if seccomp_for(program) is None else "seccomp filter"]


@cache
def _help_of(program: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            [program, "--help"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        return asked.stdout + asked.stderr
    return ""


def arguments_for(
    command: Command,
    environment: dict[str, str],
    *,
    bubblewrap: str,
    program: Path,
    hidden: tuple[Path, ...],
    home: Path | None = None,
) -> list[str]:
    """Return bubblewrap's options for a command. Without `home`, its home directory is empty.

    The order matters, because later mounts cover earlier mounts.
    """
    tools = _tools(program, command.root, hidden)
    options = [*_namespaces(command.network)]
    if _can_disable_userns(bubblewrap):
        options += _NO_USERNS
    options += _system(command.network)
    if home is not None:
        options += ["--bind", str(home), HOME]
    for directory in tools:
        options += ["--ro-bind-try", str(directory), str(directory)]
    # guard: a tool's prefix may contain the checkout
    for place in _covered(hidden, [*tools, *_SYSTEM_PLACES]):
        options += ["--tmpfs", str(place)]
    options += _trees(command)
    options += ["--remount-ro", "/", "--chdir", str(command.directory), "--clearenv"]
    for name, value in environment.items():
        options += ["--setenv", name, value]
    return options


def is_visible(program: Path, *, root: Path, hidden: tuple[Path, ...]) -> bool:
    """Return whether an isolated command in the sandbox `root` sees this program."""
    shown = spellings((*_SYSTEM_PLACES, *_tools(program, root, hidden), root))
    return is_inside_spelled(program, shown)


def _tools(program: Path, root: Path, hidden: tuple[Path, ...]) -> list[Path]:
    """Return the directories outside the system that an isolated command sees besides its sandbox."""
    # guard: only our own PATH decides; a command or an agent can set any PATH
    trusted = [*search_path(os.environ.get("PATH", os.defpath), hidden=hidden, root=root)]
    trusted += [Path(sys.executable).parent, *installations(os.environ).values(), *interpreter_homes()]
    entries = [entry for entry in trusted if not any(map(entry.is_relative_to, _SYSTEM_PLACES))]
    shown = spellings((*_SYSTEM_PLACES, root))
    return [
        directory
        for directory in tool_directories(entries, program, root=root, forbidden=hidden)
        if not is_inside_spelled(directory, shown)
    ]


def _covered(hidden: Iterable[Path], shown: Iterable[Path]) -> Iterator[Path]:
    """Yield the hidden places that lie inside a visible directory, and must be covered."""
    spelled = spellings(shown)
    for place in dict.fromkeys(real_path(place) for place in hidden):
        if is_directory(place) and is_inside_spelled(place, spelled):
            yield place


def _trees(command: Command) -> Iterator[str]:
    """Yield the options for the mounts that the caller requested. Outer directories come first, because an
    inner mount must cover the outer mount.
    """
    trees = dict.fromkeys(spellings(command.readable), "--ro-bind-try")
    trees |= dict.fromkeys(spellings([command.root]), "--bind")
    for path in sorted(trees, key=lambda path: len(path.parts)):
        yield from (trees[path], str(path), str(path))


def _numbers(*numbers: int | None) -> Mapping[str, int]:
    known = zip(_NAMES, numbers, strict=True)
    return {name: number for name, number in known if number is not None} | _NEWER


class _Machine(Struct, frozen=True):
    """The system call numbers of an architecture."""

    audit: int
    clone: int
    ioctl: int
    socket: int
    denied: Mapping[str, int]
    has_x32: bool = False
    socketcall: int | None = None


_X86_64 = _Machine(
    audit=0xC000003E,
    clone=56,
    ioctl=16,
    socket=41,
    denied=_numbers(
        *(165, 166, 155, 272, 308, 250, 248, 249, 321),
        *(298, 323, 246, 320, 175, 313),
        *(176, 169, 167, 168, 163, 179, 304),
        *(164, 227, 212, 180),
    ),
    has_x32=True,
)
_I386 = _Machine(
    audit=0x40000003,
    clone=120,
    ioctl=54,
    socket=359,
    denied={
        **_numbers(
            *(21, 52, 217, 310, 346, 288, 286, 287, 357),
            *(336, 374, 283, None, 128, 350),
            *(129, 88, 87, 115, 51, 131, 342),
            *(79, 264, 253, 169),
        ),
        "umount": 22,
        "stime": 25,
        "vm86old": 113,
        "vm86": 166,
        "clock_settime64": 404,
    },
    socketcall=102,
)
_AARCH64 = _Machine(
    audit=0xC00000B7,
    clone=220,
    ioctl=29,
    socket=198,
    denied=_numbers(
        *(40, 39, 41, 97, 268, 219, 217, 218, 280),
        *(241, 282, 104, 294, 105, 273),
        *(106, 142, 224, 225, 89, 60, 265),
        *(170, 112, 18, 42),
    ),
)
_MACHINES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64,)}
_CLONE3 = 435


def filter_for(machine: str | None = None) -> bytes | None:
    """Return the filter in the kernel's format; None for an unsupported architecture."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    program = [_instruction(_LOAD, _ARCHITECTURE)]
    for one in known:
        section = list(_section(one))
        program += [
            _instruction(_JUMP_IF_EQUAL, one.audit, 1, 0),
            _instruction(_JUMP, len(section)),
            *section,
        ]
    program.append(_denial(errno.ENOSYS))  # guard: other architectures number their calls differently
    return b"".join(program)


def _section(machine: _Machine) -> Iterator[bytes]:
    yield _instruction(_LOAD, _NUMBER)
    if machine.has_x32:  # guard: x32 has the same calls under other numbers
        yield _instruction(_JUMP_IF_GREATER_OR_EQUAL, _X32, 0, 1)
        yield _denial(errno.ENOSYS)
    for number in machine.denied.values():
        yield from _deny_if(number, errno.EPERM)
    yield from _deny_if(_CLONE3, errno.ENOSYS)
    yield _instruction(_JUMP_IF_EQUAL, machine.clone, 0, 4)
    yield _instruction(_LOAD, _FIRST_ARGUMENT)
    yield _instruction(_JUMP_IF_ANY_BIT, _NEW_NAMESPACES, 0, 1)
    yield _denial(errno.EPERM)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_JUMP_IF_EQUAL, machine.socket, 0, 2 + 2 * len(_FAMILIES))
    yield _instruction(_LOAD, _FIRST_ARGUMENT)
    for family in _FAMILIES:
        yield _instruction(_JUMP_IF_EQUAL, family, 0, 1)
        yield _instruction(_RETURN, _ALLOW)
    yield _denial(errno.EAFNOSUPPORT)
    if machine.socketcall is not None:  # guard: the same call, with its family in memory that no filter sees
        yield _instruction(_JUMP_IF_EQUAL, machine.socketcall, 0, 4)
        yield _instruction(_LOAD, _FIRST_ARGUMENT)
        yield from _deny_if(_SYS_SOCKET, errno.EAFNOSUPPORT)
        yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_JUMP_IF_EQUAL, machine.ioctl, 0, 1 + 2 * len(_TERMINAL_INPUT))
    yield _instruction(_LOAD, _SECOND_ARGUMENT)
    for request in _TERMINAL_INPUT:
        yield from _deny_if(request, errno.EPERM)
    yield _instruction(_RETURN, _ALLOW)


def _deny_if(value: int, error: int) -> Iterator[bytes]:
    yield _instruction(_JUMP_IF_EQUAL, value, 0, 1)
    yield _denial(error)


def _denial(error: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | error)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
