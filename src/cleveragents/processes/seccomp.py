"""The system calls that an isolated command does without: a seccomp filter for bubblewrap.

Assembled here, as classic BPF, for x86-64 (32-bit programs included) and 64-bit ARM; other machines get none.
A command needs none of these calls to build and test software, and flaws of the kernel are found in many of
them. A denied call fails with EPERM; `clone3`, whose flags a filter cannot see, fails with ENOSYS, upon which
the C library calls `clone`. A socket of a family that no network namespace holds fails with EAFNOSUPPORT.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["filter_for"]

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
