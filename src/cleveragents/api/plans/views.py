"""Views of plans and their parts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from cleveragents.api.views import shown, view, view_of
from cleveragents.core.errors import Remedy
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.model.comment import CommentState
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus, status_of
from cleveragents.plans.model.usage_wait import reset_time

__all__ = [
    "AlternativeView",
    "ApplyView",
    "ApprovalView",
    "BudgetView",
    "CallSummary",
    "CallView",
    "ChangeView",
    "CheckView",
    "CommentAnswerView",
    "CommentState",
    "CommentView",
    "ComparisonView",
    "ConflictSideView",
    "ConflictView",
    "CorrectionNode",
    "CorrectionPreview",
    "CorrectionView",
    "DecisionNode",
    "DecisionSummary",
    "DecisionView",
    "DiffView",
    "ExplainedDecisionView",
    "FileDiffView",
    "FileStateView",
    "FileView",
    "HunkView",
    "LeftOutView",
    "LimitsView",
    "LineView",
    "ObstacleView",
    "OpenConflictView",
    "OutputView",
    "Phase",
    "PlanCount",
    "PlanState",
    "PlanSummary",
    "PlanView",
    "RenameView",
    "SpendingView",
    "SpentView",
    "SubPlanNode",
    "SubPlanView",
    "SupersededView",
    "TreeNode",
    "plan_counts",
    "tree_node",
]

EXAMPLE_PLAN = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"
_JOB = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"
_MOMENT = "2026-11-15T12:00:00Z"

Needs = Literal["approval", "question", "budget", "conflict", "error", "review"]
_MARKS = {"context": " ", "add": "+", "remove": "-"}


def _is_worked_on(phase: Phase, state: PlanState, needs: str | None) -> bool:
    """Return whether a worker runs or will run the plan, or the plan waits without needing a person."""
    between = (phase, state) == (Phase.STRATEGIZE, PlanState.COMPLETE)
    return state.running or between or (state is PlanState.WAITING and needs is None)


@view
class _PlanFields:
    id: str = shown(examples=[EXAMPLE_PLAN])
    goal: str = shown(examples=["Add a --json flag to the export command"])
    action: str = shown(examples=["builtin/goal"])
    phase: Phase = shown(examples=["execute"])
    state: PlanState = shown(examples=["complete"])
    status: PlanStatus = shown(
        "the status: phase, state and reason in one word", examples=["ready"], default_factory=lambda: None
    )
    version: int | None = shown(
        "increases with each move; send it to act on this version only; null from a server of 0.1.0",
        default=None,
        examples=[7],
    )
    resource: str = shown("the repository or directory", examples=["/srv/shop"])
    project: str | None = shown("the project; `default` for plans of the command line", examples=["shop"])
    resource_name: str | None = shown("the name of the resource", examples=["shop-main"])
    created: datetime = shown(examples=[_MOMENT])
    updated: datetime = shown(examples=[_MOMENT])
    waiting_for: object = shown(
        "the pending request: its kind (`for`), its text (`what`), the `remedies`; for a usage limit, the "
        "time of its reset (`until`)",
        examples=[None],
    )
    error: str | None = shown(examples=[None])
    request: Mapping[str, object] = shown(
        "the request, masked",
        examples=[{"profile": "supervised", "checks": ["pytest -q"]}],
    )
    job: str | None = shown("the last job of the plan", examples=[_JOB])
    parent: str | None = shown("the parent of a sub-plan", examples=[None])
    root: str = shown("the plan at the top of the tree of sub-plans", examples=[EXAMPLE_PLAN])
    depth: int = shown(examples=[0])
    label: str = shown("the status, with the number of finished sub-plans", examples=["ready"], default="")
    at_rest: bool = shown(
        "whether no worker runs the plan, and none will until a person acts",
        examples=[True],
        default_factory=lambda: None,
    )
    isolation: Literal["bubblewrap", "none"] | None = shown(
        "the weakest isolation of the plan's commands in all runs; null if unknown",
        examples=["bubblewrap"],
    )
    needs: Needs | None = shown("the kind of the pending request", examples=["review"])
    meaning: str = shown(
        "the status with its explanation", examples=["ready: the result is ready for review"]
    )

    def __post_init__(self) -> None:
        if self.at_rest is None:  # a server of 0.1.0 does not send it
            object.__setattr__(self, "at_rest", not _is_worked_on(self.phase, self.state, self.needs))
        if self.status is None:
            object.__setattr__(self, "status", self._status())

    def _status(self) -> PlanStatus:
        from cleveragents.core.cancellation import is_resumable_stop

        return status_of(
            self.phase,
            self.state,
            stopped=is_resumable_stop(self.error),
            sub_plans_run=self.waits_for_sub_plans and self.needs is None,
            in_conflict=self.needs == "conflict",
            merged=self.label == "merged",
            changed=self.parent is not None or self.needs == "review",
        )

    @property
    def title(self) -> str:
        """The goal on one line; for a sub-plan, its name and the first line of its goal."""
        if self.parent is None:
            return " ".join(self.goal.split())
        goal = " ".join(self.goal.strip().partition("\n")[0].split())
        name = self.request.get("name")
        called = " ".join(name.split()) if isinstance(name, str) and name else goal
        return called if called == goal else f"{called}: {goal}"

    @property
    def waits_for_sub_plans(self) -> bool:
        """Whether the plan waits for its sub-plans, not for a person."""
        waiting = self.waiting_for if isinstance(self.waiting_for, Mapping) else {}
        return self.state is PlanState.WAITING and waiting.get("for") == "sub-plans"

    @property
    def parked_until(self) -> datetime | None:
        """The time at which a plan that waits for the reset of a usage limit continues; None for others."""
        return reset_time(self.state, self.waiting_for)


@view
class PlanSummary(_PlanFields):
    """A plan in a list."""

    sub_plans: int = shown("number of sub-plans, started or not", examples=[0])
    sub_plans_done: int = shown(examples=[0])
    sub_plans_left_out: int = shown(examples=[0])


@view
class PlanCount:
    """The number of plans in one phase and state."""

    phase: Phase = shown(examples=["execute"])
    state: PlanState = shown(examples=["complete"])
    count: int = shown(examples=[3])


def plan_counts(found: Mapping[tuple[Phase, PlanState], int]) -> tuple[PlanCount, ...]:
    """Return the views of counted plans, in a fixed order."""
    return tuple(
        PlanCount(phase=phase, state=state, count=found[phase, state])
        for phase in Phase
        for state in PlanState
        if found.get((phase, state))
    )


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
    ended: datetime = shown(examples=[_MOMENT])
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
class ConflictSideView:
    """One side of a conflict."""

    name: str = shown("the side", default="", examples=["this plan"])
    what: str = shown("the kind of file, in words", name="is", examples=["a file"])
    path: str = shown("the path on that side", examples=["src/shop.py"])
    mode: str | None = shown(examples=["100644"])
    content: str | None = shown("the hash of the content", examples=["9f2b…"])


@view
class OpenConflictView:
    """An open conflict between sub-plans, or with the repository, with both sides."""

    path: str = shown(examples=["src/shop.py"])
    kind: str = shown(examples=["content"])
    marked: bool = shown("whether both sides are marked in the file")
    sub_plan: str = shown(
        "the sub-plan that was merged; empty for a conflict with the repository", examples=[EXAMPLE_PLAN]
    )
    title: str = shown(
        "what was merged: the name of that sub-plan, or the repository", examples=["the parser"]
    )
    file: str | None = shown("the path of the file in the sandbox, on the plan's machine")
    ours: ConflictSideView = shown("the plan's side")
    theirs: ConflictSideView = shown("the side of the sub-plan, or of the repository")
    text: str = shown("both sides as text: masked, and cut if long")


@view
class CorrectionView:
    """A correction."""

    number: int
    decision: int | None = shown("the corrected decision; null if only guidance was added")
    superseded: tuple[int, ...]
    guidance: str
    by_itself: bool
    outcome: str | None = shown("object id of the result tree before the correction")
    created: datetime = shown(examples=[_MOMENT])


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
class CallView:
    """A tool call with its arguments and output, masked."""

    number: int = shown(examples=[3])
    tool: str = shown(examples=["edit"])
    state: str = shown(examples=["ended"])
    changed: int = shown(examples=[1])
    changeset: str | None
    approval: str | None = shown("granted or denied, if approval was requested")
    rule: str | None = shown("the rule that approved the call instead of a person", default=None)
    reason: str | None = shown("why a person denied the call", default=None)
    started: datetime = shown(examples=[_MOMENT])
    ended: datetime | None = shown(examples=[_MOMENT])
    arguments: object
    error: str | None
    result: object


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
class PlanView(_PlanFields):
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
        _PlanFields.__post_init__(self)
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


@view
class AlternativeView:
    """An alternative to a decision."""

    choice: str
    reason: str


@view
class SupersededView:
    """The correction that superseded a decision."""

    correction: int
    decision: int | None
    guidance: str
    by_itself: bool


@view
class DecisionView:
    """A decision: question and choice."""

    number: int = shown(examples=[3])
    parent: int | None = shown("the number of the decision that led to this one")
    question: str = shown(examples=["Where is the flag parsed?"])
    choice: str = shown(examples=["In the export command itself"])
    rationale: str
    alternatives: tuple[AlternativeView, ...]
    confidence: float | None = shown(examples=[0.8])
    made_by: str = shown(examples=["builtin/strategist"])
    checkpoint: int | None = shown("the number of the first call after the decision")
    state: str = shown("active or superseded", examples=["active"])
    superseded_by: SupersededView | None
    created_at: datetime = shown(examples=[_MOMENT])


@view
class ExplainedDecisionView(DecisionView):
    """A decision with the steps that carry it out."""

    steps: tuple[str, ...]


@view
class DecisionNode(DecisionView):
    """A decision in the tree of decisions."""

    kind: Literal["decision"]


@view
class CorrectionNode(CorrectionView):
    """A correction that added guidance and superseded nothing."""

    kind: Literal["correction"]


@view
class SubPlanNode(SubPlanView):
    """A sub-plan in the tree of decisions, started or not."""

    kind: Literal["sub-plan"]
    parent_plan: str
    key: str | None
    goal: str | None


TreeNode = DecisionNode | CorrectionNode | SubPlanNode
_NODES: Mapping[object, type[TreeNode]] = {
    "decision": DecisionNode,
    "correction": CorrectionNode,
    "sub-plan": SubPlanNode,
}


def tree_node(data: Mapping[str, JsonValue]) -> TreeNode:
    """Return the node with this JSON."""
    return view_of(_NODES[data["kind"]], data)


@view
class CommentAnswerView:
    """An answer to a comment."""

    state: CommentState = shown("the state of the comment after this answer")
    reason: str = shown(examples=["The flag has a test now."])
    author: str = shown(examples=["builtin/executor"])
    by_actor: bool = shown("whether the author is an actor, not a person")
    call: int | None = shown("the call that settled the comment", examples=[7])
    created: datetime = shown(examples=[_MOMENT])


@view
class CommentView:
    """A comment on a plan, or on lines of its result."""

    number: int = shown(examples=[1])
    state: CommentState
    text: str = shown(examples=["Keep the old name as an alias."])
    author: str = shown(examples=["ada"])
    by_actor: bool = shown("whether the author is an actor, such as the reviewer")
    path: str | None = shown("null for a comment on the whole plan", examples=["src/export.py"])
    line: int | None = shown("the first line in the current file; if outdated, in the original `blob`")
    end_line: int | None = shown("the last line, counted as `line`")
    side: Literal["before", "after"] = shown(
        default="after", description="the version with the lines: before the plan, or the result"
    )
    lines: tuple[str, ...] = shown("the text that was commented on; known secrets are masked")
    blob: str | None = shown("object id of the file that was commented on")
    outdated: bool = shown("whether the lines were changed, or no longer occur at exactly one place")
    revision: int | None = shown("the last correction that sent it to the executor; null: never sent")
    answers: tuple[CommentAnswerView, ...] = shown("oldest first; the last one decides the state")
    created: datetime = shown(examples=[_MOMENT])

    @property
    def place(self) -> str:
        """The file and its lines, as in `src/export.py:3-5`; empty for a comment on the whole plan."""
        if self.path is None:
            return ""
        more = "" if self.end_line == self.line else f"-{self.end_line}"
        old = " (before the change)" if self.side == "before" else ""
        return f"{self.path}:{self.line}{more}{old}"


@view
class LineView:
    """A line with its old and new line number. Its text is masked, and shortened if very long."""

    kind: Literal["context", "add", "remove"]
    old: int | None = shown(examples=[12])
    new: int | None = shown(examples=[12])
    text: str


@view
class HunkView:
    """A hunk with its lines."""

    number: int = shown("number of the hunk, from 1 within the file", default=0, examples=[1])
    id: str | None = shown(
        "identifies the hunk and its version in a review; null if only the whole file can be left out",
        default=None,
        examples=["5f0c7a1b9e3d44210c6a"],
    )
    accepted: bool = shown("whether the hunk is part of the result", default=True)
    header: str = shown(examples=["@@ -12,3 +12,5 @@ def export():"])
    old_start: int
    new_start: int
    lines: tuple[LineView, ...]


@view
class FileDiffView(ChangeView):
    """A file that the plan changed."""

    accepted: bool = shown("whether the file is part of the result")
    binary: bool
    hunks: tuple[HunkView, ...]
    truncated: bool = shown("whether the file is too large to show; see the patch")

    def __str__(self) -> str:
        """The file as part of a unified diff."""
        names = (
            "/dev/null" if self.change == "created" else f"a/{self.path}",
            "/dev/null" if self.change == "deleted" else f"b/{self.path}",
        )
        lines = [f"--- {names[0]}", f"+++ {names[1]}"]
        if self.binary or self.truncated:
            lines.append("(binary)" if self.binary else "(too large to show)")
        for hunk in self.hunks:
            lines.append(hunk.header)
            lines += [f"{_MARKS[line.kind]}{line.text}" for line in hunk.lines]
        return "\n".join(lines)


@view
class DiffView:
    """The diff of a plan."""

    files: tuple[FileDiffView, ...]
    truncated: bool = shown("whether the diff was cut; the patch has all of it")

    def __str__(self) -> str:
        """The accepted changes as a unified diff, for people."""
        return "\n".join(str(file) for file in self.files if file.accepted)


@view
class FileView:
    """The content of a file that the plan changed, before or after the change."""

    path: str = shown(examples=["src/export.py"])
    side: Literal["before", "after"]
    exists: bool
    mode: str | None = shown(examples=["100644"])
    size: int = shown("bytes")
    binary: bool
    encoding: Literal["utf-8", "base64"]
    content: str = shown("the content; masked, if it is text")
    truncated: bool


@view
class SpentView:
    """Spending; money is null if a price is unknown."""

    usd: float | None = shown(examples=[0.0123])
    tokens: int = shown(examples=[34_567])
    steps: int = shown("model calls", examples=[12])


@view
class BudgetView:
    """The limits and spending of a plan's tree."""

    plan: str = shown("the plan at the top of the tree")
    limits: LimitsView
    spent: SpentView
    reserved: SpentView = shown("reserved for running calls: their highest possible cost")
    models: tuple[str, ...]


@view
class DecisionSummary:
    """A decision that a correction would supersede."""

    number: int
    question: str
    choice: str


@view
class CorrectionPreview:
    """The effects of a correction: superseded decisions and undone work."""

    plan: str
    decision: int
    superseded: tuple[DecisionSummary, ...]
    checkpoint: int | None = shown("null if no step ran yet")
    calls: int
    steps: tuple[str, ...]
    files: tuple[str, ...]
    edits_lost: tuple[str, ...] = shown("files edited by hand, whose edits are lost")
    edits_kept: tuple[str, ...]
    sub_plans: tuple[str, ...] = shown("sub-plans that are cancelled")
    sub_plans_kept: tuple[str, ...]


@view
class ComparisonView:
    """The files that differ between two results."""

    files: tuple[ChangeView, ...] = shown(
        "the changes from this plan's result to the other plan's; at most 10,000"
    )
    truncated: bool = shown("whether there are more changes", examples=[False])
    note: str | None = shown("a note if the plans belong to different repositories", examples=[None])


@view
class OutputView:
    """A piece of a plan's output."""

    plan_id: str = shown(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])
    number: int = shown("number of the piece, from 1 for each plan", examples=[12])
    kind: str = shown(
        "progress (lines for people), output (of commands), model (what actors say), "
        "node (JSON: which `actor` is at which `node`; its `event`, if any, is `thinking` or `tool_done`)",
        examples=["output"],
    )
    text: str = shown(examples=["12 passed\n"])
    time: datetime = shown(examples=["2026-01-01T12:00:00Z"])
