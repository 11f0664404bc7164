"""The view of a plan, and of its parts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from cleveragents.api.plans.summary import EXAMPLE_PLAN, EXAMPLE_TIME, PlanFields
from cleveragents.api.views import shown, view
from cleveragents.core.errors import Remedy
from cleveragents.plans.model.plan import Phase

__all__ = [
    "ApplyView",
    "ApprovalView",
    "CallSummary",
    "ChangeView",
    "CheckView",
    "ConflictView",
    "CorrectionView",
    "FileStateView",
    "LeftOutView",
    "LimitsView",
    "ObstacleView",
    "PlanView",
    "PublishedView",
    "RenameView",
    "SpendingView",
    "SubPlanView",
]


@view
class FileStateView:
    """The state of a file in git."""

    mode: str = shown(examples=["100644"])
    content: str = shown("the hash of the content", examples=["9f2b…"])


@view
class ChangeView:
    """A file that an apply would change now."""

    path: str = shown(examples=["src/export.py"])
    change: Literal["created", "changed", "deleted"] = shown(examples=["changed"])
    added: int | None = shown("number of lines; null for a binary file", examples=[12])
    removed: int | None = shown(examples=[3])
    before: FileStateView | None
    after: FileStateView | None


@view
class CheckView:
    """The last result of a check."""

    name: str = shown(examples=["pytest -q"])
    command: str = shown(examples=["pytest -q"])
    verdict: str = shown("passed, failed, not run or void", examples=["passed"])
    stale: bool = shown(
        default=False,
        description="out of date: the files changed after this check",
    )
    required: bool
    ended: datetime = shown(examples=[EXAMPLE_TIME])
    details: str = shown(examples=["12 passed"])

    @property
    def passed(self) -> bool:
        """Whether the check passed on the current files."""
        return self.verdict == "passed" and not self.stale


@view
class LimitsView:
    """Limits on the total spending of a plan and all plans below it; null is no limit."""

    usd: float | None = shown(default=None, examples=[0.5])
    tokens: int | None = shown(default=None, examples=[200_000])
    steps: int | None = shown(default=None, description="model calls", examples=[100])
    seconds: float | None = shown(default=None, description="working time in seconds", examples=[1800])


@view
class SpendingView:
    """The spending on models, with its limits; empty before the first model call."""

    model_calls: int | None = shown(default=None, examples=[12])
    tokens: int | None = shown(default=None, examples=[34_567])
    reserved_tokens: int | None = shown(default=None, examples=[0])
    input_tokens: int | None = shown(default=None, examples=[30_000])
    cached_tokens: int | None = shown("input read from a prompt cache", default=None, examples=[24_000])
    usd: float | None = shown(default=None, description="null if a price is unknown", examples=[0.0123])
    models: tuple[str, ...] = shown(default=(), examples=[["openai/gpt-4.1"]])
    limits: LimitsView | None = None
    at_most: bool = shown("whether an interrupted call counts with its highest cost", default=False)


@view
class SubPlanView:
    """A sub-plan, started or not."""

    name: str = shown(examples=["the parser"])
    part: str | None = shown(examples=["1"])
    id: str | None = shown(examples=[EXAMPLE_PLAN])
    phase: Phase | None
    state: str | None = shown("the state of the plan, or `left out`", examples=["complete"])
    needs: tuple[str, ...] = shown("the sub-plans that must finish first")
    merged: bool
    why: str | None = shown("why the sub-plan is left out")
    waits_for: str | None
    error: str | None
    status: str = shown(
        "the plan status; before a plan exists: `not started`, `not run` or `left out`", examples=["merged"]
    )


@view
class LeftOutView:
    """A sub-plan that the result lacks."""

    name: str
    why: str


@view
class ConflictView:
    """An open conflict between sub-plans, or with the repository."""

    path: str
    kind: str = shown(examples=["content"])
    sub_plan: str = shown("the merged sub-plan; empty for a conflict with the repository")
    marked: bool = shown("whether both sides are marked in the file")
    base: FileStateView | None
    ours: FileStateView | None
    theirs: FileStateView | None


@view
class CorrectionView:
    """A correction."""

    number: int
    decision: int | None = shown("the corrected decision; null if only guidance was added")
    superseded: tuple[int, ...]
    guidance: str
    by_itself: bool
    outcome: str | None = shown("object id of the result tree before the correction")
    created: datetime = shown(examples=[EXAMPLE_TIME])


@view
class CallSummary:
    """A tool call without its output. The number of a call is also that of the checkpoint before it."""

    number: int = shown(examples=[3])
    tool: str = shown(examples=["edit"])
    what: str = shown(examples=["path=src/export.py"])
    state: str = shown("asked, started, ending, ended, failed or reverted", examples=["ended"])
    changed: int = shown("files", examples=[1])
    error: str | None
    approval: str | None = shown("granted or denied, if approval was requested", default=None)
    rule: str | None = shown("the rule that approved the call instead of a person", default=None)
    reason: str | None = shown("why a person denied the call", default=None)


@view
class ObstacleView:
    """The conflict that blocked an apply."""

    paths: tuple[str, ...] = shown("the conflicting files, or the first of them")
    details: str = shown("each conflict with both sides, masked, and cut if long")


@view
class RenameView:
    """A rename that an apply or an undo followed: a change of the file `old` went to the file `new`."""

    old: str
    new: str


@view
class ApplyView:
    """The effect of an apply or an undo."""

    kind: Literal["apply", "undo"]
    files: int = shown("number of changed files; 0 if the repository already had the changes", examples=[2])
    commit: str | None = shown("the new commit", examples=[None])


@view
class PublishedView:
    """The branch that the result was published to."""

    branch: str = shown(examples=[f"agents/{EXAMPLE_PLAN}"])
    remote: str = shown("the name of the git remote", examples=["origin"])
    commit: str = shown(examples=["9f2b…"])


@view
class ApprovalView:
    """The pending approval of a call, and the rules that could approve such calls in advance."""

    call: int = shown(examples=[3])
    scopes: tuple[Literal["once", "plan", "project"], ...] = shown(
        "how long an approval can last", examples=[["once", "plan", "project"]]
    )
    pattern: str | None = shown("the suggested rule", examples=["pytest *"])
    exact: str | None = shown("the rule for exactly this command", examples=["pytest -q tests"])
    plan_scope: str = shown(
        default="this plan",
        description="where a rule for the plan applies",
        examples=["this plan and its sub-plans"],
    )
    project_scope: str = shown("where a rule for the project applies", examples=["repository /srv/shop"])
    problem: str | None = shown("why a scope or the suggested rule is missing", examples=[None])


@view
class PlanView(PlanFields):
    """Everything about a plan except the output of its calls."""

    can: tuple[str, ...] = shown(
        "the possible actions; each is the last part of its path",
        examples=[["apply", "delete", "reject", "review", "rollback"]],
    )
    elsewhere: str | None = shown(
        "why the server's workers cannot continue the plan, and where to continue it; null if they can",
        default=None,
        examples=[None],
    )
    next_steps: tuple[tuple[str, ...], ...] = shown(
        "the next steps as text, each with its description",
        examples=[[[f"`apply` of plan {EXAMPLE_PLAN}", "apply the result to your files"]]],
    )
    steps: tuple[Remedy, ...] = shown(
        "the next steps as data: `action` is the operation, `plan` its plan, `options` are fields of its "
        "request (null: to choose), `text` describes it; empty from a server of 0.1.0",
        default=(),
        examples=[
            [
                {
                    "action": "plan.apply",
                    "plan": EXAMPLE_PLAN,
                    "options": {},
                    "text": "apply the result to your files",
                }
            ]
        ],
    )
    answer: str | None = shown(
        "the last report of its executor, as Markdown: what was changed, or the answer to a question",
        default=None,
        examples=["`f` returns 1. Nothing else calls it."],
    )
    sandbox: str | None
    sandbox_removed: bool = shown("if so, neither diff nor undo is possible", default=False)
    notes: tuple[str, ...]
    files_changed: int
    changes: tuple[ChangeView, ...]
    tree: str | None = shown(
        "identifies the result; send it with an apply to apply no other result; null if unknown here",
        default=None,
        examples=["4b825dc642cb6eb9a060e54bf8d69288fbee4904"],
    )
    ignored: tuple[str, ...] = shown("ignored files that steps created; they are not part of the result")
    nested_repositories: tuple[str, ...] = shown(
        "new git repositories; their files are applied, but not their .git"
    )
    removed_submodules: tuple[str, ...] = shown(
        "submodules whose removal is not applied, because .gitmodules still names them",
        default=(),
    )
    renames: tuple[RenameView, ...] = shown("the renames that the last apply or undo followed")
    review_problem: str | None
    broken_invariant: str | None = shown(
        "the invariant that edits by hand have broken, and the file", default=None, examples=[None]
    )
    left_out: tuple[str, ...] = shown("files, changesets and hunks left out of the result")
    checks: tuple[CheckView, ...]
    spending: SpendingView
    sub_plans: tuple[SubPlanView, ...]
    sub_plans_done: int
    parts_left_out: tuple[LeftOutView, ...]
    conflicts: tuple[ConflictView, ...]
    corrections: tuple[CorrectionView, ...]
    open_comments: int = shown("comments that are neither resolved nor declined", default=0)
    calls: tuple[CallSummary, ...]
    out_of_reach: str | None = shown("the path of the repository, if it is missing")
    in_the_way: ObstacleView | None = shown(
        "the conflicts that blocked the apply; leave the files out, or resolve them "
        "in the repository, then apply again",
        examples=[None],
    )
    last_apply: ApplyView | None = shown(
        "the effect of the last apply or undo", default=None, examples=[None]
    )
    published: PublishedView | None = shown(
        "the branch of the last publish from a directory", default=None, examples=[None]
    )
    approval: ApprovalView | None = shown("the pending approval", default=None, examples=[None])
    hints: tuple[str, ...] = shown("hints on the cause of a failure", default=(), examples=[[]])
    branch: str | None = shown("for a remote: the branch of the result", examples=["main"])
    worked_on: bool | None = shown(
        "whether a worker runs the plan or a sub-plan of it; null from a server of 0.1.0", default=None
    )
    apply_allowed: bool = shown("whether the profile allows the apply without approval", default=False)
    held_back: tuple[str, ...] = shown(
        "reasons not to apply the result without approval: the reviewer's findings, sub-plans left out",
        default_factory=lambda: None,
        examples=[[]],
    )

    def __post_init__(self) -> None:
        PlanFields.__post_init__(self)
        if self.held_back is None:  # a server of 0.1.0 does not send it
            reviewed = all(check.passed for check in self.checks if check.name == "review")
            said = () if reviewed else ("the reviewer does not accept it",)
            lacks = ("sub-plans are left out",) if self.parts_left_out else ()
            object.__setattr__(self, "held_back", (*said, *lacks))

    @property
    def place(self) -> str:
        """The target of the result as text."""
        if self.branch is None:
            return self.resource
        return f"branch {self.branch} of {self.resource.rpartition('#')[0]}"
