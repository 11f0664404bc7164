"""Recovers interrupted applies on request, and prints how many it ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cleveragents.apply.applier import TreeApplier
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import open_database


def main(home: str) -> None:
    with open_database(f"sqlite:///{Path(home)}/state.db") as database:
        applier = TreeApplier(database, UlidSource())
        os.write(1, b"ready\n")
        sys.stdin.readline()
        os.write(1, b"%d\n" % len(applier.recover()))


if __name__ == "__main__":
    main(*sys.argv[1:])
