"""`agents run -f goals.yaml`: one plan with the goals of the file as its sub-plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.api.plans import goal_requests
from cleveragents.cli.output import progress
from cleveragents.cli.run.goals_file import content_of, is_goals_yaml
from cleveragents.cli.usage import as_usage
from cleveragents.core.errors import InvalidGoals

if TYPE_CHECKING:
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.app.container import Container
    from cleveragents.plans.ports.plans import PlanDraft

__all__ = ["is_goals_document", "requested_goals"]


def is_goals_document(name: str, typed: str | None = None) -> bool:
    """Return whether the file contains the goals of one plan, judging by its name. Text from standard input
    (`typed`) is recognized by its content.
    """
    return Path(name).suffix.lower() in (".yaml", ".yml") or (typed is not None and is_goals_yaml(typed))


def requested_goals(container: Container, wanted: PlanSpec, name: str, typed: str | None = None) -> PlanDraft:
    """Return the plan of all goals in the file, or of the `typed` text. Raises `InvalidGoals` after printing
    every mistake, and `click.UsageError` and other errors of invalid requests.
    """
    content = content_of(name) if typed is None else typed.encode()
    text = goal_requests.GoalsText(content, name if typed is None else "stdin")
    try:
        with as_usage():
            return goal_requests.requested_goals(container, wanted, text, Path.cwd())
    except InvalidGoals as error:
        if len(error.problems) == 1:
            raise
        for problem in error.problems:
            progress(f"{text.source}, {problem}")
        raise InvalidGoals(text.source, (f"{len(error.problems)} mistakes, listed above",)) from None
