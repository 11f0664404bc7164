"""What is said about plans, in the words of who asks: an account is for programs and the page, which have no
commands, and for the command line, which has.

Reasons and remedies are kept once, in the words of the command line. Here they are said as requests call
things, and beside that, where it differs, as they are kept.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field, JsonValue, model_validator

from cleveragents.server.api_words import in_words_of_the_api

__all__ = ["Worded"]


class Worded(BaseModel):
    """An account some of whose fields are sentences."""

    SENTENCES: ClassVar[tuple[str, ...]] = ("error", "meaning", "waiting_for", "next_steps")

    command_line: dict[str, JsonValue] | None = Field(
        default=None,
        description="those of its fields that the command line says in other words, in those",
        examples=[None],
    )

    @model_validator(mode="before")
    @classmethod
    def _say(cls, account: object) -> object:
        if not isinstance(account, dict) or "command_line" in account:
            return account
        kept = {name: account[name] for name in cls.SENTENCES if account.get(name)}
        said = {name: _said(value) for name, value in kept.items()}
        other = {name: value for name, value in kept.items() if said[name] != value}
        return account | said | {"command_line": other or None}


def _said(value: object) -> object:
    """A sentence, the remedy for what a plan waits for, or steps: each a command and what it does."""
    if isinstance(value, str):
        return in_words_of_the_api(value)
    if isinstance(value, dict):
        remedy = value.get("remedy")
        return value | {"remedy": _said(remedy)} if isinstance(remedy, str) else value
    if isinstance(value, list):
        return [[in_words_of_the_api(f"`{command}`"), _said(what)] for command, what in value]
    return value
