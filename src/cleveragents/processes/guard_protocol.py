"""What goes down the control pipe of a command's guard, and what comes back: a line of JSON each."""

from __future__ import annotations

from typing import NotRequired, TypedDict

__all__ = ["GuardProgram", "GuardReport"]


class GuardProgram(TypedDict):
    """The first line of the control pipe.

    `executable` is run with `argv`. `arguments`, if not None, are handed to it (to bubblewrap) in a file,
    since a command line can be read by everybody. `markers` are in the guard's own environment. `private`
    is removed if the caller cannot do it. What it complains of goes to `errors`, if that is said, and else
    to `output`. With more than `processes` at once, if it is said, the command is ended. The command joins
    `cgroup`, if there is one, and the guard removes it if the caller cannot. `seccomp` is the filter that
    bubblewrap installs, in hexadecimal.
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
    """The one line back, when no process is left. `cause` is why the guard ended it, if it did."""

    code: int | None
    cause: str | None
    refused: str | None
