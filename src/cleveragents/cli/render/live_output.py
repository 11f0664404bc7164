"""Live output of commands and models, shown as it arrives, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable

from cleveragents.core.text.redaction import redact_text

__all__ = ["ChunkFlow", "LiveOutput"]

_LONGEST_LINE = 4096
_ESCAPES = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")


_LONGEST_KEY = 32_768


class LiveOutput:
    """Shows the output of a command line by line, in its final form, without overwritten text; `show` escapes
    the remaining control characters.

    Not thread-safe: one command at a time feeds it.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show_line = show
        self._key: list[bytes] = []
        self._rest = b""

    def __call__(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        lines = [*self._key, *lines]
        place = _open_key(lines)
        self._key = lines[place:]
        if place:
            self._show(lines[:place])

    def finish(self) -> None:
        """Show the text after the last line break."""
        lines = [*self._key, self._rest] if self._rest else self._key
        self._key, self._rest = [], b""
        if lines:
            self._show(lines)

    def _show(self, lines: list[bytes]) -> None:
        # Of an overwritten line, as of a progress bar, the last state is shown.
        last = [_ESCAPES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
        text = redact_text(b"\n".join(last).decode("utf-8", "backslashreplace"))
        for line in text.split("\n"):
            self._show_line(f"  {line}")


class ChunkFlow:
    """Passes on an answer, which arrives in pieces of any size, in whole words.

    Pieces may cut a secret anywhere, so a word is held back until it has ended, and is checked together with
    everything before it on its line. Not thread-safe: one answer at a time feeds it.
    """

    def __init__(self) -> None:
        self._line = ""
        self._shown = ""

    def __call__(self, piece: str) -> str:
        """Return the text that can be shown now; often empty."""
        *ended, rest = _lines_of(self._line + piece)
        out = ""
        for line in ended:
            self._line = line
            out += self.finish() + "\n"
        self._line = rest
        safe = redact_text(rest)
        whole_words = safe[: max(safe.rfind(" "), safe.rfind("\t")) + 1]
        # Text that turns out to be part of a secret is shown, masked, when the line has ended.
        if whole_words.startswith(self._shown):  # guard: nothing is shown twice
            out += whole_words[len(self._shown) :]
            self._shown = whole_words
        if len(rest) > (_LONGEST_KEY if _is_open(rest) else _LONGEST_LINE):
            out += self.finish()
        return out

    def finish(self) -> str:
        """Return the rest of the line."""
        safe = redact_text(self._line)
        pairs = enumerate(zip(safe, self._shown, strict=False))
        known = next(
            (place for place, (one, other) in pairs if one != other), min(len(safe), len(self._shown))
        )
        self._line = self._shown = ""
        return safe[known:]


def _lines_of(text: str) -> list[str]:
    """Return the lines of the text; a private key counts as one line, together with the text before it."""
    lines: list[str] = []
    for line in text.split("\n"):
        if lines and _is_open(lines[-1]):  # guard: each line of a key looks harmless
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
    return lines


def _open_key(lines: list[bytes]) -> int:
    """Return the index of the line where an unfinished private key begins; the number of lines if there is
    none.
    """
    begins = [number for number, line in enumerate(lines) if b"-----BEGIN " in line]
    if begins:
        key = b"\n".join(lines[begins[-1] :]).decode("latin-1")
        if _is_open(key) and len(key) < _LONGEST_KEY:  # guard: each line of a key looks harmless
            return begins[-1]
    return len(lines)


def _is_open(line: str) -> bool:
    """Return whether a private key begins in the text but does not end in it."""
    _, begin, key = line.rpartition("-----BEGIN ")
    return bool(begin) and "PRIVATE KEY-----" in key and "-----END " not in key
