"""When the environment of a process can be determined."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cleveragents.processes.process_tree import environment_of, marked

PID = 4711
KERNEL_THREAD, EXITING = 0x200000, 0x4


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., bytes | None]:
    """Return the result for an environment that reads as empty, with this stat data from the kernel."""

    def tell(
        *,
        state: str = "R",
        flags: int = 0,
        threads: int = 1,
        code_ends: int = 9,
        environment: tuple[int, int],
    ) -> bytes | None:
        fields = ["0"] * 50
        fields[0], fields[6], fields[17], fields[24] = state, str(flags), str(threads), str(code_ends)
        fields[47], fields[48] = map(str, environment)
        place = tmp_path / str(PID)
        for thread in (place, place / "task" / str(PID)):
            thread.mkdir(parents=True, exist_ok=True)
            (thread / "environ").write_bytes(b"")
        (place / "stat").write_text(f"{PID} (a) R (name) {' '.join(fields)}\n")
        for other in range(1, threads):
            thread = place / "task" / str(PID + other)
            thread.mkdir()
            (thread / "environ").write_bytes(b"A=1\0B=2\0")
        return environment_of(PID, str(tmp_path))

    return tell


def test_the_environment_is_unknown_during_an_exec(told: Callable[..., bytes | None]) -> None:
    assert told(code_ends=0, environment=(0, 0)) is None


def test_the_environment_is_unknown_while_it_is_copied(told: Callable[..., bytes | None]) -> None:
    assert told(code_ends=0, environment=(5, 5)) is None


def test_the_environment_is_unknown_if_an_exec_ended_during_the_read(
    told: Callable[..., bytes | None],
) -> None:
    assert told(environment=(5, 7)) is None


@pytest.mark.parametrize(
    "facts",
    [
        {"environment": (5, 5)},
        {"flags": KERNEL_THREAD, "code_ends": 0, "environment": (0, 0)},
        {"state": "Z", "code_ends": 0, "environment": (0, 0)},
        {"flags": EXITING, "code_ends": 0, "environment": (0, 0)},
    ],
    ids=["given none", "part of the kernel", "zombie", "exiting"],
)
def test_an_empty_environment_is_recognized(
    told: Callable[..., bytes | None], facts: dict[str, object]
) -> None:
    environment = told(**facts)
    assert environment is not None
    assert environment.strip(b"\0") == b""


@pytest.mark.parametrize("facts", [{"state": "Z"}, {"flags": EXITING}], ids=["zombie", "exiting"])
def test_another_thread_provides_it_after_the_first_has_ended(
    told: Callable[..., bytes | None], facts: dict[str, object]
) -> None:
    environment = told(**facts, threads=2, code_ends=0, environment=(0, 0))
    assert environment == b"\0A=1\0B=2\0\0"


def test_a_long_environment_is_read_completely(tmp_path: Path) -> None:
    place = tmp_path / str(PID)
    place.mkdir()
    whole = b"A=" + b"x" * 200_000 + b"\0B=2"
    (place / "environ").write_bytes(whole)
    assert environment_of(PID, str(tmp_path)) == b"\0" + whole + b"\0"


@contextmanager
def sleeping(**environment: str) -> Iterator[int]:
    """Yield a process that sleeps for the duration of the block. It may still be in its exec."""
    with subprocess.Popen(["sleep", "1000"], env=environment) as child:
        try:
            yield child.pid
        finally:
            child.kill()


def told_at_last(pid: int) -> bytes:
    return next(told for told in iter(lambda: environment_of(pid), b"") if told is not None)


def test_a_real_processs_environment_is_read() -> None:
    with sleeping(A="1") as given, sleeping() as none:
        assert told_at_last(given) == b"\0A=1\0\0"
        assert told_at_last(none).strip(b"\0") == b""


@pytest.mark.parametrize("known", [[False] * 30, [True, *[False] * 30]], ids=["at first", "when read again"])
def test_waits_for_a_process_during_an_exec(known: list[bool]) -> None:
    with sleeping(A="1") as child:
        answers = iter(known)

        def tell(pid: int) -> bytes | None:
            if pid == child and not next(answers, True):
                return None
            return environment_of(pid)

        assert list(marked("A", "1", environment_of=tell)) == [child]


def test_does_not_wait_for_a_process_without_environment() -> None:
    """Like kernel threads, of which there are many."""
    asked: list[int] = []
    me = os.getpid()

    def tell(pid: int) -> bytes | None:
        if pid == me:
            asked.append(pid)
        return b""

    assert marked("A", "1", environment_of=tell) == {}
    assert asked == [me]
    assert psutil.pid_exists(me)
