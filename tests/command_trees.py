"""Commands that start processes which resist being killed, and checks for survivors."""

from __future__ import annotations

import time

import psutil

__all__ = ["WAYS_OUT", "alive", "end_by_hand", "tree_script", "wait_none_alive"]

_STUBBORN = 'trap "" TERM; echo x >&9; exec sleep 1000.{token}'
WAYS_OUT = {
    "a child that ignores SIGTERM": "sh -c '{stubborn}' &",
    "a double fork": "(sh -c '{stubborn}' &)",
    "a session of its own": "setsid sh -c '{stubborn}' &",
    "a daemon without variables and descriptors": (
        "(env -i setsid sh -c 'echo x >&9; exec 9>&-; trap \"\" TERM; exec sleep 1000.{token}'"
        " <&- >&- 2>&- &)"
    ),
    "one that stops itself": "sh -c 'echo x >&9; kill -STOP $$; : {token}' &",
    "a tree of 31": (
        "sh -c 't() {{ if [ $1 -gt 0 ]; then t $(($1-1)) & t $(($1-1)) & fi; wait; sleep 1000.{token}; }};"
        " echo x >&9; t 4' &"
    ),
    "a chain that forks and exits, in a session of its own": (
        "setsid sh -c 'h() {{ if [ $1 -lt 30000 ]; then h $(($1+1)) & fi; }}; echo x >&9; h 0; : {token}' &"
    ),
}
"""Each reports its start by a line to descriptor 9. `token` is in the command line of survivors."""


def tree_script(token: int, *, ways: tuple[str, ...] = tuple(WAYS_OUT), then: str) -> str:
    """Return a shell script that starts one of each, prints `ready` when all run, and does `then`."""
    started = [
        WAYS_OUT[way].format(stubborn=_STUBBORN.format(token=f"{token}{number}"), token=f"{token}{number}")
        for number, way in enumerate(ways)
    ]
    wait = f"n=0; while [ $n -lt {len(ways)} ]; do read line <&9; n=$((n+1)); done"
    return "\n".join(["mkfifo ready.fifo; exec 9<>ready.fifo", *started, wait, "echo ready", then])


def alive(token: int) -> list[str]:
    """Return the command lines of live processes with the token, in any namespace."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            if str(token) in line and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid}: {line}")
        except psutil.Error:
            continue
    return found


def wait_none_alive(token: int, *, timeout: float) -> list[str]:
    """Return the survivors after the time limit; empty as soon as there are none."""
    deadline = time.monotonic() + timeout
    left = alive(token)
    while left and time.monotonic() < deadline:
        time.sleep(0.05)  # scanning all processes without a pause keeps them from ending
        left = alive(token)
    return left


def end_by_hand(token: int) -> None:
    """Kill processes that a runner left behind."""
    while alive(token):
        for line in alive(token):
            try:
                psutil.Process(int(line.partition(":")[0])).kill()
            except psutil.Error:
                continue
