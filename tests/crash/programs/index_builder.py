"""Opens the code index, optionally dies at a fault point, and prints its observations.

An order on stdin, a line of JSON; with `gate`, it waits for another line before it builds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.build.builder import IndexBuilder
from cleveragents.context.index.sqlite_code_index import SqliteCodeIndex
from cleveragents.testing.clock import CrashAt
from tests.index_bench import found_in
from tests.races.naive_code_index import LookThenBuildIndex

INDEXES = {"ours": SqliteCodeIndex, "naive": LookThenBuildIndex}


class Gate:
    """Announces itself and waits for permission, once."""

    def __init__(self) -> None:
        self._passed = False

    def reach(self, name: str) -> None:
        if name == "index.build.before" and not self._passed:
            self._passed = True
            say({"at": name})
            sys.stdin.readline()


def say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def main() -> None:
    order = json.loads(sys.stdin.readline())
    builder = dict(order["builder"])
    if order.get("gate"):
        builder["faults"] = Gate()
    elif order.get("crash"):
        builder["faults"] = CrashAt(order["crash"], order.get("nth", 1))
    index = INDEXES[order.get("index", "ours")](Path(order["indexes"]), builder=IndexBuilder(**builder))
    root = Path(order["root"])
    for number in range(order.get("rounds", 1)):
        own = f"{order['name']}round{number}" if "name" in order else None
        if own:
            # Written atomically: others may read at any moment.
            draft = root.parent / f"{order['name']}.draft"
            draft.write_text(f"common {own}\n")
            draft.replace(root / f"{order['name']}.py")
        with index.open(CodePlace(root)) as snapshot:
            common = found_in(snapshot, "common")
            say(
                {
                    "files": snapshot.status.files,
                    "indexed": snapshot.status.indexed,
                    "notes": snapshot.status.notes,
                    "found": len(common),
                    "own": own is None or list(found_in(snapshot, own)) == [f"{order['name']}.py"],
                }
            )


if __name__ == "__main__":
    main()
