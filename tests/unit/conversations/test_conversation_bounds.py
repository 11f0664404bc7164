"""Bounds of conversations: their number, their turns, and the texts that are stored and sent to a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import insert, update

from cleveragents.api.client import LocalClient
from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.api.conversations.plans import LocalConversationPlans
from cleveragents.conversations.model import (
    LONGEST_ANSWER,
    MOST_CONVERSATIONS,
    MOST_STORED_BYTES,
    MOST_TURNS,
    NewConversation,
    NewTurn,
    PlanLink,
    TurnState,
    bounded_answer,
    goal_of,
)
from cleveragents.conversations.store import SqlConversationStore
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import RequestRefused
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.models.model.attachment import Attachment
from cleveragents.storage.conversation_tables import conversation_attachments, conversations
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.rows import row_of
from cleveragents.testing.clock import CountingIdentifiers
from tests.attached_files import PNG
from tests.ready_database import ready_database
from tests.server_plan_bench import PlanServer, plan_server

NOW = SystemClock().now()
ME = WorkerIdentity("me", "here", 1, 1)
REFUSES = {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}}
STARTS = [
    {"calls": [{"tool": "start_plan", "arguments": {"goal": "paint the shed"}}]},
    {"text": "I started a plan."},
]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(ready_database(tmp_path / "state.db")) as opened:
        yield opened


@pytest.fixture
def store(database: Database) -> SqlConversationStore:
    return SqlConversationStore(database, CountingIdentifiers("id"))


def test_the_turns_of_a_conversation_are_bounded(database: Database, store: SqlConversationStore) -> None:
    talk = store.create(NewConversation("default", "/r"), now=NOW)
    database.write(lambda connection: connection.execute(update(conversations).values(turns=MOST_TURNS - 1)))
    held = store.begin(talk.id, NewTurn("the last one"), ME, now=NOW)
    store.end(held.held, TurnState.ANSWERED, answer="hi", now=NOW)
    with pytest.raises(RequestRefused, match="1,000 turns, the limit; start another one"):
        store.begin(talk.id, NewTurn("one more"), ME, now=NOW)
    assert store.get(talk.id).owner is None


def test_the_conversations_of_a_user_are_bounded(database: Database, store: SqlConversationStore) -> None:
    first = store.create(NewConversation("default", "/r", created_by="ada"), now=NOW)
    columns = {f"owner_{name}": None for name in ("id", "host", "pid", "started_ticks")}
    rows = [row_of(replace(first, id=f"c{number}"), **columns) for number in range(1, MOST_CONVERSATIONS)]
    for row in rows:
        del row["owner"]
    database.write(lambda connection: connection.execute(insert(conversations), rows))
    for refused in (
        lambda: store.create(NewConversation("default", "/r", created_by="ada"), now=NOW),
        lambda: store.fork(first.id, turn=None, by="ada", now=NOW),
    ):
        with pytest.raises(RequestRefused, match="ada has 10,000 sessions in project default"):
            refused()
    store.create(NewConversation("default", "/r", created_by="bob"), now=NOW)
    store.create(NewConversation("default", "/r"), now=NOW)
    store.delete(first.id, now=NOW)
    store.create(NewConversation("default", "/r", created_by="ada"), now=NOW)


def test_the_stored_attachments_of_a_user_are_bounded(
    database: Database, store: SqlConversationStore
) -> None:
    asks = NewTurn("what is this?", attachments=(Attachment.of("shed.png", PNG),))
    talk = store.create(NewConversation("default", "/r"), now=NOW)
    held = store.begin(talk.id, asks, ME, now=NOW)
    store.end(held.held, TurnState.FAILED, error="no model", now=NOW)  # the file is stored for a next attempt
    other = store.create(NewConversation("default", "/r"), now=NOW)
    half = MOST_STORED_BYTES // 2
    database.write(lambda connection: connection.execute(update(conversation_attachments).values(bytes=half)))
    fork = store.fork(talk.id, turn=None, by=None, now=NOW)
    for refused in (
        lambda: store.fork(talk.id, turn=None, by=None, now=NOW),
        lambda: store.begin(other.id, asks, ME, now=NOW),
    ):
        with pytest.raises(RequestRefused, match="you would store more than 500,000,000 bytes of"):
            refused()
    theirs = store.create(NewConversation("default", "/r", created_by="bob"), now=NOW)
    begun = store.begin(theirs.id, asks, ME, now=NOW)  # the files of others take no room
    store.end(begun.held, TurnState.FAILED, error="no model", now=NOW)
    store.delete(theirs.id, now=NOW)
    assert {one.id for one in store.list()} == {talk.id, other.id, fork.id}, "nothing of a refused fork stays"
    assert store.get(other.id).owner is None
    assert store.get(other.id).turns == 0
    store.begin(other.id, NewTurn("without a file"), ME, now=NOW)
    resumed = store.resume(talk.id, ME, author=None, now=NOW)
    store.end(resumed.held, TurnState.ANSWERED, answer="a shed", now=NOW)
    store.fork(fork.id, turn=None, by=None, now=NOW)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("bounds")) as made:
        yield made


def test_a_long_answer_is_cut_off() -> None:
    assert bounded_answer("x" * LONGEST_ANSWER) == "x" * LONGEST_ANSWER
    cut = bounded_answer("x" * (LONGEST_ANSWER + 1))
    assert cut == "x" * LONGEST_ANSWER + "\n\n… cut off after 200,000 characters"


def test_a_history_that_exceeds_its_share_is_summarised_and_open_plans_stay_known(server: PlanServer) -> None:
    rules = [
        REFUSES,
        {"when": {"system": "You summarise", "user": "the shed"}, "reply": {"text": "SUMMARY of a shed."}},
        {"when": {"user": "person:\\s+Please paint"}, "turns": STARTS},
        {
            "when": {"user": 'SUMMARY[\\s\\S]*"plan": "[\\s\\S]*person:\\s+How'},
            "reply": {"text": "I know both."},
        },
        {"reply": {"text": "Hello."}},
    ]
    script = server.home / "small.yaml"
    script.write_text(json.dumps({"version": 1, "facts": {"context_tokens": 8000}, "rules": rules}))
    talks = LocalClient(server.bench.container).conversations
    talk = talks.create(ConversationRequest(resource="shop", model=f"scripted/{script}")).id
    talks.send(talk, "Please paint the shed")
    (plan,) = talks.wait(talk, timeout=60).plans
    for number in range(5):
        talks.send(talk, f"question {number} {'about ' * 200}")
        assert talks.wait(talk, timeout=60).state is TurnState.ANSWERED
    assert talks.get(talk).compacted == 4, "one turn fits in half of the share"
    talks.send(talk, "How is it?")
    assert talks.wait(talk, timeout=60).answer == "I know both."
    assert talks.get(talk).compacted == 4, "the history has room again"
    assert talks.get(talk).plans == (plan,)
    assert len(talks.turns(talk).items) == 7, "all turns stay readable"


@pytest.mark.parametrize(("summary", "turns", "most"), [("SUMMARY", 9, 9 + 2), (" ", 10, 99)])
def test_a_full_history_never_prevents_a_turn(
    server: PlanServer, summary: str, turns: int, most: int
) -> None:
    """A summary leaves room for several turns; without one, the prompt leaves out the oldest turns."""
    summarises = {"when": {"system": "You summarise"}, "reply": {"text": summary}}
    rules = [REFUSES, summarises, {"reply": {"text": "Hello."}}]
    script = server.home / f"full{turns}.yaml"
    script.write_text(json.dumps({"version": 1, "facts": {"context_tokens": 8000}, "rules": rules}))
    talks = LocalClient(server.bench.container).conversations
    talk = talks.create(ConversationRequest(resource="shop", model=f"scripted/{script}")).id
    for number in range(turns):
        talks.send(talk, f"question {number} {'about ' * 200}")
        assert talks.wait(talk, timeout=60).answer == "Hello."
    calls = talks.get(talk).model_calls
    assert turns < calls <= most
    talks.send(talk, f"/plan paint it {'red ' * 1000}")
    assert len(talks.wait(talk, timeout=60).plans) == 1
    assert talks.get(talk).model_calls == calls, "a plan needs no summary"


def test_a_missing_summary_is_reported_and_not_asked_for_in_every_turn(server: PlanServer) -> None:
    shortened = (
        "Questions of the user, shortened:[\\s\\S]*Turn 1: question 0 about[\\s\\S]*person:\\s+question 9"
    )
    rules = [
        {"when": {"system": "You summarise"}, "reply": {"text": " "}},
        {"when": {"user": shortened}, "reply": {"text": "I know the first words."}},
        {"reply": {"text": "Hello."}},
    ]
    script = server.home / "blank.yaml"
    script.write_text(json.dumps({"version": 1, "facts": {"context_tokens": 8000}, "rules": rules}))
    sessions = LocalClient(server.bench.container).conversations
    session_id = sessions.create(ConversationRequest(resource="shop", model=f"scripted/{script}")).id
    compacted, answers = [0], list[str]()
    for number in range(10):
        sessions.send(session_id, f"question {number} {'about ' * 200}")
        answers.append(sessions.wait(session_id, timeout=60).answer)
        compacted.append(sessions.get(session_id).compacted)
    assert answers == ["Hello."] * 9 + ["I know the first words."]
    told = "".join(one.text for one in sessions.output(session_id) if one.kind == "progress")
    lines = [line.strip() for line in told.splitlines()]
    attempts = [f"summarise the turns up to {last}" for last in dict.fromkeys(compacted) if last]
    assert lines[::2] == attempts
    assert all("later prompts have only the first words of these turns" in line for line in lines[1::2])
    assert 1 < len(attempts) < 4


@pytest.mark.parametrize(
    ("question", "goal"),
    [
        ("/plan fix it", "fix it"),
        ("/plan\nfix it\nnow", "fix it\nnow"),
        ("/plan\tfix", "fix"),
        ("/plan", ""),
        ("/plans fix", None),
        ("fix /plan", None),
    ],
)
def test_a_goal_follows_the_command_after_any_white_space(question: str, goal: str | None) -> None:
    assert goal_of(question) == goal


def test_plans_that_have_ended_do_not_displace_open_ones() -> None:
    """The first plan of sixty stays known, although a prompt has room for fifty."""
    names = [f"{number:02}" for number in range(60)]
    status = {name: SimpleNamespace(value="ready" if name == "00" else "applied") for name in names}

    def summary(name: str) -> SimpleNamespace:
        return SimpleNamespace(id=name, goal="paint", status=status[name], needs=None, meaning="", error=None)

    links = [PlanLink(name, "start_plan", 1) for name in names]
    store = SimpleNamespace(plans_of=lambda conversation_id: links)
    container: Any = SimpleNamespace(conversations=SimpleNamespace(store=store))
    plans: Any = SimpleNamespace(summary=summary)
    held: Any = SimpleNamespace(id="talk")
    listed = [note.id for note in LocalConversationPlans(container, lambda: plans, held).list()]
    assert listed == [*reversed(names[40:]), "00"]
