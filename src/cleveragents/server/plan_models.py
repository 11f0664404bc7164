"""Plans as the API shows them: rows of lists, accounts, and what belongs to them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.server.accounts import Body
from cleveragents.server.worded import Worded

__all__ = [
    "EXAMPLE_PLAN",
    "Call",
    "CallInShort",
    "Change",
    "Limits",
    "Needs",
    "OfPlan",
    "PlanAccount",
    "PlanId",
    "PlanRow",
    "Strict",
]

EXAMPLE_PLAN = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"
_JOB = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"
_MOMENT = "2026-11-15T12:00:00Z"

PlanId = Annotated[
    str,
    Path(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of a plan, or as much of its beginning or end as is unambiguous",
        examples=[EXAMPLE_PLAN],
    ),
]
OfPlan = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="only those of the plan with this id, the whole of it; sub-plans have their own",
        examples=[EXAMPLE_PLAN],
    ),
]
Needs = Literal["approval", "question", "budget", "conflict", "error", "review"]


class Strict(Body):
    """What somebody sends: a name that is not known is a mistake, and no wish."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="after")
    @classmethod
    def _is_text(cls, value: object) -> object:
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and "\0" in text for text in texts):  # guard: no command has one
            raise ValueError("a text has no NUL in it")
        return value


class _Plan(Worded):
    id: str = Field(examples=[EXAMPLE_PLAN])
    goal: str = Field(examples=["Add a --json flag to the export command"])
    action: str = Field(examples=["builtin/goal"])
    phase: Phase = Field(examples=["execute"])
    state: PlanState = Field(examples=["complete"])
    resource: str = Field(description="what it works on", examples=["/srv/shop"])
    project: str | None = Field(description="`default` for plans of the command line", examples=["shop"])
    resource_name: str | None = Field(description="what it works on, by its name", examples=["shop-main"])
    created: str = Field(examples=[_MOMENT])
    updated: str = Field(examples=[_MOMENT])
    waiting_for: JsonValue = Field(
        description="what a waiting plan waits `for`, `what` it asks, the `remedy`", examples=[None]
    )
    error: str | None = Field(examples=[None])
    request: dict[str, JsonValue] = Field(
        description="what was asked for, masked",
        examples=[{"profile": "supervised", "checks": ["pytest -q"]}],
    )
    job: str | None = Field(description="the job that goes on with it, or went", examples=[_JOB])
    parent: str | None = Field(description="the plan that it is a part of", examples=[None])
    root: str = Field(description="the plan at the top of its tree", examples=[EXAMPLE_PLAN])
    depth: int = Field(examples=[0])
    isolation: Literal["bubblewrap", "none"] | None = Field(
        description="what isolates its commands, the weakest of its runs; null if unknown",
        examples=["bubblewrap"],
    )
    needs: Needs | None = Field(description="what it needs a person for", examples=["review"])
    meaning: str = Field(
        description="where it stands, in words", examples=["execute/complete: done, not applied"]
    )


class PlanRow(_Plan):
    """A plan in a list."""

    sub_plans: int = Field(description="how many it has, begun or not", examples=[0])
    sub_plans_done: int = Field(examples=[0])
    sub_plans_left_out: int = Field(examples=[0])


class FileState(BaseModel):
    """A file as git sees it."""

    mode: str = Field(examples=["100644"])
    content: str = Field(description="the content's name, by its hash", examples=["9f2b…"])


class Change(BaseModel):
    """A file that would be changed if the plan were applied now."""

    path: str = Field(examples=["src/export.py"])
    change: Literal["created", "changed", "deleted"] = Field(examples=["changed"])
    added: int | None = Field(description="lines; null of a file that has none", examples=[12])
    removed: int | None = Field(examples=[3])
    before: FileState | None
    after: FileState | None


class CheckRow(BaseModel):
    """What a check said when it last ran."""

    name: str = Field(examples=["pytest -q"])
    command: str = Field(examples=["pytest -q"])
    verdict: str = Field(description="passed, failed, not run or void", examples=["passed"])
    stale: bool = Field(
        default=False,
        description="it saw other files than would be applied now: they were rolled back, edited or left out",
    )
    required: bool
    ended: str = Field(examples=[_MOMENT])
    details: str = Field(examples=["12 passed"])


class Limits(BaseModel):
    """What a plan and all below it may spend, in all; null is no limit."""

    usd: float | None = Field(default=None, examples=[0.5])
    tokens: int | None = Field(default=None, examples=[200_000])
    steps: int | None = Field(default=None, description="calls of models", examples=[100])
    seconds: float | None = Field(default=None, description="time at work", examples=[1800])


class Spending(BaseModel):
    """What its models took, and may take; empty where none was asked."""

    model_calls: int | None = Field(default=None, examples=[12])
    tokens: int | None = Field(default=None, examples=[34_567])
    reserved_tokens: int | None = Field(default=None, examples=[0])
    usd: float | None = Field(default=None, description="null where a price is not known", examples=[0.0123])
    models: list[str] = Field(default=[], examples=[["openai/gpt-4.1"]])
    limits: Limits | None = None


class SubPlanRow(Worded):
    """A part of the plan, begun or not."""

    name: str = Field(examples=["the parser"])
    part: str | None = Field(examples=["1"])
    id: str | None = Field(examples=[EXAMPLE_PLAN])
    phase: Phase | None
    state: str | None = Field(description="a plan's state, or `left out`", examples=["complete"])
    needs: list[str] = Field(description="the parts that come before it")
    merged: bool
    why: str | None = Field(description="why it is left out")
    waits_for: str | None
    error: str | None
    status: str = Field(description="in a word or two", examples=["merged"])


class LeftOut(BaseModel):
    """A part that the result lacks."""

    name: str
    why: str


class ConflictRow(BaseModel):
    """What sub-plans disagree about, and nobody decided."""

    path: str
    kind: str = Field(examples=["content"])
    sub_plan: str
    marked: bool = Field(description="both sides are marked in the file")
    base: FileState | None
    ours: FileState | None
    theirs: FileState | None


class CorrectionRow(BaseModel):
    """A correction that was made."""

    number: int
    decision: int | None = Field(description="null for guidance that undid nothing")
    superseded: list[int]
    guidance: str
    by_itself: bool
    outcome: str | None = Field(description="the tree that the plan had come to before it")
    created: str = Field(examples=[_MOMENT])


class CallInShort(BaseModel):
    """A tool call, without what it printed. Its number is the checkpoint before it."""

    number: int = Field(examples=[3])
    tool: str = Field(examples=["edit"])
    what: str = Field(examples=["path=src/export.py"])
    state: str = Field(description="asked, started, ending, ended, failed or reverted", examples=["ended"])
    changed: int = Field(description="files", examples=[1])
    error: str | None


class Call(BaseModel):
    """A tool call, all of it; masked."""

    number: int = Field(examples=[3])
    tool: str = Field(examples=["edit"])
    state: str = Field(examples=["ended"])
    changed: int = Field(examples=[1])
    changeset: str | None
    approval: str | None = Field(description="granted or denied, if it was asked for")
    started: str = Field(examples=[_MOMENT])
    ended: str | None = Field(examples=[_MOMENT])
    arguments: JsonValue
    error: str | None
    result: JsonValue


class InTheWay(BaseModel):
    """Why a plan was not applied: what it changed was changed otherwise meanwhile."""

    paths: list[str] = Field(description="the files that conflict, or the first of them")
    details: str = Field(description="each place with both sides, masked, and cut where it is long")


class RenameRow(BaseModel):
    """A rename that an apply or an undo followed: a change of the file `old` went to the file `new`."""

    old: str
    new: str


class PlanAccount(_Plan):
    """Everything that is known of a plan but what its calls printed."""

    can: list[str] = Field(
        description="what is possible now: names of operations on the plan, as their paths end",
        examples=[["apply", "delete", "reject", "review", "rollback"]],
    )
    next_steps: list[list[str]] = Field(
        description="what goes on from here, as `can` names it, each with what it does",
        examples=[[[f"`apply` of plan {EXAMPLE_PLAN}", "brings it into your files"]]],
    )
    sandbox: str | None
    notes: list[str]
    files_changed: int
    changes: list[Change]
    ignored: list[str] = Field(description="what it made, and nobody gets")
    nested_repositories: list[str] = Field(
        description="directories in which it made a git repository: their files are applied, not their .git"
    )
    renames: list[RenameRow] = Field(description="the renames that its last apply or undo followed")
    review_problem: str | None
    left_out: list[str] = Field(description="files and changesets that the review left out")
    checks: list[CheckRow]
    spending: Spending
    sub_plans: list[SubPlanRow]
    sub_plans_done: int
    parts_left_out: list[LeftOut]
    conflicts: list[ConflictRow]
    corrections: list[CorrectionRow]
    calls: list[CallInShort]
    out_of_reach: str | None = Field(description="what it works on, if that is not there any more")
    in_the_way: InTheWay | None = Field(
        description="what kept it from being applied; leave those files out with a review, or settle them "
        "where they are, and apply it again",
        examples=[None],
    )
    branch: str | None = Field(
        description="of a remote: where its result is pushed to, or was", examples=["main"]
    )
