"""A key in a goal, or in what a model says, reaches neither the database nor the screen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.cli.render.live_view import PlainView
from tests.cli_bench import Agents, command_line, paint_shop, use_home

KEY = "sk-0123456789abcdefghij"
PLANNED = {
    "summary": "s",
    "steps": [{"title": "Do it", "instructions": "now"}],
    "decisions": [{"question": "q", "choice": "c", "rationale": "r"}],
}
SCRIPT = {
    "version": 1,
    "rules": [
        {"when": {"system": "You plan changes"}, "turns": [{"text": json.dumps(PLANNED)}]},
        {"reply": {"text": "Nothing to do."}},
    ],
}


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    (tmp_path / "script.yaml").write_text(json.dumps(SCRIPT))
    monkeypatch.chdir(paint_shop(tmp_path / "shop"))
    monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", f"scripted/{tmp_path}/script.yaml")
    with command_line(monkeypatch, capfd) as run:
        yield run


@pytest.mark.parametrize("words", [(), ("--action", "builtin/goal", "--arg")], ids=["goal", "action"])
def test_a_key_in_a_goal_is_kept_nowhere(agents: Agents, tmp_path: Path, words: tuple[str, ...]) -> None:
    goal = f"Use {KEY} and password=hunter2hunter2"
    ran = agents("run", *words, f"goal={goal}" if words else goal)
    assert ran.code == 0, ran.err
    assert "Use *** and password=***" in ran.err
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert b"Use *** and password=***" in kept
    assert KEY.encode() not in kept
    assert b"hunter2hunter2" not in kept


def test_a_key_in_a_goals_file_or_an_invariant_is_not_stored(agents: Agents, tmp_path: Path) -> None:
    one = {"name": "one", "goal": f"Use {KEY}", "invariants": ["keep password=hunter3hunter3"]}
    whole = {"goal": f"All with {KEY}", "goals": [one], "invariants": ["keep password=hunter4hunter4"]}
    (tmp_path / "goals.yaml").write_text(json.dumps(whole))
    ran = agents("run", "-f", str(tmp_path / "goals.yaml"), "--invariant", "keep password=hunter5hunter5")
    assert ran.code == 0, ran.err
    alone = agents("run", "Do it", "--invariant", "keep password=hunter6hunter6")
    assert alone.code == 0, alone.err
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert b"keep password=***" in kept
    assert [
        secret for secret in (KEY, *(2 * f"hunter{i}" for i in (3, 4, 5, 6))) if secret.encode() in kept
    ] == []


def test_plain_lines_hold_no_key() -> None:
    lines: list[str] = []
    PlainView("7QX2  ", write=lines.append).say(f"decided: q use {KEY}")
    assert lines == ["7QX2  decided: q use ***"]
