"""What commands of a plan print, shown as it comes."""

from __future__ import annotations

import re
from collections.abc import Callable

from cleveragents.domain.redaction import redact_text

__all__ = ["LiveOutput"]

_LONGEST_LINE = 4096
_ESCAPES = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")


class LiveOutput:
    """What a command prints, line by line: what it would look like on paper, for `show` to spell out the
    control characters that are left.

    Not thread-safe: one command at a time feeds it.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show_line = show
        self._rest = b""

    def __call__(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._show(lines)

    def finish(self) -> None:
        """Shows what came after the last end of a line."""
        rest, self._rest = self._rest, b""
        if rest:
            self._show([rest])

    def _show(self, lines: list[bytes]) -> None:
        # Of a line that was written over, as progress bars are, the last state counts.
        last = [_ESCAPES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
        text = redact_text(b"\n".join(last).decode("utf-8", "backslashreplace"))
        for line in text.split("\n"):
            self._show_line(f"  {line}")
