"""`agents context`: what it finds, and how it says so."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.cli.render import context_view
from tests.cli_bench import Agents, command_line, git, use_home

SHOP = {
    "shop/session.py": '''"""Sessions."""

import hmac


def sign_cookie(value, key):
    """Signs the session cookie with the shop's key."""
    return hmac.new(key, value, "sha256").hexdigest()


def read_cookie(raw):
    """Takes the cookie apart."""
    return raw.split(".")
''',
    "shop/stock.py": '''"""What is in stock."""


class Stock:
    def take(self, article, count):
        """Takes articles off the shelf."""
        if count > self.articles[article]:
            raise ValueError("not enough articles on the shelf")
''',
    "web/cart.ts": "export class Cart { addArticle(name: string): void { this.names.push(name) } }\n",
    "README.md": "# The shop\n\nSells articles.\n",
    "secret.log": "sign_cookie sign_cookie sign_cookie\n",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    for name, text in SHOP.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / ".gitignore").write_text("*.log\n", encoding="utf-8")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "The shop opens")
    return root


@pytest.fixture
def agents(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    monkeypatch.chdir(shop)
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_a_requested_definition_is_shown_completely(agents: Agents) -> None:
    ended = agents("context", "Where is the session cookie signed?")
    assert ended.code == 0
    assert "shop/session.py" in ended.out
    assert 'return hmac.new(key, value, "sha256").hexdigest()' in ended.out
    assert "tokens" in ended.err


def test_files_are_listed_the_best_first_one_to_a_line(agents: Agents) -> None:
    ended = agents("context", "--files", "not enough articles on the shelf")
    assert ended.out.splitlines()[0] == "shop/stock.py"
    assert agents("context", "--files", "--limit", "1", "articles").out.count("\n") == 1
    told = json.loads(agents("context", "--files", "--limit", "1", "articles", "--format", "json").out)
    assert (len(told["files"]), told["fragments"]) == (1, [])


def test_a_program_gets_the_best_definitions_with_their_reasons(agents: Agents) -> None:
    told = json.loads(agents("context", "Where is the session cookie signed?", "--format", "json").out)
    best = told["definitions"][0]
    assert (best["path"], best["name"], best["kind"]) == ("shop/session.py", "sign_cookie", "function")
    assert best["lines"] == [6, 8]
    assert best["reasons"][0] == "name matches sign, cookie"
    one = json.loads(agents("context", "articles", "--limit", "1", "--format", "json").out)
    assert len(one["definitions"]) == 1


def test_a_model_reads_the_best_definitions_first(agents: Agents) -> None:
    ended = agents("context", "Where is the session cookie signed?")
    assert "Most likely: sign_cookie (shop/session.py:6)" in ended.out.splitlines()[0]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A terminal of 24 lines; the list holds the texts of its pager."""
    paged: list[str] = []
    monkeypatch.setattr(context_view, "get_terminal_size", lambda: os.terminal_size((100, 24)))
    monkeypatch.setattr(context_view.click, "echo_via_pager", lambda text, color: paged.append(text))
    return paged


def test_a_terminal_shows_one_screen_of_definitions_and_files(agents: Agents, screen: list[str]) -> None:
    ended = agents("context", "Where is the session cookie signed?", "--format", "rich")
    lines = ended.out.splitlines()
    assert len(lines) < 24
    assert lines.index("definitions") < lines.index("files")
    row = lines[lines.index("definitions") + 3]
    assert row.split()[:3] == ["sign_cookie", "shop/session.py:6", "1.00"]
    assert "name matches sign, cookie" in row
    assert "hmac" not in ended.out
    assert "--all" in ended.err
    assert screen == []
    taken = agents("context", "Who takes articles off the shelf?", "--format", "rich").out.splitlines()
    assert taken[taken.index("definitions") + 3].startswith("take ")  # without its class


def test_a_narrow_terminal_keeps_the_file_name_and_the_line(
    agents: Agents, shop: Path, screen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = shop / "shop/adapters/payment/providers/receipts.py"
    deep.parent.mkdir(parents=True)
    deep.write_text("\n\ndef print_receipt(total):\n    return total\n", encoding="utf-8")
    monkeypatch.setattr(context_view, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    lines = agents("context", "Who prints the receipt?", "--format", "rich").out.splitlines()
    row = lines[lines.index("definitions") + 3].split()
    assert row[0] == "print_receipt"
    assert row[1].startswith("…")
    assert row[1].endswith("/receipts.py:3")
    assert len(row[1]) == 80 // 3


def test_all_shows_the_code_as_well_in_a_pager(
    agents: Agents, screen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("context", "--all", "Where is the session cookie signed?", "--format", "rich")
    assert "hexdigest()" in agents(*asked).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    agents(*asked)
    assert "shop/session.py:6  sign_cookie" in screen[0]
    assert "hexdigest()" in screen[0]


def test_a_question_about_something_else_is_answered_with_a_warning(agents: Agents) -> None:
    ended = agents("context", "How do I bake a chocolate cake?")
    assert "nothing in this repository seems related to the question" in " ".join(ended.err.split())
    assert "seems related" not in agents("context", "Where is the session cookie signed?").err


def test_a_question_about_something_else_lists_no_definition_without_evidence(agents: Agents) -> None:
    told = json.loads(agents("context", "quantum chromodynamics lattice", "--format", "json").out)
    assert "seems related" in told["notes"][0]
    assert told["definitions"] == []
    told = json.loads(agents("context", "Where is the session cookie signed?", "--format", "json").out)
    assert ["in a relevant file"] in [one["reasons"] for one in told["definitions"]]


def test_a_question_need_not_be_quoted(agents: Agents) -> None:
    ended = agents("context", "--files", "not", "enough", "articles", "on", "the", "shelf")
    assert ended.out.splitlines()[0] == "shop/stock.py"


def test_a_program_gets_files_fragments_strategies_tokens_and_time(agents: Agents) -> None:
    ended = agents("context", "sign_cookie", "--budget", "500", "--format", "json")
    told = json.loads(ended.out)
    assert told["files"][0] == "shop/session.py"
    assert told["tokens"] <= told["budget"] == 500
    assert isinstance(told["took_ms"], int)
    assert {one["path"] for one in told["fragments"]} >= {"shop/session.py"}
    found_by = {found["strategy"] for one in told["fragments"] for found in one["found_by"]}
    assert {"keyword", "symbols"} <= found_by
    assert {one["status"] for one in told["strategies"]} <= {"used", "empty"}
    assert "secret.log" not in told["files"]


def test_an_explanation_lists_every_strategy_and_its_outcome(agents: Agents) -> None:
    ended = agents("context", "--explain", "sign_cookie")
    rows = [line.split()[:2] for line in ended.out.split("\nstrategies\n")[1].splitlines()[1:]]
    assert {"keyword", "symbols", "history", "mentions"} <= {row[0] for row in rows}
    assert ["keyword", "used"] in rows
    files = agents("context", "--explain", "--files", "sign_cookie")
    assert "shop/session.py" in files.out
    assert "keyword" in files.out.splitlines()[1]


def test_the_question_may_come_from_a_file_or_from_stdin(agents: Agents, tmp_path: Path) -> None:
    issue = tmp_path / "issue.md"
    issue.write_bytes("Cookie broken\n\nsign_cookie fails \x00\xff".encode("latin-1"))
    assert agents("context", "--files", "--file", str(issue)).out.splitlines()[0] == "shop/session.py"
    assert agents("context", "--files", "-", typed="class Stock\n").out.splitlines()[0] == "shop/stock.py"


def test_a_commit_is_looked_at_as_it_was_and_another_directory_as_it_is(
    agents: Agents, shop: Path, tmp_path: Path
) -> None:
    (shop / "shop" / "session.py").unlink()
    (shop / "new.py").write_text("def sign_cookie(): ...\n", encoding="utf-8")
    assert agents("context", "--files", "sign_cookie").out.splitlines()[0] == "new.py"
    assert (
        agents("context", "--files", "--at", "HEAD", "sign_cookie").out.splitlines()[0] == "shop/session.py"
    )
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "here.rb").write_text("def sign_cookie\nend\n", encoding="utf-8")
    assert agents("context", "--in", str(plain), "--files", "sign_cookie").out == "here.rb\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing question"),
        (("a", "--file", "b"), "not both"),
        (("x", "--in", "README.md"), "is not a directory"),
        (("--file", "nowhere.md"), "cannot read nowhere.md"),
        (("   ",), "the question is empty"),
        (("x", "--budget", "3"), "the budget must be at least"),
        (("x", "--deadline", "0"), "the deadline must be greater than 0"),
        (("x", "--at", "nowhere"), "nowhere"),
        (("x", "--in", "nowhere"), "nowhere"),
    ],
)
def test_invalid_questions_are_reported_in_a_sentence(
    agents: Agents, words: tuple[str, ...], said: str
) -> None:
    ended = agents("context", *words)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_the_state_is_private(agents: Agents, tmp_path: Path) -> None:
    agents("context", "sign_cookie")
    assert [oct(path.stat().st_mode)[-3:] for path in (tmp_path / "state", tmp_path / "state/index")] == [
        "700",
        "700",
    ]


def test_nothing_is_written_beside_the_users_files(agents: Agents, shop: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in shop.rglob("*") if path.is_file()}
    agents("context", "sign_cookie")
    assert {path: path.stat().st_mtime_ns for path in shop.rglob("*") if path.is_file()} == before


def test_control_characters_of_a_file_do_not_reach_the_terminal(agents: Agents, shop: Path) -> None:
    (shop / "evil.py").write_text("def sign_cookie_evil():\n\treturn '\x1b[2Jgone'\n", encoding="utf-8")
    ended = agents("context", "sign_cookie_evil")
    assert "\x1b[2J" not in ended.out
    assert "\treturn" in ended.out


def test_a_question_without_results_suggests_other_words(agents: Agents, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()

    def told() -> str:
        ended = agents("context", "--files", "--in", str(place), "zzqqxx")
        assert (ended.code, ended.out) == (0, "")
        return ended.err

    assert told() == f"note: there is no file in {place}\n"
    (place / "a.txt").write_text("hello\n")
    assert "try other words" in told()
    (place / "a.txt").unlink()
    git(place, "init", "-q", "--bare")
    assert "note: this is a bare repository" in told()
    assert "or name a commit" in told()


def test_gc_removes_the_index_of_a_directory_that_is_gone_and_no_other(
    agents: Agents, tmp_path: Path
) -> None:
    state, gone = tmp_path / "state", tmp_path / "gone"
    gone.mkdir()
    (gone / "here.rb").write_text("def sign_cookie\nend\n", encoding="utf-8")
    agents("context", "--files", "sign_cookie")
    kept = {*(state / "index").glob("*.db")}
    agents("context", "--files", "--in", str(gone), "sign_cookie")
    shutil.rmtree(gone)
    assert len([*(state / "index").glob("*.db")]) == 2
    assert "indexes" not in agents("gc", "--dry-run").err
    assert "indexes of missing directories" in agents("gc").err
    assert {*(state / "index").glob("*.db")} == kept


def test_embeddings_are_used_only_if_configured(agents: Agents) -> None:
    def asked(*options: str) -> tuple[set[str], list[str]]:
        told = json.loads(agents(*options, "context", "sign_cookie", "--format", "json").out)
        return {one["name"] for one in told["strategies"]}, told["notes"]

    names, notes = asked()
    assert ("embeddings" in names, notes) == (False, [])
    names, notes = asked("--set", "context.strategies_off=")
    assert ("embeddings" in names, notes) == (True, [])


def test_a_repository_without_code_is_related_to_its_words(agents: Agents, tmp_path: Path) -> None:
    root = tmp_path / "notes"
    root.mkdir()
    (root / "README.md").write_text("the color\n")
    git(root, "init", "-q")
    assert "seems related" not in agents("context", "where is the color", "--in", str(root)).err
