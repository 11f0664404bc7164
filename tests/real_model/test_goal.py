"""A goal, given to a real model that is far too small for it: it ends, soon, and says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_bench import Agents, command_line, git, paint_shop, use_home

STEPS = 3
TOKENS = 30_000
SECONDS = 60


@pytest.fixture
def agents(
    base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.setenv("CLEVERAGENTS_MODELS_BASE_URL", base_url)
    monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", "openai/smollm2")
    monkeypatch.chdir(paint_shop(tmp_path / "repository"))
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_a_goal_that_is_too_much_for_its_model_ends_within_its_limits_and_says_why(agents: Agents) -> None:
    """The check makes sure that nonsense is no success; which limit is met first is the machine's to say."""
    limits = ("--max-steps", str(STEPS), "--max-tokens", str(TOKENS), "--timeout", str(SECONDS))
    check = ("--check", "grep -q colour_of_the_sea src/paint.py")
    ran = agents("run", "Rename colour to colour_of_the_sea", *limits, *check, "--yes", "--format", "json")
    assert ran.code in (1, 3), ran.err
    told = json.loads(ran.out)
    spent = told["spending"]
    assert 0 < spent["model_calls"] <= STEPS
    assert 0 < spent["tokens"] <= TOKENS
    # A word about its end: the reason, and the command that goes on from there.
    reason = told["error"] or told["waiting_for"] or [check["verdict"] for check in told["checks"]]
    assert reason, told
    assert any(word in ran.err for word in ("it waits: ", "error: plan ", "error: check ")), ran.err
    assert f"agents plan resume {told['id']}" in ran.err or f"agents plan diff {told['id']}" in ran.err
    assert git(Path(), "status", "--short") == ""


def test_a_cancelled_goal_abandons_its_request_and_counts_its_cost(agents: Agents) -> None:
    """The time is over while the model still answers: its request ends with it, and costs what it may."""
    ran = agents("run", "Rename colour", "--timeout", "2", "--max-tokens", str(TOKENS), "--format", "json")
    assert ran.code == 3, ran.err
    told = json.loads(ran.out)
    assert told["state"] == "waiting"
    assert "time" in told["waiting_for"]["what"]
    assert 0 < told["spending"]["tokens"] <= TOKENS
