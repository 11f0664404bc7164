"""`agents plan resolve`: what sub-plans conflict in is shown, decided, and then applied."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_bench import Agents, command_line, git, paint_shop, use_home

GOALS = """\
goals:
  - name: one
    action: builtin/command
    arguments: {argv: [sh, -c, "printf 'by one\\\\n' > text.txt; echo one >> gone.txt"]}
  - name: two
    action: builtin/command
    arguments: {argv: [sh, -c, "printf 'by two\\\\n' > text.txt; rm gone.txt"]}
"""


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    shop = paint_shop(tmp_path / "shop")
    (shop / "text.txt").write_text("first\n")
    (shop / "gone.txt").write_text("gone\n")
    git(shop, "add", "-A")
    git(shop, "commit", "-qm", "texts")
    (tmp_path / "goals.yaml").write_text(GOALS)
    monkeypatch.chdir(shop)
    with command_line(monkeypatch, capfd) as made:
        yield made


def test_conflicts_are_shown_with_both_sides_decided_and_then_applied(agents: Agents, tmp_path: Path) -> None:
    ended = agents("run", "-f", "../goals.yaml", "--profile", "full-auto")
    assert ended.code == 3, ended.err
    plan = ended.id
    shown = agents("plan", "resolve", plan)
    assert shown.code == 0
    for words in ("text.txt", "gone.txt", "by one", "by two", "ours: ", "theirs: ", "no file"):
        assert words in shown.out
    told = json.loads(agents("plan", "resolve", plan, "--format", "json").out)
    assert [(row["path"], row["kind"], row["marked"]) for row in told] == [
        ("gone.txt", "modify/delete", False),
        ("text.txt", "content", True),
    ]
    assert {row["title"] for row in told} < {"one", "two"}
    assert {told[0]["ours"]["is"], told[0]["theirs"]["is"]} == {"no file", "a file"}
    assert agents("plan", "apply", plan).code != 0
    assert agents("plan", "resolve", plan, "text.txt").code == 2
    marked = agents("plan", "resolve", plan, "text.txt", "--edited")
    assert marked.code != 0
    assert "still contains the conflict marker" in marked.err
    assert agents("plan", "resolve", plan, "--tree", "4b825d").code == 2
    changed = agents("plan", "resolve", plan, "text.txt", "--ours", "--tree", "4b825d")
    assert (changed.code, "has changed since you saw it" in " ".join(changed.err.split())) == (3, True)
    Path(told[1]["file"]).write_text("by both\n")
    tree = json.loads(agents("plan", "show", plan, "--format", "json").out)["tree"]
    edited = agents("plan", "resolve", plan, "text.txt", "--edited", "--tree", tree)
    assert edited.code == 0, edited.err
    assert "1 conflict left" in edited.err
    side = "ours" if told[0]["ours"]["is"] == "a file" else "theirs"
    last = agents("plan", "resolve", plan, "gone.txt", f"--{side}")
    assert "no conflicts left" in last.err
    assert "has no open conflict" in agents("plan", "resolve", plan).err
    assert agents("plan", "resume", plan, "--yes").code == 0
    assert (tmp_path / "shop/text.txt").read_text() == "by both\n"
    assert (tmp_path / "shop/gone.txt").read_text() == "gone\none\n"
    assert re.findall(r"resolve +ended", agents("plan", "log", plan).out) == ["resolve  ended"] * 2


def renaming(name: str) -> dict[str, object]:
    """A goal that renames a file that others rename, and makes one whose name breaks lines."""
    script = f"mv text.txt {name}.txt; echo {name} > \"$(printf 'new\\nline')\""
    return {"name": name, "action": "builtin/command", "arguments": {"argv": ["sh", "-c", script]}}


def test_open_conflicts_are_announced_and_listed(agents: Agents, tmp_path: Path) -> None:
    (tmp_path / "goals.yaml").write_text(json.dumps({"goals": [renaming("one"), renaming("two")]}))
    ended = agents("run", "-f", "../goals.yaml", "--profile", "full-auto")
    assert ended.code == 3, ended.err
    plan = ended.id
    told = json.loads(agents("plan", "resolve", plan, "--format", "json").out)
    announced = re.findall(r"^conflict in (.*): ", ended.err, flags=re.MULTILINE)
    assert sorted(announced) == sorted(row["path"] for row in told) == ['"new\\nline"', "one.txt", "two.txt"]
    first = agents("plan", "resolve", plan, '"new\\nline"', "new\nline", "--theirs")
    assert first.code == 0, first.err
    assert 'resolved, as call 4: "new\\nline" (theirs)' in first.err
    shown = agents("plan", "show", plan).out
    assert "sub-plans conflict in one.txt, two.txt\n" in shown
    assert agents("plan", "rollback", plan, "3", "--yes").code == 0
    shown = agents("plan", "show", plan).out
    assert "conflict in" not in shown
    assert "plan resolve" not in shown
    assert "plan resume" in shown
