"""Messages in the words of the API and of the page: what they call by a command has a name there, too.

An option is a field. What a command does with a plan is called so there as well, by `can` and by the buttons;
what one only shows is a list or an account. Commands for whoever runs the server stay: nothing else does
that.
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
    "--branch": "`branch`",
    "--commit": "`commit`",
    "--to-branch": "`to_branch`",
    "--replace": "`replace`",
    "--yes": "`force`",
}
_DEEDS = "answer|apply|approve|cancel|correct|delete|deny|reject|resolve|resume|review|rollback|undo"
_SHOWN = {
    "plan show": "the account of plan {}",
    "plan watch": "the account of plan {}",
    "plan log": "the list of calls of plan {}",
    "plan diff": "the diff of plan {}",
    "plan tree": "the list of decisions of plan {}",
    "action show": "the description of {}",
    "actor show": "the description of {}",
    **{f"{one} list": f"the list of {one}s" for one in ("action", "actor", "model", "plan", "project")},
    **{f"{one} list": f"the list of {one}s" for one in ("resource", "user")},
    "jobs list": "the list of jobs",
}
_DEED = re.compile(rf"`agents plan ({_DEEDS})(?: ([0-9A-Za-z]{{1,64}}))?((?: [^`]*)?)`")
_SHOWS = re.compile(rf"`agents ({'|'.join(_SHOWN)})(?: ([\w./-]+))?(?: [^`]*)?`")
# What is quoted is somebody else's, and so is what a program said before it ended.
_QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.){0,500}'|"[^"]{0,500}")(?!\w)"""
_PRINTED = r"\b(?:exit code -?\d+|took too long): .*"
_AS_IT_IS = re.compile(rf"(`[^`]*`|{_QUOTED}|{_PRINTED})", re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?:-…)?(?![\w-])")


def in_words_of_the_api(text: str) -> str:
    """The text, with commands and options called as requests call them."""
    parts = _AS_IT_IS.split(text)
    parts[::2] = [_OPTION.sub(lambda found: _NAMES.get(found[0], found[0]), part) for part in parts[::2]]
    parts[1::2] = [_command(part) if part.startswith("`") else part for part in parts[1::2]]
    return "".join(parts)


def _command(part: str) -> str:
    return _SHOWS.sub(_shown, _DEED.sub(_deed, part))


def _deed(found: re.Match[str]) -> str:
    """`resume` of plan X, with `model`."""
    name, plan_id, rest = found.groups()
    of = "" if plan_id is None or plan_id in ("PLAN", "ID") else f" of plan {plan_id}"
    given = [_NAMES[option] for option in _OPTION.findall(rest) if option in _NAMES]
    return f"`{name}`{of}{f', with {given[0]}' if given else ''}"


def _shown(found: re.Match[str]) -> str:
    words, name = _SHOWN[found[1]], found[2]
    if "{}" not in words:
        return words
    return words.format(name) if name and name != "PLAN" else words.rpartition(" of ")[0]
