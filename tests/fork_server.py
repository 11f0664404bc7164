"""Test programs in separate processes, forked from one that has imported their modules.

Starting a process takes a few milliseconds; importing a database, a bus and a graph takes most of a second,
and suites that kill processes start hundreds. So one process, the nursery, imports all of it and forks for
each `Forked`, which is a `subprocess.Popen` and a real child of its creator. It runs `python -m MODULE` from
the first line on, with its own descriptors, environment and directory, and with its own session if requested.

Without a nursery (outside of `nursery`, or on a system without `clone3`) each program is started normally.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import errno
import gc
import importlib
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.short_stacks import keep_short_stacks

__all__ = ["COMMANDS", "Forked", "is_nursery", "keep_nursery", "nursery", "ran"]

ROOT = Path(__file__).parents[1]
COMMANDS = "tests.preimport"
"""The modules that a nursery must import for `agents` commands."""
_SYS_CLONE3 = 435  # on every architecture
_CLONE_PARENT = 0x8000
_LARGEST = 1 << 20
_libc = ctypes.PyDLL(None, use_errno=True)
_asked: socket.socket | None = None
_asking = threading.Lock()  # the next number from the nursery answers the last order
# Options of `Popen` that a fork does not support, with their defaults.
_UNHEARD: dict[str, object] = {"pass_fds": (), "close_fds": True, "shell": False, "restore_signals": True}
_UNHEARD |= dict.fromkeys(("executable", "preexec_fn", "gid", "gids", "uid", "umask", "process_group"))
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_nursery = 0


@contextmanager
def nursery(modules: Sequence[str]) -> Iterator[None]:
    """Fork each `Forked` in this block from a process that has imported these modules."""
    global _asked, _nursery
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.fork_server", str(there.fileno()), *modules]
    with here, subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[there.fileno()]) as process:
        there.close()
        _nursery = process.pid
        _asked = here if here.recv(_LARGEST) == b"ready" else None
        try:
            yield
        finally:
            _asked = None
            here.close()
            process.wait(240)


def is_nursery(pid: int) -> bool:
    """Return whether this child is the nursery shared by all tests."""
    return pid == _nursery


def keep_nursery(modules: Sequence[str]) -> None:
    """Start a nursery that lives as long as this process, if there is none."""
    if _asked is None:
        stack = ExitStack()
        stack.enter_context(nursery(modules))
        atexit.register(stack.close)


class Forked(subprocess.Popen[Any]):
    """`[python, "-m", module, argument…]`, forked from the nursery if there is one.

    Raises `ValueError` for options of `Popen` that a fork does not support.
    """

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments
        words = list(asked["args"])
        if words[:2] == [sys.executable, "-m"]:
            # With or without a nursery, so that both behave alike.
            unheard = [name for name, usual in _UNHEARD.items() if asked[name] not in (usual, None, -1)]
            if unheard:
                raise ValueError(f"a fork would not have: {', '.join(unheard)}")
        if _asked is None or words[:2] != [sys.executable, "-m"]:
            super()._execute_child(*given)
            return
        ends = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        order = {
            "words": words[2:],
            "directory": str(asked["cwd"] or Path.cwd()),
            "environment": dict(os.environ if asked["env"] is None else asked["env"]),
            "alone": bool(asked["start_new_session"]),
        }
        kept = [end if end != -1 else own for own, end in enumerate(ends)]
        try:
            with _asking:
                socket.send_fds(_asked, [json.dumps(order).encode()], kept)
                pid = int(_asked.recv(_LARGEST))
            if pid <= 0:  # a signal to a pid below one goes to many processes, or to all
                raise OSError(-pid, os.strerror(-pid))
            self.pid = pid
            self._child_created = True
        finally:
            self._close_pipe_fds(*[asked[name] for name in _PIPES])


def ran(command: Sequence[str], said: str = "", *, timeout: float, **options: Any) -> tuple[int, str, str]:
    """Run the program with this input; return its exit code and output."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Forked(command, **pipes, **options) as process:
        try:
            out, err = process.communicate(said, timeout=timeout)
        finally:
            process.kill()
    return process.returncode, out, err


def _fork_for_the_parent() -> int:
    """Fork like `os.fork`, but as a child of this process's parent, which waits for it and kills it.

    Returns the negative error number if the system refuses.
    """
    ctypes.pythonapi.PyOS_BeforeFork()
    # Its flags; all other fields are zero.
    pid = _clone3(array.array("Q", [_CLONE_PARENT, *[0] * 7]))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid if pid >= 0 else -ctypes.get_errno()


def _clone3(arguments: array.array[int]) -> int:
    address, length = arguments.buffer_info()
    size = ctypes.c_size_t(length * arguments.itemsize)
    # Not `CDLL`, which releases the interpreter's lock: the child must hold it.
    return int(_libc.syscall(ctypes.c_long(_SYS_CLONE3), ctypes.c_void_p(address), size))


def _can_fork() -> bool:
    """Return whether the system supports the call at all."""
    _clone3(array.array("Q"))
    return ctypes.get_errno() == errno.EINVAL


def _serve(asked: socket.socket) -> list[str]:
    """Fork for each order until the pipe closes. In a child, return its program."""
    while True:
        data, ends, _, _ = socket.recv_fds(asked, _LARGEST, 3)
        if not data:
            return []
        pid = _fork_for_the_parent()
        if pid == 0:
            asked.close()
            order = json.loads(data)
            for own, end in enumerate(ends):
                os.dup2(end, own)
            _close(ends)
            os.environ.clear()
            os.environ.update(order["environment"])
            os.chdir(order["directory"])
            if order["alone"]:
                os.setsid()
            words: list[str] = order["words"]
            return words
        _close(ends)
        asked.send(str(pid).encode())


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _run(words: list[str]) -> None:
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv = words
    sys.path[0] = str(Path.cwd())
    # The main module is created again; an import under its own name gets a separate copy.
    sys.modules.pop(words[0], None)
    code: object = None
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
        if not isinstance(code, int | None):
            raise
    # Tearing down all imported modules would write to them, and so copy the memory shared with the nursery.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def main(descriptor: str, *modules: str) -> None:
    keep_short_stacks()
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(descriptor)) as asked:
        asked.send(b"ready" if _can_fork() else b"cannot")
        words = _serve(asked)
    if words:
        _run(words)


if __name__ == "__main__":
    main(*sys.argv[1:])
