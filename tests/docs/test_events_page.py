"""The page on events names every type that there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from cleveragents.core.event import EventType

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text(encoding="utf-8")


def test_every_type_is_explained_and_none_that_does_not_exist() -> None:
    table = PAGE.partition("| type | what happened |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [row.split("|")[1].strip(" `") for row in table.splitlines()]
    assert named == [kind.value for kind in EventType]
    assert [row for row in table.splitlines() if not re.fullmatch(r"\| `[\w.]+` \| .+ \|", row)] == []
