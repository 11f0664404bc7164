"""The process that matches regular expressions: it reads requests from stdin and answers on stdout.

Python's engine can take years for a short text and cannot be interrupted, but a process can be ended. The
process also ends by itself when its CPU time is used up, in case its parent was killed.
"""

from __future__ import annotations

import json
import re
import resource
import struct
import sys
import warnings
from contextlib import suppress
from typing import IO, Any

__all__ = ["LENGTH", "answer", "compile_pattern", "main"]

LENGTH = struct.Struct("!I")
"""The header of each message: the number of bytes of JSON that follow."""

_MEMORY_LIMIT_BYTES = 2 << 30
# Errors that an untrusted pattern can trigger.
_FAILURES = (re.error, IndexError, OverflowError, RecursionError, MemoryError)


def compile_pattern(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    """Compile the pattern; `^` and `$` match at line boundaries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern, re.MULTILINE | (re.IGNORECASE if ignore_case else 0))


def answer(compiled: re.Pattern[str], text: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers (from 0) of the matching lines, or the text with all matches replaced."""
    try:
        if "replacement" in request:
            replaced, count = compiled.subn(request["replacement"], text)
            return {"text": replaced, "count": count}
        return {"lines": _lines(compiled, text, request["limit"])}
    except _FAILURES as error:
        return {"error": str(error) or type(error).__name__}


def _lines(compiled: re.Pattern[str], text: str, limit: int) -> list[int]:
    found: list[int] = []
    for number, line in enumerate(text.split("\n")):
        if compiled.search(line.removesuffix("\r")):
            found.append(number)
            if len(found) >= limit:
                break
    return found


def main(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer requests until the input ends. The first request has the pattern, each further request some
    texts.

    Each text is answered as soon as it is done, so that the caller knows which text takes too long.
    """
    first = _receive(source)
    if first is None:
        return
    seconds = int(first["cpu_seconds"])
    for limit, amount in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, _MEMORY_LIMIT_BYTES)):
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (amount, amount))
    try:
        compiled = compile_pattern(first["pattern"], ignore_case=first["ignore_case"])
    except _FAILURES as error:
        _send(sink, {"error": str(error) or type(error).__name__})
        return
    _send(sink, {})
    while (request := _receive(source)) is not None:
        for text in request["texts"]:
            _send(sink, answer(compiled, text, request))


def _receive(source: IO[bytes]) -> dict[str, Any] | None:
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = source.read(LENGTH.unpack(head)[0])
    return dict(json.loads(body))


def _send(sink: IO[bytes], message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    sink.write(LENGTH.pack(len(body)) + body)
    sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
