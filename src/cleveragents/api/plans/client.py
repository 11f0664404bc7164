"""Plans: create, follow, review, apply and undo them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from cleveragents.api.jobs import JobView
    from cleveragents.api.plans.detail_views import (
        BudgetView,
        CallView,
        CommentView,
        ComparisonView,
        CorrectionPreview,
        DiffView,
        ExplainedDecisionView,
        FileView,
        OpenConflictView,
        OutputView,
        TreeNode,
    )
    from cleveragents.api.plans.request import Limits, PlanRequest
    from cleveragents.api.plans.summary import Needs, PlanCount, PlanSummary
    from cleveragents.api.plans.views import PlanView
    from cleveragents.api.publish import PublishView
    from cleveragents.api.search import FoundPlan
    from cleveragents.api.views import Page
    from cleveragents.changes.model.merge_conflict import Take
    from cleveragents.plans.model.comment import CommentState
    from cleveragents.plans.model.plan import PlanState

__all__ = ["CANCELLED", "LOOK_SECONDS", "ApprovalScope", "FileSide", "Plans", "Side", "until", "watched"]


ApprovalScope = Literal["once", "plan", "project"]
Side = Literal["before", "after"]
FileSide = Literal["before", "after", "accepted"]

CANCELLED = "cancelled by the user"
"""The reason of a cancel without one."""

LOOK_SECONDS = 0.1
_LONGEST_LOOK_SECONDS = 1.0
_LATE_LOOKS = 6


class Plans(Protocol):
    """The plans that the acting user can see. A plan is named by its id, or by an unambiguous part of it.

    Every method may raise `UnknownPlan`, `AmbiguousPlan` and `NotAllowed`. A method that changes a plan may
    also raise `PlanError` if the state of the plan does not allow the change, and `StalePlan` if another user
    changed the plan first.
    """

    def list(
        self,
        *,
        states: Collection[PlanState] = (),
        needs: Collection[Needs] = (),
        project: str | None = None,
        resource: str | None = None,
        sub_plans: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[PlanSummary]:
        """Return one page of plans, newest first. Sub-plans are listed if they need a person, or all of
        them with `sub_plans`. `resource` is the name of a resource; on this machine,
        also the path of a repository."""

    def counts(self) -> tuple[PlanCount, ...]:
        """Return the number of plans in each phase and state. Sub-plans are not counted."""

    def search(self, text: str, *, project: str | None = None, limit: int = 20) -> tuple[FoundPlan, ...]:
        """Return the plans whose goal, answer, transcript or changes contain the text, newest first. Case is
        ignored, and matches in masked parts do not count.

        Reads the latest 1,000 plans, and at most 400 texts that contain the query. Raises `RequestRefused`
        unless the text has 2 to 200 characters.
        """

    def get(self, plan_id: str) -> PlanView:
        """Return a plan: its state, changes, checks, calls and the actions it allows."""

    def summary(self, plan_id: str) -> PlanSummary:
        """Return a plan as lists show it: without its changes and calls."""

    def create(self, request: PlanRequest) -> PlanView:
        """Create a plan and queue it for a worker.

        Raises `RequestRefused`, `UnknownResource`, `QueueFull` …
        """

    def watch(self, plan_id: str) -> Iterator[OutputView]:
        """Yield the output of the plan from the beginning, until no worker runs it: it has ended, is ready or
        needs a person.
        """

    def wait(self, plan_id: str, *, timeout: float | None = None) -> PlanView:
        """Wait until no worker runs the plan, as in `watch`, and return it. Raises `DeadlineExceeded`."""

    def pause(self, plan_id: str) -> PlanView:
        """Stop a running plan and its sub-plans so that they can be resumed or corrected. Returns at once;
        `wait` returns when all processes have ended.

        The effects of finished calls stay; a call in progress is repeated after a resume. Raises `PlanError`
        if the plan does not run, or is a sub-plan.
        """

    def cancel(self, plan_id: str, *, reason: str = CANCELLED, discard: bool = False) -> PlanView:
        """Cancel a plan, its sub-plans and their processes. Returns at once; `wait` returns when all have
        ended.

        Raises `PlanError` for a finished plan, unless `discard` is set to drop its result.
        """

    def delete(self, plan_id: str, *, force: bool = False) -> None:
        """Delete a plan with its sub-plans, sandboxes and records. Raises `NeedsHuman` if changes would be
        lost, unless `force` is set.
        """

    def remove_sandbox(self, plan_id: str) -> None:
        """Remove the sandboxes of a cancelled plan and its sub-plans."""

    def resume(self, plan_id: str, *, model: str | None = None, limits: Limits | None = None) -> PlanView:
        """Continue a plan that failed or was interrupted. Finished calls are not repeated."""

    def approve(
        self,
        plan_id: str,
        *,
        call: int | None = None,
        scope: ApprovalScope = "once",
        pattern: str | None = None,
    ) -> PlanView:
        """Approve the pending request and continue. With `call`, raise `PlanError` unless that call is
        pending.

        The scope decides whether later commands that match `pattern` are approved, too: `plan` approves them
        in the plan's whole tree, `project` in its project, or in its repository if the plan belongs to the
        default project. The default pattern is `approval.pattern` of the plan. Raises `RequestRefused` if the
        call can only be approved once.
        """

    def deny(self, plan_id: str, *, call: int | None = None, reason: str | None = None) -> PlanView:
        """Deny the pending request. An agent reads the `reason` and looks for another way; a plan of fixed
        steps fails.
        """

    def answer(
        self, plan_id: str, text: str, *, question: str | None = None, first: bool = False
    ) -> PlanView:
        """Answer the pending question and continue. With `question`, only if that question is pending; with
        `first`, only if the plan never waited for a person before.
        """

    def apply(
        self,
        plan_id: str,
        *,
        commit: str | None = None,
        to_branch: str | None = None,
        version: int | None = None,
        tree: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> PlanView:
        """Apply the result to the repository, all changes or none; with `commit`, commit it.

        With `version`, raise `StalePlan` unless the plan is still at that version. With `tree`, raise
        `ResultChanged` unless the result is still the one with this `PlanView.tree` or `DiffView.tree`: it
        also changes with reviews, rollbacks and edits, which keep the version. `progress` gets status lines,
        such as the running check. Raises `ApplyConflict`, `CheckFailed`, `ApplyRefused`; in these cases
        nothing was changed.
        """

    def submit_apply(
        self,
        plan_id: str,
        *,
        commit: str | None = None,
        to_branch: str | None = None,
        unattended: bool = False,
        version: int | None = None,
        tree: str | None = None,
    ) -> JobView:
        """Queue the apply for a worker and return its job. The job applies the result of this moment, or
        fails if the result changes. `version` and `tree` as in `apply`. With `unattended`, raises
        `NeedsHuman` if only a person may apply it: the plan is for review, its profile requires approval, or
        its reviewer rejected the result.
        """

    def undo(
        self,
        plan_id: str,
        *,
        commit: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> PlanView:
        """Undo an applied plan in the repository. Later edits stay. `progress` as in `apply`. Raises
        `ApplyConflict`.
        """

    def submit_undo(self, plan_id: str, *, commit: str | None = None) -> JobView:
        """Queue the undo for a worker and return its job."""

    def publish(
        self,
        plan_id: str,
        *,
        branch: str | None = None,
        remote: str | None = None,
        message: str | None = None,
        with_commits: bool = False,
        confirm: Callable[[str], bool] | None = None,
    ) -> PublishView:
        """Push the result to a new branch, for a pull request, and return the branch.

        The commit is made on top of HEAD; your files stay as they are, and the plan stays ready. The result
        of a plan on a git remote is applied to the branch. `{plan}` in `branch` stands for the plan id;
        `remote` is the name of a git remote. With `with_commits`, your commits that the remote does not have
        are pushed, too. Without it, `confirm` gets a sentence that names them, and returns whether to push
        them; exactly these commits and this result are pushed. If the branch already has the result, nothing
        is pushed. Raises `NeedsHuman` for such commits if they are not confirmed; `StalePlan` and
        `ResultChanged` if the plan or its result changes before the end of the push: the branch is then as
        it was before; `RequestRefused` for the default branch and for a directory of a server; the errors of
        `apply`.
        """

    def discard(self, plan_id: str, *, version: int | None = None) -> PlanView:
        """Discard the result of a plan. With `version`, raise `StalePlan` unless the plan is still at that
        version.
        """

    def review(
        self,
        plan_id: str,
        *,
        accept: Sequence[str] = (),
        reject: Sequence[str] = (),
        accept_changesets: Sequence[str] = (),
        reject_changesets: Sequence[str] = (),
        accept_hunks: Sequence[str] = (),
        reject_hunks: Sequence[str] = (),
    ) -> PlanView:
        """Leave files, directories, changesets or hunks out of the result, or accept them again.

        Hunks are named by their ids in the diff. The verdict on a hunk lapses when its file changes; an id
        from before the change raises `PlanError`. If a hunk was left out before the change, apply, publish
        and rebase raise `NeedsHuman` until there is a new verdict on its lines or its file.
        """

    def rollback(
        self,
        plan_id: str,
        checkpoint: int | None = None,
        *,
        discard: bool = False,
        version: int | None = None,
    ) -> PlanView:
        """Roll the sandbox back to before a call. Without a checkpoint, withdraw a revision that failed or
        did not pass the required checks: the result from before it is ready again. With `discard`, edits by
        hand are lost too: unrecorded ones, and for a withdrawal also captured ones. With `version`, raise
        `StalePlan` unless the plan is still at that version. Raises `PlanError`, `NeedsHuman`, `StalePlan`.
        """

    def capture(self, plan_id: str) -> PlanView:
        """Record edits made by hand in the sandbox as one more call."""

    def rebase(self, plan_id: str) -> PlanView:
        """Merge the result with the current files of the repository, in the sandbox, and continue the plan:
        its agent resolves conflicts, and its checks run again. If the repository has not changed since the
        plan's base, nothing happens. Raises `PlanError`, `NeedsHuman`, `StalePlan`.
        """

    def resolve(
        self, plan_id: str, path: str, take: Take, *, version: int | None = None, tree: str | None = None
    ) -> PlanView:
        """Resolve a conflict between sub-plans, or with the repository, at a path. A result that could not be
        applied because of a conflict is first merged with the current files.

        With `version`, raise `StalePlan` unless the plan is still at that version. With `tree`, raise
        `ResultChanged` unless the result is still the one with this `PlanView.tree`. To resolve several
        conflicts, pass the version and the tree of the plan that the last call returned.
        """

    def conflicts(
        self, plan_id: str, *, limit: int = 100, after: str | None = None
    ) -> Page[OpenConflictView]:
        """Return one page of the open conflicts, between sub-plans or with the repository, and both sides."""

    def correct(
        self, plan_id: str, guidance: str, *, decision: int | None = None, model: str | None = None
    ) -> PlanView:
        """Correct a decision with guidance, undo its consequences and continue. Without `decision`, only add
        the guidance.
        """

    def preview_correction(self, plan_id: str, decision: int) -> CorrectionPreview:
        """Return a preview of a correction: the decisions that it would supersede, and the work that it would
        undo.
        """

    def comment(
        self,
        plan_id: str,
        text: str,
        *,
        path: str | None = None,
        line: int | None = None,
        end_line: int | None = None,
        side: Side = "after",
        blob: str | None = None,
    ) -> CommentView:
        """Comment on a plan, or on lines of a file that it changed. Line numbers refer to the result; with
        the side `before`, to the file before the plan, so that removed lines can be commented on.

        The comment follows its lines while they are found unchanged at exactly one place; afterwards the
        comment is outdated. The executor receives the comment with the next `revise`.

        `blob` is the object id of the file that was seen, `FileDiffView.blob_after` or `blob_before`. If the
        file has changed since, raise `StaleFile`. Raises `UnknownFile`.
        """

    def comments(self, plan_id: str, *, limit: int = 1000, after: str | None = None) -> Page[CommentView]:
        """Return one page of the comments of people and reviewers, in order."""

    def answer_comment(
        self, plan_id: str, number: int, state: CommentState, *, reason: str = ""
    ) -> CommentView:
        """Resolve, decline or reopen a comment. Raises `UnknownComment`."""

    def revise(self, plan_id: str, message: str = "", *, model: str | None = None) -> PlanView:
        """Request changes: send all open comments to the executor, with the message, and continue the plan.

        The executor works in the same sandbox and answers each comment. A comment without an answer stays
        open. Raises `PlanError` if there is no result, or neither a comment nor a message.
        """

    def budget(self, plan_id: str) -> BudgetView:
        """Return the limits, the spending and the reservations of the plan's tree."""

    def raise_budget(self, plan_id: str, limits: Limits) -> BudgetView:
        """Raise the limits of the plan's tree, and continue a plan that waits for budget."""

    def calls(self, plan_id: str, *, limit: int = 100, after: str | None = None) -> Page[CallView]:
        """Return one page of the plan's tool calls, in order."""

    def call(self, plan_id: str, number: int) -> CallView:
        """Return one tool call with its output. Raises `UnknownCheckpoint`."""

    def decisions(self, plan_id: str, *, limit: int = 1000, after: str | None = None) -> Page[TreeNode]:
        """Return the decisions of the plan, including superseded ones, then corrections and sub-plans."""

    def decision(self, plan_id: str, number: int) -> ExplainedDecisionView:
        """Return one decision with its reasons and the steps that carry it out."""

    def diff(self, plan_id: str) -> DiffView:
        """Return the changes of the plan, file by file. Known secrets are masked."""

    def patch(self, plan_id: str, *, paths: Sequence[str] = (), renames: bool = False) -> bytes:
        """Return the accepted changes as a patch for `git apply`. Secrets are masked for users who may not
        apply the plan.

        `paths` limits the patch to these files and directories. With `renames`, a moved file is shown as
        moved, not as deleted and created.
        """

    def file(self, plan_id: str, path: str, *, side: FileSide = "after") -> FileView:
        """Return a file that the plan changed, as it was before or after the change. The side `accepted` is
        the file with the accepted changes only, which an apply would take.
        """

    def compare(
        self, plan_id: str, other: str, *, before: int | None = None, other_before: int | None = None
    ) -> ComparisonView:
        """Compare the results of two plans, or of one plan before and after a correction."""

    def compare_patch(
        self,
        plan_id: str,
        other: str,
        *,
        before: int | None = None,
        other_before: int | None = None,
        paths: Sequence[str] = (),
        renames: bool = False,
    ) -> bytes:
        """Return the result of `compare` as a patch; `paths` and `renames` as in `patch`."""

    def output(self, plan_id: str, *, after: int = 0, limit: int = 500) -> tuple[OutputView, ...]:
        """Return the output of the plan after output number `after`, oldest first."""


def until(timeout: float | None, what: str, sleep: Callable[[float], None]) -> Iterator[None]:
    """Yield at growing intervals. Raises `DeadlineExceeded` after the timeout, and the errors of `sleep`."""
    from cleveragents.core.errors import DeadlineExceeded

    began, pause = time.monotonic(), LOOK_SECONDS
    while True:
        yield
        if timeout is not None and time.monotonic() - began >= timeout:
            raise DeadlineExceeded(what, timeout)
        sleep(pause)
        pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)


def watched(
    rests: Callable[[], bool],
    output: Callable[[int], Sequence[OutputView]],
    sleep: Callable[[float], None],
) -> Iterator[OutputView]:
    """Yield the output of a plan until it rests.

    Reading continues for a moment after the plan rests, because workers store output with a short delay.
    """
    number, pause, late = 0, LOOK_SECONDS, _LATE_LOOKS
    while True:
        at_rest = rests()  # read before the output, or its end is missed
        pieces = output(number)
        for piece in pieces:
            number = piece.number
            yield piece
        if pieces:
            pause = LOOK_SECONDS
            continue
        if at_rest:
            late -= 1
            if late == 0:
                return
            pause = LOOK_SECONDS
        sleep(pause)
        pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)
