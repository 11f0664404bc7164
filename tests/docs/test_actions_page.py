"""The examples on the page about actions work as shown."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

from cleveragents.core.errors import InvalidAction
from cleveragents.plans.actions.builtins import builtin_actions
from cleveragents.plans.actions.loader import keys_at, load_action

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "actions.md").read_text(encoding="utf-8")
EXAMPLE, SCRIPT = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_is_an_action_and_renders() -> None:
    action = load_action(EXAMPLE, "example", tools=["command"])
    (step,) = action.render(action.parse([], ["--check"]))
    assert step.arguments == {"argv": ("ruff", "format", "--check", ".")}


def test_the_script_is_a_step() -> None:
    text = "name: a/b\narguments: {pattern: {type: string}}\nexecute:\n  steps:\n" + indent(SCRIPT, "    ")
    (step,) = load_action(text, "script").render({"pattern": "$(x)"})
    assert step.arguments["argv"][-1] == "$(x)"


def test_reports_the_mistakes_as_shown() -> None:
    text = EXAMPLE.replace("description: F", "descriptoin: F").replace("${path}", "${pth}")
    text = text.replace("supervised", "superviced")
    with pytest.raises(InvalidAction) as refused:
        load_action(text, "format.yaml", tools=["command"])
    assert "\n".join(f"  {problem}" for problem in refused.value.problems) + "\n```" in PAGE


def test_every_key_and_every_shipped_action_is_on_the_page() -> None:
    known = [*keys_at(()), *keys_at(("execute", "steps", 0)), *keys_at(("arguments", "x"))]
    assert [key for key in known if f"`{key}" not in PAGE] == []
    width = max(len(action.name) for action in builtin_actions())
    for action in builtin_actions():
        assert f"\n| `{action.name}` |" in PAGE
        line = f"{action.name.ljust(width)}  builtin  yes      {action.description.splitlines()[0]}"
        assert f"\n{line}\n" in PAGE
