"""The seccomp filter: the calls it denies on every architecture, and programs that work without them."""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes import bubblewrap as seccomp
from cleveragents.processes.bubblewrap import filter_for, hardening_of, seccomp_for, shared_probe
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import Command, CommandResult

ALLOWED = 0
X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
MACHINES = {
    "x86_64": [(X86_64, seccomp._X86_64), (I386, seccomp._I386)],
    "aarch64": [(AARCH64, seccomp._AARCH64)],
}
# Calls that every program needs: read, write, open, mmap, execve, ptrace, wait4, futex.
ORDINARY = {
    X86_64: (0, 1, 2, 9, 59, 101, 61, 202),
    I386: (3, 4, 5, 90, 11, 26, 114, 240),
    AARCH64: (63, 64, 56),
}
TIOCGWINSZ, TIOCSTI, TIOCLINUX = 0x5413, 0x5412, 0x541C
CLONE_THREAD_FLAGS, CLONE_NEWUSER, CLONE_NEWNS = 0x3D0F00, 0x10000000, 0x20000


def verdict(machine: str, arch: int, number: int, first: int = 0, second: int = 0) -> int:
    """Return the filter's error for a call; 0 if it is allowed. A small BPF interpreter."""
    program = filter_for(machine)
    assert program is not None
    data = struct.pack("=IIQQQQQQQ", number & 0xFFFFFFFF, arch, 0, first, second, 0, 0, 0, 0)
    instructions = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x05:
            at += value
        elif code == 0x06:
            return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += if_true if holds else if_false


def denied() -> Iterator[tuple[str, int, str, int]]:
    for machine, ways in MACHINES.items():
        for arch, way in ways:
            for name, number in way.denied.items():
                yield machine, arch, name, number


@pytest.mark.parametrize(("machine", "arch", "name", "number"), list(denied()))
def test_denies_calls_that_no_build_needs(machine: str, arch: int, name: str, number: int) -> None:
    assert verdict(machine, arch, number) == errno.EPERM


@pytest.mark.parametrize(
    ("machine", "arch", "way"), [(machine, *way) for machine, ways in MACHINES.items() for way in ways]
)
def test_allows_other_calls_but_no_namespaces_and_no_terminal_input(
    machine: str, arch: int, way: seccomp._Machine
) -> None:
    assert [verdict(machine, arch, number) for number in ORDINARY[arch]] == [ALLOWED] * len(ORDINARY[arch])
    assert verdict(machine, arch, way.clone, first=CLONE_THREAD_FLAGS) == ALLOWED
    for flag in (CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWUSER | CLONE_THREAD_FLAGS):
        assert verdict(machine, arch, way.clone, first=flag) == errno.EPERM
    assert verdict(machine, arch, 435) == errno.ENOSYS, "clone3"
    assert verdict(machine, arch, way.ioctl, second=TIOCGWINSZ) == ALLOWED
    for request in (TIOCSTI, TIOCLINUX, TIOCSTI | 1 << 32):
        assert verdict(machine, arch, way.ioctl, second=request) == errno.EPERM


@pytest.mark.parametrize(
    ("machine", "arch", "way"), [(machine, *way) for machine, ways in MACHINES.items() for way in ways]
)
def test_allows_only_sockets_of_the_network_namespace(machine: str, arch: int, way: seccomp._Machine) -> None:
    """AF_VSOCK and others belong to no network namespace."""
    families = {family: verdict(machine, arch, way.socket, first=family) for family in range(64)}
    assert {family for family, error in families.items() if error == ALLOWED} == {1, 2, 10, 16}
    assert {error for error in families.values() if error} == {errno.EAFNOSUPPORT}
    assert verdict(machine, arch, way.socket, first=40 | 1 << 32) == errno.EAFNOSUPPORT
    if way.socketcall is not None:
        assert verdict(machine, arch, way.socketcall, first=1) == errno.EAFNOSUPPORT, (
            "its family is in memory"
        )
        assert verdict(machine, arch, way.socketcall, first=3) == ALLOWED, "connect"


def test_alternative_calling_conventions_are_denied() -> None:
    mount = seccomp._X86_64.denied["mount"]
    assert verdict("x86_64", X86_64, 0x40000000 | mount) == errno.ENOSYS, "x32"
    assert verdict("aarch64", ARM, 21) == errno.ENOSYS
    assert verdict("x86_64", AARCH64, 40) == errno.ENOSYS


def test_an_unknown_architecture_gets_no_filter() -> None:
    assert filter_for("riscv64") is None


needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)


def run(root: Path, script: str) -> CommandResult:
    runner = GuardedCommandRunner(isolation="required")
    return runner.run(Command(("/bin/sh", "-c", script), root, root, timeout_seconds=60), CancellationToken())


@needs_bubblewrap
def test_an_isolated_command_has_the_filter_and_no_user_namespaces(tmp_path: Path) -> None:
    program = shared_probe.result().program
    assert program is not None
    filtered = seccomp_for(program) is not None
    assert filtered or platform.machine() not in MACHINES
    result = run(tmp_path, "grep ^Seccomp: /proc/self/status; unshare -U true || echo refused")
    assert ("Seccomp:\t2" in result.output) == filtered
    if hardening_of(program) != ["user namespaces allowed", "no seccomp filter"]:
        assert "refused" in result.output


@needs_bubblewrap
def test_threads_and_processes_work_under_the_filter(tmp_path: Path) -> None:
    script = "(sleep 0.01 & wait; echo child) | cat; git init -q x && git -C x status --short && echo git"
    result = run(tmp_path, script)
    assert result.exit_code == 0, result.output
    assert result.output.split() == ["child", "git"]


@needs_bubblewrap
@pytest.mark.parametrize("network", [False, True])
def test_an_isolated_command_has_only_sockets_of_its_network(tmp_path: Path, network: bool) -> None:
    program = shared_probe.result().program
    if program is None or seccomp_for(program) is None:
        pytest.skip("no filter here")
    script = """
import errno, socket
for family in (1, 2, 10, 16, 17, 31, 38, 40):
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
    except OSError as error:
        print(family, errno.errorcode[error.errno])
"""
    (tmp_path / "script.py").write_text(script)
    runner = GuardedCommandRunner(isolation="required")
    command = Command(("python3", "script.py"), tmp_path, tmp_path, timeout_seconds=60, network=network)
    told = runner.run(command, CancellationToken()).output
    refused = [line for line in told.splitlines() if line != "10 EAFNOSUPPORT"]  # a machine without IPv6
    assert refused == [f"{family} EAFNOSUPPORT" for family in (17, 31, 38, 40)]
