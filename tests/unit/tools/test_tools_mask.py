"""The mask of a secret never replaces the secret in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.redaction import KnownSecrets, redact_content_text, redact_text
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.tools.builtin.edit import TOOL as EDIT
from cleveragents.tools.builtin.multi_edit import TOOL as MULTI_EDIT
from cleveragents.tools.builtin.replace import TOOL as REPLACE
from cleveragents.tools.builtin.write import TOOL as WRITE
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace

KEY = "sk-0123456789abcdefghij"
CODE = f'first = 1\nkey = "{KEY}"\npassword = load()\nlast = 2\n'
SAID = r"\*\*\* masks a secret"


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    def no_commands(*_: object, **__: object) -> Any:
        raise AssertionError("no command is run here")

    (tmp_path / "a.py").write_text(CODE)
    return Workplace(ConfinedFiles(tmp_path), no_commands, CancellationToken())


@pytest.mark.parametrize("masked", [redact_content_text, redact_text])
@pytest.mark.parametrize("changed", ["first = 1", "key = "])
def test_refuses_to_write_the_mask_back(tmp_path: Path, place: Workplace, masked: Any, changed: str) -> None:
    content = masked(CODE).replace(changed, f"new_{changed}")
    with pytest.raises(CleverAgentsError, match=SAID):
        WRITE.call({"path": "a.py", "content": content}, place)
    assert (tmp_path / "a.py").read_text() == CODE


@pytest.mark.parametrize(
    "call",
    [
        lambda place: EDIT.call({"path": "a.py", "old": KEY, "new": "***"}, place),
        lambda place: EDIT.call({"path": "a.py", "old": 'key = "***"\n', "new": ""}, place),
        lambda place: MULTI_EDIT.call(
            {"path": "a.py", "edits": [{"old": "first", "new": "1st"}, {"old": KEY, "new": "***"}]}, place
        ),
        lambda place: REPLACE.call(
            {"pattern": 'key = "[^"]+"', "replacement": 'key = "***"', "regex": True}, place
        ),
    ],
    ids=["edit", "edit of what is shown", "multi_edit", "replace"],
)
def test_refuses_an_edit_that_replaces_a_secret_by_the_mask(
    tmp_path: Path, place: Workplace, call: Any
) -> None:
    with pytest.raises(CleverAgentsError, match=SAID):
        call(place)
    assert (tmp_path / "a.py").read_text() == CODE


def test_other_lines_of_a_file_with_secrets_can_be_changed(tmp_path: Path, place: Workplace) -> None:
    EDIT.call({"path": "a.py", "old": "first = 1", "new": 'first = "***"'}, place)
    EDIT.call({"path": "a.py", "old": f'"{KEY}"', "new": 'environ["KEY"]'}, place)
    changed = CODE.replace("1\n", '"***"\n', 1).replace(f'"{KEY}"', 'environ["KEY"]')
    assert (tmp_path / "a.py").read_text() == changed


def test_three_stars_are_ordinary_text_where_nothing_is_hidden(tmp_path: Path, place: Workplace) -> None:
    (tmp_path / "a.md").write_text("one\n***\ntwo\n")
    WRITE.call({"path": "a.md", "content": "***one***\n***\n2\n"}, place)
    WRITE.call({"path": "new.md", "content": "***\n"}, place)
    assert (tmp_path / "a.md").read_text() == "***one***\n***\n2\n"
    (tmp_path / "b.bin").write_bytes(b"\xff\0")
    WRITE.call({"path": "b.bin", "content": "***\n"}, place)


def test_a_line_with_the_literal_mask_may_move(tmp_path: Path, place: Workplace) -> None:
    (tmp_path / "a.py").write_text('shown = "***"\npassword = load()\n')
    WRITE.call({"path": "a.py", "content": 'x = 1\nshown = "***"\n'}, place)


def test_a_private_key_is_not_written_back_masked(tmp_path: Path, place: Workplace) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{'Ab1+' * 16}\n-----END PRIVATE KEY-----\n"
    (tmp_path / "key.pem").write_text(key)
    with pytest.raises(CleverAgentsError, match=SAID):
        WRITE.call({"path": "key.pem", "content": redact_content_text(key)}, place)


def test_a_known_secret_of_several_lines_is_not_lost(tmp_path: Path, place: Workplace) -> None:
    secrets = KnownSecrets()
    secrets.add("one half of it\nand the other")
    (tmp_path / "a.txt").write_text("begin\none half of it\nand the other\nend\n")
    with pytest.raises(CleverAgentsError, match=SAID):
        WRITE.call({"path": "a.txt", "content": "begin\n***\nend\n"}, place)
