"""The tables on the page about tools are generated from the specs, and every example works.

`python -m tests.docs.test_tools_page` updates the tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.errors import EditMismatch
from cleveragents.core.json_value import thaw
from cleveragents.core.tool import ToolSpec
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.ports import CommandResult
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace
from cleveragents.tools.registry import ToolRegistry

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tools.md"
TOOLS = ToolRegistry(entries=())
SPECS = TOOLS.specs()
BLOCK = "<!-- made from {name} -->\n{table}\n<!-- end -->"
EXAMPLE = re.compile(r"^## `(\w+)`\n.*?^```json\n(.*?)^```\n\n```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAMPLE = {
    "src/app.py": "import os\n\n\ndef greet(name):\n    return f'hello {name}'\n",
    "src/old.py": "print('hello')\n",
    "README.md": "# Sample\n\nSay hello.\n",
}


def overview() -> str:
    rows = ["| tool | | needs | changes files |", "|---|---|---|---|"]
    for spec in SPECS:
        needs = "`create` or `edit`" if spec.name == "write" else f"`{spec.capability.value}`"
        changes = "whatever the command does" if spec.runs_commands else "yes" if spec.writes else "no"
        rows.append(f"| [`{spec.name}`](#{spec.name}) | {spec.description} | {needs} | {changes} |")
    return "\n".join(rows)


def arguments(spec: ToolSpec) -> str:
    schema: Any = thaw(spec.input_schema)
    return "\n".join(["| argument | type | default | |", "|---|---|---|---|", *_rows(schema)])


def _rows(schema: Mapping[str, Any], within: str = "") -> Iterator[str]:
    for name, about in schema["properties"].items():
        needed = name in schema.get("required", ())
        default = "required" if needed else f"`{json.dumps(about.get('default'))}`"
        yield f"| `{within}{name}` | {_type(about)} | {default} | {about.get('description', '')} |"
        if "properties" in about.get("items", {}):
            yield from _rows(about["items"], f"{within}{name}[].")


def _type(about: Mapping[str, Any]) -> str:
    if "anyOf" in about:
        return " or ".join(_type(one) for one in about["anyOf"])
    if "enum" in about:
        return " or ".join(f"`{json.dumps(value)}`" for value in about["enum"])
    if about.get("type") == "array":
        return f"list of {_type(about['items'])}"
    bounds = [
        f"{words} {about[key]:g}"
        for key, words in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"))
        if key in about
    ]
    return " ".join([str(about["type"]), *bounds])


def tables() -> Iterator[tuple[str, str]]:
    yield "the tools", overview()
    for spec in SPECS:
        yield spec.name, arguments(spec)


def refreshed(text: str) -> str:
    for name, table in tables():
        pattern = BLOCK.format(name=re.escape(name), table=r".*?")
        new = BLOCK.format(name=name, table=table)
        text = re.sub(pattern, lambda _, new=new: new, text, count=1, flags=re.DOTALL)
    return text


def test_the_tables_match_the_specs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name, table in tables() if BLOCK.format(name=name, table=table) not in text] == []


def test_every_tool_has_an_example() -> None:
    shown = [name for name, _, _ in EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(spec.name for spec in SPECS)


@pytest.mark.parametrize(
    ("name", "asked", "answered"), EXAMPLE.findall(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else []
)
def test_an_example_works_as_shown(tmp_path: Path, name: str, asked: str, answered: str) -> None:
    for path, content in SAMPLE.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content)

    def run(argv: tuple[str, ...], *, directory: str, timeout_seconds: float) -> CommandResult:
        return CommandResult(0, "1 file reformatted\n", 0, 0.21)

    place = Workplace(ConfinedFiles(tmp_path), run, CancellationToken())
    result: Any = TOOLS.get(name).call(json.loads(asked), place)
    assert json.loads(answered) == result


def test_the_shown_refusals_are_real(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text(SAMPLE["src/app.py"])
    place = Workplace(ConfinedFiles(tmp_path), no_commands, CancellationToken())
    for old in ("def greet(name):\n    return f'hi {name}'\n", "name"):
        with pytest.raises(EditMismatch) as mismatch:
            TOOLS.get("edit").call({"path": "src/app.py", "old": old, "new": "x"}, place)
        assert str(mismatch.value) in PAGE.read_text(encoding="utf-8")


def no_commands(*_: object, **__: object) -> Any:
    raise AssertionError("no command is run here")


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
