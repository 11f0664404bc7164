"""Syntax colours of diffs: tokens that never change the text."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

KINDS = {"+": "add", "-": "remove", " ": "context"}


def computed(page: Page, expression: str, given: Any) -> Any:
    """Return the value of the expression; `m` is the module, `given` the argument."""
    script = (
        f"async (given) => {{ const m = await import('/static/js/plan/syntax.js'); return {expression}; }}"
    )
    return page.evaluate(script, given)


def tokens(page: Page, language: str | None, *said: str) -> list[list[list[str]]]:
    """Return the tokens of each line: `+new`, `-old` or ` same`."""
    run = """m.tokensOf(given.lines, given.language).then((found) =>
        given.lines.map((line) => found.get(line) ?? []))"""
    lines = [{"kind": KINDS[one[0]], "text": one[1:]} for one in said]
    found: list[list[list[str]]] = computed(page, run, {"lines": lines, "language": language})
    return found


def test_both_sides_of_a_diff_get_their_colours(page: Page) -> None:
    found = tokens(page, "python", " def f():", '-    return "a"', "+    return 1")
    assert ["def", "hl-keyword"] in found[0]
    assert ['"a"', "hl-string"] in found[1]
    assert ["1", "hl-number"] in found[2]


def test_colours_never_change_a_text(page: Page) -> None:
    said = [
        "+<script>alert(1)</script>",
        "+x = ```",
        "+<img src=x onerror=alert(1)>",
        "+&lt; \t é 🎨 \\",
        "+",
        "+'''",
    ]
    for language in ("python", "javascript", "xml", "markdown", "yaml", "bash"):
        for line, pieces in zip(said, tokens(page, language, *said), strict=True):
            assert "".join(text for text, _ in pieces) == line[1:], language


def test_long_and_unknown_code_stays_plain(page: Page) -> None:
    assert tokens(page, None, "+def f(): pass") == [[]]
    assert tokens(page, "python", "+x = 1" + " " * 2000, "+y = 2") == [[], []]
    paths = {
        "a/b.py": "python",
        "Makefile": "makefile",
        "x.tsx": "typescript",
        "README.md": "markdown",
        "no_ending": None,
        "deploy/Dockerfile": "dockerfile",
        "a.b.unknown": None,
    }
    assert computed(page, "given.map((path) => m.languageOf(path))", [*paths]) == [*paths.values()]


def test_every_language_can_be_loaded(page: Page) -> None:
    endings = (
        "py js ts json yml html css sh go rs java c cpp cs rb php sql md toml dockerfile mk kt swift lua"
    )
    run = """Promise.all(given.map(async (end) => [end, (await m.tokensOf(
        [{kind: 'add', text: 'if x: 1 "a"'}], m.languageOf('a.' + end))).size]))"""
    assert dict(computed(page, run, endings.split())) == dict.fromkeys(endings.split(), 1)
