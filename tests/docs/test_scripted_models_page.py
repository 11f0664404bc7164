"""The scripts on the page on scripted models load, and the page lists every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from cleveragents.models.script import ScriptCondition, ScriptedAnswer, ScriptedFault, ScriptRule
from cleveragents.models.script_document import read_script

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "scripted-models.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_script_that_is_shown_loads() -> None:
    assert len(SCRIPTS) == 2
    for script in SCRIPTS:
        assert read_script(script, "page").rules


@pytest.mark.parametrize(
    "part", [ScriptCondition, ScriptRule, ScriptedAnswer, ScriptedFault], ids=lambda part: part.__name__
)
def test_every_key_is_explained(part: type[BaseModel]) -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    missing = [name for name in part.model_fields if not re.search(rf"`{name}\b", rows) and name != "when"]
    assert missing == []
