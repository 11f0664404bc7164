"""The contract of `Tool` for every built-in tool. A new tool needs only one valid call here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.errors import Cancelled, InvalidToolCall, OutsideSandbox
from cleveragents.core.json_value import FrozenObject, freeze, thaw
from cleveragents.core.policy import Capability
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.ports import CommandResult
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Tool, Workplace
from cleveragents.tools.registry import ToolRegistry

TOOLS = ToolRegistry(entries=())

GOOD_CALLS: dict[str, dict[str, Any]] = {
    "command": {"argv": ["true"]},
    "delete": {"path": "a.txt"},
    "edit": {"path": "a.txt", "old": "one", "new": "1"},
    "glob": {"pattern": "*.txt"},
    "grep": {"pattern": "o.e"},
    "list": {},
    "move": {"source": "a.txt", "target": "b.txt"},
    "multi_edit": {"path": "a.txt", "edits": [{"old": "one", "new": "1"}]},
    "read": {"path": "a.txt"},
    "replace": {"pattern": "one", "replacement": "1"},
    "write": {"path": "new.txt", "content": "1"},
}
PATHS = {"path", "source", "target", "directory"}


def test_every_built_in_tool_is_tested() -> None:
    assert set(TOOLS.names()) == set(GOOD_CALLS)


@pytest.fixture(params=sorted(GOOD_CALLS))
def tool(request: pytest.FixtureRequest) -> Tool:
    return TOOLS.get(request.param)


@pytest.fixture
def good(tool: Tool) -> dict[str, Any]:
    return GOOD_CALLS[tool.spec.name]


@pytest.fixture
def stop() -> CancellationToken:
    return CancellationToken()


@pytest.fixture
def place(tmp_path: Path, stop: CancellationToken) -> Workplace:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    def run(argv: tuple[str, ...], *, directory: str, timeout_seconds: float) -> CommandResult:
        (tmp_path / "ran").touch()
        return CommandResult(0, "", 0, 0.1)

    return Workplace(ConfinedFiles(tmp_path), run, stop)


def everything_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_has_a_complete_spec(tool: Tool) -> None:
    spec = tool.spec
    assert TOOLS.get(spec.name) is tool
    assert spec.description.endswith(".")
    assert spec.writes == (spec.capability is not Capability.READ)
    for schema in (spec.input_schema, spec.output_schema):
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert json.loads(json.dumps(thaw(schema))) == thaw(schema)
        assert "title" not in json.dumps(thaw(schema))


def test_the_result_fits_the_schema(tool: Tool, good: dict[str, Any], place: Workplace) -> None:
    result: Any = tool.call(good, place)
    schema = tool.spec.output_schema
    assert isinstance(schema["properties"], Mapping)
    assert set(result) == set(schema["properties"])
    assert json.loads(json.dumps(result)) == result
    freeze(result)


def test_arguments_may_be_frozen(tool: Tool, good: dict[str, Any], place: Workplace) -> None:
    """Like arguments loaded from a store."""
    tool.call(FrozenObject(good), place)


def test_only_writing_tools_change_files(
    tmp_path: Path, tool: Tool, good: dict[str, Any], place: Workplace
) -> None:
    before = everything_in(tmp_path)
    tool.call(good, place)
    assert (everything_in(tmp_path) != before) == tool.spec.writes
    assert bool(place.files.touched()) == (tool.spec.writes and not tool.spec.runs_commands)


def test_capability_of_changes_nothing(
    tmp_path: Path, tool: Tool, good: dict[str, Any], place: Workplace
) -> None:
    before = everything_in(tmp_path)
    needed = tool.capability_of(good, place.files)
    assert needed is (Capability.CREATE if tool.spec.name == "write" else tool.spec.capability)
    assert everything_in(tmp_path) == before


def test_a_cancelled_call_does_nothing(
    tmp_path: Path, tool: Tool, good: dict[str, Any], place: Workplace, stop: CancellationToken
) -> None:
    before = everything_in(tmp_path)
    stop.cancel("enough")
    with pytest.raises(Cancelled, match="enough"):
        tool.call(good, place)
    assert everything_in(tmp_path) == before


def test_no_path_argument_leads_outside(tool: Tool, good: dict[str, Any], place: Workplace) -> None:
    properties: Any = tool.spec.input_schema["properties"]
    for name in PATHS & set(properties):
        for path in ("../a.txt", "/etc/passwd", ".git/config", "a\0b"):
            with pytest.raises(OutsideSandbox):
                tool.call({**good, name: path}, place)
    assert place.files.touched() == ()


def test_an_unknown_argument_suggests_the_closest(tool: Tool, good: dict[str, Any], place: Workplace) -> None:
    properties: Any = tool.spec.input_schema["properties"]
    name = next(iter(properties))
    with pytest.raises(InvalidToolCall, match=f"unknown argument '{name}x'; did you mean '{name}'"):
        tool.call({**good, f"{name}x": 1}, place)
    with pytest.raises(InvalidToolCall, match="unknown argument 'qqqqqq'; expected "):
        tool.call({**good, "qqqqqq": 1}, place)


def test_every_argument_is_described_in_place(tool: Tool) -> None:
    """Not every model provider follows a reference into `$defs`."""

    def ensure_described(schema: Any) -> None:
        assert "$ref" not in schema
        assert "$defs" not in schema
        for about in schema.get("properties", {}).values():
            assert about["description"]
            ensure_described(about)
            ensure_described(about.get("items", {}))

    ensure_described(thaw(tool.spec.input_schema))


def test_a_missing_argument_and_an_invalid_type_are_named(
    tool: Tool, good: dict[str, Any], place: Workplace
) -> None:
    for name in tool.spec.input_schema.get("required", ()) or ():
        with pytest.raises(InvalidToolCall, match=f"^{tool.spec.name}: .*'{name}' is missing"):
            tool.call({key: value for key, value in good.items() if key != name}, place)
        for wrong in (5, None, {"a": 1}):
            with pytest.raises(InvalidToolCall, match=f"invalid argument '{name}': Input should be "):
                tool.call({**good, name: wrong}, place)


def test_refuses_invalid_json(tool: Tool, good: dict[str, Any], place: Workplace) -> None:
    name = next(iter(tool.spec.input_schema["properties"]))
    for wrong in (float("nan"), b"bytes", "\ud800"):
        with pytest.raises(InvalidToolCall):
            tool.call({**good, name: wrong}, place)


def test_many_mistakes_are_summarized(place: Workplace) -> None:
    with pytest.raises(InvalidToolCall) as refused:
        TOOLS.get("read").call({f"wrong{number}": 1 for number in range(100)}, place)
    assert str(refused.value).endswith("; and 97 more")
    assert len(str(refused.value)) < 500
