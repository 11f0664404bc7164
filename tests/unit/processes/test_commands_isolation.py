"""The reach of an isolated command, and commands without isolation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
import structlog
from msgspec.structs import replace

from cleveragents.core.errors import ToolRefused
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.bubblewrap import BubblewrapProbe, arguments_for, shared_probe
from cleveragents.processes.guard_process import COMMAND_MARKER
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import Command, CommandResult

needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)


class Machine:
    """A user's home, our state directory with two sandboxes, and the user's checkout."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self.state = self.home / ".local" / "share" / "cleveragents"
        self.root = self.state / "sandboxes" / "one" / "tree"
        self.other = self.state / "sandboxes" / "two" / "tree"
        self.checkout = self.home / "project"
        for path in (self.root, self.other, self.checkout, self.home / ".ssh"):
            path.mkdir(parents=True)
        self.secrets = (
            self.home / ".ssh" / "id",
            self.state / "token",
            self.checkout / "f",
            self.other / "f",
        )
        for path in self.secrets:
            path.write_text("hunter2\n")

    def run(self, script: str, **facts: object) -> CommandResult:
        runner = GuardedCommandRunner(
            isolation="required", hidden=(self.state, self.checkout), allowed_names=("ALLOWED",)
        )
        command = Command(("bash", "-c", script), self.root, self.root)
        return runner.run(replace(command, **facts), CancellationToken().view())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("HOME", str(machine.home))
    return machine


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@needs_bubblewrap
def test_secrets_state_other_sandboxes_and_the_checkout_are_invisible(machine: Machine) -> None:
    for path in (
        machine.home / ".ssh" / "id",
        machine.state / "token",
        machine.checkout / "f",
        machine.other / "f",
    ):
        assert machine.run(f"cat {path}").output.endswith("No such file or directory\n")
    assert machine.run(f"ls -A {machine.state / 'sandboxes'}").output == "one\n"
    assert machine.run("cat ~/.ssh/id /root/.ssh/* /etc/shadow /etc/ssl/private/*").exit_code != 0


@needs_bubblewrap
def test_only_the_sandbox_is_writable(machine: Machine) -> None:
    elsewhere = machine.home / "elsewhere"
    output = machine.run(f"touch inside; touch /usr/x /etc/x /x {elsewhere} {machine.checkout}/x").output
    assert (machine.root / "inside").exists()
    assert not elsewhere.exists()
    assert [path.name for path in machine.checkout.iterdir()] == ["f"]
    for path in ("/usr/x", "/etc/x", "/x"):
        assert f"'{path}'" in output
        assert not Path(path).exists()


@needs_bubblewrap
def test_root_cannot_write_machine_files_in_proc(
    machine: Machine,
) -> None:
    """A program named in `core_pattern` or a binary format is run by the kernel, outside."""
    pattern = "/proc/sys/kernel/core_pattern"
    written = machine.run(f'v=$(cat {pattern}) && printf %s "$v" > {pattern} && echo WRITTEN').output
    assert "WRITTEN" not in written
    assert ("Read-only file system" in written) or os.geteuid() != 0
    looked = machine.run(
        "find /proc -mindepth 1 -maxdepth 1 -name '[0-9]*' -prune -o -type f -writable -print;"
        " find /proc/{sys,irq,bus,fs,acpi,scsi,driver} -type f -writable 2>/dev/null;"
        " ls -A /proc/sys/fs/binfmt_misc 2>/dev/null"
    )
    assert looked.output == ""
    assert machine.run("test -r /proc/sys/kernel/ostype && cat /proc/sys/kernel/ostype").output == "Linux\n"


@needs_bubblewrap
def test_readable_directories_are_read_only(machine: Machine) -> None:
    """A sandbox borrows objects from the checkout, which is otherwise hidden."""
    objects = machine.checkout / "objects"
    objects.mkdir()
    (objects / "pack").write_text("content")
    result = machine.run(f"cat {objects}/pack; touch {objects}/x", readable=(objects, machine.home / "gone"))
    assert result.output.startswith("content")
    assert "Read-only file system" in result.output
    assert machine.run(f"cat {machine.checkout}/f", readable=(objects,)).exit_code == 1


@needs_bubblewrap
def test_the_network_is_off_by_default(machine: Machine, port: int) -> None:
    connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
    assert "connected" not in machine.run(connect).output
    assert machine.run(connect, network=True).output == "connected\n"


@needs_bubblewrap
def test_outside_processes_cannot_be_seen_or_signalled(machine: Machine) -> None:
    pids = machine.run("echo /proc/[0-9]*").output.split()
    assert len(pids) <= 3, pids
    environments = machine.run("cat /proc/[0-9]*/environ | tr '\\0' '\\n' | cut -d= -f1 | sort -u").output
    assert "PYTEST_CURRENT_TEST" not in environments
    assert COMMAND_MARKER in environments


@needs_bubblewrap
def test_a_commands_variables_reach_neither_bubblewrap_nor_the_process_table(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository's LD_PRELOAD would run outside; every user can read a command line."""
    monkeypatch.setenv("ALLOWED", "hunter2")
    seen: dict[str, str] = {}
    lines: list[str] = []

    def look(chunk: bytes) -> None:
        for process in psutil.Process().children(recursive=True):
            if process.name() == "bwrap":
                seen.update(process.environ())
                lines.append(" ".join(process.cmdline()))

    runner = GuardedCommandRunner(isolation="required", allowed_names=("ALLOWED",))
    command = Command(
        ("sh", "-c", 'echo "$ALLOWED $LD_PRELOAD"; sleep 0.2'),
        machine.root,
        machine.root,
        environment={"LD_PRELOAD": "/no/such.so"},
    )
    result = runner.run(command, CancellationToken().view(), on_output=look)
    assert "hunter2 /no/such.so" in result.output
    assert seen.keys() == {COMMAND_MARKER}
    assert lines
    assert "hunter2" not in " ".join(lines)


@needs_bubblewrap
def test_an_interpreter_in_a_home_directory_works_and_exposes_nothing_else(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = machine.home / "tools" / "lang"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "lib" / "library").write_text("loaded\n")
    (prefix / "bin" / "lang").write_text(f"#!/bin/sh\ncat {prefix}/lib/library\n")
    (prefix / "bin" / "lang").chmod(0o755)
    (prefix / "checkout").mkdir()
    (prefix / "checkout" / "f").write_text("hunter2")
    local = machine.home / ".local" / "bin"
    local.mkdir()
    (local / "tool").symlink_to(prefix / "bin" / "lang")
    monkeypatch.setenv("PATH", f"{local}:{machine.home / '.config' / 'bin'}:/usr/bin:/bin")
    runner = GuardedCommandRunner(isolation="required", hidden=(machine.state, prefix / "checkout"))
    command = Command(("tool",), machine.root, machine.root)
    stop = CancellationToken().view()
    assert runner.run(command, stop).output == "loaded\n"
    monkeypatch.setenv("PATH", f"{prefix}/bin:/usr/bin:/bin")
    script = f"lang; ls -A {machine.home}; cat {prefix}/checkout/f"
    looked = runner.run(replace(command, argv=("sh", "-c", script)), stop)
    assert looked.output.startswith("loaded\n")
    assert "hunter2" not in looked.output
    assert ".ssh" not in looked.output
    assert "project" not in looked.output


@needs_bubblewrap
def test_refuses_a_program_that_exists_only_outside(machine: Machine) -> None:
    program = machine.home / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    runner = GuardedCommandRunner(isolation="required")
    with pytest.raises(ToolRefused, match=r"cannot be run: .*No such file"):
        runner.run(Command((str(program),), machine.root, machine.root), CancellationToken().view())


@needs_bubblewrap
def test_nothing_in_the_sandbox_exposes_an_outside_directory(machine: Machine) -> None:
    """A real virtual environment leads to its interpreter; a forged one exposes nothing."""
    private = machine.home / "private"
    private.mkdir()
    (private / "note").write_text("hunter2")
    (private / "program").write_text("#!/bin/sh\necho ran\n")
    (private / "program").chmod(0o755)
    environment = machine.root / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"home = {private}\n")
    (environment / "bin" / "python").symlink_to(private / "program")
    (machine.root / "script").write_text(f"#!{private}/program\n")
    (machine.root / "script").chmod(0o755)
    path = f"{environment}/bin:/usr/bin:/bin"
    assert machine.run(f"cat {private}/note", environment={"PATH": path}).exit_code == 1
    for argv in (("./script",), (str(environment / "bin" / "python"),)):
        with pytest.raises(ToolRefused, match="cannot be run"):
            machine.run("", argv=argv)
    interpreter = Path(os.path.realpath(sys.executable))
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").symlink_to(interpreter)
    (environment / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    asked = machine.run("", argv=(str(environment / "bin" / "python"), "-c", "import sys; print(sys.prefix)"))
    assert asked.output == f"{environment}\n"


def _bound(command: Command, program: Path) -> set[str]:
    options = arguments_for(
        command, dict(command.environment), bubblewrap="/nowhere/bwrap", program=program, hidden=()
    )
    return {after for option, after in pairwise(options) if option in ("--bind", "--ro-bind-try")}


@pytest.mark.parametrize("trick", ["program", "PATH", "link", "environment", "first line", "link on PATH"])
def test_a_command_cannot_choose_the_visible_directories(
    trick: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one that looks like an installed interpreter, as another project's checkout may."""
    root, outside = tmp_path / "sandbox", tmp_path / "outside"
    for place in (root / "env" / "bin", outside / "bin", outside / "lib"):
        place.mkdir(parents=True)
    for name in ("python", "python3", "tool"):
        (outside / "bin" / name).write_text("#!/bin/sh\n")
        (outside / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"/usr/bin:/bin:{root}/env/bin")
    plain = Command(("true",), root, root, environment={"PATH": "/usr/bin:/bin"})
    expected = _bound(plain, Path("/usr/bin/true"))
    assert str(root) in expected
    program = root / "env" / "bin" / "python"
    command = plain
    if trick == "program":
        program = outside / "bin" / "python"
    elif trick == "PATH":
        command = replace(plain, environment={"PATH": f"{outside}/bin:/usr/bin:/bin"})
        program = outside / "bin" / "tool"
    elif trick == "environment":
        (root / "env" / "pyvenv.cfg").write_text(f"home = {outside}/bin\n")
        program.write_text("#!/bin/sh\n")
    elif trick == "first line":
        program.write_text(f"#!{outside}/bin/python\n")
    else:
        program.symlink_to(outside / "bin" / "python")
    if trick == "link on PATH":
        command = replace(plain, environment={"PATH": f"{root}/env/bin:/usr/bin"})
    assert _bound(command, program) == expected


class TestWithoutBubblewrap:
    def run(self, probe: BubblewrapProbe, root: Path, isolation: str = "auto") -> CommandResult:
        runner = GuardedCommandRunner(isolation=isolation, probe=probe)
        assert runner.isolates is False
        return runner.run(Command(("echo", "hello"), root, root), CancellationToken().view())

    def test_commands_run_unisolated_with_one_warning(self, tmp_path: Path) -> None:
        probe = BubblewrapProbe("no-such-bubblewrap")
        with structlog.testing.capture_logs() as logs:
            results = [self.run(probe, tmp_path) for _ in range(2)]
            off = self.run(BubblewrapProbe("no-such-bubblewrap"), tmp_path, "off")
        assert [(r.output, r.isolated) for r in [*results, off]] == [("hello\n", False)] * 3
        assert [(log["event"], log["log_level"]) for log in logs] == [("command.not_isolated", "warning")]
        assert "not installed" in logs[0]["reason"]
        assert logs[0]["told"].startswith(
            "commands are not isolated on this machine: bubblewrap (bwrap) is not"
        )
        assert "install bubblewrap and allow user namespaces" in logs[0]["told"]

    def test_a_timed_out_probe_is_repeated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slow = tmp_path / "slow-bubblewrap"
        slow.write_text(f"#!/bin/sh\n[ -e {tmp_path}/quick ] || exec sleep 600\n")
        slow.chmod(0o700)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        probe = BubblewrapProbe(slow.name, seconds=0.1)
        assert "timed out" in probe.result().problem
        (tmp_path / "quick").touch()
        probe._seconds = 60.0
        assert probe.result().program == str(slow)
        slow.unlink()
        assert probe.result().program == str(slow), "what worked once is known"

    def test_concurrent_callers_share_a_timed_out_probe(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise they would wait for each other, and the last of many for an hour."""
        (tmp_path / "slow").touch(mode=0o700)
        probe = BubblewrapProbe(str(tmp_path / "slow"))
        came = threading.Semaphore(0)
        tries: list[float] = []

        class Telling:
            """A lock that signals when a caller arrives."""

            def __init__(self) -> None:
                self.lock = threading.Lock()

            def __enter__(self) -> None:
                came.release()
                self.lock.acquire()

            def __exit__(self, *error: object) -> None:
                self.lock.release()

        with ThreadPoolExecutor(3) as threads:
            asked: list[Future[object]] = []

            def run(argv: Sequence[str], *, timeout: float, **options: object) -> NoReturn:
                tries.append(timeout)
                if len(tries) == 1:
                    asked.extend(threads.submit(probe.result) for _ in range(3))
                    assert all(came.acquire(timeout=30) for _ in range(4))
                raise subprocess.TimeoutExpired(argv[0], timeout)

            monkeypatch.setattr(subprocess, "run", run)
            monkeypatch.setattr(probe, "_lock", Telling())
            answers = {probe.result(), *(one.result(30) for one in asked)}
        assert (len(tries), len(answers)) == (1, 1)
        assert "timed out" in probe.result().problem
        assert len(tries) == 2, "who comes later asks again"

    def test_nothing_runs_if_required_isolation_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ToolRefused, match="not installed; install bubblewrap"):
            self.run(BubblewrapProbe("no-such-bubblewrap"), tmp_path, "required")

    @pytest.mark.parametrize("path", ["", ":", ".", "bin", ":bin:."])
    def test_a_bwrap_in_the_current_directory_is_not_tried(
        self, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for place in (tmp_path, tmp_path / "bin"):
            place.mkdir(exist_ok=True)
            (place / "bwrap").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
            (place / "bwrap").chmod(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", path)
        assert "not installed" in BubblewrapProbe().result().problem
        monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")
        assert BubblewrapProbe().result().program in ("/usr/bin/bwrap", "/bin/bwrap", None)
        assert not (tmp_path / "ran").exists()

    def test_a_broken_bubblewrap_counts_as_missing(self, tmp_path: Path) -> None:
        broken = tmp_path / "broken"
        broken.write_text("#!/bin/sh\necho no namespaces >&2; exit 1\n")
        broken.chmod(0o755)
        result = BubblewrapProbe(str(broken)).result()
        assert result.program is None
        assert "does not work here (no namespaces)" in result.problem

    def test_concurrent_callers_share_one_probe(self, tmp_path: Path) -> None:
        """The probed program runs for a while, in case another probe starts meanwhile."""
        wait = "n=0; while [ $(wc -l <tries) -lt 2 ] && [ $n -lt 30 ]; do sleep 0.02; n=$((n+1)); done"
        tried = tmp_path / "tried"
        tried.write_text(f"#!/bin/sh\ncd {tmp_path}\necho x >>tries\n{wait}\n")
        tried.chmod(0o755)
        probe = BubblewrapProbe(str(tried))
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: probe.result(), range(4)))
        assert {answer.program for answer in answers} == {str(tried)}
        assert (tmp_path / "tries").read_text() == "x\n"


@needs_bubblewrap
@pytest.mark.parametrize("way", ["path", "link", "relative", "PATH"])
def test_the_existence_of_an_outside_file_is_not_revealed(machine: Machine, way: str) -> None:
    place = machine.home / "tools"
    place.mkdir()
    (place / "zq-plain").touch()
    (place / "zq-program").touch(mode=0o755)
    (place / "zq-folder").mkdir()
    (machine.root / "out").symlink_to(place)
    told = set()
    for name in ("zq-plain", "zq-program", "zq-folder", "zq-programm", "zq-missing"):
        shown = {
            "path": str(place / name),
            "link": f"./out/{name}",
            "relative": os.path.relpath(place / name, machine.root),
            "PATH": name,
        }[way]
        with pytest.raises(ToolRefused) as refused:
            machine.run("", argv=(shown,), environment={"PATH": str(place)} if way == "PATH" else {})
        told.add(str(refused.value).replace(name, "NAME"))
    assert len(told) == 1, told


@needs_bubblewrap
def test_a_program_visible_only_to_the_command_is_found(machine: Machine) -> None:
    place = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    assert machine.run("", argv=("git", "--version"), environment={"PATH": place}).exit_code == 0
