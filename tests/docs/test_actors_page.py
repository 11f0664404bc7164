"""The examples on the pages about actors work as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cleveragents.actors.conditions import FUNCTIONS
from cleveragents.actors.library import builtin_actors
from cleveragents.actors.loader import load_actor
from cleveragents.actors.models import ACTORS, NODES, keys_at
from cleveragents.plans.actions.loader import load_action
from tests.cli_bench import command_line, use_home

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "actors.md").read_text(encoding="utf-8")
HOW_TO = (DOCS / "how-to" / "write-an-actor.md").read_text(encoding="utf-8")


def fenced(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_every_key_and_every_shipped_actor_is_on_the_page() -> None:
    known = {key for model in ACTORS.values() for key in keys_at(model, "", ())}
    known |= {key for kind in NODES for key in keys_at(ACTORS["graph"], kind, ("nodes", "x"))}
    known |= {key for name in ("state", "limits") for key in keys_at(ACTORS["graph"], "", (name, "x"))}
    known |= set(keys_at(ACTORS["graph"], "router", ("nodes", "x", "routes", 0)))
    known |= {*NODES, *FUNCTIONS, *(actor.name for actor in builtin_actors())}
    assert [key for key in sorted(known) if f"`{key}" not in PAGE] == []


def test_reports_the_mistakes_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (example,) = fenced(PAGE, "yaml")
    load_actor(example, "example", tools=["read", "grep", "glob", "list"])
    text = example.replace("description: A", "descriptoin: A").replace("${goal}", "${gaol}")
    (tmp_path / "answer.yaml").write_text(text.replace("grep", "grpe"))
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    with command_line(monkeypatch, capfd) as agents:
        told = agents("actor", "validate", "answer.yaml")
    assert f"```console\n$ agents actor validate answer.yaml\n{told.err}{told.out}```" in PAGE


def test_the_actor_that_is_written_step_by_step_is_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    work, reader = fenced(HOW_TO, "markdown")
    careful, action = fenced(HOW_TO, "yaml")
    actors = tmp_path / ".config" / "cleveragents" / "actors"
    (actors / "prompts").mkdir(parents=True)
    (actors / "prompts" / "work.md").write_text(work)
    (actors / "prompts" / "reader.md").write_text(reader)
    (actors / "careful.yaml").write_text(careful)
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(actors)
    with command_line(monkeypatch, capfd) as agents:
        drawn = agents("actor", "graph", "careful.yaml").out
        mermaid = agents("actor", "graph", "team/careful", "--mermaid").out
        valid = agents("actor", "validate", "careful.yaml").out
        broken = careful.replace(", reducer: append", "").replace("next: judge", "next: jugde", 1)
        (actors / "careful.yaml").write_text(broken.replace("len(findings)", "len(finding)"))
        told = agents("actor", "validate", "careful.yaml")
    assert f"```console\n$ agents actor graph careful.yaml\n{drawn}```" in HOW_TO
    assert f"```mermaid\n{mermaid}```" in HOW_TO
    assert f"```console\n$ agents actor validate careful.yaml\n{valid}```" in HOW_TO
    assert f"```console\n$ agents actor validate careful.yaml\n{told.err}{told.out}```" in HOW_TO
    assert load_action(action, "action").execute_actor == "team/careful"
