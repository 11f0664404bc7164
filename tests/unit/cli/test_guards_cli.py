"""What a command line says of a plan that somebody else is at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_bench import COMMAND, command_line, paint_shop, use_home
from tests.fork_server import Forked

pytestmark = pytest.mark.usefixtures("commands_are_forked")


def test_a_cancel_returns_after_the_plan_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(paint_shop(tmp_path / "repository"))
    at_work = [sys.executable, "-m", "cleveragents", *COMMAND, "sh", "-c", "echo up; sleep 1000"]
    with (
        command_line(monkeypatch, capfd) as agents,
        Forked(at_work, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process,
    ):
        assert process.stderr is not None
        plan_id = process.stderr.readline().split()[1].rstrip(":")
        while process.stderr.readline() not in ("  up\n", ""):
            pass
        cancelled = agents("plan", "cancel", plan_id)
        process.stderr.read()
    assert (cancelled.code, "status  cancelled" in cancelled.out) == (0, True)


def test_a_limit_in_money_for_a_model_without_a_price_is_refused_before_there_is_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(paint_shop(tmp_path / "repository"))
    (tmp_path / "script.yaml").write_text("rules:\n  - reply: {text: done}\n")
    with command_line(monkeypatch, capfd) as agents:
        model = f"scripted/{tmp_path}/script.yaml"
        refused = agents("run", "Paint it", "--model", model, "--max-usd", "1")
        assert (refused.code, "price" in refused.err) == (2, True)
        assert agents("plan", "list", "--format", "json").out == "[]\n"
