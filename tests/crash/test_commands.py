"""Commands whose caller or guard is killed by force."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cleveragents.processes.bubblewrap import shared_probe
from cleveragents.processes.cgroup import end_stale_cgroups, own_cgroup
from tests.command_trees import WAYS_OUT, end_by_hand, tree_script, wait_none_alive
from tests.fork_server import Forked

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.command_caller"]
FOREVER = "trap '' TERM; while :; do sleep 1000.{token}9; done"
# Without a cgroup, a process that neither descends from the command nor carries its marker cannot be found.
HAS_CGROUP = own_cgroup() is not None and os.access(own_cgroup() or "", os.W_OK)
KNOWABLE = tuple(way for way in WAYS_OUT if HAS_CGROUP or "without variables" not in way)
PATIENCE_SECONDS = 60.0
_tokens = itertools.count(os.getpid() * 10_000 + 5_001)
Start = Callable[..., "subprocess.Popen[str]"]

needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)
needs_cgroup = pytest.mark.skipif(not HAS_CGROUP, reason="needs a cgroup that this user may divide")
each_isolation = pytest.mark.parametrize(
    "isolation", ["off", pytest.param("required", marks=needs_bubblewrap)]
)


@pytest.fixture
def token() -> Iterator[int]:
    token = next(_tokens)
    yield token
    end_by_hand(token)


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return temporary


@pytest.fixture
def start(tmp_path: Path, temporary: Path) -> Iterator[Start]:
    """Start a caller, and return when the command's tree is complete."""
    children = []
    siblings: list[int] = []
    guards: list[psutil.Process] = []

    def start(
        isolation: str, script: str, timeout: float = 600.0, *, sibling: bool = False
    ) -> subprocess.Popen[str]:
        root = tmp_path / f"root-{len(children)}"
        root.mkdir()
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        child = Forked(
            [*PROGRAM, isolation, str(root), str(timeout), "sibling" if sibling else ""],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(script)
        child.stdin.close()
        child.stdin = None
        if sibling:
            siblings.append(int(child.stdout.readline()))
        ready = child.stdout.readline() == "ready\n"
        if timeout < 600.0 and not ready:  # it timed out before it started
            return start(isolation, script, timeout * 4)
        assert ready
        guards.extend(one for one in psutil.Process(child.pid).children() if one.pid not in siblings)
        return child

    yield start
    for pid in siblings:
        os.kill(pid, signal.SIGKILL)
    for child in children:
        child.kill()
        child.communicate()
    # They end by themselves, except one that hangs and whose caller could not end it.
    for guard in psutil.wait_procs(guards, timeout=PATIENCE_SECONDS)[1]:
        guard.kill()


@each_isolation
def test_a_pipe_held_by_a_forked_sibling_does_not_keep_the_tree_alive(
    start: Start, token: int, isolation: str
) -> None:
    caller = start(isolation, tree_script(token, then=FOREVER.format(token=token)), sibling=True)
    os.kill(caller.pid, signal.SIGKILL)
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []


@each_isolation
def test_a_killed_guard_takes_the_command_with_it(start: Start, token: int, isolation: str) -> None:
    caller = start(isolation, f"echo ready; exec sleep 1000.{token}")
    guard = guard_of(caller)
    os.kill(caller.pid, signal.SIGSTOP)
    guard.kill()
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []


def guard_of(caller: subprocess.Popen[str]) -> psutil.Process:
    [guard] = psutil.Process(caller.pid).children()
    assert guard.cmdline()[-1].endswith("guard.py")
    return guard


@each_isolation
def test_a_killed_caller_ends_its_commands_whole_tree(
    start: Start, token: int, isolation: str, temporary: Path
) -> None:
    """claude-code#26658: processes of a dead session ran until the machine was out of memory."""
    caller = start(isolation, tree_script(token, then=FOREVER.format(token=token)))
    guard = guard_of(caller)
    assert isolation == "required" or list(temporary.iterdir()) != []
    os.kill(caller.pid, signal.SIGKILL)
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []
    psutil.wait_procs([guard], timeout=PATIENCE_SECONDS)
    assert not guard.is_running()
    assert list(temporary.iterdir()) == [], "its private home is left"


@each_isolation
@pytest.mark.parametrize("cause", ["timeout", "SIGTERM to the guard"])
def test_a_command_times_out_while_its_caller_is_stopped(
    start: Start, token: int, isolation: str, cause: str
) -> None:
    """The guard, not the caller, owns the timeout and the processes."""
    late = cause == "timeout"
    script = tree_script(token, then=FOREVER.format(token=token))
    caller = start(isolation, script, 2.0 if late else 600.0)
    os.kill(caller.pid, signal.SIGSTOP)
    if not late:
        guard_of(caller).terminate()  # like a supervisor that ends processes by marker
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []
    os.kill(caller.pid, signal.SIGCONT)
    output, _ = caller.communicate(timeout=PATIENCE_SECONDS)
    result = json.loads(output.splitlines()[-1])
    assert result["timed_out"] == late
    assert result["exit_code"] == (None if late else 137)


@each_isolation
@pytest.mark.parametrize("way", ["killed", "hangs"])
def test_a_caller_ends_the_tree_of_a_lost_guard(start: Start, token: int, isolation: str, way: str) -> None:
    ways = KNOWABLE if (isolation, way) == ("off", "killed") else tuple(WAYS_OUT)
    caller = start(isolation, tree_script(token, ways=ways, then=FOREVER.format(token=token)))
    guard = guard_of(caller)
    if way == "hangs":
        guard.suspend()
        caller.send_signal(signal.SIGINT)
    else:
        guard.kill()
    output, _ = caller.communicate(timeout=PATIENCE_SECONDS)
    assert wait_none_alive(token, timeout=0) == []
    if way == "killed":
        result = json.loads(output.splitlines()[-1])
        assert result["exit_code"] == 137
        assert "guard of the command was lost" in result["output"]
    else:
        assert caller.returncode != 0


def cgroups(caller: subprocess.Popen[str]) -> list[Path]:
    """Return the remaining cgroups of the caller."""
    here = own_cgroup()
    return [] if here is None else list(here.glob(f"cleveragents-command-{caller.pid}.*"))


# It leaves the session, drops every variable, and kills its guard.
ESCAPE = (
    "mkfifo up; setsid env -i /bin/sh -c 'echo > up; sleep 1000.{token}; :' <&- >&- 2>&- &"
    " read up < up; kill -9 $PPID; sleep 1000.{token}"
)


@needs_cgroup
@each_isolation
def test_a_process_that_kills_its_guard_does_not_survive_the_call(
    start: Start, token: int, isolation: str
) -> None:
    caller = start(isolation, f"echo ready; {ESCAPE.format(token=token)}", 5.0)
    caller.communicate(timeout=PATIENCE_SECONDS)
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []
    assert cgroups(caller) == []


@needs_cgroup
@each_isolation
def test_a_cgroup_is_removed_with_its_caller(start: Start, token: int, isolation: str) -> None:
    caller = start(isolation, f"echo ready; {FOREVER.format(token=token)}")
    guard = guard_of(caller)
    assert len(cgroups(caller)) == 1
    os.kill(caller.pid, signal.SIGKILL)
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []
    psutil.wait_procs([guard], timeout=PATIENCE_SECONDS)
    assert cgroups(caller) == []


@needs_cgroup
def test_a_later_process_cleans_up_after_a_killed_caller_and_guard(start: Start, token: int) -> None:
    ways = tuple(way for way in WAYS_OUT if "without variables" in way)
    caller = start("off", tree_script(token, ways=ways, then=FOREVER.format(token=token)))
    guard = guard_of(caller)
    caller.send_signal(signal.SIGSTOP)  # otherwise it would clean up after its guard
    guard.kill()
    caller.kill()
    caller.wait(PATIENCE_SECONDS)
    assert len(cgroups(caller)) == 1
    end_stale_cgroups()
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []
    assert cgroups(caller) == []


@needs_cgroup
def test_ending_stale_cgroups_spares_the_guard(start: Start, token: int, temporary: Path) -> None:
    caller = start("off", tree_script(token, then=FOREVER.format(token=token)))
    guard = guard_of(caller)
    guard.suspend()
    caller.kill()
    caller.wait(PATIENCE_SECONDS)
    end_stale_cgroups()
    guard.resume()
    psutil.wait_procs([guard], timeout=PATIENCE_SECONDS)
    assert not guard.is_running()
    assert wait_none_alive(token, timeout=PATIENCE_SECONDS) == []
    assert list(temporary.iterdir()) == [], "its private home is left"
