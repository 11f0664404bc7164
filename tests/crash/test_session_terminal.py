"""A terminal session that ends in the middle of a turn, after the turn has started a plan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.conversations.model import TurnState
from cleveragents.plans.background_logs import is_in_background
from tests.conditions import wait_until
from tests.crash.programs.conversation_runner import client_at
from tests.fork_server import Forked
from tests.plan_bench import new_repository
from tests.ready_database import ready_database
from tests.unisolated import ALLOW_UNISOLATED

AGENTS = [sys.executable, "-m", "cleveragents"]
RULES = [
    {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}},
    {
        "when": {"offered": "start_plan"},
        "turns": [
            {"calls": [{"tool": "start_plan", "arguments": {"goal": "paint the shed"}}]},
            {"text": "I started", "fault": {"hang": True}},
        ],
    },
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    new_repository(tmp_path / "shop")
    ready_database(tmp_path / "state/state.db")
    (tmp_path / "script.yaml").write_text(json.dumps({"version": 1, "facts": {}, "rules": RULES}))
    return tmp_path


@pytest.fixture
def terminal(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A session whose turn has started a plan, and hangs."""
    with started(home, "session", "start") as child:
        assert child.stdin is not None
        child.stdin.write("Please paint the shed\n")
        child.stdin.flush()
        with client_at(home) as client:
            wait_until(lambda: bool(client.plans.list().items))
        yield child
        child.kill()


def started(home: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CLEVERAGENTS_")},
        **ALLOW_UNISOLATED,
        "HOME": str(home),
        "CLEVERAGENTS_STATE_DIRECTORY": str(home / "state"),
        "CLEVERAGENTS_MODELS_DEFAULT": f"scripted/{home / 'script.yaml'}",
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return Forked([*AGENTS, *words], cwd=home / "shop", env=environment, text=True, **pipes)


def ensure_run(home: Path) -> None:
    """Check that the only plan is run by a process of its own, to its end."""
    with client_at(home) as client:
        (plan,) = client.plans.list().items
        wait_until(lambda: client.plans.summary(plan.id).at_rest)
        assert "401" in str(client.plans.get(plan.id).error)
        wait_until(lambda: not is_in_background(home / "state", plan.id))


def test_ctrl_c_hands_a_started_plan_to_a_process_of_its_own(
    home: Path, terminal: subprocess.Popen[str]
) -> None:
    terminal.send_signal(signal.SIGINT)
    _, told = terminal.communicate(timeout=120)
    with client_at(home) as client:
        (plan,) = client.plans.list().items
        (talk,) = client.conversations.list().items
        assert talk.state is TurnState.STOPPED
    assert f"plan {plan.id} runs in the background: paint the shed" in told
    assert f"agents plan pause {plan.id}" in told
    ensure_run(home)


def test_a_resumed_session_continues_the_plan_of_a_killed_terminal(
    home: Path, terminal: subprocess.Popen[str]
) -> None:
    terminal.kill()
    terminal.communicate(timeout=120)
    with client_at(home) as client:
        (plan,) = client.plans.list().items
        assert not client.plans.summary(plan.id).at_rest  # and no process runs it
        (talk,) = client.conversations.list().items
    with started(home, "session", "resume", talk.id) as resumed:
        _, told = resumed.communicate("", timeout=120)
    assert f"plan {plan.id} runs in the background: paint the shed" in told
    ensure_run(home)
    with started(home, "session", "resume", talk.id) as resumed:
        assert resumed.communicate("", timeout=120)[1] == ""
