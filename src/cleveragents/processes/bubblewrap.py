"""bubblewrap: what a command sees when it is isolated, and whether that works on this machine.

The command sees the system's directories read-only, a home and a /tmp that are empty and its own, the
programs of its PATH, what the caller says it may read, and the sandbox, which alone it can write. It has its
own process numbers, and no network unless asked for. What /proc shows of the machine it can read and not
write, even as root.

Where bubblewrap can, it makes no further user namespaces and has a seccomp filter, which leaves out system
calls that no build needs.

What is not kept from it: the kernel's other interfaces, processor time, memory and disk space; the names
in /etc/passwd; with `network`, whatever listens on this machine, abstract sockets included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
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
from cleveragents.processes.program_lookup import look_up
from cleveragents.processes.seccomp import filter_for
from cleveragents.processes.tool_directories import interpreter_homes, tool_directories

__all__ = [
    "HOME",
    "TEMPORARY",
    "BubblewrapProbe",
    "arguments_for",
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
_REMEDY = "install bubblewrap and allow user namespaces, or set isolation to 'auto' or 'off'"


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


shared_probe = BubblewrapProbe()


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
