"""Shows a conflict: each place with both sides, as a person would want to read it."""

from __future__ import annotations

__all__ = ["conflict_hunks"]

_LINES_SHOWN = 40


def conflict_hunks(content: bytes, ours: str, theirs: str) -> tuple[str, ...]:
    """The conflicted places of a file in which git has marked them, by the names it gave the sides.

    The lines are counted as they are in the present file.
    """
    opening, middle, closing = f"<<<<<<< {ours}", "=======", f">>>>>>> {theirs}"
    hunks: list[str] = []
    present: list[str] | None = None
    planned: list[str] | None = None
    number = 0
    for line in content.decode("utf-8", "replace").split("\n"):
        bare = line.rstrip("\r")
        if bare.startswith(opening):
            present = []
        elif present is None:
            number += 1
        elif planned is None and bare == middle:
            planned = []
        elif planned is not None and bare.startswith(closing):
            hunks.append(_hunk(number + 1, present, planned))
            number += len(present)
            present = planned = None
        else:
            (present if planned is None else planned).append(line)
    return tuple(hunks)


def _hunk(first: int, present: list[str], planned: list[str]) -> str:
    last = first + max(len(present), 1) - 1
    where = f"line {first}" if last == first else f"lines {first}-{last}"
    if _differ_in_endings(present, planned):
        where += " (line endings differ)"
    return "\n".join([f"{where}, present:", *_shown(present), "wanted:", *_shown(planned)])


def _differ_in_endings(present: list[str], planned: list[str]) -> bool:
    """Whether no ending is on both sides, or nothing but endings differs: neither can be seen."""
    endings = [{line.endswith("\r") for line in side} for side in (present, planned)]
    alike = [line.rstrip("\r") for line in present] == [line.rstrip("\r") for line in planned]
    return all(endings) and (alike or endings[0].isdisjoint(endings[1]))


def _shown(lines: list[str]) -> list[str]:
    if not lines:
        return ["  (nothing)"]
    more = len(lines) - _LINES_SHOWN
    return [f"  | {line}" for line in lines[:_LINES_SHOWN]] + (
        [f"  (and {more} lines more)"] if more > 0 else []
    )
