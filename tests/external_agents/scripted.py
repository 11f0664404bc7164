"""A command-line agent that does what its arguments say, including what no agent should do.

Run as `python scripted.py MODE …`; it uses nothing of CleverAgents.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["MODES", "main"]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def edits(*arguments: str) -> int:
    """Write the prompt, from standard input, an argument or a file, and report it."""
    told = sys.stdin.read() if not arguments else " ".join(arguments)
    if arguments[:1] == ("--file",):
        told = Path(arguments[1]).read_text(encoding="utf-8")
    Path("told.txt").write_text(told, encoding="utf-8")
    Path("a.txt").write_text("edited\n", encoding="utf-8")
    Path("b.txt").unlink()
    say("I did it")
    return 0


def fails(*arguments: str) -> int:
    """Do half of the work and fail."""
    Path("half.txt").write_text("half\n", encoding="utf-8")
    say("I cannot go on")
    return int(arguments[0]) if arguments else 7


def fails_once(marker: str) -> int:
    """Fail unless a file outside of the sandbox says that it failed before."""
    if Path(marker).exists():
        return edits()
    Path(marker).write_text("", encoding="utf-8")
    return fails()


def stays(token: str) -> int:
    """Start processes that do not want to end, edit, and stay, ignoring SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)"]
    subprocess.Popen([*sleep, token])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sleep[0], [*sleep, token])
        os._exit(0)
    os.wait()
    Path("staying.txt").write_text("staying\n", encoding="utf-8")
    say("ready")
    time.sleep(1000)
    return 0


def floods(*arguments: str) -> int:
    """Print far too much."""
    for number in range(5_000):
        sys.stdout.write(f"line {number} {'x' * 500}\n")
    say("the end")
    return 0


def crowds(many: str, token: str) -> int:
    """Start that many processes."""
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)", token]
    Path("crowd.txt").write_text("crowd\n", encoding="utf-8")
    for _ in range(int(many)):
        subprocess.Popen(sleep)
    say("crowded")
    time.sleep(1000)
    return 0


def writes_outside(path: str) -> int:
    """Try to write outside."""
    Path("inside.txt").write_text("inside\n", encoding="utf-8")
    try:
        Path(path).write_text("outside\n", encoding="utf-8")
    except OSError as problem:
        say(f"not allowed: {problem.strerror}")
        return 0
    say("written outside")
    return 0


def tells(*names: str) -> int:
    """Print its variables and its home."""
    for name in names:
        say(f"{name}={os.environ.get(name)}")
    say(f"home={sorted(str(path.relative_to(Path.home())) for path in Path.home().rglob('*'))}")
    return 0


def works(seconds: str) -> int:
    """Edit files for that many seconds."""
    until = time.monotonic() + float(seconds)
    number = 0
    while time.monotonic() < until:
        number += 1
        Path(f"work-{number % 20}.txt").write_text(f"{number}\n", encoding="utf-8")
        if number == 1:
            say("ready")
        time.sleep(0.05)
    say(f"{number} edits")
    return 0


MODES: dict[str, Callable[..., int]] = {
    "edits": edits,
    "fails": fails,
    "fails-once": fails_once,
    "stays": stays,
    "floods": floods,
    "crowds": crowds,
    "writes-outside": writes_outside,
    "tells": tells,
    "works": works,
}


def main() -> int:
    return MODES[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
