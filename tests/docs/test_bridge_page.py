"""The page on the bridge explains every kind of message."""

from __future__ import annotations

import re
from pathlib import Path

from cleveragents.actors.streams.message import MessageKind

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "bridge.md").read_text(encoding="utf-8")


def test_every_kind_of_message_is_in_the_table() -> None:
    table = PAGE.partition("| kind | when | `error` |\n|---|---|---|\n")[2].partition("\n\n")[0]
    named = {kind for row in table.splitlines() for kind in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {kind.value for kind in MessageKind}
