"""CleverAgents in an editor: the agent, asked by the client of the official SDK over a socket."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from acp import helpers, schema
from acp.agent.connection import AgentSideConnection
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from sqlalchemy import Connection, update

from cleveragents.api.client import LocalClient
from cleveragents.api.conversations.local import LocalConversations
from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import UnknownConversation
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.protocols.acp_agent import AcpOptions, PlanAgent
from cleveragents.protocols.acp_stdio import BoundedLines
from cleveragents.protocols.acp_updates import LONGEST_PROMPT, changed_files
from cleveragents.storage.conversation_tables import conversation_turns
from tests.attached_files import PNG
from tests.server_plan_bench import PlanServer, plan_server

T = TypeVar("T")

SECONDS = 100.0
BLUE = "make it blue"
RULES = (
    {
        "when": {"system": "You plan changes"},
        "reply": {
            "text": '{"summary": "One step.", "decisions": [],'
            ' "steps": [{"title": "Paint", "instructions": "Write the colour of the day."}]}'
        },
    },
    {
        "when": {"user": "person:\\s+talk for ever"},
        "reply": {"text": "one two three", "fault": {"hang": True}},
    },
    {"when": {"user": "person:\\s+where"}, "reply": {"text": "In `a.txt:1`."}},
    {
        "when": {
            "user": 'plan": "(?P<plan>\\w+)"[\\s\\S]*person:\\s+make it blue',
            "offered": "correct_plan",
        },
        "turns": [
            {
                "calls": [
                    {"tool": "correct_plan", "arguments": {"plan": "${plan}", "message": "make it blue"}}
                ]
            },
            {"text": "I sent it to the plan."},
        ],
    },
    {
        "when": {"user": "person:\\s+(?P<goal>.+)", "offered": "start_plan"},
        "turns": [
            {"calls": [{"tool": "start_plan", "arguments": {"goal": "${goal}"}}]},
            {"text": "I started a plan."},
        ],
    },
    {"when": {"first_user": "slowly"}, "reply": {"fault": {"hang": True}}},
    {
        "when": {"first_user": "remove", "offered": "delete"},
        "turns": [{"calls": [{"tool": "delete", "arguments": {"path": "a.txt"}}]}, {"text": "Done."}],
    },
    {
        "when": {"first_user": "look around", "offered": "command"},
        "turns": [
            {"calls": [{"tool": "command", "arguments": {"argv": ["ls", "a.txt"]}}]},
            {"text": "Done."},
        ],
    },
    {
        "when": {"user": "make it blue", "offered": "write"},
        "turns": [
            {"calls": [{"tool": "write", "arguments": {"path": "today.txt", "content": "blue\n"}}]},
            {"text": "It is blue."},
        ],
    },
    {
        "when": {"offered": "write"},
        "turns": [
            {"calls": [{"tool": "write", "arguments": {"path": "today.txt", "content": "green\n"}}]},
            {"text": "It is green."},
        ],
    },
    {"reply": {"text": '{"verdict": "accept", "findings": [], "summary": "It is painted."}'}},
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    place = tmp_path_factory.mktemp("acp")
    script = place / "paints.yaml"
    script.write_text(json.dumps({"version": 1, "facts": {"image_tokens": 900}, "rules": list(RULES)}))
    with plan_server(place / "server", models__default=f"scripted/{script}") as made:
        yield made


class Editor:
    """An editor that answers requests for permission with the given outcomes, in order."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = [*outcomes]
        self.updates: list[Any] = []
        self.asked: list[tuple[schema.ToolCallUpdate, list[str]]] = []
        self.began = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.began.set()

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, [one.option_id for one in options]))
        return schema.RequestPermissionResponse(outcome=self.outcomes.pop(0))

    def said(self, kind: str) -> str:
        """Return all text of updates of that kind."""
        return "".join(one.content.text for one in self.updates if one.session_update == kind)


def selected(option: str) -> schema.AllowedOutcome:
    return schema.AllowedOutcome(outcome="selected", option_id=option)


CANCELLED = schema.DeniedOutcome(outcome="cancelled")


def talked(
    server: PlanServer,
    editor: Callable[[], Editor],
    work: Callable[[ClientSideConnection, Editor], Awaitable[T]],
    **options: Any,
) -> tuple[T, Editor]:
    """Run the work with a connection to a new agent, as after a restart, and return its result."""
    container = server.bench.container
    agent = PlanAgent(LocalClient(container), AcpOptions(**options))

    async def main() -> tuple[T, Editor]:
        shown = editor()
        ours, theirs = socket.socketpair()
        near, far = (
            await asyncio.open_connection(sock=ours, limit=1 << 20),
            await asyncio.open_connection(sock=theirs),
        )
        serving = AgentSideConnection(agent, BoundedLines(*near))
        asking = ClientSideConnection(shown, far[1], far[0])
        try:
            async with asyncio.timeout(SECONDS):
                await asking.initialize(protocol_version=1)
                return await work(asking, shown), shown
        finally:
            await asking.close()
            await serving.close()
            await agent.close()
            for _, writer in (near, far):
                writer.close()

    return asyncio.run(main())


async def prompted(agent: ClientSideConnection, session: str, text: str) -> str:
    done = await agent.prompt(session_id=session, prompt=[helpers.text_block(text)])
    return str(done.stop_reason)


def talks_of(server: PlanServer) -> LocalConversations:
    return LocalClient(server.bench.container).conversations


def plans_of(server: PlanServer, session: str) -> tuple[str, ...]:
    return talks_of(server).get(session).plans


def turn(server: PlanServer, text: str, *outcomes: Any, **options: Any) -> tuple[str, str, Editor]:
    """Return the session of one prompt, the reason for its end, and the editor."""

    async def work(agent: ClientSideConnection, _: Editor) -> tuple[str, str]:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        return made.session_id, await prompted(agent, made.session_id, text)

    (session, reason), editor = talked(server, lambda: Editor(*outcomes), work, **options)
    return session, reason, editor


def test_a_prompt_becomes_a_plan_whose_diff_a_person_applies(server: PlanServer) -> None:
    session, reason, editor = turn(server, "paint it", selected("apply"))
    (plan,) = plans_of(server, session)
    assert reason == "end_turn"
    assert server.get(f"/plans/{plan}")["state"] == "applied"
    assert (server.repository / "today.txt").read_text() == "green\n"
    [(call, options)] = editor.asked
    assert options == ["apply", "later"]
    (diff,) = call.content
    assert (diff.path, diff.new_text) == (str(server.repository / "today.txt"), "green\n")
    titles = [one.title for one in editor.updates if one.session_update == "tool_call"]
    assert "write today.txt" in titles
    assert "It is green." in editor.said("agent_message_chunk")
    assert any(one.session_update == "plan" for one in editor.updates)
    server.post(f"/plans/{plan}/undo", status=202)
    server.rested({"id": plan})


def test_a_request_to_apply_lists_every_change_that_no_diff_shows(server: PlanServer) -> None:
    script = (
        "ln -s /etc/passwd link; head -c 300000 /dev/zero | tr '\\0' x > large.txt; printf '\\0' > data.bin;"
        " echo hi > 'two\nlines.txt'; echo hi > run.sh; chmod +x run.sh;"
        " for n in $(seq 100 400); do echo $n > z$n.txt; done"
    )
    made = server.rested(server.command(script, apply="review"))
    client = LocalClient(server.bench.container)
    plan = client.plans.get(made["id"])
    *diffs, listed = changed_files(client, plan, server.repository)
    assert {one.type for one in diffs} == {"diff"}
    assert len(diffs) == 50
    heading, *lines = listed.content.text.splitlines()
    omitted = plan.files_changed - 50 + 1  # the program has a diff, but its mode is not in it
    assert heading.startswith(f"{omitted} of {plan.files_changed} files")
    assert "- link (created, mode 120000, no diff: a symbolic link)" in lines
    assert "- large.txt (created, mode 100644, no diff: larger than 200 kB)" in lines
    assert "- data.bin (created, mode 100644, no diff: a binary file)" in lines
    assert "- run.sh (created, mode 100755)" in lines
    assert "- z200.txt (created, mode 100644, no diff: after the first 50)" in lines
    assert not any(line.startswith("lines.txt") for line in lines), "a name is on one line"
    assert lines[-2:] == [
        f"- … and {omitted - 200} more files",
        f"The diff of plan {plan.id} shows all changes.",
    ]
    assert len(lines) == 202


def test_a_request_to_apply_shows_only_accepted_changes(server: PlanServer) -> None:
    lines = [f"{number}\n" for number in range(1, 31)]
    (server.repository / "many.txt").write_text("".join(lines))
    script = "sed -i -e s/^2$/two/ -e s/^28$/last/ many.txt; echo no > out.txt"
    made = server.rested(server.command(script, apply="review"))
    client = LocalClient(server.bench.container)
    (_, last) = client.plans.diff(made["id"]).files[0].hunks
    plan = client.plans.review(made["id"], reject=["out.txt"], reject_hunks=[str(last.id)])
    (diff,) = changed_files(client, plan, server.repository)
    assert diff.path == str(server.repository / "many.txt")
    assert (diff.old_text, diff.new_text) == ("".join(lines), "".join([lines[0], "two\n", *lines[2:]]))


@pytest.mark.parametrize("outcome", [CANCELLED, selected("later"), selected("approve"), selected("")])
def test_nothing_is_applied_unless_the_person_selects_it(server: PlanServer, outcome: Any) -> None:
    session, reason, editor = turn(server, "paint it", outcome)
    (plan,) = plans_of(server, session)
    assert (reason, server.get(f"/plans/{plan}")["needs"]) == ("end_turn", "review")
    assert not (server.repository / "today.txt").exists()
    assert "Not applied" in editor.said("agent_message_chunk")


def test_a_result_that_changes_below_the_question_is_shown_again(server: PlanServer) -> None:
    class Overtaken(Editor):
        async def request_permission(self, *args: Any, **more: Any) -> schema.RequestPermissionResponse:
            if not self.asked:
                await asyncio.to_thread(repaint, server)
            return await super().request_permission(*args, **more)

    async def work(agent: ClientSideConnection, _: Editor) -> str:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        await prompted(agent, made.session_id, "paint it")
        return str(made.session_id)

    session, editor = talked(server, lambda: Overtaken(selected("apply"), selected("later")), work)
    (plan,) = plans_of(server, session)
    assert server.get(f"/plans/{plan}")["needs"] == "review"
    assert not (server.repository / "today.txt").exists()
    assert "Nothing was applied: the result changed" in editor.said("agent_message_chunk")
    assert [call.content[0].new_text for call, _ in editor.asked] == ["green\n", "red\n"]
    assert len({call.tool_call_id for call, _ in editor.asked}) == 2


def repaint(server: PlanServer) -> None:
    """Change the result of the latest plan, as another person may."""
    plans = LocalClient(server.bench.container).plans
    plan = plans.get(plans.list(limit=1).items[0].id)
    (Path(str(plan.sandbox)) / "today.txt").write_text("red\n")
    plans.capture(plan.id)


def test_a_second_prompt_requests_changes_of_the_same_plan(server: PlanServer) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> str:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        await prompted(agent, made.session_id, "paint it")
        await prompted(agent, made.session_id, "make it blue")
        return str(made.session_id)

    session, editor = talked(server, lambda: Editor(CANCELLED, CANCELLED), work)
    assert len(plans_of(server, session)) == 1
    (diff,) = editor.asked[-1][0].content
    assert diff.new_text == "blue\n"


def test_a_call_that_needs_approval_waits_for_the_person(server: PlanServer) -> None:
    session, _, editor = turn(server, "remove it", CANCELLED, profile="review")
    (plan,) = plans_of(server, session)
    assert server.get(f"/plans/{plan}")["needs"] == "approval", "without an answer it keeps waiting"
    assert editor.asked[0][0].title == "delete a.txt"

    async def approve(agent: ClientSideConnection, _: Editor) -> str:
        await agent.load_session(cwd=str(server.repository), session_id=session, mcp_servers=[])
        return await prompted(agent, session, "please hurry")

    _, editor = talked(server, lambda: Editor(selected("approve"), CANCELLED), approve)
    assert "remove it" in editor.said("user_message_chunk"), "a loaded session is replayed"
    assert "Stored as a comment" in editor.said("agent_message_chunk")
    assert server.get(f"/plans/{plan}")["needs"] == "review"


def test_a_command_can_be_approved_for_longer_than_once(server: PlanServer) -> None:
    session, _, editor = turn(server, "look around", selected("plan"), CANCELLED, CANCELLED, profile="manual")
    (plan,) = plans_of(server, session)
    assert editor.asked[0][1] == ["approve", "plan", "project", "deny"]
    (rule,) = LocalClient(server.bench.container).rules.list().items
    assert (rule.plan, rule.pattern.split()[0]) == (plan, "ls")
    server.bench.container.plan_parts.rules.revoke(rule.id, now=server.bench.container.clock.now())


def test_cancel_pauses_the_plan(server: PlanServer) -> None:
    async def work(agent: ClientSideConnection, editor: Editor) -> tuple[str, str]:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        editor.began.clear()
        turn = asyncio.ensure_future(prompted(agent, made.session_id, "paint slowly"))
        await editor.began.wait()
        with pytest.raises(RequestError, match="a turn of this session is running"):
            await prompted(agent, made.session_id, "now")
        while not plans_of(server, made.session_id):
            await asyncio.sleep(0.05)
        (plan,) = plans_of(server, made.session_id)
        while server.get(f"/plans/{plan}")["phase"] != "execute":
            await asyncio.sleep(0.05)
        await agent.cancel(session_id=made.session_id)
        return str(made.session_id), await turn

    (session, reason), editor = talked(server, Editor, work)
    (plan,) = plans_of(server, session)
    assert reason == "cancelled"
    assert "Paused plan" in editor.said("agent_message_chunk")
    assert "resume" in server.rested({"id": plan})["can"]
    server.post(f"/plans/{plan}/cancel")


def test_an_answer_is_sent_only_to_the_question_that_the_editor_showed(tmp_path: Path) -> None:
    """The plan asks a second question, because another surface answered the first one meanwhile."""
    pending = ["first"]
    answers: list[tuple[str, str | None]] = []

    class Plans:
        def get(self, plan_id: str) -> SimpleNamespace:
            asked = {"for": "question", "question": pending[0], "what": f"The {pending[0]} one?"}
            return SimpleNamespace(
                id=plan_id,
                at_rest=True,
                needs="question",
                waiting_for=asked,
                goal="ask",
                phase=Phase.EXECUTE,
                state=PlanState.WAITING,
                answer=None,
                meaning="needs your answer",
                error=None,
                next_steps=(),
                can=(),
            )

        def summary(self, plan_id: str) -> SimpleNamespace:
            return SimpleNamespace(at_rest=True)

        def output(self, plan_id: str, *, after: int) -> tuple[()]:
            return ()

        def calls(self, plan_id: str, *, after: str) -> SimpleNamespace:
            return SimpleNamespace(items=(), next=None)

        def answer(self, plan_id: str, text: str, *, question: str | None = None) -> None:
            answers.append((text, question))

    plan, session = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A", "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1E"
    turn = SimpleNamespace(number=1, question="ask", answer="I started a plan.", plans=(plan,))
    talk = SimpleNamespace(id=session, turns=1, plans=(plan,), resource=str(tmp_path), calls_tools=True)
    talks = SimpleNamespace(
        get=lambda name: talk, turns=lambda name, *, after: SimpleNamespace(items=(turn,))
    )
    client: Any = SimpleNamespace(plans=Plans(), conversations=talks)
    agent, editor = PlanAgent(client, AcpOptions()), Editor()
    agent.on_connect(editor)

    async def main() -> None:
        await agent.load_session(str(tmp_path), session)
        pending[0] = "second"
        await agent.prompt(session, [helpers.text_block("yes")])
        assert answers == []
        assert "the question has changed" in editor.said("agent_message_chunk")
        assert "The second one?" in editor.said("agent_message_chunk")
        await agent.prompt(session, [helpers.text_block("no")])
        assert answers == [("no", "second")]

    asyncio.run(main())


def test_sessions_are_listed_and_unknown_ones_are_refused(server: PlanServer) -> None:
    session, _, _ = turn(server, "paint it", CANCELLED)

    async def work(agent: ClientSideConnection, _: Editor) -> list[str]:
        for unknown in ("01M7NDMX5ZX8KS9M5QV0KWVMN6", "../../state", "", session[:-1]):
            with pytest.raises(RequestError, match="there is no") as refused:
                await agent.load_session(cwd="/", session_id=unknown, mcp_servers=[])
            assert refused.value.code == -32602
            with pytest.raises(RequestError, match="there is no"):
                await prompted(agent, unknown, "paint it")
        for cwd in ("relative", "/no/such/directory"):
            with pytest.raises(RequestError, match="not an absolute path"):
                await agent.new_session(cwd=cwd, mcp_servers=[])
        listed = await agent.list_sessions(cwd=str(server.repository))
        return [one.session_id for one in listed.sessions]

    listed, _ = talked(server, Editor, work)
    assert listed[0] == session


SAID = helpers.text_block("paint it like this")


def image_of(content: bytes) -> schema.ImageContentBlock:
    return helpers.image_block(b64encode(content).decode(), "image/png", uri="file:///shed.png")


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        ([helpers.text_block("  ")], "missing prompt"),
        ([helpers.text_block("x" * (LONGEST_PROMPT + 1))], "too long"),
        ([image_of(PNG)], "missing prompt"),
        ([SAID, helpers.audio_block("aGk=", "audio/wav")], "sounds are not supported"),
        ([SAID, image_of(b"hi")], r"'shed\.png' is no PNG"),
        ([SAID, helpers.image_block("no base64", "image/png")], "not valid base64"),
        ([SAID, *[image_of(PNG)] * 6], "at most 5 attachments"),
    ],
)
def test_prompts_that_cannot_be_used_are_refused(server: PlanServer, blocks: list[Any], problem: str) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> str:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        with pytest.raises(RequestError, match=problem) as refused:
            await agent.prompt(session_id=made.session_id, prompt=blocks)
        assert refused.value.code == -32602
        return str(made.session_id)

    session, _ = talked(server, Editor, work)
    with pytest.raises(UnknownConversation):  # without a turn, so it was deleted
        plans_of(server, session)


def test_a_question_after_a_plan_goes_to_the_assistant(server: PlanServer) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> str:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        await prompted(agent, made.session_id, "paint it")
        where = helpers.text_block("where is it?")
        await agent.prompt(session_id=made.session_id, prompt=[where, image_of(PNG)])
        return str(made.session_id)

    session, editor = talked(server, lambda: Editor(CANCELLED), work)
    (plan,) = plans_of(server, session)
    shown = server.get(f"/plans/{plan}")
    assert shown["needs"] == "review"
    assert "In `a.txt:1`." in editor.said("agent_message_chunk")
    assert len(editor.asked) == 1, "the plan did not run again"


def test_images_go_to_the_model_but_not_to_a_plan(server: PlanServer) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> str:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        where = helpers.text_block("where is this?")
        await agent.prompt(session_id=made.session_id, prompt=[where, image_of(PNG)])
        await prompted(agent, made.session_id, "remove it")
        with pytest.raises(RequestError, match="takes no images"):  # the plan waits for an approval
            await agent.prompt(session_id=made.session_id, prompt=[SAID, image_of(PNG)])
        return str(made.session_id)

    session, _ = talked(server, lambda: Editor(CANCELLED), work, profile="review")
    first = talks_of(server).turns(session).items[0]
    assert [one.name for one in first.attachments] == ["shed.png"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", -32700),
        (b'{"jsonrpc": "2.0", "id":', -32700),
        (b"[1]", -32600),
        (b'{"id": {}, "method": "initialize"}', -32600),
        (b'{"id": 1, "method": 5}', -32600),
        (b'{"id": 1, "method": "x", "params": ' + b"[" * 200 + b"]" * 200 + b"}", -32600),
        (b"[" * 10_000, -32700),
        (b'"' + b"x" * (64 << 10) + b'"', -32600),
    ],
)
def test_a_line_that_is_no_message_gets_an_error_and_the_next_one_is_read(line: bytes, code: int) -> None:
    async def work() -> tuple[Any, Any]:
        ours, theirs = socket.socketpair()
        near = await asyncio.open_connection(sock=ours, limit=32 << 10)
        reader, writer = await asyncio.open_connection(sock=theirs)
        transport = BoundedLines(*near)
        writer.write(line + b'\n{"jsonrpc": "2.0", "id": 1, "method": "next"}\n')
        async with asyncio.timeout(SECONDS):
            found = await transport.receive()
            error = json.loads(await reader.readline())
        await transport.close()
        writer.close()
        return found, error["error"]["code"]

    found, answered = asyncio.run(work())
    assert (found["method"], answered) == ("next", code)


def test_a_question_is_answered_without_a_plan(server: PlanServer) -> None:
    session, reason, editor = turn(server, "where is it?")
    assert (reason, plans_of(server, session)) == ("end_turn", ())
    assert "In `a.txt:1`." in editor.said("agent_message_chunk")
    (stored,) = talks_of(server).turns(session).items
    assert (stored.question, stored.answer, stored.by) == ("where is it?", "In `a.txt:1`.", None)


def test_cancel_stops_a_turn_that_has_no_plan(server: PlanServer) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> tuple[str, str]:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        talking = asyncio.ensure_future(prompted(agent, made.session_id, "talk for ever"))
        while talks_of(server).get(made.session_id).state is not TurnState.RUNNING:
            await asyncio.sleep(0.05)
        await agent.cancel(session_id=made.session_id)
        return str(made.session_id), await talking

    (session, reason), _ = talked(server, Editor, work)
    assert reason == "cancelled"
    assert talks_of(server).get(session).state is TurnState.STOPPED


@pytest.mark.parametrize("command", ["/apply", "/resume", "/resume\nnow"])
def test_a_command_without_a_plan_is_no_prompt(server: PlanServer, command: str) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> tuple[str, int]:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        reason = await prompted(agent, made.session_id, command)
        return reason, talks_of(server).get(made.session_id).turns

    told, editor = talked(server, Editor, work)
    assert told == ("end_turn", 0)
    assert "There is no plan to" in editor.said("agent_message_chunk")


def test_resume_continues_a_turn_that_has_no_plan(server: PlanServer) -> None:
    session, _, _ = turn(server, "where is it")
    ours = conversation_turns.c.conversation_id == session
    stopped = update(conversation_turns).where(ours).values(state=TurnState.STOPPED.value, answer="")
    server.bench.container.database.write(partial(Connection.execute, statement=stopped))
    talked(server, Editor, partial(loaded, server, session, "/resume"))
    (answered,) = talks_of(server).turns(session).items
    assert (answered.state, answered.question) == (TurnState.ANSWERED, "where is it")


def test_a_repeated_prompt_after_a_crash_starts_no_second_plan(server: PlanServer) -> None:
    """The process died after it had created the plan, before it stored the end of the turn."""
    for text in ("paint the shed", "/plan paint the shed"):
        session, _, _ = turn(server, text, CANCELLED)
        (plan,) = plans_of(server, session)
        died = update(conversation_turns).where(conversation_turns.c.conversation_id == session)
        lost = died.values(state=TurnState.INTERRUPTED.value, answer="")
        server.bench.container.database.write(partial(Connection.execute, statement=lost))

        async def again(
            agent: ClientSideConnection, _: Editor, text: str = text, session: str = session
        ) -> str:
            await agent.load_session(cwd=str(server.repository), session_id=session, mcp_servers=[])
            return await prompted(agent, session, text)

        reason, editor = talked(server, lambda: Editor(CANCELLED), again)
        assert (reason, plans_of(server, session)) == ("end_turn", (plan,))
        assert talks_of(server).get(session).turns == 1
        assert len(editor.asked) == 1, "the result is offered again"


async def loaded(server: PlanServer, session: str, text: str, agent: ClientSideConnection, _: Editor) -> str:
    """Load the session and prompt in it, and return the reason for the end of the turn."""
    await agent.load_session(cwd=str(server.repository), session_id=session, mcp_servers=[])
    return await prompted(agent, session, text)


def test_a_session_that_was_never_used_is_deleted_when_the_editor_leaves(server: PlanServer) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> str:
        return str((await agent.new_session(cwd=str(server.repository), mcp_servers=[])).session_id)

    session, _ = talked(server, Editor, work)
    with pytest.raises(UnknownConversation):
        talks_of(server).get(session)


def test_a_session_that_another_surface_used_stays_when_the_editor_leaves(server: PlanServer) -> None:
    async def work(agent: ClientSideConnection, _: Editor) -> str:
        made = await agent.new_session(cwd=str(server.repository), mcp_servers=[])
        talks = talks_of(server)
        await asyncio.to_thread(talks.send, made.session_id, "where is it")
        await asyncio.to_thread(talks.wait, made.session_id, timeout=SECONDS)
        return str(made.session_id)

    session, _ = talked(server, Editor, work)
    assert talks_of(server).get(session).turns == 1


def test_a_model_without_tools_gets_a_plan_for_every_prompt() -> None:
    """Its assistant could start none."""
    sent: list[str] = []
    turn = SimpleNamespace(error=None, plans=())
    talk = SimpleNamespace(id="S", turns=0, plans=(), resource="/", calls_tools=False)
    talks = SimpleNamespace(
        get=lambda name: talk,
        turns=lambda name, *, after: SimpleNamespace(items=()),
        send=lambda name, text, *, attachments: sent.append(text),
        watch=lambda name: iter(()),
        wait=lambda name: turn,
    )
    client: Any = SimpleNamespace(conversations=talks)
    agent = PlanAgent(client, AcpOptions())
    agent.on_connect(Editor())
    for text in ("paint it", "/plan paint it", "/plan\npaint it"):
        asyncio.run(agent.prompt("S", [helpers.text_block(text)]))
    assert sent == ["/plan paint it", "/plan paint it", "/plan\npaint it"]
