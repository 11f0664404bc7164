"""Every Python block in the documents runs unchanged, alone, in an empty directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A Python block and its first line, so that a traceback leads there."""

    page: Path
    line: int
    source: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _snippets() -> Iterator[Snippet]:
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            yield Snippet(page, text.count("\n", 0, found.start(1)) + 1, found[1])


SNIPPETS = list(_snippets())


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_a_snippet_runs_unchanged(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = "\n" * (snippet.line - 1) + snippet.source
    exec(compile(source, snippet.page, "exec"), {"__name__": "__main__"})


def test_the_pages_that_show_how_to_use_something_have_a_snippet() -> None:
    shown = {snippet.page.stem for snippet in SNIPPETS}
    assert {"acms", "bridge", "changesets", "events", "jobs"} <= shown
