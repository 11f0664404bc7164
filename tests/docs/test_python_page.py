"""The page on the Python API matches the code."""

from __future__ import annotations

from tests.docs.python_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.docs.python_page` updates it."""
    assert PAGE.read_text(encoding="utf-8") == page()
