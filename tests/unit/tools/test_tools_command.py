"""`command`: the request to the runner, and the conversion of its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.errors import Cancelled, InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.ports import CommandResult
from cleveragents.tools.builtin.command import TOOL
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace


class Commands:
    """A runner that records its command and returns a given result."""

    def __init__(self, answer: CommandResult) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, argv: tuple[str, ...], *, directory: str, timeout_seconds: float) -> CommandResult:
        self.asked.append((argv, directory, timeout_seconds))
        return self.answer


def run(root: Path, answer: CommandResult, **arguments: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    commands = Commands(answer)
    result = TOOL.call(arguments, Workplace(ConfinedFiles(root), commands, CancellationToken()))
    return result, commands.asked


DONE = CommandResult(0, "fine\n", 0, 0.5)


def test_an_argv_runs_without_a_shell(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    result, asked = run(
        tmp_path, DONE, argv=["ruff", "format", "", "a b"], directory="src", timeout_seconds=5
    )
    assert asked == [(("ruff", "format", "", "a b"), "src", 5.0)]
    assert result == {
        "exit_code": 0,
        "output": "fine\n",
        "truncated": False,
        "timed_out": False,
        "seconds": 0.5,
    }


def test_a_script_runs_in_the_shell(tmp_path: Path) -> None:
    _, asked = run(tmp_path, DONE, script="echo $HOME | wc")
    assert asked == [(("/bin/sh", "-c", "echo $HOME | wc"), "", 600.0)]


def test_failures_and_timeouts_are_results(tmp_path: Path) -> None:
    result, _ = run(tmp_path, CommandResult(3, "…", 10, 0.1), argv=["x"])
    assert (result["exit_code"], result["truncated"], result["timed_out"]) == (3, True, False)
    result, _ = run(tmp_path, CommandResult(None, "", 0, 5.0, timed_out=True), argv=["x"])
    assert (result["exit_code"], result["timed_out"]) == (None, True)


def test_a_cancellation_is_not_a_result(tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        run(tmp_path, CommandResult(None, "", 0, 5.0, cancelled=True), argv=["x"])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"argv": []},
        {"argv": [""]},
        {"script": ""},
        {"argv": ["a"], "script": "a"},
        {"argv": "ls -l"},
        {"argv": ["a\0b"]},
        {"script": "a\0b"},
        {"argv": ["a"], "timeout_seconds": 0},
        {"argv": ["a"], "timeout_seconds": 1e9},
        {"argv": [1]},
    ],
)
def test_refuses_an_invalid_command_before_asking_for_approval(tmp_path: Path, arguments: Any) -> None:
    with pytest.raises(InvalidToolCall, match=r"^command: "):
        run(tmp_path, DONE, **arguments)
    with pytest.raises(InvalidToolCall):
        TOOL.capability_of(arguments, ConfinedFiles(tmp_path))


def test_runs_only_in_a_directory_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "out").symlink_to("/")
    for directory in ("file", "missing", "out"):
        with pytest.raises(ToolRefused, match=f"no such directory: '{directory}'"):
            run(tmp_path, DONE, argv=["x"], directory=directory)
    for directory in ("..", "/", "out/tmp", ".git"):
        with pytest.raises(OutsideSandbox):
            run(tmp_path, DONE, argv=["x"], directory=directory)


def test_the_spec_states_that_it_runs_commands() -> None:
    assert TOOL.spec.writes
    assert TOOL.spec.runs_commands
    assert TOOL.spec.capability is Capability.COMMAND
