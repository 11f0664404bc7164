"""What commands of a plan print and what its models say, shown as it comes and never with a secret in it."""

from __future__ import annotations

import re
from collections.abc import Callable

from cleveragents.core.text.redaction import redact_text

__all__ = ["ChunkFlow", "LiveOutput"]

_LONGEST_LINE = 4096
_ESCAPES = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")


_LONGEST_KEY = 32_768


class LiveOutput:
    """What a command prints, line by line: what it would look like on paper, for `show` to spell out the
    control characters that are left.

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
        """Shows what came after the last end of a line."""
        lines = [*self._key, self._rest] if self._rest else self._key
        self._key, self._rest = [], b""
        if lines:
            self._show(lines)

    def _show(self, lines: list[bytes]) -> None:
        # Of a line that was written over, as progress bars are, the last state counts.
        last = [_ESCAPES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
        text = redact_text(b"\n".join(last).decode("utf-8", "backslashreplace"))
        for line in text.split("\n"):
            self._show_line(f"  {line}")


class ChunkFlow:
    """An answer that comes piece by piece, passed on word by word.

    A secret may be cut anywhere by the pieces, so a word is held back until it has ended, and is looked at
    together with all that stands before it on its line. Not thread-safe: one answer at a time feeds it.
    """

    def __init__(self) -> None:
        self._line = ""
        self._shown = ""

    def __call__(self, piece: str) -> str:
        """What can be shown now; often nothing."""
        *ended, rest = _lines_of(self._line + piece)
        out = ""
        for line in ended:
            self._line = line
            out += self.finish() + "\n"
        self._line = rest
        safe = redact_text(rest)
        whole_words = safe[: max(safe.rfind(" "), safe.rfind("\t")) + 1]
        # What turned out to be part of a secret afterwards is shown when the line has ended.
        if whole_words.startswith(self._shown):  # guard: nothing is said twice
            out += whole_words[len(self._shown) :]
            self._shown = whole_words
        if len(rest) > (_LONGEST_KEY if _is_open(rest) else _LONGEST_LINE):
            out += self.finish()
        return out

    def finish(self) -> str:
        """The rest of the line."""
        safe = redact_text(self._line)
        pairs = enumerate(zip(safe, self._shown, strict=False))
        known = next(
            (place for place, (one, other) in pairs if one != other), min(len(safe), len(self._shown))
        )
        self._line = self._shown = ""
        return safe[known:]


def _lines_of(text: str) -> list[str]:
    """The lines of the text; a private key, which has many, is on one with what stands before it."""
    lines: list[str] = []
    for line in text.split("\n"):
        if lines and _is_open(lines[-1]):  # guard: each line of a key looks harmless by itself
            lines[-1] += f"\n{line}"
        else:
            lines.append(line)
    return lines


def _open_key(lines: list[bytes]) -> int:
    """Where the private key begins that has not ended yet; after the last line, if there is none."""
    begins = [number for number, line in enumerate(lines) if b"-----BEGIN " in line]
    if begins:
        key = b"\n".join(lines[begins[-1] :]).decode("latin-1")
        if _is_open(key) and len(key) < _LONGEST_KEY:  # guard: each line of a key looks harmless by itself
            return begins[-1]
    return len(lines)


def _is_open(line: str) -> bool:
    """Whether a private key begins in it that does not end there."""
    _, begin, key = line.rpartition("-----BEGIN ")
    return bool(begin) and "PRIVATE KEY-----" in key and "-----END " not in key
