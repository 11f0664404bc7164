"""The page of field reports links to existing tests that name the report."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "field-reports.md"
REPORT = re.compile(r"\[([\w.-]+/[\w.-]+)#(\d+)\]\(https://github\.com/([\w.-]+/[\w.-]+)/issues/(\d+)\)")
TEST = re.compile(r"\[`(test_\w+)`\]\(../../(tests/[\w/]+\.py)\)")
NAMED_IN_TESTS = re.compile(r"\b((?:[\w.-]+/)?[\w.-]+)#(\d+)((?:(?:,| and) #\d+)*)")
SHOWN, _, NOT_YET = PAGE.read_text(encoding="utf-8").partition("## Not yet")
ROWS = [line for line in SHOWN.splitlines() if REPORT.search(line)]


def reports_in(text: str) -> list[tuple[str, str]]:
    """Return the repository, without its owner, and the number of each report."""
    return [(repository.split("/")[1], number) for repository, number, _, _ in REPORT.findall(text)]


@cache
def docstrings_of(path: Path) -> dict[str, str]:
    """Return the docstring of each test of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}


def names(text: str) -> set[tuple[str, str]]:
    """Return the reports that a text names: `owner/name#1, #2`, with or without the owner."""
    found = set()
    for repository, number, more in NAMED_IN_TESTS.findall(text):
        for each in [number, *re.findall(r"\d+", more)]:
            found.add((repository.rpartition("/")[2], each))
    return found


def test_links_say_what_they_lead_to() -> None:
    found = REPORT.findall(SHOWN + NOT_YET)
    assert len(found) > 40
    assert [each for each in found if each[:2] != each[2:]] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: REPORT.search(row).group(1))
def test_every_report_has_a_test_that_is_there_and_names_it(row: str) -> None:
    said = ""
    tests = TEST.findall(row)
    for name, path in tests:
        docstrings = docstrings_of(ROOT / path)
        assert name in docstrings, f"{path} has no {name}"
        said += f"{docstrings[name]}\n"
        assert names(docstrings[name]) & {*reports_in(row)}, f"{name} names no report of its row"
    assert {*reports_in(row)} <= names(said)


def test_every_report_that_a_test_names_is_on_the_page() -> None:
    shown = {*reports_in(SHOWN)}
    missing = {
        (path.name, each)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for docstring in docstrings_of(path).values()
        for each in names(docstring) - shown
    }
    assert missing == set()


def test_claims_no_missing_feature() -> None:
    assert {*reports_in(NOT_YET)} & {*reports_in(SHOWN)} == set()
