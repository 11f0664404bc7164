"""What is kept of a command's output: the end, since that is where it says what went wrong."""

from __future__ import annotations

from collections.abc import Callable

from cleveragents.core.text.redaction import end_of_cut_secret
from cleveragents.core.text.secret_patterns import LONGEST_WORD
from cleveragents.processes.secret_mask import NO_SECRETS, SecretMask

__all__ = ["OutputTail"]

_SLACK_BYTES = 65536
# Kept before the limit, to see whether a secret is cut in two; one that begins earlier is not recognized.
_CONTEXT_BYTES = 2 * LONGEST_WORD
_LONGEST_CHARACTER = 4


class OutputTail:
    """The last `limit` bytes of a stream, in bounded memory; `tell` is called with each chunk as it comes.
    Neither has the secrets that are masked, and the tail does not begin inside what a name or a shape shows
    to be a secret: masked later, the rest of one could not be recognized.

    Not thread-safe: one reader fills it.
    """

    def __init__(
        self, limit: int, tell: Callable[[bytes], None] | None = None, mask: SecretMask = NO_SECRETS
    ) -> None:
        self._limit = max(limit, 0)
        self._tell = tell
        self._kept = bytearray()
        self._dropped = 0
        self._masked = mask.stream_of_bytes()

    def append(self, chunk: bytes) -> None:
        self._take(self._masked.feed(chunk.decode("latin-1")).encode("latin-1"))

    def close(self) -> None:
        """Nothing comes any more: what may have been the beginning of a secret is told."""
        self._take(self._masked.finish().encode("latin-1"))

    def _take(self, chunk: bytes) -> None:
        self._kept += chunk
        # guard: memory stays bounded; the slack makes cutting rare
        if len(self._kept) > self._limit + _SLACK_BYTES:
            self._cut()
        if chunk and self._tell is not None:
            self._tell(chunk)

    def finish(self) -> tuple[str, int]:
        """The text, with a first line that says how many bytes are missing, if any; and that number."""
        kept = bytes(self._kept) + self._masked.rest.encode("latin-1")
        start = max(len(kept) - self._limit, 0)
        if start:
            start = _after_secret(kept, _after_character(kept, start))
        text = kept[start:].decode("utf-8", "backslashreplace")
        missing = self._dropped + start
        return f"[the first {missing} bytes of output are missing]\n{text}" if missing else text, missing

    def _cut(self) -> None:
        excess = len(self._kept) - self._limit - _CONTEXT_BYTES
        del self._kept[:excess]
        self._dropped += excess


def _after_character(kept: bytes, start: int) -> int:
    """Return where the first whole character begins."""
    rest = 0
    while rest < min(len(kept) - start, _LONGEST_CHARACTER) and kept[start + rest] & 0xC0 == 0x80:
        rest += 1
    return start if rest == _LONGEST_CHARACTER else start + rest  # no character is that long: not UTF-8


def _after_secret(kept: bytes, start: int) -> int:
    """Return where a secret ends that begins before `start`; `start` if there is none."""
    before = kept[max(start - _CONTEXT_BYTES, 0) : start].decode("utf-8", "surrogateescape")
    behind = kept[start : start + _CONTEXT_BYTES].decode("utf-8", "surrogateescape")
    cut = end_of_cut_secret(before, behind)
    return start + len(behind[:cut].encode("utf-8", "surrogateescape"))
