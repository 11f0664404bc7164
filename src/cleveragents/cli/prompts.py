"""Questions on a terminal, repeated until the answer is valid.

Ctrl-C and Ctrl-D raise `click.Abort`; its `__context__` distinguishes the two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import click
from click.termui import raw_terminal

from cleveragents.cli.failure import say_error
from cleveragents.cli.output import printable

__all__ = ["confirmed", "ensure_confirmed", "prompt_choice", "prompt_key", "read_key"]

_YES, _NO = ("y", "yes"), ("n", "no", "")
_WORDS = {"yes": "y", "no": "n"}


def prompt_choice(question: str, choices: Sequence[str], default: str | None = None) -> str:
    """Ask for one of the choices and return it; Enter means the default. Case is ignored if the answer is
    unambiguous.
    """
    asked = printable(question)  # guard: a question may quote a file name or a commit of others
    while True:
        said = str(click.prompt(asked, type=click.STRING, default=default, err=True)).strip()
        # A choice may occur twice; white space at its ends is ignored.
        known = {one.strip(): one for one in reversed(choices)}
        meant = [one for one in known if one == said] or [
            one for one in known if one.casefold() in (said.casefold(), _WORDS.get(said.casefold()))
        ]
        if len(meant) == 1:
            return known[meant[0]]
        say_error(f"{said!r} is not a valid answer; type {_listed(choices)}")


def prompt_key(
    question: str, keys: Sequence[str], *, also: Sequence[str] = (), end: str | None = None
) -> str:
    """Ask for one of the keys and return it, without Enter; an Enter after the key does no harm. Keys in
    `also` are valid but not named. With `end`, Ctrl-D means that key.
    """
    while True:
        try:
            said = read_key(f"{question}: ").casefold()
        except (EOFError, KeyboardInterrupt, OSError) as stopped:  # OSError: the terminal is gone
            if end is None or isinstance(stopped, KeyboardInterrupt):
                raise click.Abort from stopped
            said = end
        with suppress(OSError):
            click.echo(said if said.isprintable() else "", err=True)
        if said in keys or said in also:
            return said
        say_error(f"press {_listed(keys)}")


def read_key(question: str) -> str:
    """Show the question on the terminal and return the key that is pressed, or keys that arrive together.

    `raw_terminal` drops the keys that were pressed before. The question appears after that, so that no answer
    is dropped. Enter alone is ignored: it may belong to the previous answer.
    """
    said = ""
    with raw_terminal() as terminal:
        click.echo("\r\n".join(map(printable, question.split("\n"))), nl=False, err=True)
        while not said:
            typed = os.read(terminal, 32)
            if not typed or b"\x04" in typed:
                raise EOFError
            if b"\x03" in typed:
                raise KeyboardInterrupt
            said = typed.decode(errors="replace").strip("\r\n")
    if not said:  # `raw_terminal` hides every error if the terminal is gone
        raise EOFError
    return said


def confirmed(question: str) -> bool:
    """Ask a question and return whether the answer is yes; Enter means no."""
    asked = printable(question)  # guard: as above
    while True:
        said = str(click.prompt(f"{asked} [y/N]", default="", show_default=False, err=True))
        said = said.strip().casefold()
        if said in (*_YES, *_NO):
            return said in _YES
        say_error(f"{said!r} is not a valid answer; type y for yes or n for no")


def ensure_confirmed(question: str) -> None:
    """Raise `click.Abort` unless the answer is yes."""
    if not confirmed(question):
        raise click.Abort


def _listed(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
