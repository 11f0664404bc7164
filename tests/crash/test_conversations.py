"""A turn of a conversation whose process is killed at its durable steps.

The conversation stays readable, the turn is marked as interrupted, and the next process continues it: the
plan that it started is started once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import ConversationBusy
from tests.conditions import wait_until
from tests.crash.programs.conversation_runner import PLANS, QUESTION, answered, client_at
from tests.crash.test_plans import distinct
from tests.fork_server import Forked
from tests.plan_bench import new_repository
from tests.ready_database import ready_database

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.conversation_runner"]
POINTS = 8
COMMAND = "/plan paint the shed"


class Runner:
    """Runs turns in processes that are killed at given points."""

    def __init__(self, home: Path) -> None:
        self._template = home / "template"
        self._template.mkdir()
        new_repository(self._template / "shop")
        ready_database(self._template / "state/state.db")
        write_script(self._template, PLANS)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self.process = Forked(
            PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def home(self, path: Path) -> Path:
        shutil.copytree(self._template, path, symlinks=True)
        return path

    def order(self, home: Path, **order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"home": str(home), **order}) + "\n")
        self.process.stdin.flush()

    def code(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


def write_script(home: Path, *rules: object) -> None:
    script = {"version": 1, "facts": {"image_tokens": 900}, "rules": list(rules)}
    (home / "script.yaml").write_text(json.dumps(script))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("runner"))
    yield made
    made.process.communicate(timeout=240)


@pytest.mark.parametrize("question", [QUESTION, COMMAND], ids=["a model starts it", "a command starts it"])
def test_a_killed_turn_is_continued_and_starts_one_plan(
    runner: Runner, tmp_path: Path, question: str
) -> None:
    whole = runner.home(tmp_path / "whole")
    runner.order(whole, question=question)
    assert runner.code() == 0
    ensure_answered(whole)
    points = distinct(json.loads((whole / "points.json").read_text()))
    database = [point for point in points if not point[0].startswith("audit")]
    reached = 0
    for name, nth in database[:: max(1, len(database) // POINTS)]:
        home = runner.home(tmp_path / "killed")
        runner.order(home, question=question, point=name, nth=nth)
        ended = runner.code()
        if ended == -signal.SIGKILL:
            reached += 1
            try:
                ensure_readable(home, question)
                with client_at(home) as client:
                    answered(client, home, question)
                ensure_answered(home)
            except BaseException as error:
                error.add_note(f"killed at {name}, the {nth}th time")
                raise
        shutil.rmtree(home)
    assert reached > POINTS // 2


def ensure_readable(home: Path, question: str) -> None:
    """Check that a conversation whose process died can be read, and shows no running turn."""
    with client_at(home) as client:
        for talk in client.conversations.list().items:
            for turn in client.conversations.turns(talk.id).items:
                assert turn.question == question
                assert turn.state in (TurnState.INTERRUPTED, TurnState.ANSWERED)


def ensure_answered(home: Path) -> None:
    with client_at(home) as client:
        (talk,) = client.conversations.list().items
        (turn,) = client.conversations.turns(talk.id).items
        assert turn.state is TurnState.ANSWERED
        assert turn.answer in ("I started a plan.", f"Plan `{turn.plans[0]}` is started.")
        assert [plan.id for plan in client.plans.list().items] == list(turn.plans) == list(talk.plans)
        assert len(turn.plans) == 1


def test_a_turn_of_another_process_is_busy_until_it_dies(runner: Runner, tmp_path: Path) -> None:
    home = runner.home(tmp_path / "busy")
    write_script(home, {"reply": {"text": "x", "fault": {"hang": True}}})
    runner.order(home)
    with client_at(home) as client:
        talks = client.conversations

        def runs() -> bool:
            return any(one.state is TurnState.RUNNING for one in talks.list().items)

        wait_until(runs)
        (talk,) = talks.list().items
        for refused in (lambda: talks.send(talk.id, "and me?"), lambda: talks.delete(talk.id)):
            with pytest.raises(ConversationBusy):
                refused()
        owner = client.access.container.conversations.store.get(talk.id).owner
        assert owner is not None
        os.kill(owner.pid, signal.SIGKILL)
        assert runner.code() == -signal.SIGKILL
        assert talks.get(talk.id).state is TurnState.INTERRUPTED
        write_script(home, {"reply": {"text": "Hello."}})
    with client_at(home) as client:
        client.conversations.send(talk.id, "hello")
        assert client.conversations.wait(talk.id, timeout=120).answer == "Hello."
        assert [turn.state for turn in client.conversations.turns(talk.id).items] == [
            TurnState.INTERRUPTED,
            TurnState.ANSWERED,
        ]
