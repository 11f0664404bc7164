"""The cost of short commands from start to exit: CPU seconds of all their processes.

    python -m benchmarks.startup [--rounds 9] [AGENTS …]

`AGENTS` are `agents` programs, run in turn in the same rounds: those of two checkouts compare two versions.
The default is the one next to this interpreter. Each has its own home and a repository of 25 files. In a
round, each runs a command as a plan, applies it, undoes it and lists the plans. The floors are an interpreter
that starts and does nothing, and one that imports click and SQLAlchemy. The output is the medians in seconds,
and relative to the second floor. User and system time count, including orphans, which become child processes
of the benchmark.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

__all__ = ["main"]

_FILES = 25
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_FLOOR = "import click, sqlalchemy"
_FLOORS = {"python -c pass": "pass", f"python -c {_FLOOR!r}": _FLOOR}
_OWN = ("CLEVERAGENTS_", "XDG_", "GIT_", "PYTHON")


class _Machine:
    """A home, a repository, and the `agents` program that is used there."""

    def __init__(self, place: Path, program: Path) -> None:
        self._program = str(program)
        self._python = str(program.parent / "python")
        self._repository = place / "repository"
        self._repository.mkdir(parents=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        self._environment = {**inherited, "HOME": str(place)}
        for number in range(_FILES):
            (self._repository / f"file{number}.txt").write_text(f"colour {number}\n" * 40, encoding="utf-8")
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid")
        for arguments in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "begin")):
            self._cpu(["git", *arguments])

    def round(self) -> dict[str, float]:
        """Run each command once and return its CPU seconds."""
        command = ("sed", "-i", "s/colour/color/", "file1.txt")
        found = {name: self._cpu([self._python, "-c", text])[0] for name, text in _FLOORS.items()}
        found["agents --help"] = self._cpu([self._program, "--help"])[0]
        run = ("run", "--action", "builtin/command", "--review", "--format", "json", "--", *command)
        found["agents run"], told = self._cpu([self._program, *run])
        plan = json.loads(told)["id"]
        found["agents plan apply"] = self._cpu([self._program, "plan", "apply", plan])[0]
        found["agents plan undo"] = self._cpu([self._program, "plan", "undo", plan])[0]
        found["agents plan list"] = self._cpu([self._program, "plan", "list"])[0]
        return found

    def _cpu(self, command: Sequence[str]) -> tuple[float, str]:
        """Return the CPU seconds of a command and its orphans, and its output."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(
                command,
                cwd=self._repository,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
            seconds = 0.0
            while True:
                try:
                    ended, status, used = os.wait4(-1, 0)
                except ChildProcessError:
                    break
                seconds += used.ru_utime + used.ru_stime
                if ended == child.pid:
                    child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            if child.returncode:
                raise SystemExit(f"{command}: {child.returncode}\n{err.read().decode()}")
            return seconds, out.read().decode()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("agents", nargs="*", type=Path, default=[Path(sys.executable).parent / "agents"])
    asked = parser.parse_args(arguments)
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="startup-") as directory:
        machines = [_Machine(Path(directory, str(n)), one.absolute()) for n, one in enumerate(asked.agents)]
        for machine in machines:
            machine.round()  # creates the database and compiles modules
        found: list[dict[str, list[float]]] = [defaultdict(list) for _ in machines]
        for number in range(asked.rounds):
            turns = list(zip(machines, found, strict=True))
            for machine, kept in turns if number % 2 else reversed(turns):
                for name, seconds in machine.round().items():
                    kept[name].append(seconds)
    for name in found[0]:
        values = [median(kept[name]) for kept in found]
        floors = [median(kept[f"python -c {_FLOOR!r}"]) for kept in found]
        told = [f"{value:7.3f} s {value / floor:6.2f}" for value, floor in zip(values, floors, strict=True)]
        print(f"{name:38}", *told, sep="  ")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
