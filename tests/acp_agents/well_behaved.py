"""An agent made with the protocol's own library. Its prompt says what it does: a JSON list of steps.

Each step is a list that starts with the name of a method of `Steps`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import acp
from acp import schema


class Agent:
    """Knows one session at a time."""

    def __init__(self) -> None:
        self.client: Any = None
        self.root = Path()
        self.cancelled = asyncio.Event()

    def on_connect(self, client: Any) -> None:
        self.client = client

    async def initialize(self, protocol_version: int, **more: Any) -> schema.InitializeResponse:
        capabilities = more["client_capabilities"]
        assert capabilities.fs.read_text_file
        assert capabilities.terminal
        return schema.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **more: Any) -> schema.NewSessionResponse:
        self.root = Path(cwd)
        return schema.NewSessionResponse(session_id="the-session")

    async def cancel(self, session_id: str, **more: Any) -> None:
        self.cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> schema.PromptResponse:
        text = prompt[0].text
        steps = Steps(self, session_id, text)
        for name, *words in json.loads(text[text.index("[[") :]):
            stop = await getattr(steps, name)(*words)
            if stop is not None:
                return schema.PromptResponse(stop_reason=stop)
        return schema.PromptResponse(stop_reason="end_turn")


class Steps:
    """The possible steps."""

    def __init__(self, agent: Agent, session: str, told: str) -> None:
        self.agent = agent
        self.client = agent.client
        self.session = session
        self.told = told

    def path(self, name: str) -> str:
        return str(self.agent.root / name)

    async def update(self, update: Any) -> None:
        await self.client.session_update(session_id=self.session, update=update)

    async def say(self, text: str) -> None:
        for word in text.split(" "):
            await self.update(acp.update_agent_message_text(f"{word} "))

    async def think(self, text: str) -> None:
        await self.update(acp.update_agent_thought_text(text))

    async def plan(self, *lines: str) -> None:
        entries = [schema.PlanEntry(content=line, priority="low", status="pending") for line in lines]
        await self.update(schema.AgentPlanUpdate(session_update="plan", entries=entries))

    async def read(self, name: str, line: int | None = None, limit: int | None = None) -> None:
        try:
            answer = await self.client.read_text_file(
                session_id=self.session, path=self.path(name), line=line, limit=limit
            )
            await self.say(f"read:{answer.content}")
        except acp.RequestError as error:
            await self.say(f"refused:{error}")

    async def write(self, name: str, content: str) -> None:
        try:
            await self.client.write_text_file(session_id=self.session, path=self.path(name), content=content)
        except acp.RequestError as error:
            await self.say(f"refused:{error}")

    async def direct(self, name: str, content: str, kind: str = "edit") -> None:
        """Act without the client, and report it."""
        await self.update(acp.start_tool_call(f"call-{name}", f"edit {name}", kind=kind))
        Path(self.path(name)).write_text(content)
        await self.update(acp.update_tool_call(f"call-{name}", status="completed"))

    async def secretly(self, name: str, content: str) -> None:
        """Act without the client, and report nothing."""
        Path(self.path(name)).write_text(content)

    async def ask(self, kind: str, title: str) -> None:
        """Request permission, and report the answer."""
        options = [
            schema.PermissionOption(option_id=kind, name=kind, kind=kind)
            for kind in ("allow_always", "allow_once", "reject_once", "reject_always")
        ]
        answer = await self.client.request_permission(
            session_id=self.session,
            tool_call=schema.ToolCallUpdate(tool_call_id=f"ask-{title}", kind=kind, title=title),
            options=options,
        )
        await self.say(f"{title}:{answer.outcome.option_id}")

    async def terminal(self, command: str, *arguments: str) -> None:
        made = await self.client.create_terminal(
            session_id=self.session,
            command=command,
            args=list(arguments),
            env=[schema.EnvVariable(name="GIVEN", value="given")],
            cwd=str(self.agent.root),
        )
        name = made.terminal_id
        ended = await self.client.wait_for_terminal_exit(session_id=self.session, terminal_id=name)
        seen = await self.client.terminal_output(session_id=self.session, terminal_id=name)
        await self.client.release_terminal(session_id=self.session, terminal_id=name)
        await self.say(f"exit:{ended.exit_code}:{seen.output}")

    async def serve(self, command: str) -> None:
        """Start a command that does not end by itself, read its output, and kill it."""
        made = await self.client.create_terminal(session_id=self.session, command=command)
        name = made.terminal_id
        output = ""
        while "ready" not in output:
            seen = await self.client.terminal_output(session_id=self.session, terminal_id=name)
            output = seen.output
        assert seen.exit_status is None
        await self.client.kill_terminal(session_id=self.session, terminal_id=name)
        ended = await self.client.wait_for_terminal_exit(session_id=self.session, terminal_id=name)
        await self.say(f"ended:{ended.signal}")

    async def stop(self, reason: str) -> str:
        return reason


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent()))
