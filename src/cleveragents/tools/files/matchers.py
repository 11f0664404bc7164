"""Search and replace in texts: fixed texts in this process, regular expressions in a separate process."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Protocol, Self

from cleveragents.core.errors import ToolRefused
from cleveragents.processes.ports import StopSignal
from cleveragents.tools.files.regex_program import LENGTH

__all__ = ["FixedMatcher", "Matcher", "RegexMatcher", "matcher_for"]

# How soon a cancellation is noticed.
_LOOK_SECONDS = 0.05


class Matcher(Protocol):
    """A context manager that matches a pattern, with a deadline.

    Its methods yield a result for each text as soon as it is ready. The result is None if the time ran out at
    that text.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def lines(self, texts: Sequence[str], limit: int) -> Iterator[list[int] | None]:
        """Yield the first `limit` matching lines of each text, counted from 0."""
        ...

    def replace(self, texts: Sequence[str], replacement: str) -> Iterator[tuple[str, int] | None]:
        """Yield each text with all matches replaced, and the number of matches. Raises `ToolRefused`."""
        ...


def matcher_for(
    pattern: str, *, fixed: bool, ignore_case: bool, seconds: float, stop: StopSignal
) -> FixedMatcher | RegexMatcher:
    """Return a matcher. Entering it raises `ToolRefused` if the pattern is not a valid regular expression."""
    if fixed:
        return FixedMatcher(pattern, ignore_case=ignore_case, seconds=seconds)
    return RegexMatcher(pattern, ignore_case=ignore_case, seconds=seconds, stop=stop)


class FixedMatcher:
    """A `Matcher` of a fixed text. Takes time proportional to the searched text."""

    def __init__(self, pattern: str, *, ignore_case: bool, seconds: float) -> None:
        self._pattern = pattern
        self._anyhow = re.compile(re.escape(pattern), re.IGNORECASE) if ignore_case else None
        self._deadline = time.monotonic() + seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to release."""

    def lines(self, texts: Sequence[str], limit: int) -> Iterator[list[int] | None]:
        for text in texts:
            yield None if time.monotonic() > self._deadline else self._lines(text, limit)

    def replace(self, texts: Sequence[str], replacement: str) -> Iterator[tuple[str, int] | None]:
        for text in texts:
            yield None if time.monotonic() > self._deadline else self._replaced(text, replacement)

    def _lines(self, text: str, limit: int) -> list[int]:
        if not self._is_in(text):
            return []
        return list(islice((n for n, line in enumerate(text.split("\n")) if self._is_in(line)), limit))

    def _replaced(self, text: str, replacement: str) -> tuple[str, int]:
        if self._anyhow is not None:
            return self._anyhow.subn(lambda _: replacement, text)
        count = text.count(self._pattern)
        return (text.replace(self._pattern, replacement) if count else text), count

    def _is_in(self, text: str) -> bool:
        return self._pattern in text if self._anyhow is None else self._anyhow.search(text) is not None


class RegexMatcher:
    """A `Matcher` of a Python regular expression, in a process that is ended when the time runs out.

    Not thread-safe: for one tool call. Leaving it ends the process at once.
    """

    def __init__(self, pattern: str, *, ignore_case: bool, seconds: float, stop: StopSignal) -> None:
        self._pattern = pattern
        self._stop = stop
        self._deadline = time.monotonic() + seconds
        self._first = {"pattern": pattern, "ignore_case": ignore_case, "cpu_seconds": int(seconds) + 1}

    def __enter__(self) -> Self:
        # -P, and another directory: the working directory is an untrusted repository with its own modules.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cleveragents.tools.files.regex_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        try:
            self._send(self._first)
            self._receive()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def lines(self, texts: Sequence[str], limit: int) -> Iterator[list[int] | None]:
        for said in self._ask_about(texts, {"limit": limit}):
            yield None if said is None else list(said["lines"])

    def replace(self, texts: Sequence[str], replacement: str) -> Iterator[tuple[str, int] | None]:
        for said in self._ask_about(texts, {"replacement": replacement}):
            yield None if said is None else (said["text"], said["count"])

    def _ask_about(self, texts: Sequence[str], request: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
        sent = self._send({"texts": list(texts), **request})
        for _ in texts:
            said = self._receive() if sent else None
            yield said
            if said is None:
                return

    def _send(self, request: dict[str, Any]) -> bool:
        body = json.dumps(request).encode()
        assert self._process.stdin is not None
        try:
            _write_all(self._process.stdin.fileno(), LENGTH.pack(len(body)) + body)
        except BrokenPipeError:
            return False
        return True

    def _receive(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        head = self._read(descriptor, LENGTH.size)
        said = None if head is None else self._read(descriptor, LENGTH.unpack(head)[0])
        if said is None:
            return None
        message = dict(json.loads(said))
        if "error" in message:
            raise ToolRefused("pattern", f"{self._pattern!r} is not a valid pattern: {message['error']}")
        return message

    def _read(self, descriptor: int, count: int) -> bytes | None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        data = bytearray()
        while len(data) < count:
            self._stop.raise_if_cancelled()
            left = self._deadline - time.monotonic()
            if left <= 0:  # guard: the engine itself never gives up
                return None
            if poll.poll(1000 * min(left, _LOOK_SECONDS)):
                chunk = os.read(descriptor, min(count - len(data), 1 << 20))
                if not chunk:
                    return None
                data += chunk
        return bytes(data)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
