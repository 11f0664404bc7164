"""Parts of MCP that need no server: the text of answers, visible paths, the end of the loop."""

from __future__ import annotations

import asyncio
import json
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, Tool

from cleveragents.core.errors import Closed
from cleveragents.processes.bubblewrap import BubblewrapProbe, ProbeResult
from cleveragents.processes.event_loop_thread import EventLoopThread
from cleveragents.tools.mcp.launch import ServerPlace, program_for
from cleveragents.tools.mcp.server_entry import McpServer
from cleveragents.tools.mcp.tool_list import MOST_CHARACTERS, call_result, listed_tool


class AlwaysThere(BubblewrapProbe):
    """A probe with a working bubblewrap, although nothing starts."""

    def result(self) -> ProbeResult:
        return ProbeResult("/usr/bin/bwrap")


def answer(*content: dict[str, Any], structured: object = None) -> CallToolResult:
    return CallToolResult.model_validate({"content": [*content], "structuredContent": structured})


def test_any_answer_becomes_text() -> None:
    told = call_result(
        answer(
            {"type": "text", "text": "words"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "of a file"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
            {"type": "resource_link", "name": "c", "uri": "file:///c"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        )
    )
    assert told.text.split("\n\n") == [
        "words",
        "[file:///a]\nof a file",
        "[file:///b: binary data, not shown]",
        "[a link to c: file:///c]",
        "[audio, audio/wav, about 3 bytes, not shown]",
    ]


def test_structured_content_is_neither_repeated_nor_unbounded() -> None:
    value = {"a": [1, 2]}
    both = call_result(answer({"type": "text", "text": json.dumps(value)}, structured=value))
    assert (both.text, both.structured) == ("", {"a": (1, 2)})
    more = call_result(answer({"type": "text", "text": "and words"}, structured=value))
    assert (more.text, more.structured) == ("and words", {"a": (1, 2)})
    huge = call_result(answer({"type": "text", "text": "x"}, structured={"a": "x" * MOST_CHARACTERS}))
    assert (huge.text, huge.structured) == ("x", None)
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"a": deep}
    assert call_result(answer(structured=deep)).structured is None


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "array"}, "does not describe an object"),
        ({"type": "object", "x": float("nan")}, "not valid JSON"),
        ({"type": "object", "description": "x" * 60_000}, "more than 50000 characters"),
        ({"type": "object"}, ""),
    ],
)
def test_an_unusable_tool_has_a_reason(schema: dict[str, Any], problem: str) -> None:
    found = listed_tool(Tool(name="t", input_schema=schema, description="y" * 5_000))
    assert problem in found.problem
    assert bool(found.problem) == bool(problem)
    assert len(found.description) <= 4_001


def shown(server: McpServer, root: Path) -> list[str]:
    there = ServerPlace(root=root, directory=root, isolation="required", probe=AlwaysThere())
    arguments = program_for(server, there)["arguments"]
    assert arguments is not None
    return [target for option, target in pairwise(arguments) if option == "--ro-bind-try"]


def test_paths_in_the_users_command_are_visible_but_never_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = tmp_path / "home", tmp_path / "sandbox"
    for folder in (home / "servers", home / "data", root):
        folder.mkdir(parents=True)
    for file in (home / "single.py", home / "servers/main.py"):
        file.write_text("")
    monkeypatch.setenv("HOME", str(home))
    words = (home / "single.py", home / "servers/main.py", home / "data", home, tmp_path / "nothing")
    own = McpServer("a", "f", True, ("/bin/sh", *map(str, words)))
    there = shown(own, root)
    for path in (home / "single.py", home / "servers", home / "data"):
        assert str(path) in there
    for path in (home, tmp_path, tmp_path / "nothing"):
        assert str(path) not in there
    theirs = McpServer("a", "f", False, own.command)
    assert not [path for path in shown(theirs, root) if path.startswith(str(home))]


def test_bubblewrap_itself_gets_no_server_variables(tmp_path: Path) -> None:
    server = McpServer("a", "f", True, ("/bin/sh",), environment={"LD_PRELOAD": "x.so"})
    there = ServerPlace(root=tmp_path, directory=tmp_path, isolation="auto", probe=AlwaysThere())
    program = program_for(server, there)
    assert "LD_PRELOAD" not in program["environment"]
    assert "LD_PRELOAD" in (program["arguments"] or [])


def test_closing_the_loop_releases_waiting_callers() -> None:
    loop, began, told = EventLoopThread("a loop"), threading.Event(), list[BaseException]()

    async def for_ever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def nothing() -> None:
        return None

    def wait() -> None:
        try:
            loop.run(for_ever)
        except Closed as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert began.wait(30)
    loop.close(nothing)
    loop.close(nothing)
    thread.join(30)
    assert told
    with pytest.raises(Closed):
        loop.run(nothing)
