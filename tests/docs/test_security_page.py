"""Every threat on the page on security names an existing test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")


def test_each_threat_names_tests_that_exist() -> None:
    section = PAGE.partition("## Threats")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(rows) >= 15
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.rstrip("| ").rpartition("|")[2])
        assert named, row
        assert set(named) <= known, row


def test_the_figures_are_those_of_the_code() -> None:
    from cleveragents.server import app
    from cleveragents.storage import sql_idempotency_store

    assert sql_idempotency_store.PATIENCE.total_seconds() == 5 * 60
    assert sql_idempotency_store.KEPT.total_seconds() == 24 * 3600
    assert app._STRANGERS_PER_MINUTE == 10
    assert {"five minutes", "24 hours", "10 a minute"} <= set(
        re.findall(r"five minutes|24 hours|10 a minute", PAGE)
    )
