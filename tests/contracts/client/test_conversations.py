"""Conversations about a repository, through every client."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from sqlalchemy import select

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.client import Client
from cleveragents.api.conversations.client import Attachment, ConversationRequest, TurnView
from cleveragents.api.plans.detail_views import CorrectionNode
from cleveragents.api.plans.request import Limits
from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import (
    CleverAgentsError,
    ConversationBusy,
    NotAllowed,
    RequestRefused,
    UnknownConversation,
    UnknownResource,
)
from cleveragents.plans.model.plan import PlanState
from cleveragents.storage.conversation_tables import conversation_attachments
from tests.attached_files import PDF, PNG
from tests.conditions import wait_until
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

REFUSES = {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}}
HANGS = {"when": {"user": "person:\\s+hang"}, "reply": {"text": "one two three", "fault": {"hang": True}}}
READS = {
    "when": {"user": "What is in a.txt"},
    "turns": [
        {"calls": [{"tool": "read", "arguments": {"path": "a.txt", "line_numbers": True}}]},
        {"text": "`a.txt:1` says it."},
    ],
}
PLANS = {
    "when": {"user": "person:\\s+Please paint", "offered": "start_plan"},
    "turns": [
        {"calls": [{"tool": "start_plan", "arguments": {"goal": "paint the shed"}}]},
        {"text": "I started a plan. Review it."},
    ],
}
FOLLOWS = {
    "when": {"user": 'plan": "(?P<plan>\\w+)"[^Z]*person:\\s+Show it'},
    "turns": [
        {"calls": [{"tool": "show_plan", "arguments": {"plan": "${plan}"}}]},
        {"calls": [{"tool": "correct_plan", "arguments": {"plan": "${plan}", "message": "use red paint"}}]},
        {"text": "It uses red paint now."},
    ],
}
LISTENS = {"when": {"user": '"plan": "'}, "reply": {"text": "I know the plan."}}
SUMMARISES = {"when": {"system": "You summarise"}, "reply": {"text": "They spoke of a shed."}}
SEES = {
    "when": {"attached": "image/png", "user": 'names: \\["a.png", "b.pdf"\\]'},
    "reply": {"text": "A shed."},
}
FAILS_ONCE = {
    "when": {"attached": "image/png"},
    "times": 1,
    "reply": {"fault": {"status": 401, "message": "no"}},
}
SEES_AGAIN = {"when": {"attached": "image/png"}, "reply": {"text": "A picture."}}
RECALLS = {"when": {"user": '"attached": \\["a.png", "b.pdf"\\]'}, "reply": {"text": "I saw it before."}}
SAYS = {"reply": {"text": "Hello."}}
FILES = (Attachment.of("dir/a.png", PNG), Attachment.of("b.pdf", PDF))


@pytest.fixture(scope="module")
def model(server: PlanServer) -> str:
    (server.repository / "a.txt").write_text("the first line\n")
    return server.script(REFUSES, SUMMARISES, HANGS, READS, PLANS, FOLLOWS, LISTENS, SEES, RECALLS, SAYS)


def asked(
    client: Client,
    conversation_id: str,
    text: str,
    *,
    read_only: bool = False,
    attachments: Sequence[Attachment] = (),
) -> TurnView:
    client.conversations.send(conversation_id, text, read_only=read_only, attachments=attachments)
    return client.conversations.wait(conversation_id, timeout=60)


def begun(client: Client, model: str, limits: Limits | None = None) -> str:
    request = ConversationRequest(resource="shop", model=model, limits=limits or Limits())
    return client.conversations.create(request).id


def test_a_question_is_answered_from_the_files(client: Client, model: str) -> None:
    talk = begun(client, model)
    sent = client.conversations.send(talk, "What is in a.txt?")
    assert (sent.number, sent.question) == (1, "What is in a.txt?")
    pieces = list(client.conversations.watch(talk))
    assert "read" in "".join(piece.text for piece in pieces if piece.kind == "progress")
    assert "`a.txt:1` says it." in "".join(piece.text for piece in pieces if piece.kind == "model")
    turn = client.conversations.wait(talk)
    assert (turn.state, turn.answer, turn.by) == (TurnState.ANSWERED, "`a.txt:1` says it.", "operator")
    seen = client.conversations.get(talk)
    assert (seen.title, seen.state, seen.turns, seen.project) == (
        "What is in a.txt?",
        TurnState.ANSWERED,
        1,
        "team",
    )
    assert seen.model_calls == 2
    assert [one.id for one in client.conversations.list(resource="shop", limit=1).items] == [talk]
    assert client.conversations.turns(talk).items == (turn,)


def test_a_watch_continues_where_another_ended(client: Client, model: str) -> None:
    talk = begun(client, model)
    asked(client, talk, "hello")
    turn = client.conversations.send(talk, "What is in a.txt?")
    first = next(iter(client.conversations.watch(talk)))
    rest = list(client.conversations.watch(talk, after=first.number))
    assert [first, *rest] == list(client.conversations.output(talk, after=turn.output_after))
    assert list(client.conversations.watch(talk)) == [first, *rest], (
        "an ended turn is shown from its beginning"
    )
    assert list(client.conversations.watch(talk, after=rest[-1].number)) == []


def test_the_lines_of_a_reference_are_shown_and_no_other_file(
    server: PlanServer, client_of: ClientOf, model: str
) -> None:
    client = client_of("operator")
    talk, root = begun(client, model), server.repository
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    (root / "key.txt").write_text(f"key = {'ghp_' + 'a1B2' * 9}\n")
    (root / "data.bin").write_bytes(b"\xff\xfe")
    (root / ".gitignore").write_text("ignored.env\n")
    (root / "ignored.env").write_text("TOKEN=1\n")
    (root / "way.txt").unlink(missing_ok=True)
    (root / "way.txt").symlink_to("ignored.env")
    seen = client.conversations.file(talk, "long.txt", line=50)
    assert (seen.total, seen.lines[50 - seen.first], len(seen.lines)) == (100, "line 50", 61)
    last = client.conversations.file(talk, "long.txt", line=7000)
    assert last.lines[-1] == "line 100", "a line that is gone shows the end"
    assert client.conversations.file(talk, "key.txt").lines == ("key = ***",)
    for path in ("ignored.env", "way.txt", "../secret", "/etc/passwd", "data.bin", "gone.txt", "a\0b"):
        with pytest.raises(RequestRefused):
            client.conversations.file(talk, path)
    with pytest.raises(NotAllowed):
        client_of("viewer").conversations.file(talk, "long.txt")


def test_a_request_becomes_a_plan_of_the_user(server: PlanServer, client: Client, model: str) -> None:
    talk = begun(client, model, limits=Limits(tokens=90_000))
    turn = asked(client, talk, "Please paint the shed")
    (plan_id,) = turn.plans
    seen = [json.loads(one.text) for one in client.conversations.output(talk) if one.kind == "node"]
    assert [one["plan"] for one in seen if one.get("event") == "plan"] == [plan_id]
    assert client.conversations.get(talk).plans == (plan_id,)
    plan = client.plans.get(plan_id)
    assert (plan.goal, plan.request["by"], plan.request["apply"]) == ("paint the shed", "operator", "review")
    limits = plan.request["limits"]
    assert isinstance(limits, dict)
    assert 0 < limits["tokens"] < 90_000
    # A later turn knows the plan, and so does a turn after a compaction.
    assert asked(client, talk, "How is it?").answer == "I know the plan."
    server.rested({"id": plan_id})
    assert server.parts.plans.get(plan_id).state is not PlanState.APPLIED
    # A follow-up goes to the plan it is about.
    corrected = asked(client, talk, "Show it, and use red paint")
    assert (corrected.answer, corrected.plans) == ("It uses red paint now.", (plan_id,))
    told = [one for one in client.plans.decisions(plan_id).items if isinstance(one, CorrectionNode)]
    assert [one.guidance for one in told] == ["use red paint"]


def test_the_plan_command_starts_a_plan_without_a_model_call(client: Client, model: str) -> None:
    request = ConversationRequest(resource="shop", model=model, profile="review")
    talk = client.conversations.create(request)
    assert (talk.profile, talk.calls_tools) == ("review", True)
    turn = asked(client, talk.id, "/plan paint the shed")
    (plan_id,) = turn.plans
    assert (turn.state, turn.answer) == (TurnState.ANSWERED, f"Plan `{plan_id}` is started.")
    assert client.conversations.get(talk.id).model_calls == 0
    plan = client.plans.get(plan_id)
    assert (plan.goal, plan.request["profile"]) == ("paint the shed", "review")
    for text, read_only in (("/plan", False), ("/plan  ", False), ("/plan paint", True)):
        with pytest.raises(RequestRefused):
            client.conversations.send(talk.id, text, read_only=read_only)
    with pytest.raises(CleverAgentsError, match="no-such"):
        client.conversations.create(ConversationRequest(resource="shop", model=model, profile="no-such"))


def test_a_read_only_turn_starts_no_plan(client: Client, model: str) -> None:
    talk = begun(client, model)
    turn = asked(client, talk, "Please paint the shed", read_only=True)
    assert (turn.answer, turn.plans, turn.read_only) == ("Hello.", (), True)


def test_one_turn_runs_at_a_time_and_a_stopped_turn_stays(client: Client, model: str) -> None:
    talk = begun(client, model)
    client.conversations.send(talk, "hang")
    with pytest.raises(ConversationBusy):
        client.conversations.send(talk, "and me?")
    for refused in (client.conversations.delete, client.conversations.compact, client.conversations.resume):
        with pytest.raises(ConversationBusy):
            refused(talk)
    assert client.conversations.get(talk).state is TurnState.RUNNING
    client.conversations.stop(talk)
    turn = client.conversations.wait(talk, timeout=60)
    assert (turn.state, turn.number) == (TurnState.STOPPED, 1)
    client.conversations.stop(talk)  # nothing runs
    assert asked(client, talk, "hello").answer == "Hello."
    assert [one.state for one in client.conversations.turns(talk).items] == [
        TurnState.STOPPED,
        TurnState.ANSWERED,
    ]
    with pytest.raises(RequestRefused):
        client.conversations.resume(talk)


def test_a_stopped_turn_is_continued(client: Client, model: str) -> None:
    talk = begun(client, model)
    client.conversations.send(talk, "hang")
    client.conversations.stop(talk)
    client.conversations.wait(talk, timeout=60)
    assert client.conversations.resume(talk).number == 1
    assert client.conversations.get(talk).state is TurnState.RUNNING
    client.conversations.stop(talk)
    assert client.conversations.wait(talk, timeout=60).state is TurnState.STOPPED


def contents(server: PlanServer, conversation_id: str) -> list[bytes | None]:
    """Return the stored contents of the attachments of a conversation."""
    table = conversation_attachments.c
    query = select(table.content).where(table.conversation_id == conversation_id)
    with server.bench.container.database.read() as connection:
        return list(connection.execute(query.order_by(table.turn, table.number)).scalars())


def test_the_model_gets_the_attachments_of_its_turn_only(
    server: PlanServer, client: Client, model: str
) -> None:
    talk = begun(client, model)
    turn = asked(client, talk, "What is this?", attachments=FILES)
    assert turn.answer == "A shed."
    assert [(one.name, one.media_type.value, one.bytes) for one in turn.attachments] == [
        ("a.png", "image/png", len(FILES[0].content)),
        ("b.pdf", "application/pdf", len(FILES[1].content)),
    ]
    assert client.conversations.turns(talk).items == (turn,)
    assert contents(server, talk) == [None, None], "an answered turn needs them no more"
    assert asked(client, talk, "And now?").answer == "I saw it before."
    fork = client.conversations.fork(talk, turn=1)
    assert [one.attachments for one in client.conversations.turns(fork.id).items] == [turn.attachments]
    client.conversations.delete(talk)
    assert contents(server, talk) == []


def test_an_unanswered_turn_keeps_its_attachments_until_another_begins(
    server: PlanServer, client: Client
) -> None:
    talk = begun(client, server.script(FAILS_ONCE, SEES_AGAIN, SAYS))
    shown = FILES[0].content
    assert asked(client, talk, "What is this?", attachments=FILES[:1]).state is TurnState.FAILED
    assert contents(server, talk) == [shown]
    fork = client.conversations.fork(talk).id
    assert contents(server, fork) == [shown]
    client.conversations.resume(talk)
    assert client.conversations.wait(talk, timeout=60).answer == "A picture."
    assert contents(server, talk) == [None]
    late = client.conversations.fork(fork).id
    assert asked(client, fork, "hello").answer == "Hello."
    assert (contents(server, fork), contents(server, late)) == ([None], [shown])
    gone = client.conversations.fork(fork, turn=1).id
    client.conversations.resume(gone)
    turn = client.conversations.wait(gone, timeout=60)
    assert turn.state is TurnState.FAILED
    assert "send the question again with its files" in str(turn.error)


def test_attachments_that_cannot_be_sent_are_refused_before_the_turn(
    server: PlanServer, client: Client, model: str
) -> None:
    talk = begun(client, model)
    for text, files in (("/plan paint", FILES), ("What?", FILES * 3)):
        with pytest.raises(RequestRefused):
            client.conversations.send(talk, text, attachments=files)
    blind = server.home / "blind.yaml"
    blind.write_text(json.dumps({"version": 1, "rules": [SAYS]}))
    other = begun(client, f"scripted/{blind}")
    with pytest.raises(RequestRefused, match="takes no image/png files, as far as is known") as refused:
        client.conversations.send(other, "What is this?", attachments=FILES)
    assert "model.list" in [one.action for one in refused.value.remedies]
    assert [client.conversations.get(one).turns for one in (talk, other)] == [0, 0]


def test_the_budget_reserves_the_most_that_attachments_take(client: Client, model: str) -> None:
    talk = begun(client, model, limits=Limits(tokens=100_000))
    turn = asked(client, talk, "What is this?", attachments=FILES)
    assert (turn.state, client.conversations.get(talk).tokens) == (TurnState.FAILED, 0)
    assert "budget" in str(turn.error)


def test_a_session_is_renamed(client: Client, client_of: ClientOf, model: str) -> None:
    talk = begun(client, model)
    assert client.conversations.rename(talk, "  The \n shed ").title == "The shed"
    asked(client, talk, "hello")
    assert client.conversations.get(talk).title == "The shed"
    with pytest.raises(RequestRefused):
        client.conversations.rename(talk, "  ")
    with pytest.raises(NotAllowed):
        client_of("viewer").conversations.rename(talk, "mine")
    with pytest.raises(UnknownConversation):
        client.conversations.rename("nothing", "mine")


def test_a_fork_has_the_turns_up_to_one(client: Client, model: str) -> None:
    talk = begun(client, model)
    for text in ("one", "two", "three"):
        asked(client, talk, text)
    fork = client.conversations.fork(talk, turn=2)
    assert (fork.forked_from, fork.turns, fork.model_calls) == (talk, 2, 0)
    assert [one.question for one in client.conversations.turns(fork.id).items] == ["one", "two"]
    assert asked(client, fork.id, "four").number == 3
    assert client.conversations.get(talk).turns == 3
    with pytest.raises(RequestRefused):
        client.conversations.fork(talk, turn=9)


def test_a_compaction_keeps_recent_turns_and_open_plans(client: Client, model: str) -> None:
    talk = begun(client, model)
    asked(client, talk, "Please paint the shed")
    assert client.conversations.compact(talk).compacted == 0  # nothing is old enough
    for number in range(5):
        asked(client, talk, f"question {number}")
    assert client.conversations.compact(talk).compacted == 2
    assert asked(client, talk, "How is it?").answer == "I know the plan."
    assert len(client.conversations.turns(talk).items) == 7


def test_a_deleted_conversation_is_gone(client: Client, model: str) -> None:
    talk = begun(client, model)
    asked(client, talk, "hello")
    client.conversations.delete(talk)
    for call in (client.conversations.get, client.conversations.turns, client.conversations.delete):
        with pytest.raises(UnknownConversation):
            call(talk)


def test_only_an_unused_conversation_is_deleted_on_request(client: Client, model: str) -> None:
    used, unused = begun(client, model), begun(client, model)
    asked(client, used, "hello")
    with pytest.raises(RequestRefused, match="has turns"):
        client.conversations.delete(used, only_unused=True)
    assert client.conversations.get(used).turns == 1
    client.conversations.delete(unused, only_unused=True)
    with pytest.raises(UnknownConversation):
        client.conversations.get(unused)


def test_bad_requests_are_refused(client: Client, model: str) -> None:
    talk = begun(client, model)
    for text in ("", "   "):
        with pytest.raises(RequestRefused):
            client.conversations.send(talk, text)
    with pytest.raises(UnknownResource):
        client.conversations.create(ConversationRequest(resource="nowhere", model=model))
    with pytest.raises(UnknownConversation):
        client.conversations.get("../plans")
    with pytest.raises(RequestRefused):
        client.conversations.wait(talk, timeout=1)
    for after in ("²", "-1", "x", "9" * 30):
        with pytest.raises(RequestRefused):
            client.conversations.turns(talk, after=after)


def test_a_failed_turn_says_why(server: PlanServer, client: Client) -> None:
    broken = server.script({"reply": {"fault": {"status": 401, "message": "no such key"}}})
    talk = begun(client, broken)
    turn = asked(client, talk, "hello")
    assert turn.state is TurnState.FAILED
    assert turn.error


def test_roles_and_projects_apply(client_of: ClientOf, foreign: str, model: str) -> None:
    operator, viewer, admin = client_of("operator"), client_of("viewer"), client_of("admin")
    talk = begun(operator, model)
    asked(operator, talk, "hello")
    assert viewer.conversations.get(talk).turns == 1
    assert viewer.conversations.turns(talk).items[0].answer == "Hello."
    with pytest.raises(NotAllowed):
        viewer.conversations.send(talk, "hello")
    with pytest.raises(NotAllowed):
        viewer.conversations.delete(talk)
    with pytest.raises(NotAllowed):
        begun(viewer, model)
    hidden = admin.conversations.create(ConversationRequest(resource=foreign, model=model)).id
    with pytest.raises(UnknownConversation):
        operator.conversations.get(hidden)
    assert hidden not in [one.id for one in operator.conversations.list().items]
    admin.conversations.delete(hidden)


def test_a_budget_bounds_the_turns(client: Client, model: str) -> None:
    talk = begun(client, model, limits=Limits(steps=1))
    assert asked(client, talk, "hello").state is TurnState.ANSWERED
    turn = asked(client, talk, "hello again")
    assert turn.state is TurnState.FAILED
    assert "budget" in str(turn.error)
    wait_until(lambda: client.conversations.get(talk).state is TurnState.FAILED)


def test_a_person_raises_a_spent_budget_and_continues_the_turn(
    client: Client, client_of: ClientOf, model: str
) -> None:
    talks = client.conversations
    talk = begun(client, model, limits=Limits(steps=1))
    asked(client, talk, "hello")
    failed = asked(client, talk, "hello again")
    assert failed.state is TurnState.FAILED
    (remedy,) = failed.remedies
    assert (remedy.action, remedy.plan) == ("session.budget", None)
    assert remedy.options == {"session": talk, "limits.steps": 2}
    fork = talks.fork(talk).id
    assert [one.remedies for one in talks.turns(fork).items] == [(), ()], "they name the source"
    talks.resume(talk)
    assert talks.wait(talk, timeout=60).remedies == (remedy,)
    raised = talks.raise_budget(talk, Limits(steps=2))
    assert (raised.limits.steps, raised.limits.tokens, raised.model_calls) == (2, None, 1)
    talks.resume(talk)
    turn = talks.wait(talk, timeout=60)
    assert (turn.number, turn.state, turn.answer) == (2, TurnState.ANSWERED, "Hello.")
    assert (turn.error, turn.remedies) == (None, ())
    assert talks.get(talk).model_calls == 2
    for limits in (Limits(), Limits(steps=1)):
        with pytest.raises(RequestRefused):
            talks.raise_budget(talk, limits)
    with pytest.raises(NotAllowed):
        client_of("viewer").conversations.raise_budget(talk, Limits(steps=9))
    with pytest.raises(UnknownConversation):
        talks.raise_budget("nothing", Limits(steps=9))
    assert talks.get(talk).limits.steps == 2


def test_a_budget_is_raised_while_a_turn_runs(client: Client, model: str) -> None:
    talks = client.conversations
    talk = begun(client, model, limits=Limits(tokens=900_000, steps=1))
    talks.send(talk, "hang")
    next(iter(talks.watch(talk)))  # the model is called
    raised = talks.raise_budget(talk, Limits(steps=2))
    assert (raised.state, raised.limits.steps, raised.limits.tokens) == (TurnState.RUNNING, 2, 900_000)
    talks.stop(talk)
    talks.wait(talk, timeout=60)
    assert talks.get(talk).model_calls == 1, "the running call is still counted"
    assert asked(client, talk, "hello").state is TurnState.ANSWERED


def test_a_plan_that_exceeds_the_budget_of_the_session_names_the_limit(client: Client, model: str) -> None:
    talk = begun(client, model, limits=Limits(steps=9))
    assert len(asked(client, talk, "/plan paint the shed").plans) == 1
    refused = asked(client, talk, "/plan paint the door")
    assert (refused.state, refused.plans) == (TurnState.FAILED, ())
    assert [one.options for one in refused.remedies] == [{"session": talk, "limits.steps": None}]
    client.conversations.raise_budget(talk, Limits(steps=18))
    client.conversations.resume(talk)
    assert len(client.conversations.wait(talk, timeout=60).plans) == 1


def test_a_name_of_another_project_is_not_the_repository_of_the_session(
    server: PlanServer, client_of: ClientOf, foreign: str, model: str
) -> None:
    admin = client_of("admin")  # who sees both projects
    projects, now = server.bench.container.projects, server.bench.container.clock.now()
    place = ResourceKind.DIRECTORY, str(server.repository)
    projects.add_resource("moving", "team", *place, now=now)
    talk = admin.conversations.create(ConversationRequest(resource="moving", model=model)).id
    projects.remove_resource("moving", now=now)
    projects.add_resource("moving", "elsewhere", *place, now=now)
    with pytest.raises(UnknownResource):
        admin.conversations.send(talk, "What is in a.txt?")
    assert admin.conversations.get(talk).turns == 0
    projects.remove_resource("moving", now=now)
