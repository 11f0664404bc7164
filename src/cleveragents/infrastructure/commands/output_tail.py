"""What is kept of a command's output: the end, since that is where it says what went wrong."""

from __future__ import annotations

from collections.abc import Callable

from cleveragents.infrastructure.commands.secret_mask import NO_SECRETS, SecretMask

__all__ = ["OutputTail"]

_SLACK_BYTES = 65536
_LONGEST_CHARACTER = 4


class OutputTail:
    """The last `limit` bytes of a stream, in bounded memory; `tell` is called with each chunk as it comes.
    Neither has the secrets that are masked.

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
        if len(self._kept) > self._limit:
            self._cut()
        kept = bytes(self._kept) + self._masked.rest.encode("latin-1")
        if self._dropped:
            kept = self._whole_characters(kept)
        text = kept.decode("utf-8", "backslashreplace")
        if self._dropped:
            text = f"[the first {self._dropped} bytes of output are missing]\n{text}"
        return text, self._dropped

    def _cut(self) -> None:
        excess = len(self._kept) - self._limit
        del self._kept[:excess]
        self._dropped += excess

    def _whole_characters(self, kept: bytes) -> bytes:
        """Without the rest of a character that the cut went through."""
        rest = 0
        while rest < min(len(kept), _LONGEST_CHARACTER) and kept[rest] & 0xC0 == 0x80:
            rest += 1
        if rest == _LONGEST_CHARACTER:
            return kept  # no character is that long: not UTF-8
        self._dropped += rest
        return kept[rest:]
