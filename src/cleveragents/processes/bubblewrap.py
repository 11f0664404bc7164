"""bubblewrap: what a command sees when it is isolated, and whether that works on this machine.

The command sees the system's directories read-only, a home and a /tmp that are empty and its own, the
programs of its PATH, what the caller says it may read, and the sandbox, which alone it can write. It has its
own process numbers, and no network unless asked for. What /proc shows of the machine it can read and not
write, even as root.

Where bubblewrap can, it makes no further user namespaces and has a seccomp filter, which leaves out system
calls that no build needs.

What is not kept from it: the kernel's other interfaces, processor time, memory and disk space; the names
in /etc/passwd; with `network`, whatever listens on this machine, abstract sockets included.

The system calls that an isolated command does without: a seccomp filter for bubblewrap.

Assembled here, as classic BPF, for x86-64 (32-bit programs included) and 64-bit ARM; other machines get none.
A command needs none of these calls to build and test software, and flaws of the kernel are found in many of
them. A denied call fails with EPERM; `clone3`, whose flags a filter cannot see, fails with ENOSYS, upon which
the C library calls `clone`. A socket of a family that no network namespace holds fails with EAFNOSUPPORT.
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
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cleveragents.processes.environment import (
    installations,
    is_directory,
    is_inside_spelled,
    real_path,
    search_path,
    spellings,
)
from cleveragents.processes.ports import Command
from cleveragents.processes.program_lookup import interpreter_homes, look_up, tool_directories

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
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf"),
    *("localtime", "timezone", "locale.alias", "locale.conf", "os-release", "lsb-release", "debian_version"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust", "crypto-policies", "ca-certificates"),
    *("mime.types", "protocols", "services", "hosts", "host.conf", "gai.conf", "terminfo", "fonts", "perl"),
    *("java", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "maven"),
)
_NETWORK_ETC = ("resolv.conf",)
# What belongs to the machine in /proc. Its files ask for root's number, not for a capability, and bubblewrap
# covers only those whose directory looks writable.
_MACHINE = (
    *("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "asound", "driver", "dynamic_debug"),
    *("mtrr", "pressure", "latency_stats", "timer_stats", "slabinfo"),
)
# Programs named there run outside. The directory may be one that is mounted, writable, when it is looked at.
_FORMATS = "/proc/sys/fs/binfmt_misc"
_PROBE_SECONDS = 60.0
_DISABLE_USERNS = "--disable-userns"
_NO_USERNS = ("--unshare-user", _DISABLE_USERNS)
_MEANING = "they can read and change whatever you can, and use the network"
_ADVICE = "install bubblewrap and allow user namespaces"
_REMEDY = "install bubblewrap and allow user namespaces, or set sandbox.isolation to auto or off"

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_GREATER_OR_EQUAL, _JUMP_IF_ANY_BIT, _JUMP, _RETURN = (
    *(0x20, 0x15, 0x35, 0x45),
    *(0x05, 0x06),
)
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
# Offsets in struct seccomp_data; of arguments the lower half, which is all that the kernel reads of these.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into the terminal of somebody else
_X32 = 0x40000000
# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: a network namespace holds these, and AF_VSOCK is outside of any.
_FAMILIES = (1, 2, 10, 16)
_SYS_SOCKET = 1
# Of kernels since 5.1, the same on every machine.
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


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`program` is where bubblewrap is, if it works; else `problem` says why it does not."""

    program: str | None
    problem: str = ""

    @property
    def remedy(self) -> str:
        return f"{self.problem}; {_REMEDY}"

    @property
    def warning(self) -> str:
        """For who runs commands all the same."""
        return f"commands are not isolated on this machine: {self.problem}; {_MEANING}; {_ADVICE}"


class BubblewrapProbe:
    """Finds out once whether bubblewrap works here: it may be missing, or namespaces be forbidden.

    Thread safety:
        Owner: the module, one for the process; any thread may share it.
        Lock: `_lock` guards the answer. It is held while bubblewrap is tried, some milliseconds, so that all
            who ask meanwhile get the same answer instead of trying themselves; also that it was too slow.
        Guarantee: it is tried once, and again only if it did not answer in time: a slow machine is no reason
            to isolate nothing from then on. `first_time` is True for one caller.
    Cancel safety: an interrupted try is made again by the next caller.
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
            if late is not None and late is not known:  # guard: many who wait do not wait for each other
                return late
            try:
                self._result = _try(self._name, self._seconds)
            except subprocess.TimeoutExpired as error:
                self._late = ProbeResult(None, f"bubblewrap cannot be run ({error})")
                return self._late
            return self._result

    def is_known_to_work(self) -> bool:
        """Whether somebody has found out that it does; nothing is tried."""
        with self._lock:
            return self._result is not None and self._result.program is not None

    def first_time(self) -> bool:
        """True once: for the one who tells the user."""
        with self._lock:
            told, self._told = self._told, True
            return not told


def _try(name: str, seconds: float) -> ProbeResult:
    """`TimeoutExpired`."""
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
    for name in _MACHINE:  # guard: root could have the kernel run a program outside (core_pattern)
        yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
    if is_directory(Path(_FORMATS)):
        yield from ("--tmpfs", _FORMATS, "--remount-ro", _FORMATS)
    for path in (TEMPORARY, f"/var{TEMPORARY}", HOME):
        yield from ("--tmpfs", path)


shared_probe = BubblewrapProbe()


@cache
def _can_disable_userns(program: str) -> bool:
    """Whether a command can be kept from making user namespaces, in which it would be root; tried once."""
    if _DISABLE_USERNS not in _help_of(program):
        return False
    options = [*_namespaces(network=False), *_NO_USERNS]
    with suppress(OSError, subprocess.SubprocessError):
        return _tried(program, options, _PROBE_SECONDS).returncode == 0
    return False


@cache
def seccomp_for(program: str) -> bytes | None:
    """The filter that commands get; None where this bubblewrap or this machine takes none. Tried once."""
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
    """What this bubblewrap does beyond namespaces, in words."""
    userns = "no user namespaces inside" if _can_disable_userns(program) else "user namespaces inside"
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
    """bubblewrap's options for this command, whose home is an empty one unless there is a directory for it.
    Later ones lie over earlier ones, hence the order."""
    system = tuple(map(Path, (*_SYSTEM, *_OFTEN_LINKS)))
    # guard: only our own PATH decides, for a command or an agent can bring any
    trusted = [*search_path(os.environ.get("PATH", os.defpath), hidden=hidden, root=command.root)]
    trusted += [Path(sys.executable).parent, *installations(os.environ).values(), *interpreter_homes()]
    entries = [entry for entry in trusted if not any(entry.is_relative_to(place) for place in system)]
    shown = spellings((*system, command.root))
    tools = [
        directory
        for directory in tool_directories(entries, program, root=command.root, forbidden=hidden)
        if not is_inside_spelled(directory, shown)
    ]
    options = [*_namespaces(command.network)]
    if _can_disable_userns(bubblewrap):
        options += _NO_USERNS
    options += _system(command.network)
    if home is not None:
        options += ["--bind", str(home), HOME]
    for directory in tools:
        options += ["--ro-bind-try", str(directory), str(directory)]
    # guard: a tool's prefix may have the checkout somewhere below it
    for place in _covered(hidden, [*tools, *system]):
        options += ["--tmpfs", str(place)]
    options += _trees(command)
    options += ["--remount-ro", "/", "--chdir", str(command.directory), "--clearenv"]
    for name, value in environment.items():
        options += ["--setenv", name, value]
    return options


def _covered(hidden: Iterable[Path], shown: Iterable[Path]) -> Iterator[Path]:
    """The hidden places that could be seen through what is shown."""
    spelled = spellings(shown)
    for place in dict.fromkeys(real_path(place) for place in hidden):
        if is_directory(place) and is_inside_spelled(place, spelled):
            yield place


def _trees(command: Command) -> Iterator[str]:
    """What the caller asked for, outer directories first, since an inner one lies over its outer one."""
    trees = dict.fromkeys(spellings(command.readable), "--ro-bind-try")
    trees |= dict.fromkeys(spellings([command.root]), "--bind")
    for path in sorted(trees, key=lambda path: len(path.parts)):
        yield from (trees[path], str(path), str(path))


def _numbers(*numbers: int | None) -> Mapping[str, int]:
    known = zip(_NAMES, numbers, strict=True)
    return {name: number for name, number in known if number is not None} | _NEWER


@dataclass(frozen=True, slots=True)
class _Machine:
    """A way to make system calls, by the number that the kernel knows it by."""

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
    """The filter as the kernel takes it; None for a machine that it is not known for."""
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
    program.append(_denial(errno.ENOSYS))  # guard: another machine's numbers mean other calls
    return b"".join(program)


def _section(machine: _Machine) -> Iterator[bytes]:
    yield _instruction(_LOAD, _NUMBER)
    if machine.has_x32:  # guard: the same calls under other numbers
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
    if machine.socketcall is not None:  # guard: the same call, with its family where no filter sees it
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
