"""`agents` with a stream that sends itself a signal when certain words were written, once for each.

`python -m tests.signal_responder WORDS ARGUMENT…`: WORDS is a JSON list of pairs of a regular expression and
a signal number.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, TextIO

from cleveragents.cli import main

__all__ = ["Answering"]


class Answering:
    """A stream that watches for words in their given order."""

    def __init__(self, rest: TextIO, words: list[tuple[str, int]]) -> None:
        self._rest = rest
        self._words = words

    def write(self, text: str) -> int:
        written = self._rest.write(text)
        self._rest.flush()
        if self._words and re.search(self._words[0][0], text):
            os.kill(os.getpid(), self._words.pop(0)[1])
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rest, name)


if __name__ == "__main__":
    words: list[tuple[str, int]] = json.loads(sys.argv[1])
    sys.stdout, sys.stderr = Answering(sys.stdout, words), Answering(sys.stderr, words)
    sys.argv = ["agents", *sys.argv[2:]]
    main.run()
