"""Keeps the mask, which is shown instead of a secret, from taking the secret's place in a file.

Three stars are ordinary text, too. So they are refused only where a line comes with them while a line goes of
which something was hidden: in a file's content, or in what a command printed of it.
"""

from __future__ import annotations

import re

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.redaction import MASK, redact_content_text, redact_text

__all__ = ["HIDDEN", "ensure_no_mask"]

HIDDEN = (
    f"{MASK} stands for a secret that was hidden from you; edit other lines, or read the file with `read`, "
    "which hides less than commands do; to take a secret out, put something else in its place"
)

_MASKED = re.compile(r"(?<!\*)\*{3}(?!\*)")


def ensure_no_mask(path: str, before: str, after: str) -> None:
    """`ToolRefused` if the mask would come where `before` has something that is not shown."""
    if MASK not in after:
        return
    old, new = before.split("\n"), after.split("\n")
    known = set(old)
    if not any(_MASKED.search(line) for line in new if line not in known):
        return
    left = set(new)
    if any(line not in left for line in _hidden(before, old)):  # guard: the secret would be lost
        raise ToolRefused("file", f"{HIDDEN}; {path!r} was not changed")


def _hidden(text: str, lines: list[str]) -> list[str]:
    """The lines that somebody may have seen otherwise than they are."""
    shown = redact_content_text(text).split("\n")
    if len(shown) != len(lines):  # a known secret of several lines
        return lines
    return [
        line for line, seen in zip(lines, shown, strict=True) if line != seen or redact_text(line) != line
    ]
