"""Where the lines of a content begin. A line ends with a line feed; an empty content has no line."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

__all__ = ["Lines"]


class Lines:
    """Lines count from 0 here. `starts` has one more entry than there are lines: the end of the content."""

    __slots__ = ("count", "data", "starts")

    def __init__(self, data: bytes) -> None:
        self.data = data
        pieces = data.split(b"\n")
        starts = list(accumulate(map(len, pieces), lambda at, length: at + length + 1, initial=0))
        if not pieces[-1]:
            starts.pop()
        else:
            starts[-1] -= 1
        self.starts = starts
        self.count = len(starts) - 1

    def at(self, offset: int) -> int:
        """The line that holds the byte at `offset`."""
        return min(max(bisect_right(self.starts, offset) - 1, 0), max(self.count - 1, 0))

    def slice(self, first: int, end: int) -> bytes:
        """Lines `first` up to, not including, `end`."""
        return self.data[self.starts[first] : self.starts[end]]
