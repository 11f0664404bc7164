"""Questions on a terminal, asked again until the answer is one; what is wrong with it is said in our words.

Ctrl-C and Ctrl-D are `click.Abort`, whose context says which of them it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from cleveragents.cli.failure import say_error

__all__ = ["confirmed", "ensure_confirmed", "prompt_choice"]

_YES, _NO = ("y", "yes"), ("n", "no", "")


def prompt_choice(question: str, choices: Sequence[str]) -> str:
    """One of these. How it is written does not matter, where that leaves no doubt."""
    while True:
        said = str(click.prompt(question, type=click.STRING, err=True)).strip()
        # One that stands there twice is one; and nobody sees the white space at its ends.
        known = {one.strip(): one for one in reversed(choices)}
        meant = [one for one in known if one == said] or [
            one for one in known if one.casefold() == said.casefold()
        ]
        if len(meant) == 1:
            return known[meant[0]]
        say_error(f"{said!r} is none of the answers; say {_listed(choices)}")


def confirmed(question: str) -> bool:
    """Whether the answer is yes; just Enter is no."""
    while True:
        said = str(click.prompt(f"{question} [y/N]", default="", show_default=False, err=True))
        said = said.strip().casefold()
        if said in (*_YES, *_NO):
            return said in _YES
        say_error(f"{said!r} is no answer; say y for yes, or n for no")


def ensure_confirmed(question: str) -> None:
    """`click.Abort` unless the answer is yes."""
    if not confirmed(question):
        raise click.Abort


def _listed(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
