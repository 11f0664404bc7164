"""The benchmark of the search: cases from the history of a repository, and intervals of differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import localize_history
from benchmarks.localize_report import Outcome, differences, is_candidate
from tests.cli_bench import git

FIX = """server: Fix crash of readHeader when a client sends no newline (#12)

The loop in net/server.go waited forever in `readHeader`, so the server was stuck and
every later request of the same client failed.

Fixes #11
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "owner" / "shop"
    (root / "net").mkdir(parents=True)
    git(root, "init", "-q")

    def commit(message: str, *files: str) -> None:
        for name in files:
            (root / name).write_text(f"func readHeader() {{}} // {message[:9]!r}\n", encoding="utf-8")
        git(root, "add", ".")
        git(root, "commit", "-qm", message)

    commit("Start", "net/server.go", "net/client.go", "net/server_test.go")
    commit("Fix typo in the documentation, which was wrong in several places", "net/client.go")
    commit(FIX, "net/server.go", "net/server_test.go")
    return tmp_path


def test_a_fixing_commit_is_a_case_without_the_names_that_give_the_answer_away(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert localize_history.main(["owner/shop", "--clones", str(clone), "--language", "go"]) == 0
    (case,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert case["files"] == ["net/server.go"]
    assert len(case["base_commit"]) == 40
    assert "crash" in case["question"]
    assert not [word for word in ("server", "readHeader", "#1") if word in case["question"]]


@pytest.mark.parametrize(
    ("path", "language", "ranked"),
    [
        ("src/app.ts", "javascript", True),
        ("src/app.test.ts", "javascript", False),
        ("src/__tests__/app.ts", "javascript", False),
        ("app_test.go", "go", False),
        ("src/main/App.java", "java", True),
        ("src/test/java/App.java", "java", False),
        ("AppTest.java", "java", False),
        ("src/app.rs", "go", False),
        ("pkg/test_app.py", "python", False),
    ],
)
def test_tests_and_other_languages_are_no_candidates(path: str, language: str, ranked: bool) -> None:
    assert is_candidate(path, language) is ranked


def test_a_difference_has_an_interval() -> None:
    old = [Outcome(str(number), "p" if number < 50 else "q", "", (2,), 0.0) for number in range(100)]
    new = [Outcome(one.case, one.repository, "", (1,) if one.repository == "p" else (2,), 0.0) for one in old]
    at_1, at_3 = differences(old, new)[:2]
    assert at_1.startswith("@1    cases +50.0 (+40.0 to +60.0)")
    assert at_1.endswith("projects +50.0 ( +0.0 to +100.0)")
    assert "+0.0 ( +0.0 to  +0.0)" in at_3
