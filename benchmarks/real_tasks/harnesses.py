"""The harnesses that are compared, each with the same goal, check command, model and limits.

Each runs in a repository of its own with the files of a task. aider is given the source and, read-only, the
test, as its users do; ours and mini-swe-agent find them. aider and mini-swe-agent run in bubblewrap, with the
task as the only writable directory beside their own temporary one; ours isolates commands itself.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.real_tasks.tasks import Task

__all__ = ["HARNESSES", "Attempt"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where and with what a harness runs. `programs` has the `aider` and `mini` executables, and the `python`
    that runs the tests.
    """

    task: Task
    model: str
    base_url: str
    directory: Path
    home: Path
    programs: Mapping[str, Path]

    @property
    def check(self) -> str:
        python = shlex.quote(str(self.programs["python"]))
        return f"timeout 20 {python} -m pytest -q -p no:cacheprovider -p no:randomly {self.task.test}"

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "OPENAI_API_KEY": "local",
            "OPENAI_API_BASE": self.base_url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def _ours(attempt: Attempt) -> tuple[list[str], dict[str, str]]:
    settings = {
        "models.base_url": attempt.base_url,
        "models.default": f"openai/{attempt.model}",
        "models.timeout_seconds": "900",
    }
    changed = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "cleveragents", *changed]
    command += ["run", "--here", "--yes", "--format", "plain", "--check", attempt.check, attempt.task.goal]
    return command, {"CLEVERAGENTS_STATE_DIRECTORY": str(attempt.home / "state")}


def _aider(attempt: Attempt) -> tuple[list[str], dict[str, str]]:
    command = [str(attempt.programs["aider"]), "--model", f"openai/{attempt.model}", "--edit-format", "whole"]
    command += ["--yes-always", "--no-pretty", "--no-stream", "--no-show-model-warnings", "--no-check-update"]
    command += ["--analytics-disable", "--no-gitignore", "--no-auto-commits", "--no-suggest-shell-commands"]
    command += ["--auto-test", "--test-cmd", attempt.check, "--read", attempt.task.test]
    command += ["--message", attempt.task.goal, attempt.task.source]
    return _isolated(attempt, command), {}


def _mini(attempt: Attempt) -> tuple[list[str], dict[str, str]]:
    goal = f"{attempt.task.goal}\n\nRun the tests with: {attempt.check}"
    command = [str(attempt.programs["mini"]), "-t", goal, "-y", "--exit-immediately"]
    command += ["-m", f"openai/{attempt.model}", "--model-class", "litellm_textbased"]
    command += ["-c", "mini_textbased.yaml", "-c", f"model.model_kwargs.api_base={attempt.base_url}"]
    command += ["-o", str(attempt.home / "trajectory.json")]
    return _isolated(attempt, command), {"MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_CONFIGURED": "true"}


def _isolated(attempt: Attempt, command: list[str]) -> list[str]:
    writable = [str(attempt.directory), str(attempt.home)]
    return [
        *("bwrap", "--die-with-parent", "--unshare-pid", "--ro-bind", "/", "/"),
        *("--dev", "/dev", "--proc", "/proc"),
        *(part for place in writable for part in ("--bind", place, place)),
        *("--setenv", "TMPDIR", str(attempt.home), "--chdir", str(attempt.directory), "--"),
        *command,
    ]


HARNESSES: Mapping[str, Callable[[Attempt], tuple[list[str], dict[str, str]]]] = {
    "cleveragents": _ours,
    "aider": _aider,
    "mini-swe-agent": _mini,
}
