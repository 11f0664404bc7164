"""Passthrough and process limits of commands, on real processes, isolated and not."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.redaction import MASK, redact_text
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes import passthrough
from cleveragents.processes.bubblewrap import shared_probe
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import Command, CommandHome, CommandResult
from tests.command_trees import alive, end_by_hand

needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)
_FORKS = """
import os, sys, time
most, token = int(sys.argv[1]), sys.argv[2]
for number in range(most - 1):
    if os.fork() == 0:
        if number % 2:
            os.setsid()
        time.sleep(1000)
print("all are there", flush=True)
if sys.argv[3] == "stay":
    time.sleep(1000)
"""


@pytest.fixture(params=["plain", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def runner(request: pytest.FixtureRequest) -> GuardedCommandRunner:
    isolation = "off" if request.param == "plain" else "required"
    return GuardedCommandRunner(isolation=isolation, grace_seconds=0.2)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def command(tmp_path: Path, home: Path) -> Command:
    root = tmp_path / "sandbox"
    root.mkdir()
    return Command(("true",), root, root, timeout_seconds=60.0)


@pytest.fixture
def token() -> Iterator[int]:
    token = time.monotonic_ns()
    yield token
    end_by_hand(token)


def shell(runner: GuardedCommandRunner, command: Command, script: str, **facts: object) -> CommandResult:
    asked = replace(command, argv=("sh", "-c", script), **facts)
    return runner.run(asked, CancellationToken().view())


# --- the home directory -------------------------------------------------------------------------------------


def test_only_named_files_of_the_home_are_copied(
    runner: GuardedCommandRunner, command: Command, home: Path
) -> None:
    (home / ".tool").mkdir()
    (home / ".tool" / "settings").write_text("mine")
    (home / ".tool" / "history").write_text("mine, too")
    (home / ".netrc").write_text("a secret")
    wanted = CommandHome((".tool/settings", ".missing"))
    done = shell(runner, command, 'cat ~/.tool/settings; find "$HOME" -mindepth 1', home=wanted)
    assert done.output.startswith("mine/")
    assert sorted(line.rpartition("/")[2] for line in done.output.split()) == [".tool", "settings"]


def test_writes_to_the_home_never_reach_the_users_files(
    runner: GuardedCommandRunner, command: Command, home: Path
) -> None:
    (home / "kept").mkdir()
    (home / "kept" / "settings").write_text("before")
    (home / "elsewhere").write_text("linked to")
    (home / "kept" / "link").symlink_to(home / "elsewhere")
    (home / "kept" / "around").symlink_to(home / "kept")
    (home / "kept" / "broken").symlink_to(home / "nowhere")
    os.mkfifo(home / "kept" / "pipe")
    script = "cd ~/kept; ls; echo after > settings; echo after > link; echo new > new; chmod 000 settings"
    done = shell(runner, command, script, home=CommandHome(("kept",)))
    assert done.output.split() == ["link", "settings"]
    assert done.exit_code == 0
    assert (home / "kept" / "settings").read_text() == "before"
    assert (home / "elsewhere").read_text() == "linked to"
    assert sorted(path.name for path in home.iterdir()) == ["elsewhere", "kept"]


def test_a_home_is_removed_with_its_command(
    runner: GuardedCommandRunner,
    command: Command,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    places = tmp_path / "places"
    places.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(places))
    (home / "key").write_text("a secret")
    done = shell(runner, command, "cat ~/key", home=CommandHome(("key",)))
    assert done.output == "a secret"
    assert list(places.iterdir()) == []


def test_given_files_are_in_the_private_home(runner: GuardedCommandRunner, command: Command) -> None:
    wanted = CommandHome((), {".prompt": b"do it"})
    asked = replace(
        command, argv=("sh", "-c", 'cat "$1"; stat -c %a "$1"', "sh", "{home}/.prompt"), home=wanted
    )
    done = runner.run(asked, CancellationToken().view())
    assert done.output == "do it600\n"


def test_without_a_home_the_placeholder_is_not_replaced(
    runner: GuardedCommandRunner, command: Command
) -> None:
    done = runner.run(replace(command, argv=("echo", "{home}")), CancellationToken().view())
    assert done.output == "{home}\n"


@pytest.mark.parametrize("bound", ["MOST_FILES", "MOST_BYTES"])
def test_refuses_too_large_copies_with_a_remedy(
    runner: GuardedCommandRunner, command: Command, home: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passthrough, bound, 3)
    (home / "many").mkdir()
    for name in "abc":
        (home / "many" / name).write_text("xx")
    with pytest.raises(ToolRefused, match="list only the files that the program needs in `home`"):
        shell(runner, command, "true", home=CommandHome(("many",)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_copied_is_named(
    runner: GuardedCommandRunner, command: Command, home: Path
) -> None:
    (home / "key").write_text("a secret")
    (home / "key").chmod(0)
    with pytest.raises(ToolRefused, match=r"cannot copy .*key"):
        shell(runner, command, "true", home=CommandHome(("key",)))


# --- variables ----------------------------------------------------------------------------------------------


def test_only_named_variables_are_passed_and_ours_never(
    runner: GuardedCommandRunner, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "nobody named this one")
    monkeypatch.setenv("AGENT_SETTING", "passed on")
    monkeypatch.setenv("CLEVERAGENTS_SERVER_TOKEN", "the door to everything")
    names = ("AGENT_SETTING", "CLEVERAGENTS_SERVER_TOKEN", "NOT_SET")
    done = shell(runner, command, "env; echo ${#AGENT_SETTING} characters", passed=names)
    assert "AGENT_SETTING=***" in done.output
    assert "9 characters" in done.output
    assert "nobody named" not in done.output
    assert "the door" not in done.output
    assert "NOT_SET" not in done.output


def test_passed_values_are_masked_in_all_output(
    runner: GuardedCommandRunner, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMEBODYS_API_KEY", "plainwordsandmore")
    monkeypatch.setenv("AGENT_MODEL", "ordinarysetting")
    script = "echo $SOMEBODYS_API_KEY, $AGENT_MODEL"
    done = shell(runner, command, script, passed=("SOMEBODYS_API_KEY", "AGENT_MODEL"))
    assert done.output == f"{MASK}, {MASK}\n"
    assert redact_text("it said plainwordsandmore") == f"it said {MASK}"
    assert redact_text("ordinarysetting") == "ordinarysetting"


# --- the process limit --------------------------------------------------------------------------------------


def test_a_command_beyond_its_process_limit_is_ended(
    runner: GuardedCommandRunner, command: Command, token: int
) -> None:
    argv = (sys.executable, "-c", _FORKS, "6", str(token), "stay")
    done = runner.run(replace(command, argv=argv, processes=5), CancellationToken().view())
    assert done.crowded
    assert done.exit_code is None
    assert not done.timed_out
    assert alive(token) == []


def test_a_command_may_reach_its_process_limit(
    runner: GuardedCommandRunner, command: Command, token: int
) -> None:
    # It runs for several counts of the guard.
    script = f"{_FORKS}\ntime.sleep(1); print('unharmed', flush=True)"
    argv = (sys.executable, "-c", script, "5", str(token), "go on")
    done = runner.run(replace(command, argv=argv, processes=5), CancellationToken().view())
    assert done.exit_code == 0
    assert done.output == "all are there\nunharmed\n"
    assert not done.crowded
    assert alive(token) == []


def test_orphaned_processes_count_too(runner: GuardedCommandRunner, command: Command, token: int) -> None:
    tree = f"t() {{ if [ $1 -gt 0 ]; then t $(($1-1)) & t $(($1-1)) & else exec sleep 1000.{token}; fi; }}"
    done = shell(runner, command, f"{tree}; t 6; exec sleep 1000.{token}", processes=40)
    assert done.crowded
    assert alive(token) == []


def test_a_command_beyond_its_process_limit_gets_no_sigterm(
    runner: GuardedCommandRunner, command: Command, token: int
) -> None:
    crowd = f"for n in 1 2 3 4 5 6; do sleep 1000.{token} & done; wait"
    done = shell(runner, command, f"trap 'echo asked > asked.txt' TERM; {crowd}", processes=3)
    assert done.crowded
    assert not (command.root / "asked.txt").exists()
    assert alive(token) == []
