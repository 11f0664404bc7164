"""Programs started as forks are ordinary processes, and children of their starter."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import fork_server
from tests.fork_server import Forked, ran
from tests.observable_lock import TellingLock

PROGRAM = """\
import json, os, sys
told = {"pid": os.getpid(), "parent": os.getppid(), "at": os.getcwd(), "here": dict(os.environ)}
told |= {"words": sys.argv[1:], "read": sys.stdin.read(), "name": __name__}
told |= {"open": os.listdir("/proc/self/fd")}
print(json.dumps(told))
sys.stderr.write("said")
sys.exit(int(sys.argv[1]))
"""


def test_a_fork_has_its_own_arguments_environment_directory_and_descriptors(tmp_path: Path) -> None:
    (tmp_path / "forked_program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "forked_program", "7", "two words"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    code, out, err = ran(command, "typed", timeout=60, cwd=tmp_path, env=environment)
    told = json.loads(out)
    assert (code, err) == (7, "said")
    assert told["parent"] == os.getpid()
    assert told["words"] == ["7", "two words"]
    assert (told["read"], told["name"]) == ("typed", "__main__")
    assert told["at"] == str(tmp_path)
    assert told["here"].keys() - {"LC_CTYPE"} == environment.keys()
    assert len(told["open"]) == 4  # its three, and the one that lists them
    assert not psutil.pid_exists(told["pid"])


def test_a_failed_or_killed_fork_ends_like_a_program() -> None:
    code, _, err = ran([sys.executable, "-m", "no_such_module"], timeout=60)
    assert code == 1
    assert "no_such_module" in err
    for number in (signal.SIGKILL, signal.SIGTERM):
        command = [sys.executable, "-m", "json.tool"]
        with Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            child.send_signal(number)
            assert child.wait(60) == -number


def test_a_refused_fork_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill without a valid pid would kill every process."""
    here, nursery = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, nursery:
        monkeypatch.setattr(fork_server, "_asked", here)
        nursery.send(b"-11")
        with pytest.raises(BlockingIOError):
            Forked([sys.executable, "-m", "json.tool"], stdin=subprocess.PIPE)


@pytest.mark.parametrize(
    "asked",
    [
        {"pass_fds": (2,)},
        {"preexec_fn": print},
        {"umask": 0},
        {"close_fds": False},
        {"executable": "/bin/sh"},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_unsupported_options_of_a_fork_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(asked))):
        Forked([sys.executable, "-m", "json.tool"], stdin=subprocess.PIPE, **asked)


def test_concurrent_forks_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second starts after the first order and before its answer: it waits, or has its order sent."""
    went_on = threading.Event()
    orders: list[str] = []
    begun: dict[str, int] = {}

    class Nursery:
        """Answers orders in turn, with a number that identifies the order."""

        def sendmsg(self, data: list[bytes], *_: object) -> None:
            word = json.loads(data[0])["words"][0]
            orders.append(word)
            if word == "first":
                second.start()
                assert went_on.wait(60)
                if len(orders) > 1:  # an order that did not wait is answered first
                    orders.reverse()
                    second.join(60)
            else:
                went_on.set()

        def recv(self, _: int) -> bytes:
            return b"41" if orders.pop(0) == "first" else b"42"

    def begin(word: str) -> None:
        process = Forked([sys.executable, "-m", word])
        begun[word] = process.pid
        process.returncode = 0  # there is no process

    second = threading.Thread(target=begin, args=("second",))
    monkeypatch.setattr(fork_server, "_asked", Nursery())
    monkeypatch.setattr(fork_server, "_asking", TellingLock(went_on), raising=False)
    begin("first")
    second.join(60)
    assert begun == {"first": 41, "second": 42}
