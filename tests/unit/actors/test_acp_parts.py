"""The parts of a session with an agent: messages, updates, terminals, options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from acp import (
    schema,
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)

from cleveragents.actors.external.acp.handler import Terminals, permission_response
from cleveragents.actors.external.acp.session import message_in
from cleveragents.actors.external.acp.updates import Updates
from cleveragents.actors.model.actor import ProgressKind
from cleveragents.actors.ports import AgentUpdate, PermissionRequest, TerminalCommand
from cleveragents.core.errors import ToolRefused
from cleveragents.processes.ports import StopSignal


class Heard:
    """A listener that records its updates."""

    def __init__(self) -> None:
        self.told: list[AgentUpdate] = []
        self.did: list[str] = []

    def of(self, kind: ProgressKind) -> list[str]:
        return [update.text for update in self.told if update.kind is kind]


def heard_of(*given: Any, shown: int = 1_000) -> tuple[Heard, Updates]:
    heard = Heard()
    updates = Updates(heard.told.append, heard.did.append, shown)

    async def take() -> None:
        for update in given:
            updates.take(update)
        updates.finish()

    asyncio.run(take())
    return heard, updates


def test_text_is_gathered_and_the_last_message_is_what_it_said() -> None:
    heard, updates = heard_of(
        *(update_agent_message_text(word) for word in ("first ", "message")),
        start_tool_call("1", "edit x", kind="edit"),
        update_agent_message_text("second"),
        update_agent_thought_text("a\nthought"),
        update_tool_call("1", status="completed"),
    )
    assert updates.text == "second"
    assert heard.of(ProgressKind.PIECE) == ["first message", "second"]
    assert heard.of(ProgressKind.THOUGHT) == ["first message", "second"]
    assert heard.of(ProgressKind.THINKING) == ["a thought"]
    assert heard.did == ["edit x"]


def test_pieces_are_reported_after_a_while_even_if_nothing_follows() -> None:
    async def told() -> list[str]:
        heard, said = Heard(), asyncio.Event()

        def tell(update: AgentUpdate) -> None:
            heard.told.append(update)
            said.set()

        updates = Updates(tell, heard.did.append, 10)
        updates.take(update_agent_message_text("so far"))
        assert heard.told == []
        await asyncio.wait_for(said.wait(), 30)
        return heard.of(ProgressKind.PIECE)

    assert asyncio.run(told()) == ["so far"]


def test_only_what_may_have_changed_files_is_looked_at() -> None:
    heard, _ = heard_of(
        start_tool_call("1", "look", kind="read"),
        update_tool_call("1", status="completed"),
        start_tool_call("2", "try", kind="execute"),
        update_tool_call("2", status="failed"),
        start_tool_call("3", "begin", kind="edit", status="in_progress"),
    )
    assert heard.did == ["try"]
    done = [(update.text, update.failed) for update in heard.told if update.kind is ProgressKind.TOOL_DONE]
    assert done == [("look", False), ("try", True)]


def test_stored_and_shown_updates_are_bounded() -> None:
    many = [start_tool_call(str(number), f"call {number}") for number in range(12_000)]
    heard, updates = heard_of(*many, shown=7)
    assert len(heard.told) == 7
    assert len(updates._calls) == 10_000
    _, talker = heard_of(*(update_agent_message_text("x" * 150_000) for _ in range(3)))
    assert len(talker.text) == 200_000


def test_a_permission_request_includes_earlier_updates_of_the_call() -> None:
    _, updates = heard_of(start_tool_call("1", "remove it", kind="delete", raw_input={"path": "x"}))
    asked = schema.ToolCallUpdate(tool_call_id="1", locations=[schema.ToolCallLocation(path="/x")])
    wanted = updates.wanted(asked)
    assert (wanted.kind, wanted.title, wanted.paths) == ("delete", "remove it", ("/x",))
    assert wanted.details == {"path": "x"}
    unknown = updates.wanted(schema.ToolCallUpdate(tool_call_id="2", raw_input={"x": float("nan")}))
    assert unknown == PermissionRequest("other", "")


def options(*kinds: Any) -> list[schema.PermissionOption]:
    return [schema.PermissionOption(option_id=f"id-{kind}", name=kind, kind=kind) for kind in kinds]


@pytest.mark.parametrize(
    ("allowed", "offered", "option"),
    [
        (True, ("allow_always", "allow_once", "reject_once"), "id-allow_once"),
        (True, ("allow_always", "reject_once"), "id-allow_always"),
        (False, ("allow_once", "reject_always", "reject_once"), "id-reject_once"),
        (False, ("allow_once", "reject_always"), "id-reject_always"),
        (False, ("allow_once",), None),
        (True, ("reject_once",), None),
    ],
)
def test_the_one_time_option_is_chosen(allowed: bool, offered: tuple[str, ...], option: str | None) -> None:
    outcome = permission_response(options(*offered), allowed).outcome
    assert getattr(outcome, "option_id", None) == option
    assert outcome.outcome == ("cancelled" if option is None else "selected")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b"5",
        b"[]",
        b"{}",
        b'{"id": [1]}',
        b'{"id": 1, "error": 3}',
        b'{"method": 1}',
        b"\xff",
        b"[" * 10**5,
        b'{"method": "x", "params": ' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_messages_that_would_break_the_library_are_rejected(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        message_in(line)


def test_requests_answers_and_notifications_are_messages() -> None:
    for line in (
        b'{"id": 1, "result": null}',
        b'{"id": "a", "method": "m"}',
        b'{"method": "m", "params": {}}',
    ):
        assert message_in(line)
    assert message_in(b'{"id": 1, "error": {"code": 1}}')["error"] == {"code": 1}


class Talking:
    """A client whose commands print something and end when asked."""

    def run(
        self, command: TerminalCommand, ended: StopSignal, on_output: Callable[[bytes], None]
    ) -> int | None:
        if command.command == "bad":
            raise ToolRefused("command", "it cannot be run")
        if command.command == "broken":
            raise RuntimeError("nobody expects this")
        on_output("ä".encode() * 10)
        ended.wait(30)
        return 7 if command.command == "deaf" else None


def with_terminals(work: Callable[[Terminals], Any], most: int = 9) -> Any:
    async def run() -> Any:
        async def in_thread(call: Callable[[], int | None]) -> int | None:
            return await asyncio.to_thread(call)

        terminals = Terminals(Talking(), in_thread, most)
        try:
            return await work(terminals)
        finally:
            terminals.close()

    return asyncio.run(run())


def created(terminals: Terminals, command: str, **facts: Any) -> str:
    return terminals.create(schema.CreateTerminalRequest(session_id="s", command=command, **facts))


def test_a_terminal_is_looked_at_while_it_runs_killed_and_released() -> None:
    async def work(terminals: Terminals) -> None:
        name = created(terminals, "x", output_byte_limit=5)
        while not terminals.output(name).output:
            await asyncio.sleep(0.001)
        seen = terminals.output(name)
        assert (seen.output, seen.truncated, seen.exit_status) == ("ää", True, None)
        terminals.kill(name)
        assert (await terminals.wait(name)).signal == "SIGTERM"
        assert terminals.output(name).exit_status is not None
        terminals.release(name)
        with pytest.raises(ToolRefused, match="no terminal"):
            terminals.output(name)

    with_terminals(work)


def test_a_terminal_shows_why_its_command_failed() -> None:
    async def work(terminals: Terminals) -> None:
        bad = created(terminals, "bad")
        assert (await terminals.wait(bad)).exit_code == 126
        assert terminals.output(bad).output == "it cannot be run\n"
        deaf = created(terminals, "deaf")
        terminals.kill(deaf)
        assert (await terminals.wait(deaf)).exit_code == 7
        with pytest.raises(ToolRefused, match="the session is ending"):
            await terminals.wait(created(terminals, "broken"))

    with_terminals(work)


def test_the_number_of_terminals_is_limited() -> None:
    async def work(terminals: Terminals) -> None:
        created(terminals, "x")
        created(terminals, "x")
        with pytest.raises(ToolRefused, match="all 2 terminals are in use"):
            created(terminals, "x")

    with_terminals(work, most=2)
