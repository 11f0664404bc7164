"""The documents refer to existing files, commands and names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cleveragents.cli.commands import cli
from tests.races.naive import NAIVE

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "models").glob("*.md")])
LINK = re.compile(r"\[[^\]]+\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@each_document
def test_links_are_not_broken(path: Path) -> None:
    broken = [
        target
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not broken


@each_document
def test_commands_shown_exist(path: Path) -> None:
    for line in _agents_lines(path.read_text(encoding="utf-8")):
        command: click.Command = cli
        for word in shlex.split(line, comments=True)[1:]:
            if not isinstance(command, click.Group) or word.startswith("-"):
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"{line!r}: no command {word!r}"
            command = found


def test_the_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_naive_class_is_in_the_table() -> None:
    """The table names the test that catches each naive class; a class that no test catches is useless."""
    text = (ROOT / "docs" / "explanation" / "concurrency.md").read_text(encoding="utf-8")
    assert [cls.__name__ for cls in NAIVE if f"`{cls.__name__}`" not in text] == []


def test_every_interface_name_in_the_specification_exists() -> None:
    """The files named in the specification exist."""
    text = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
    files = re.findall(r"`([\w/]+/[\w/]+\.py)`", text)
    assert len(files) > 20
    places = (ROOT / "src" / "cleveragents", ROOT)
    assert [file for file in files if not any((place / file).exists() for place in places)] == []


def _agents_lines(text: str) -> Iterator[str]:
    for language, body in FENCE.findall(text):
        if language in ("bash", "sh", "console"):
            for line in body.splitlines():
                bare = line.removeprefix("$ ")
                if bare.startswith("agents ") and (language != "console" or line.startswith("$ ")):
                    yield bare
