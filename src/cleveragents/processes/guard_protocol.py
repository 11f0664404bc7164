"""The messages between a command's guard and its caller: one line of JSON each way."""

from __future__ import annotations

from typing import NotRequired, TypedDict

__all__ = ["GuardProgram", "GuardReport"]


class GuardProgram(TypedDict):
    """The first line on the control pipe.

    `executable` runs with `argv`. `arguments`, if not None, go to bubblewrap in a file, since every user can
    read a command line. `markers` are in the guard's own environment. The guard removes `private` and
    `cgroup` if the caller dies. Standard error goes to `errors`, by default to `output`. The command is ended
    if it has more than `processes` processes. The command joins `cgroup`. `seccomp` is the filter for
    bubblewrap, in hexadecimal.
    """

    executable: str
    argv: list[str]
    arguments: list[str] | None
    environment: dict[str, str]
    markers: dict[str, str]
    directory: str
    output: int
    input: int
    timeout_seconds: float
    grace_seconds: float
    parent: int
    path: list[str]
    private: str | None
    processes: NotRequired[int | None]
    errors: NotRequired[int]
    cgroup: NotRequired[str | None]
    seccomp: NotRequired[str | None]


class GuardReport(TypedDict):
    """The report after all processes have ended. `cause` is why the guard ended the command, if it did."""

    code: int | None
    cause: str | None
    refused: str | None
