"""A comment stays with its lines or becomes outdated; it never moves to other lines."""

from __future__ import annotations

import pytest

from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.plans.model.comment import CommentAnchor, anchor_of, lines_now, named_lines

FILE = b"def a():\n    return 1\n\n\ndef b():\n    return 1\n"


def anchored(content: bytes, start: int, end: int | None = None) -> CommentAnchor:
    found = anchor_of("f.py", "old", content, start, end or start)
    assert found is not None
    return found


def now(anchor: CommentAnchor, content: bytes | None) -> tuple[int, int] | None:
    return lines_now(anchor, None if content is None else "new", lambda: content)


def test_the_same_blob_has_the_same_lines_without_reading_it() -> None:
    anchor = anchored(FILE, 2)
    assert lines_now(anchor, "old", lambda: pytest.fail("read")) == (2, 2)


def test_follows_lines_that_moved_unchanged() -> None:
    anchor = anchored(FILE, 5, 6)
    assert anchor.lines == ("def b():", "    return 1")
    assert now(anchor, b"import os\n\n" + FILE) == (7, 8)


def test_is_outdated_if_a_line_changed() -> None:
    assert now(anchored(FILE, 5, 6), FILE.replace(b"def b", b"def c")) is None


def test_is_outdated_if_the_file_is_gone() -> None:
    assert now(anchored(FILE, 1), None) is None


def test_is_outdated_if_the_lines_now_occur_twice() -> None:
    assert now(anchored(FILE, 1), FILE + b"def a():\n") is None


def test_the_lines_around_distinguish_equal_lines() -> None:
    """`return 1` of `a` is gone; the only one left is that of `b`, and no comment was made on it."""
    anchor = anchored(FILE, 2)
    assert now(anchor, FILE.replace(b"def a():\n    return 1\n", b"")) is None
    assert now(anchor, b"\n" + FILE) == (3, 3)


def test_lines_that_nothing_distinguishes_become_outdated_with_any_change() -> None:
    content = b"x\n" * 20
    assert now(anchored(content, 10), content + b"y\n") is None


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 2), (7, 7), (1, 7)])
def test_lines_outside_the_file_have_no_anchor(start: int, end: int) -> None:
    assert anchor_of("f.py", "old", FILE, start, end) is None


def test_an_anchor_does_not_keep_known_secrets_of_its_lines() -> None:
    owner = KnownSecrets()
    owner.add("a-secret-of-ours")
    anchor = anchored(b"a = 1\nkey = 'a-secret-of-ours'\n", 2)
    owner.forget()
    assert (anchor.lines, "a-secret-of-ours" in str(anchor)) == (("key = '***'",), False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("src/a.py:3: wrong", ("src/a.py", 3, 3)),
        ("`src/a.py:3-5` is wrong", ("src/a.py", 3, 5)),
        ("src/a.py:3-5 is wrong", ("src/a.py", 3, 5)),
        ("no place", None),
    ],
)
def test_a_finding_may_begin_with_its_lines(text: str, found: tuple[str, int, int] | None) -> None:
    assert named_lines(text) == found
