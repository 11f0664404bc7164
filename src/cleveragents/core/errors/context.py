"""The context pipeline and its index."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import Conflict, InvalidRequest

__all__ = ["QuestionRefused", "SourceChanged", "SourceMissing"]


@dataclass(eq=False)
class QuestionRefused(InvalidRequest):
    """What is asked of the context pipeline cannot be answered by anyone."""

    message = "cannot look for context: {problem}"
    problem: str


@dataclass(eq=False)
class SourceMissing(InvalidRequest):
    """What is to be searched is not there."""

    message = "cannot search {place}: {problem}"
    place: str
    problem: str


@dataclass(eq=False)
class SourceChanged(Conflict):
    """A file changed after the snapshot was made, and what it said then is to be had no more."""

    message = "{path} has changed since it was looked at; ask again"
    path: str
