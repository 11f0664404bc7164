"""Messages in the words of the API: what they call by an option of a command has a name there, too.

Whole commands, between back quotes, stay: they go through the server from wherever somebody types them.
"""

from __future__ import annotations

import re

__all__ = ["in_words_of_the_api"]

_NAMES = {
    "--model": "`model`",
    "--max-tokens": "`limits.tokens`",
    "--max-usd": "`limits.usd`",
    "--max-steps": "`limits.steps`",
    "--max-…": "`limits`",
    "--timeout": "`limits.seconds`",
    "--commit": "`commit`",
    "--replace": "`replace`",
    "--yes": "`force`",
}
_COMMAND = re.compile(r"(`[^`]*`)")
_OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?:-…)?(?![\w-])")


def in_words_of_the_api(text: str) -> str:
    """The text, with options outside of commands called as requests call them."""
    parts = _COMMAND.split(text)
    return "".join(
        part if part.startswith("`") else _OPTION.sub(lambda found: _NAMES.get(found[0], found[0]), part)
        for part in parts
    )
