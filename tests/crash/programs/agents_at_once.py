"""`python -m tests.crash.programs.agents_at_once`: concurrent command lines of `agents`, each in its own
process.

Each line of its input is a JSON list of orders: `directory`, `environment`, `arguments`. All of them start
together; the answer is one line with the exit code, output and errors of each. The processes are forked, so
that the imports happen once; each runs the program from its entry point.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from typing import Any, BinaryIO

from cleveragents.cli import main as entry


def _child(order: dict[str, Any], gate: int, out: BinaryIO, err: BinaryIO) -> None:
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.argv = ["agents", *order["arguments"]]
    os.read(gate, 1)  # returns when the other side is closed, for all at the same moment
    entry.run()


def _fork(order: dict[str, Any], gate: int, other: int, out: BinaryIO, err: BinaryIO) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.close(other)
        _child(order, gate, out, err)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(pid: int, out: BinaryIO, err: BinaryIO) -> dict[str, object]:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    texts = []
    for file in (out, err):
        file.seek(0)
        texts.append(file.read().decode(errors="replace"))
    return {"code": code, "out": texts[0], "err": texts[1]}


def _at_once(orders: list[dict[str, Any]]) -> list[dict[str, object]]:
    with ExitStack() as files:
        gate, other = os.pipe()
        children = []
        for order in orders:
            out = files.enter_context(tempfile.TemporaryFile())
            err = files.enter_context(tempfile.TemporaryFile())
            children.append((_fork(order, gate, other, out, err), out, err))
        os.close(gate)
        os.close(other)
        return [_ended(*child) for child in children]


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    importlib.import_module("tests.preimport")
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_at_once(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
