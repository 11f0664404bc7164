"""The page on the Python API is what the code says of itself."""

from __future__ import annotations

from tests.docs.python_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.docs.python_page` makes it so."""
    assert PAGE.read_text(encoding="utf-8") == page()
