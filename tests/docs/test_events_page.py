"""The page on events lists exactly the existing types."""

from __future__ import annotations

import re
from pathlib import Path

from cleveragents.core.event import EventType

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text(encoding="utf-8")


def test_lists_every_event_type_and_no_other() -> None:
    table = PAGE.partition("| type | what happened |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [row.split("|")[1].strip(" `") for row in table.splitlines()]
    assert named == [kind.value for kind in EventType]
    assert [row for row in table.splitlines() if not re.fullmatch(r"\| `[\w.]+` \| .+ \|", row)] == []
