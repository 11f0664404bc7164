"""What a file of goals may hold. Types are strict: YAML has types, and a quoted number is text."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from cleveragents.core.text.template import Place

__all__ = ["GoalsModel", "SubGoalModel", "keys_at"]

_Text = Annotated[str, StringConstraints(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class SubGoalModel(_Model):
    """One goal."""

    name: _Text
    goal: _Text | None = None
    action: _Text | None = None
    arguments: dict[str, object] = Field(default_factory=dict)
    needs: list[_Text] = []
    actor: _Text | None = None
    model: _Text | None = None
    checks: list[_Text] = []
    invariants: list[_Text] = []


class GoalsModel(_Model):
    """The whole file."""

    goal: _Text | None = None
    goals: list[SubGoalModel] = Field(min_length=1)
    max_parallel: Annotated[int, Field(ge=1, le=64)] | None = None
    fail_fast: bool = False
    checks: list[_Text] = []
    invariants: list[_Text] = []


def keys_at(place: Place) -> list[str]:
    """The keys that may stand there, in the order of the documentation."""
    model: type[_Model] = GoalsModel if not place else SubGoalModel
    return list(model.model_fields)
