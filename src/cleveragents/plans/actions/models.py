"""What an action's YAML may hold. Types are strict: YAML has types, and a quoted number is text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from cleveragents.core.text.template import Place

__all__ = ["ActionModel", "ArgumentModel", "StepModel", "keys_at"]

_Text = Annotated[str, StringConstraints(min_length=1)]
_Seconds = Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class ArgumentModel(_Model):
    """An argument; with a default it need not be given."""

    type: Literal["string", "integer", "number", "boolean", "list", "path"]
    description: str = ""
    default: object = None
    rest: bool = False


class StepModel(_Model):
    """A tool call."""

    tool: _Text
    arguments: dict[str, object] = Field(default_factory=dict, alias="with")
    name: str | None = None
    continue_on_failure: bool = False
    expect_exit: list[Annotated[int, Field(ge=0, le=255)]] = Field(default=[0], min_length=1)
    shell: bool = False


class StrategizeModel(_Model):
    """Who strategizes; nobody, for tool steps."""

    actor: _Text | None = None


class ExecuteModel(_Model):
    """Steps, or an actor."""

    steps: list[StepModel] | None = Field(default=None, min_length=1)
    actor: _Text | None = None


class ReviewModel(_Model):
    """Who reads the result before a person does; nobody, unless named."""

    actor: _Text | None = None


class CheckModel(_Model):
    """A command that says whether the result is good."""

    name: _Text
    command: _Text
    required: bool = True
    timeout_seconds: _Seconds = 600.0


class BudgetModel(_Model):
    """What a plan may spend."""

    seconds: _Seconds | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    usd: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None


class SetupModel(_Model):
    """How a sandbox is furnished."""

    command: _Text
    key: list[_Text] = []
    paths: list[_Text] = []


class SandboxModel(_Model):
    """What a sandbox needs besides the repository."""

    setup: SetupModel | None = None
    include: list[_Text] = []


class ActionModel(_Model):
    """The whole file."""

    name: str
    description: str = ""
    arguments: dict[str, ArgumentModel] = Field(default_factory=dict)
    strategize: StrategizeModel = StrategizeModel()
    execute: ExecuteModel
    review: ReviewModel = ReviewModel()
    checks: list[CheckModel] = []
    invariants: list[_Text] = []
    definition_of_done: str = ""
    profile: str | None = None
    budget: BudgetModel = BudgetModel()
    sandbox: SandboxModel = SandboxModel()


# Where which keys may stand; `*` is any number or any argument's name.
_MODELS: dict[tuple[str, ...], type[_Model]] = {
    (): ActionModel,
    ("arguments", "*"): ArgumentModel,
    ("strategize",): StrategizeModel,
    ("execute",): ExecuteModel,
    ("execute", "steps", "*"): StepModel,
    ("review",): ReviewModel,
    ("checks", "*"): CheckModel,
    ("budget",): BudgetModel,
    ("sandbox",): SandboxModel,
    ("sandbox", "setup"): SetupModel,
}


def keys_at(place: Place) -> list[str]:
    """The keys that may stand there, in the order of the documentation."""
    general = tuple(
        "*" if isinstance(part, int) or (number == 1 and place[0] == "arguments") else part
        for number, part in enumerate(place)
    )
    model = _MODELS[general]
    return [field.alias or name for name, field in model.model_fields.items()]
