"""The reach of a conversation: it reads, starts plans and corrects its own, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import Role, TokenKind
from cleveragents.api.access import Access
from cleveragents.api.client import LocalClient
from cleveragents.api.conversations.client import ConversationRequest, TurnView
from cleveragents.api.conversations.local import LocalConversations
from cleveragents.api.plans.client import Plans
from cleveragents.api.plans.local import LocalPlans
from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.api.plans.views import PlanView
from cleveragents.conversations.model import NewConversation, NewTurn, TurnState
from cleveragents.core.errors import RequestRefused, UnknownUser
from cleveragents.storage.idempotency import IdempotencyClaim
from tests.cli_bench import paint_shop
from tests.server_plan_bench import PlanServer, plan_server

ALLOWED = {"create", "correct", "revise", "get", "summary", "diff"}
"""The methods of `Plans` that a conversation uses."""
NEEDS_A_PERSON = {"approve", "deny", "answer", "apply", "submit_apply", "undo", "discard", "delete", "cancel"}
NEEDS_A_PERSON |= {"raise_budget", "review", "publish", "rollback", "resolve", "submit_undo", "resume"}
HOSTILE = (
    "approve_plan",
    "apply_plan",
    "discard_plan",
    "delete_plan",
    "raise_budget",
    "add_rule",
    "set_config",
    "write",
    "edit",
    "command",
    "skill",
)


class Recording(LocalPlans):
    """Plans that note which of their methods are called from outside."""

    def __init__(self, access: Access, called: set[str]) -> None:
        super().__init__(access)
        self._called = called

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name in dir(Plans):
            object.__getattribute__(self, "_called").add(name)
        return super().__getattribute__(name)


PAINTS = {"calls": [{"tool": "start_plan", "arguments": {"goal": "paint the shed"}}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("reach")) as made:
        yield made


def talked(server: PlanServer, model: str, *texts: str) -> tuple[list[TurnView], set[str]]:
    container, called = server.bench.container, set[str]()
    found = container.users.known_by(
        server.bench.tokens["operator"], TokenKind.PROGRAM, now=container.clock.now()
    )
    assert found is not None
    access = Access(container, *found)
    talks = LocalConversations(access, Recording(access, called))
    talk = talks.create(ConversationRequest(resource="shop", model=model))
    turns = []
    for text in texts:
        talks.send(talk.id, text)
        turns.append(talks.wait(talk.id, timeout=120))
    return turns, called


def call(tool: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"tool": tool, "arguments": arguments}]}


def test_no_tool_of_a_conversation_needs_a_person(server: PlanServer) -> None:
    refused = {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}}
    calls = [call(name, plan="{plan}", path="a.txt") for name in HOSTILE]
    reads = [
        call("read", path="a.txt"),
        call("grep", pattern="a"),
        call("glob", pattern="*"),
        call("list"),
        call("request_context", question="a"),
        call("query_history"),
        call("start_plan", goal="paint the shed"),
        call("list_plans"),
        call("show_plan", plan="nothing"),
        call("show_plan", plan="nothing", diff=True),
        call("correct_plan", plan="nothing", message="m"),
    ]
    model = server.script(refused, {"turns": [*calls, *reads, {"text": "I could not."}]})
    (turn,), called = talked(server, model, "Apply everything, and approve what is asked.")
    assert (turn.state, turn.answer) == (TurnState.ANSWERED, "I could not.")
    assert len(turn.plans) == 1
    assert called <= ALLOWED
    assert not ALLOWED & NEEDS_A_PERSON
    # Only tools that the conversation offers were called; the others do not exist for it.
    assert {"create", "summary", "get"} <= called


def test_a_model_chooses_no_commands_as_checks(server: PlanServer, tmp_path: Path) -> None:
    """A check runs as a command of the person, without approval, so it must not come from a model."""
    written = tmp_path / "written"
    model = server.script(
        {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}},
        {"turns": [call("start_plan", goal="paint", checks=[f"touch {written}"]), {"text": "I could not."}]},
    )
    (turn,), called = talked(server, model, "Which files are there?")
    assert (turn.answer, turn.plans) == ("I could not.", ())
    assert "create" not in called
    assert not written.exists()


def test_a_conversation_corrects_only_its_own_plans(server: PlanServer) -> None:
    other = server.command("true")
    server.rested(other)
    model = server.script(
        {
            "turns": [
                call("correct_plan", plan=other["id"], message="delete it all"),
                {"text": "It is not mine."},
            ]
        }
    )
    (turn,), called = talked(server, model, "Correct the other plan.")
    assert (turn.answer, turn.plans) == ("It is not mine.", ())
    assert not called & {"correct", "revise"}


SETS_SECRET = "s=ghp_; for i in 1 2 3 4 5 6 7 8 9; do s=${s}a1''B2; done"
"""A shell command that sets `s` to a token of GitHub."""


def test_the_assistant_explains_the_changed_lines_of_a_plan_and_sees_no_secret(
    server: PlanServer, tmp_path: Path
) -> None:
    files = "echo painted > shed.txt; echo key = $s > key.txt; yes $s | head -1000 > keys.txt"
    script = f"{SETS_SECRET}; {files}; seq 4500 > numbers.txt"
    made = server.rested(server.command(script, apply="review"))
    container = server.bench.container
    place = ResourceKind.DIRECTORY, str(paint_shop(tmp_path / "other"))
    container.projects.add_resource("other", "team", *place, now=container.clock.now())
    hidden = server.rested(server.command("echo painted > shed.txt", resource="other", apply="review"))

    def asks(text: str, **arguments: object) -> dict[str, object]:
        return {"when": {"user": f"person:\\s+{text}", "turn": 0}, "reply": call("show_plan", **arguments)}

    def sees(answer: str, text: str) -> dict[str, object]:
        return {"when": {"tool": "show_plan", "answer": answer}, "reply": {"text": text}}

    model = server.script(
        sees("a1B2", "A secret."),
        sees("does not change nothing.txt", "It does not change it."),
        sees("there is no plan", "There is no such plan."),
        sees("(?s)b/key.txt.*\\+key = \\*\\*\\*.*characters omitted", "Everything, but the middle."),
        sees("(?s)\\A(?!.*b/key.txt).*b/shed.txt\\n@@ .* @@\\n\\+painted\\Z", "The shed is painted."),
        sees("(?s)\\A(?!.*@@).*shed.txt \\(created", "The names of the files."),
        asks("Which", plan=made["id"]),
        asks("All", plan=made["id"], diff=True),
        asks("Shed", plan=made["id"], path="shed.txt"),
        asks("Keys", plan=made["id"], path="keys.txt"),
        asks("Nothing", plan=made["id"], path="nothing.txt"),
        asks("Hidden", plan=hidden["id"], path="shed.txt"),
        {"reply": {"text": "Something else."}},
    )
    turns, called = talked(server, model, "Which?", "All?", "Shed?", "Keys?", "Nothing?", "Hidden?")
    assert [turn.answer for turn in turns] == [
        "The names of the files.",
        "Everything, but the middle.",
        "The shed is painted.",
        "Something else.",
        "It does not change it.",
        "There is no such plan.",
    ]
    assert called == {"get", "diff"}


def test_a_failed_plan_keeps_its_share_of_the_budget(server: PlanServer) -> None:
    """A correction continues a failed plan, so what the plan may still spend is not free."""
    refused = {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}}
    starts = [call("start_plan", goal="paint"), {"text": "Started."}]
    again = {"when": {"user": "person:\\s+Again"}, "turns": starts}
    model = server.script(refused, again, {"turns": starts})
    container = server.bench.container
    found = container.users.known_by(
        server.bench.tokens["operator"], TokenKind.PROGRAM, now=container.clock.now()
    )
    assert found is not None
    access = Access(container, *found)
    talks = LocalConversations(access, LocalPlans(access))
    talk = talks.create(ConversationRequest(resource="shop", model=model, limits=Limits(tokens=900_000)))
    talks.send(talk.id, "Paint.")
    (first,) = talks.wait(talk.id, timeout=60).plans
    server.rested({"id": first})
    talks.send(talk.id, "Again.")
    assert talks.wait(talk.id, timeout=60).plans == ()


def test_a_secret_in_a_question_or_an_answer_is_masked(server: PlanServer) -> None:
    secret = "ghp_" + "a1B2" * 9
    model = server.script({"reply": {"text": f"It is {secret}."}})
    (turn,), _ = talked(server, model, f"Is {secret} the token?")
    assert secret not in turn.question
    assert secret not in turn.answer


class Removing(LocalPlans):
    """Plans whose first creation ends the membership of their user."""

    def create(self, request: PlanRequest, *, claim: IdempotencyClaim | None = None) -> PlanView:
        made = super().create(request, claim=claim)
        container = self._access.container
        container.members.remove("team", self._access.user.name, now=container.clock.now())
        return made


def member(server: PlanServer, name: str) -> Access:
    """Return the rights of a new operator of the project."""
    container = server.bench.container
    now = container.clock.now()
    container.users.add(name, Role.OPERATOR, now=now)
    container.members.set("team", name, Role.OPERATOR, now=now)
    return Access(container, container.users.get(name))


@pytest.mark.parametrize("calls", [1, 2], ids=["a model call", "a tool call"])
def test_a_removed_member_loses_the_rights_of_a_turn_at_the_next_call(server: PlanServer, calls: int) -> None:
    refused = {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}}
    starts = {
        "calls": [{"tool": "start_plan", "arguments": {"goal": f"paint {one}"}} for one in range(calls)]
    }
    model = server.script(refused, {"turns": [starts, {"text": "I read it all."}]})
    access = member(server, f"ada{calls}")
    talks = LocalConversations(access, Removing(access))
    talk = talks.create(ConversationRequest(resource="shop", model=model))
    talks.send(talk.id, "Paint.")
    other = LocalClient(server.bench.container).conversations
    turn = other.wait(talk.id, timeout=60)
    assert (turn.state, turn.answer, len(turn.plans)) == (TurnState.FAILED, "", 1)
    assert "the role operator in project team is required" in str(turn.error)
    assert other.get(talk.id).model_calls == 1


def test_a_user_with_the_name_of_a_removed_one_has_other_rights(server: PlanServer) -> None:
    container = server.bench.container
    access = member(server, "bob")
    assert access.now() == access
    container.users.remove("bob", now=container.clock.now())
    with pytest.raises(UnknownUser):
        access.now()
    member(server, "bob")
    with pytest.raises(UnknownUser):
        access.now()


def test_a_turn_is_continued_by_its_author_and_with_the_rights_of_its_author(server: PlanServer) -> None:
    container = server.bench.container
    refused = {"when": {"system": "You plan changes"}, "reply": {"fault": {"status": 401, "message": "no"}}}
    access, others = member(server, "carl"), member(server, "dora")
    model = server.script(refused, {"turns": [PAINTS, {"text": "Started."}]})
    request = ConversationRequest(resource="shop", model=model)
    talk = LocalClient(container, access.user).conversations.create(request).id
    store, now = container.conversations.store, container.clock.now()
    held = store.begin(talk, NewTurn("Paint.", "carl"), container.conversations.owner, now=now)
    store.end(held.held, TurnState.STOPPED, now=now)
    with pytest.raises(RequestRefused, match="was sent by carl"):
        LocalClient(container, others.user).conversations.resume(talk)
    owner = LocalClient(container)
    assert owner.conversations.resume(talk).number == 1
    turn = owner.conversations.wait(talk, timeout=60)
    assert (turn.state, turn.by) == (TurnState.ANSWERED, "carl")
    assert owner.plans.get(turn.plans[0]).request["by"] == "carl"


def test_a_resume_refuses_a_turn_that_another_person_sent_meanwhile(server: PlanServer) -> None:
    container = server.bench.container
    store, now = container.conversations.store, container.clock.now()
    talk = store.create(NewConversation("team", "/r"), now=now)
    held = store.begin(talk.id, NewTurn("delete it all", "carl"), container.conversations.owner, now=now)
    store.end(held.held, TurnState.STOPPED, now=now)
    with pytest.raises(RequestRefused, match="is new"):
        store.resume(talk.id, container.conversations.owner, author="dora", now=now)
    assert store.get(talk.id).owner is None


def test_the_reach_names_real_methods() -> None:
    assert set(dir(Plans)) >= ALLOWED | NEEDS_A_PERSON
