"""The contract of a `CommandRunner`, on real processes, isolated and not."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from cleveragents.core.errors import InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.bubblewrap import shared_probe
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import Command, CommandResult, CommandRunner
from tests.command_trees import alive, end_by_hand, tree_script
from tests.contracts.naive_command_runner import KillsTheGroup, WaitsWithATimeout

GRACE = 0.2
PROMISED_SECONDS = 10.0  # 5, and as much again for a busy machine
Listener = Callable[[bytes], None]
_tokens = itertools.count(os.getpid() * 10_000 + 1)

needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)


class Bench:
    """A sandbox, a runner, and a shorthand to run a command."""

    def __init__(self, runner: CommandRunner, root: Path) -> None:
        self.runner = runner
        self.root = root
        self.stop = CancellationToken()

    def run(
        self, *argv: str, on_output: Callable[[bytes], None] | None = None, **facts: object
    ) -> CommandResult:
        command = Command(argv, self.root, self.root)
        return self.runner.run(replace(command, **facts), self.stop.view(), on_output=on_output)

    def shell(self, script: str, **facts: object) -> CommandResult:
        return self.run("sh", "-c", script, **facts)


@pytest.fixture(params=["plain", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def runner(request: pytest.FixtureRequest) -> GuardedCommandRunner:
    isolation = "off" if request.param == "plain" else "required"
    return GuardedCommandRunner(isolation=isolation, grace_seconds=GRACE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "sand box"
    root.mkdir()
    return root


@pytest.fixture
def bench(runner: GuardedCommandRunner, root: Path) -> Bench:
    return Bench(runner, root)


@pytest.fixture
def token() -> Iterator[int]:
    token = next(_tokens)
    yield token
    end_by_hand(token)


# --- exit codes and output ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill $$", 143)]
)
def test_exit_codes_match_a_shells(bench: Bench, script: str, code: int) -> None:
    result = bench.shell(script)
    assert (result.exit_code, result.timed_out, result.cancelled) == (code, False, False)
    assert result.isolated == bench.runner.isolates


def test_a_late_reader_still_gets_the_report(root: Path) -> None:
    """A thread that got no CPU for longer than the command's timeout."""
    others = set(psutil.Process().children())
    late = [0.0]

    def starved(chunk: bytes) -> None:
        guards = set(psutil.Process().children()) - others
        while any(guard.status() != psutil.STATUS_ZOMBIE for guard in guards):
            time.sleep(0.01)
        late[0] = 1e6

    runner = GuardedCommandRunner(isolation="off", monotonic=lambda: late[0])
    result = Bench(runner, root).shell("echo one", on_output=starved)
    assert (result.exit_code, result.timed_out, result.output) == (0, False, "one\n")


def test_both_streams_keep_the_order_of_writing(bench: Bench) -> None:
    assert bench.shell("echo one; echo two >&2; echo three").output == "one\ntwo\nthree\n"


def test_runs_in_its_directory_with_its_input(bench: Bench) -> None:
    (bench.root / "below").mkdir()
    result = bench.run(
        "sh", "-c", "pwd; cat; touch here", directory=bench.root / "below", input=b"x" * 200_000
    )
    assert result.output == f"{bench.root}/below\n{'x' * 200_000}"
    assert (bench.root / "below" / "here").exists()
    assert bench.run("cat").output == ""


def test_keeps_only_the_tail_of_long_output(bench: Bench) -> None:
    result = bench.shell("seq 100000; echo the end", output_limit_bytes=1000)
    whole = "".join(f"{n}\n" for n in range(1, 100_001)) + "the end\n"
    assert result.truncated_bytes == len(whole) - 1000
    first, _, rest = result.output.partition("\n")
    assert first == f"[the first {len(whole) - 1000} bytes of output are missing]"
    assert rest == whole[-1000:]


def test_a_hundred_megabytes_pass_through_in_bounded_memory(bench: Bench) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = 0

    def count(chunk: bytes) -> None:
        nonlocal seen
        seen += len(chunk)

    result = bench.run("head", "-c", "100000000", "/dev/zero", on_output=count)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert seen == 100_000_000
    assert result.truncated_bytes == 100_000_000 - (1 << 20)
    assert grown < 20_000, f"{grown} KiB more"


def test_invalid_bytes_are_shown_escaped(bench: Bench) -> None:
    assert bench.shell(r"printf 'a\377\000b\303\244'").output == "a\\xff\x00bä"


def test_output_is_reported_while_the_command_runs(bench: Bench) -> None:
    (bench.root / "gate").touch()
    told: list[bytes] = []

    def open_the_gate(chunk: bytes) -> None:
        told.append(chunk)
        (bench.root / "gate").unlink(missing_ok=True)

    result = bench.shell(
        "echo waiting; while [ -e gate ]; do sleep 0.01; done; echo through", on_output=open_the_gate
    )
    assert result.output == "waiting\nthrough\n"
    assert told[0] == b"waiting\n"


def test_an_error_in_the_listener_ends_the_command_and_is_raised(bench: Bench, token: int) -> None:
    def refuse(chunk: bytes) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        bench.shell(f"echo x; trap '' TERM; sleep 1000.{token}; sleep 1000.{token}", on_output=refuse)
    assert alive(token) == []


def test_an_error_in_the_listener_is_raised_after_a_killed_guard(bench: Bench, token: int) -> None:
    others = set(psutil.Process().children())  # such as the database server of other tests

    def kill_and_refuse(chunk: bytes) -> None:
        for guard in set(psutil.Process().children()) - others:
            guard.kill()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        bench.shell(
            f"(setsid sleep 1000.{token} &); echo x; sleep 1000.{token}; true", on_output=kill_and_refuse
        )
    assert alive(token) == []


def test_many_threads_share_a_runner(bench: Bench) -> None:
    results: dict[int, CommandResult] = {}

    def work(number: int) -> None:
        results[number] = bench.shell(f"echo {number}; exit {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: (r.exit_code, r.output) for n, r in results.items()} == {n: (n, f"{n}\n") for n in range(8)}


# --- no process is left: vicoa#41, claude-code#40667 and #26658, codex#18881 --------------------------------


def nothing_is_left_after(bench: Bench, token: int, ending: str) -> CommandResult:
    """Check the promise for any runner: however a command ends, none of its processes is alive."""
    ended_at = 0.0

    def cancel_when_ready(chunk: bytes) -> None:
        nonlocal ended_at
        if b"ready" in chunk:
            ended_at = time.monotonic()
            if ending == "cancel":
                bench.stop.cancel("enough")

    then = "exit 7" if ending == "its own end" else f"trap '' TERM; while :; do sleep 1000.{token}9; done"
    # Enough to be ready even on a busy machine; only the time after that counts.
    timeout = 3.0 if ending == "timeout" else 60.0
    script = tree_script(token, then=then)
    began = time.monotonic()
    result = bench.shell(script, on_output=cancel_when_ready, timeout_seconds=timeout)
    over = time.monotonic()
    assert alive(token) == []
    assert "ready" in result.output
    deadline = began + timeout if ending == "timeout" else ended_at
    assert over - deadline < PROMISED_SECONDS
    return result


@pytest.mark.parametrize("ending", ["its own end", "cancel", "timeout"])
def test_nothing_a_command_started_outlives_its_call(bench: Bench, token: int, ending: str) -> None:
    """vicoa#41: sub-agents ran for minutes after Stop. claude-code#40667, codex#18881: orphans pile up."""
    result = nothing_is_left_after(bench, token, ending)
    assert result.cancelled == (ending == "cancel")
    assert result.timed_out == (ending == "timeout")
    assert result.exit_code == (7 if ending == "its own end" else None)


@pytest.mark.parametrize("naive", [WaitsWithATimeout, KillsTheGroup])
@pytest.mark.parametrize("ending", ["its own end", "cancel"])
def test_the_contract_catches_naive_runners(
    root: Path, token: int, naive: type[KillsTheGroup], ending: str
) -> None:
    with pytest.raises(AssertionError):
        nothing_is_left_after(Bench(naive(), root), token, ending)


def test_a_second_stop_has_no_effect(bench: Bench, token: int) -> None:
    """vicoa#41: the second Stop had no effect while everything ran on; here the first is enough."""
    result = bench.shell(
        f"echo ready; sleep 1000.{token}", on_output=lambda _: bench.stop.cancel("first") and None
    )
    assert result.cancelled
    assert not bench.stop.cancel("second")
    assert alive(token) == []
    started = bench.shell(f"echo started >>started; sleep 1000.{token}")
    assert started == CommandResult(None, "", 0, 0.0, cancelled=True, isolated=bench.runner.isolates)
    assert not (bench.root / "started").exists()


class StopsOnceItIsDead:
    """A signal that fires before the process with the printed pid ends, but is noticed only after that."""

    def __init__(self) -> None:
        self.pid = ""

    def said(self, chunk: bytes) -> None:
        self.pid += chunk.decode().strip()

    @property
    def is_cancelled(self) -> bool:
        return bool(self.pid) and not Path(f"/proc/{self.pid}").exists()


@pytest.mark.parametrize(("script", "cancelled"), [("echo $$; kill -9 $$", True), ("echo $$", False)])
def test_a_command_killed_before_the_order_arrives_counts_as_cancelled(
    root: Path, script: str, cancelled: bool
) -> None:
    stop = StopsOnceItIsDead()
    runner = GuardedCommandRunner(isolation="off", grace_seconds=GRACE)
    result = runner.run(Command(("sh", "-c", script), root, root), stop, on_output=stop.said)
    assert result.cancelled == cancelled
    assert result.exit_code == (None if cancelled else 0)


def test_a_command_that_handles_sigterm_ends_by_itself(bench: Bench, root: Path) -> None:
    patient = GuardedCommandRunner(
        isolation="required" if bench.runner.isolates else "off", grace_seconds=60.0
    )
    script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    for seconds in (2.0, 10.0, 50.0):  # it may end before the shell has started
        result = Bench(patient, root).shell(script, timeout_seconds=seconds)
        if "ready" in result.output:
            break
    assert result.timed_out
    assert result.output.startswith("ready\n")
    assert result.output.endswith("bye\n")
    assert result.seconds < seconds + 30.0  # half of its grace period: no wait


def test_a_grandchild_that_keeps_the_output_open_does_not_hang_the_call(bench: Bench, token: int) -> None:
    result = bench.shell(f"(setsid sleep 1000.{token} &); echo done")
    assert (result.exit_code, result.output) == (0, "done\n")
    assert result.seconds < PROMISED_SECONDS
    assert alive(token) == []


# --- the environment of a command ---------------------------------------------------------------------------


def test_a_command_gets_no_secrets_of_the_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("CLEVERAGENTS_TOKEN", "hunter3")
    output = bench.run("env", environment={"MINE": "yes"}, markers={"CLEVERAGENTS_JOB": "job:1"}).output
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert "hunter" not in output
    assert "MINE=yes" in output
    assert "CLEVERAGENTS_JOB=job:1" in output
    assert {name for name in names if not name.startswith(("GIT_", "LC_"))} <= {
        *("PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE", "TZ", "TERM", "USER", "LOGNAME", "PAGER", "PWD"),
        "RUSTUP_HOME",
        *("MINE", "CLEVERAGENTS_JOB", "CLEVERAGENTS_COMMAND"),
    }


def test_its_home_is_empty_private_and_temporary(bench: Bench) -> None:
    script = (
        'ls -A ~ "$TMPDIR" | grep -v : | grep .; mkdir -p ~/ro/x; chmod 500 ~/ro; touch "$TMPDIR/f" && echo ~'
    )
    first = bench.shell(script).output.strip()
    assert not Path(first).exists()
    assert bench.shell("ls -A ~").output == ""


def test_a_command_inherits_no_descriptor(bench: Bench) -> None:
    with (bench.root / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        open_ones = bench.run("ls", "/proc/self/fd").output.split()
    assert open_ones == ["0", "1", "2", "3"]  # 3 is the listed directory


def test_a_command_has_its_own_session_and_dumps_no_core(bench: Bench) -> None:
    assert bench.shell("ulimit -c").output == "0\n"
    output = bench.shell("cut -d' ' -f6 /proc/self/stat").output
    assert int(output) != os.getsid(0)


def test_git_works_and_finds_no_outer_repository(bench: Bench) -> None:
    around = bench.root.parent
    subprocess.run(["git", "init", "-q", str(around)], check=True)
    assert "not a git repository" in bench.run("git", "status", readable=(around,)).output
    result = bench.shell("git init -q . && git commit -q --allow-empty -m x && git log --format=%an")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "CleverAgents")


# --- refusals -----------------------------------------------------------------------------------------------


def test_refuses_what_cannot_run_with_the_reason(bench: Bench, tmp_path: Path) -> None:
    (bench.root / "plain").write_text("text")
    (bench.root / "broken").write_text("#!/no/such/interpreter\n")
    (bench.root / "broken").chmod(0o755)
    with pytest.raises(ToolRefused, match=r"program 'pyhton3' not found.*did you mean .*python3"):
        bench.run("pyhton3")
    with pytest.raises(ToolRefused) as refused:
        bench.run("zzff")
    assert "did you mean" not in str(refused.value)
    with pytest.raises(ToolRefused, match=r"'\./plain' is not executable"):
        bench.run("./plain")
    with pytest.raises(ToolRefused, match=r"'\./missing'"):
        bench.run("./missing")
    with pytest.raises(ToolRefused, match="is a directory"):
        bench.run(str(bench.root))
    with pytest.raises(ToolRefused, match=r"'\./broken' cannot be run: .*No such file"):
        bench.run("./broken")
    with pytest.raises(ToolRefused, match="does not exist"):
        bench.run("true", directory=bench.root / "nowhere")
    with pytest.raises(ToolRefused, match=r"the sandbox .* does not exist"):
        bench.run("true", root=tmp_path / "gone")
    with pytest.raises(ToolRefused, match=r"cannot be run: .*[Aa]rgument list too long"):
        bench.run("true", *["x" * 100_000] * 100)
    with pytest.raises(OutsideSandbox):
        bench.run("true", directory=tmp_path)
    (bench.root / "out").symlink_to(tmp_path)
    with pytest.raises(OutsideSandbox):
        bench.run("true", directory=bench.root / "out")


def test_refuses_a_pipe_as_a_program_without_waiting(bench: Bench) -> None:
    """Opening one blocks until another process writes, whatever the timeout."""
    os.mkfifo(bench.root / "pipe")
    (bench.root / "pipe").chmod(0o755)
    (bench.root / "link").symlink_to("pipe")
    (bench.root / "script").write_text(f"#!{bench.root.resolve()}/pipe\n")
    (bench.root / "script").chmod(0o755)
    begun = time.monotonic()
    for name in ("./pipe", "./link", str(bench.root / "pipe")):
        with pytest.raises(ToolRefused, match=r"is a pipe, a socket or a device, not a program"):
            bench.run(name)
    with pytest.raises(ToolRefused, match=r"program 'pipe' not found"):
        bench.run("pipe", environment={"PATH": str(bench.root)})
    with pytest.raises(ToolRefused, match=r"'\./script' cannot be run"):
        bench.run("./script", timeout_seconds=2.0)
    with pytest.raises(ToolRefused, match=r"program '\./xxx.*not found.*too long"):
        bench.run("./" + "x" * 300)
    assert bench.shell("exec 3<pipe", timeout_seconds=0.3).timed_out
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    "facts",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a\0",)},
        {"environment": {"A=B": ""}},
        {"timeout_seconds": 0.0},
    ],
)
def test_refuses_an_invalid_command(bench: Bench, facts: dict[str, object]) -> None:
    with pytest.raises(InvalidToolCall):
        bench.run("true", **facts)


def test_a_script_without_a_shebang_runs_in_the_shell(bench: Bench) -> None:
    (bench.root / "script").write_text('echo "ran with $1"; exit 5\n')
    (bench.root / "script").chmod(0o755)
    result = bench.run("./script", "this")
    assert (result.exit_code, result.output) == (5, "ran with this\n")
