"""The scripts on the page on scripted models load, and the page lists every key."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pydantic import BaseModel

from cleveragents.models.script import ScriptCondition, ScriptedAnswer, ScriptedFault, ScriptRule
from cleveragents.models.script_document import read_script
from tests.cli_bench import command_line, use_home
from tests.sandbox_resources import make_repository

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "scripted-models.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_script_that_is_shown_loads() -> None:
    assert len(SCRIPTS) == 2
    for script in SCRIPTS:
        assert read_script(script, "page").rules


def test_the_first_script_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = re.search(r"^agents (run .*?)  #", PAGE, re.MULTILINE)
    assert words is not None
    repository = make_repository(tmp_path / "repository", {"a": "1\n", "greet.yaml": SCRIPTS[0]})
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(repository)
    with command_line(monkeypatch, capfd) as agents:
        ran = agents(*shlex.split(words[1]))
    assert ran.code == 0, ran.err
    assert (repository / "Ada.txt").read_text() == "Hello Ada\n"


@pytest.mark.parametrize(
    "part", [ScriptCondition, ScriptRule, ScriptedAnswer, ScriptedFault], ids=lambda part: part.__name__
)
def test_every_key_is_explained(part: type[BaseModel]) -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    missing = [name for name in part.model_fields if not re.search(rf"`{name}\b", rows) and name != "when"]
    assert missing == []
