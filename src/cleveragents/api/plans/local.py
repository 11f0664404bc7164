"""Plans of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import structs

from cleveragents.access.model.user import Role
from cleveragents.api.access import OWNER
from cleveragents.api.keyed_lock import KeyedLock
from cleveragents.api.plans.available_actions import is_settled
from cleveragents.api.plans.client import CANCELLED, ApprovalScope, FileSide, Side, until, watched
from cleveragents.api.plans.summary import Needs, PlanCount, PlanSummary, plan_counts
from cleveragents.api.views import Page, view_of
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import RequestRefused, UnknownCheckpoint, UnknownFile
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.api.access import Access
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
    from cleveragents.api.plans.views import PlanView
    from cleveragents.api.publish import PublishView
    from cleveragents.api.rules import CallAnswer
    from cleveragents.api.search import FoundPlan
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.config.loader import Configuration
    from cleveragents.plans.model.comment import CommentState
    from cleveragents.plans.model.plan import Plan
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["LocalPlans"]

_MOST_FILES = 10_000
_DECISIONS = KeyedLock()
"""Serializes actions on one plan in this process, so that the second user gets the right message."""


class LocalPlans:
    """Plans in the database of this process. Any thread may use it.

    `start_worker` starts the worker of a client that runs its own plans on directories; without it, the
    workers of this machine run them. With `shared`, only plans in a queue of workers can continue. Otherwise
    the caller runs plans itself: `run_plan` is called with each queued plan. `sleep` raises `Closed` when the
    client is closed.
    """

    def __init__(
        self,
        access: Access,
        start_worker: Callable[[], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        configuration_of: Callable[[Path], Configuration] | None = None,
        *,
        shared: bool = True,
        run_plan: Callable[[Plan], None] | None = None,
    ) -> None:
        self._access = access
        self._start_worker = start_worker
        self._sleep = sleep
        self._configuration_of = configuration_of
        self._shared = shared
        self._run_plan = run_plan

    def acting_for(self, access: Access) -> Self:
        """Return the same plans with the rights of `access`."""
        plans = copy(self)
        plans._access = access
        return plans

    @property
    def _container(self) -> Container:
        return self._access.container

    @property
    def _parts(self) -> PlanParts:
        return self._access.container.plan_parts

    @property
    def _by(self) -> str | None:
        """The acting user of a server; None without a server."""
        name = self._access.user.name
        return None if name == OWNER and self._access.is_owner else name

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
        from cleveragents.api.plans.available_actions import needs_of
        from cleveragents.api.plans.overview import (
            board_row,
            children_in,
            latest,
            needs_attention,
            resource_name_of,
        )

        parts = self._parts

        def wanted(plan: Plan) -> bool:
            return (
                (sub_plans or needs_attention(plan))
                and project in (None, plan.project)
                and resource in (None, resource_name_of(plan), plan.resource)
                and (not needs or needs_of(parts, plan) in needs)
            )

        found, more = latest(
            parts,
            wanted,
            # An ended plan has no pending request.
            states=tuple(states) or tuple(state for state in PlanState if needs and not state.ended),
            limit=limit,
            after=after,
            scope=self._access.scope,
            # The store knows the paths of resources, not their names.
            place=resource if resource is not None and Path(resource).is_absolute() else None,
        )
        split = children_in(parts, found)
        rows = [view_of(PlanSummary, board_row(parts, plan, split.get(plan.id, ()))) for plan in found]
        return Page(items=tuple(rows), next=found[-1].id if more else None)

    def counts(self) -> tuple[PlanCount, ...]:
        return plan_counts(self._parts.plans.counts(scope=self._access.scope))

    def search(self, text: str, *, project: str | None = None, limit: int = 20) -> tuple[FoundPlan, ...]:
        from cleveragents.api.search import found_plans

        return found_plans(self._access, text, project, limit)

    def get(self, plan_id: str) -> PlanView:
        return self._view(self._read(plan_id))

    def summary(self, plan_id: str) -> PlanSummary:
        from cleveragents.api.plans.overview import board_row, children_in

        plan = self._settled(plan_id)
        children = children_in(self._parts, [plan]).get(plan.id, ())
        shown = view_of(PlanSummary, board_row(self._parts, plan, children))
        return replace(shown, at_rest=is_settled(self._parts, plan))

    def create(self, request: PlanRequest, *, claim: IdempotencyClaim | None = None) -> PlanView:
        from cleveragents.api.plans.create import ensure_new_branch, ensure_not_tighter
        from cleveragents.api.server_requests import made_before, requested_by, requested_in
        from cleveragents.plans.jobs.names import client_queue, home_queue

        self._access.ensure_anywhere(Role.OPERATOR)
        if request.resource is not None:
            return self._queued(requested_by(self._access, request.asked(), claim=claim))
        self._access.ensure_server_admin()  # guard: users of a server name no directory of its machine
        again = made_before(self._container, claim)
        if again is not None:  # guard: an existing plan is not created again
            return self._queued(again)
        asked, directory = request.asked(), Path(request.repository).absolute()
        if not directory.is_dir():
            raise RequestRefused(f"{directory} is not a directory", "repository")
        if self._configuration_of is not None:
            ensure_not_tighter(self._configuration_of(directory), self._container.settings, directory)
        if asked.to_branch is not None:
            ensure_new_branch(asked.to_branch, remote=False)
        new = requested_in(self._container, asked, directory)
        queue_at = home_queue if self._start_worker is None else client_queue  # guard: others leave ours
        queued = {"queue": queue_at(self._container.home), "by": self._access.user.name}
        if not self._shared:  # the caller runs it
            queued = {}
        chosen = {} if asked.apply is None else {"apply": asked.apply}
        new = structs.replace(new, request={**new.request, **queued, **chosen})
        return self._queued(self._parts.lifecycle.create(new, claim))

    def watch(self, plan_id: str) -> Iterator[OutputView]:
        plan_id = self._read(plan_id).id
        yield from watched(
            lambda: self._rests(plan_id), lambda after: self.output(plan_id, after=after), self._sleep
        )

    def wait(self, plan_id: str, *, timeout: float | None = None) -> PlanView:
        plan_id = self._read(plan_id).id
        for _ in until(timeout, f"waiting for plan {plan_id}", self._sleep):
            if self._rests(plan_id):
                break
        return self.get(plan_id)

    def pause(self, plan_id: str) -> PlanView:
        from cleveragents.api.plans.responses import pause

        with self._decision(plan_id) as plan:
            return self._view(pause(self._parts, plan.id, self._by))

    def cancel(self, plan_id: str, *, reason: str = CANCELLED, discard: bool = False) -> PlanView:
        from cleveragents.api.plans.responses import cancel

        said = reason if self._by is None else f"{reason} ({self._by})"
        with self._decision(plan_id) as plan:
            return self._view(cancel(self._container, plan.id, said, discard=discard))

    def delete(self, plan_id: str, *, force: bool = False) -> None:
        from cleveragents.api.plans.responses import delete

        delete(self._container, self._operated(plan_id).id, force=force)

    def remove_sandbox(self, plan_id: str) -> None:
        from cleveragents.api.plans.responses import remove_sandboxes

        with self._decision(plan_id) as plan:
            remove_sandboxes(self._container, plan.id)

    def resume(self, plan_id: str, *, model: str | None = None, limits: Limits | None = None) -> PlanView:
        from cleveragents.api.plans.request import Limits
        from cleveragents.api.plans.responses import resume

        with self._continued(plan_id) as plan:
            given = (limits or Limits()).counted()
            return self._queued(resume(self._parts, plan.id, model=model, limits=given))

    def approve(
        self,
        plan_id: str,
        *,
        call: int | None = None,
        scope: ApprovalScope = "once",
        pattern: str | None = None,
    ) -> PlanView:
        from cleveragents.api.rules import CallAnswer

        return self._answered(plan_id, CallAnswer(True, call, by=self._by, scope=scope, pattern=pattern))

    def deny(self, plan_id: str, *, call: int | None = None, reason: str | None = None) -> PlanView:
        from cleveragents.api.rules import CallAnswer

        return self._answered(plan_id, CallAnswer(False, call, by=self._by, reason=reason))

    def answer(
        self, plan_id: str, text: str, *, question: str | None = None, first: bool = False
    ) -> PlanView:
        from cleveragents.api.plans.responses import reply_to_question

        with self._continued(plan_id) as plan:
            return self._queued(reply_to_question(self._parts, plan.id, text, question, first=first))

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
        from cleveragents.api.plans.apply_jobs import ensure_applicable, ensure_unmoved
        from cleveragents.apply.ports import CommitRequest
        from cleveragents.core.cancellation import CancellationToken
        from cleveragents.core.identifiers import acting_as

        with self._decision(plan_id) as plan:
            ensure_unmoved(plan, version)
            plan = ensure_applicable(self._container, plan.id, message=commit, to_branch=to_branch)
            ensure_unmoved(plan, version)
        asked = commit is not None or to_branch is not None
        how = CommitRequest(commit or "", to_branch) if asked else None
        with acting_as(self._by):
            applied, _ = self._parts.apply.apply(
                plan, CancellationToken(), commit=how, told=progress, tree=tree
            )
        return self._view(applied)

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
        from cleveragents.api.jobs import job_view
        from cleveragents.api.plans.apply_jobs import apply_later

        with self._decision(plan_id) as plan:
            job = apply_later(
                self._container,
                plan.id,
                message=commit,
                by=self._by,
                to_branch=to_branch,
                unattended=unattended,
                version=version,
                tree=tree,
            )
        self._wake()
        return job_view(job)

    def undo(
        self,
        plan_id: str,
        *,
        commit: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> PlanView:
        from cleveragents.api.plans.apply_jobs import ensure_undoable_now
        from cleveragents.apply.ports import CommitRequest
        from cleveragents.core.identifiers import acting_as

        with self._decision(plan_id) as plan:
            plan = ensure_undoable_now(self._container, plan.id, message=commit)
        how = None if commit is None else CommitRequest(commit)
        with acting_as(self._by):
            undone, _ = self._parts.apply.undo(plan, commit=how, told=progress)
        return self._view(undone)

    def submit_undo(self, plan_id: str, *, commit: str | None = None) -> JobView:
        from cleveragents.api.jobs import job_view
        from cleveragents.api.plans.apply_jobs import undo_later

        with self._decision(plan_id) as plan:
            job = undo_later(self._container, plan.id, message=commit, by=self._by)
        self._wake()
        return job_view(job)

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
        from cleveragents.access.model.project import remote_of
        from cleveragents.api.plans.apply_jobs import ensure_applicable
        from cleveragents.api.publish import (
            PublishTarget,
            PublishView,
            ensure_repository,
            ensure_unapplied,
            publish_directory,
            publish_remote,
        )
        from cleveragents.core.identifiers import acting_as

        plan = self._operated(plan_id)
        # guard: users of a server do not push with the credentials of its machine
        if remote_of(plan.resource) is not None or self._by is not None:
            return publish_remote(self, plan.id, branch, message)
        ensure_repository(plan)
        last = self._parts.applier.last_of_plan(plan.id)
        ensure_unapplied(plan, None if last is None else last.commit)
        with self._decision(plan_id) as plan:
            plan = ensure_applicable(self._container, plan.id, message="")
            view = self._view(plan)
        target = PublishTarget(branch, remote, with_commits, confirm)
        with acting_as(self._by):  # without the lock: a person and the remote may take long
            made = publish_directory(self._container, plan, view, target, message=message or "")
        return view_of(PublishView, made)

    def discard(self, plan_id: str, *, version: int | None = None) -> PlanView:
        from cleveragents.api.plans.apply_jobs import ensure_unmoved
        from cleveragents.api.plans.responses import discard

        with self._decision(plan_id) as plan:
            ensure_unmoved(plan, version)
            return self._view(discard(self._parts, plan.id))

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
        from cleveragents.api.plans.diffs import meant_hunks
        from cleveragents.api.plans.review import ensure_reviewable, review_files

        files = [*((path, False) for path in reject), *((path, True) for path in accept)]
        changesets = [
            *((one, False) for one in reject_changesets),
            *((one, True) for one in accept_changesets),
        ]
        hunks = {**dict.fromkeys(reject_hunks, False), **dict.fromkeys(accept_hunks, True)}
        if not files and not changesets and not hunks:
            raise RequestRefused("name files, changesets or hunks to accept or leave out")
        with self._decision(plan_id) as plan:
            ensure_reviewable(self._parts, plan)
            meant = meant_hunks(self._parts, plan, hunks)
            verdicts = [(meant[name], taken) for name, taken in hunks.items()]
            review_files(self._parts, plan, files, changesets, verdicts)
            return self._view(plan)

    def rollback(
        self,
        plan_id: str,
        checkpoint: int | None = None,
        *,
        discard: bool = False,
        version: int | None = None,
    ) -> PlanView:
        from cleveragents.api.plans.apply_jobs import ensure_unmoved

        with self._reachable(plan_id) as plan:
            ensure_unmoved(plan, version)
            if checkpoint is None:
                author = self._access.user.name
                return self._view(self._parts.comments.withdraw(plan, author=author, discard=discard))
            self._parts.sandbox_edits.rollback(plan, checkpoint, discard=discard)
            return self._view(plan)

    def capture(self, plan_id: str) -> PlanView:
        with self._reachable(plan_id) as plan:
            self._parts.sandbox_edits.reread(plan)
            return self._view(plan)

    def rebase(self, plan_id: str) -> PlanView:
        with self._reachable(plan_id) as plan:
            self._parts.apply.settle()
            with self._adopted(self._found(plan)) as plan:
                return self._queued(self._parts.rebase.rebase(plan))

    def resolve(
        self, plan_id: str, path: str, take: Take, *, version: int | None = None, tree: str | None = None
    ) -> PlanView:
        from cleveragents.api.plans.responses import resolve

        with self._reachable(plan_id) as plan:
            resolve(self._parts, plan, path, take, version=version, tree=tree)
            return self._view(plan)

    def conflicts(
        self, plan_id: str, *, limit: int = 100, after: str | None = None
    ) -> Page[OpenConflictView]:
        from cleveragents.api.plans.changes import conflict_with_sides
        from cleveragents.api.plans.detail_views import OpenConflictView
        from cleveragents.api.reachability import ensure_reachable

        plan, begins = self._read(plan_id), int(after or 0)
        ensure_reachable(self._parts, plan)
        found = self._parts.sub_plan_merge.open_conflicts(plan.id)
        sandbox = self._parts.sandboxes.look(plan.id) if found else None
        items = tuple(
            view_of(OpenConflictView, conflict_with_sides(conflict, sandbox))
            for conflict in found[begins : begins + limit]
            if sandbox is not None
        )
        return Page(items=items, next=str(begins + limit) if len(found) > begins + limit else None)

    def correct(
        self,
        plan_id: str,
        guidance: str,
        *,
        decision: int | None = None,
        model: str | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> PlanView:
        if not guidance.strip():
            raise RequestRefused("the guidance is empty", "guidance")
        correction = self._parts.correction
        with self._correctable(plan_id, model, claim) as plan:
            if claim is not None and claim.made is not None:  # guard: corrected once
                return self._queued(correction.gone_on_with(plan, model))
            if decision is None:
                return self._queued(correction.append(plan, guidance, model=model, claim=claim)[1])
            return self._queued(correction.correct(plan, decision, guidance, model=model, claim=claim)[1])

    def preview_correction(self, plan_id: str, decision: int) -> CorrectionPreview:
        from cleveragents.api.plans.decisions import undoing_fields
        from cleveragents.api.plans.detail_views import CorrectionPreview
        from cleveragents.api.reachability import ensure_reachable

        parts = self._parts
        with self._decision(plan_id) as plan:
            parts.apply.settle()
            plan = self._found(plan)
            parts.correction.ensure_correctable(plan)
            ensure_reachable(parts, plan)
            return view_of(CorrectionPreview, undoing_fields(plan, parts.correction.preview(plan, decision)))

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
        claim: IdempotencyClaim | None = None,
    ) -> CommentView:
        from cleveragents.api.plans.review import commented_lines
        from cleveragents.api.reachability import ensure_reachable

        lines = commented_lines(path, line, end_line, before=side == "before", blob=blob)
        plan = self._operated(plan_id)
        if claim is not None and claim.made is not None:  # guard: commented once
            return self._comment(plan, int(claim.made))
        if lines is not None:
            ensure_reachable(self._parts, plan)
        added = self._parts.comments.add(plan, text, author=self._access.user.name, lines=lines, claim=claim)
        return self._comment(plan, added.number)

    def comments(self, plan_id: str, *, limit: int = 1000, after: str | None = None) -> Page[CommentView]:
        from cleveragents.api.plans.detail_views import CommentView
        from cleveragents.api.plans.review import comment_rows

        plan = self._read(plan_id)
        every = [one for one in self._parts.comments.store.of_plan(plan.id) if one.number > int(after or 0)]
        rows = comment_rows(self._parts, plan, every[:limit])
        items = tuple(view_of(CommentView, row) for row in rows)
        return Page(items=items, next=str(items[-1].number) if len(every) > limit else None)

    def answer_comment(
        self, plan_id: str, number: int, state: CommentState, *, reason: str = ""
    ) -> CommentView:
        plan = self._operated(plan_id)
        author = self._access.user.name
        self._parts.comments.answer(plan, number, state, author=author, reason=reason)
        return self._comment(plan, number)

    def revise(
        self,
        plan_id: str,
        message: str = "",
        *,
        model: str | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> PlanView:
        with self._correctable(plan_id, model, claim) as plan:
            if claim is not None and claim.made is not None:  # guard: revised once
                return self._queued(self._parts.correction.gone_on_with(plan, model))
            return self._queued(self._parts.comments.revise(plan, message, model=model, claim=claim)[1])

    def budget(self, plan_id: str) -> BudgetView:
        from cleveragents.api.plans.budget import budget_of
        from cleveragents.api.plans.detail_views import BudgetView

        return view_of(BudgetView, budget_of(self._parts, self._read(plan_id)))

    def raise_budget(self, plan_id: str, limits: Limits) -> BudgetView:
        from cleveragents.api.plans.available_actions import is_resumable
        from cleveragents.api.plans.budget import budget_of
        from cleveragents.api.plans.detail_views import BudgetView
        from cleveragents.api.plans.responses import allow_more

        with self._decision(plan_id) as plan:
            continues = is_resumable(self._parts, plan)
            with self._adopted(plan) if continues else nullcontext(plan):
                plan = allow_more(self._parts, plan.id, limits.counted())
            self._wake(plan)
            return view_of(BudgetView, budget_of(self._parts, plan))

    def calls(self, plan_id: str, *, limit: int = 100, after: str | None = None) -> Page[CallView]:
        from cleveragents.api.plans.detail_views import CallView
        from cleveragents.api.plans.details import call_fields

        parts = self._parts
        plan = self._read(plan_id)
        left = [call for call in parts.history.calls(plan.id) if call.number > int(after or 0)]
        items = tuple(view_of(CallView, call_fields(parts, call)) for call in left[:limit])
        return Page(items=items, next=str(items[-1].number) if len(left) > limit else None)

    def call(self, plan_id: str, number: int) -> CallView:
        plan = self._read(plan_id)
        for call in self.calls(plan.id, limit=1, after=str(number - 1)).items:
            if call.number == number:
                return call
        raise UnknownCheckpoint(plan.id, str(number))

    def decisions(self, plan_id: str, *, limit: int = 1000, after: str | None = None) -> Page[TreeNode]:
        from cleveragents.api.plans.decisions import decision_rows
        from cleveragents.api.plans.detail_views import tree_node

        rows = decision_rows(self._parts, self._read(plan_id), superseded_too=True)
        begins = int(after or 0)
        items = tuple(tree_node(row) for row in rows[begins : begins + limit])
        return Page(items=items, next=str(begins + limit) if len(rows) > begins + limit else None)

    def decision(self, plan_id: str, number: int) -> ExplainedDecisionView:
        from cleveragents.api.plans.decisions import explained
        from cleveragents.api.plans.detail_views import ExplainedDecisionView

        return view_of(ExplainedDecisionView, explained(self._parts, self._read(plan_id), number))

    def diff(self, plan_id: str) -> DiffView:
        from cleveragents.api.plans.detail_views import DiffView
        from cleveragents.api.plans.diffs import diff_of

        return view_of(DiffView, diff_of(self._parts, self._diffable(plan_id)))

    def patch(self, plan_id: str, *, paths: Sequence[str] = (), renames: bool = False) -> bytes:
        from cleveragents.api.plans.diffs import patch_of

        plan = self._diffable(plan_id)
        # guard: a user who may not apply it needs no secret of it
        masked = not self._access.user.may(Role.OPERATOR, plan.project)
        return patch_of(self._parts, plan, masked=masked, paths=paths, renames=renames)

    def file(self, plan_id: str, path: str, *, side: FileSide = "after") -> FileView:
        from cleveragents.api.plans.detail_views import FileView
        from cleveragents.api.plans.diffs import file_of

        plan = self._diffable(plan_id)
        found = file_of(self._parts, plan, path, side)
        if found is None:
            raise UnknownFile(plan.id, path)
        return view_of(FileView, found)

    def compare(
        self, plan_id: str, other: str, *, before: int | None = None, other_before: int | None = None
    ) -> ComparisonView:
        from cleveragents.api.plans.comparison import differing_files, outcome_of, repositories_differ
        from cleveragents.api.plans.detail_views import ComparisonView

        plans = self._read(plan_id), self._read(other)
        one, then = outcome_of(self._parts, plans[0], before), outcome_of(self._parts, plans[1], other_before)
        files = differing_files(one, then, most=_MOST_FILES + 1)
        cut = len(files) > _MOST_FILES
        note = repositories_differ(*plans)
        return view_of(ComparisonView, {"files": files[:_MOST_FILES], "truncated": cut, "note": note})

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
        from cleveragents.api.plans.comparison import ComparisonBounds, outcome_of, patch_between

        plans = self._read(plan_id), self._read(other)
        one, then = outcome_of(self._parts, plans[0], before), outcome_of(self._parts, plans[1], other_before)
        # guard: a user who may not apply both needs no secret of them
        masked = not all(self._access.user.may(Role.OPERATOR, plan.project) for plan in plans)
        bounds = ComparisonBounds(files=_MOST_FILES)
        return patch_between(one, then, bounds, masked=masked, paths=paths, renames=renames)

    def output(self, plan_id: str, *, after: int = 0, limit: int = 500) -> tuple[OutputView, ...]:
        from cleveragents.api.plans.detail_views import output_view
        from cleveragents.plans.store.sql_plan_output import SqlPlanOutput

        plan = self._read(plan_id)
        pieces = SqlPlanOutput(self._container.database).read(plan.id, after=after, limit=limit)
        return tuple(map(output_view, pieces))

    def _answered(self, plan_id: str, answer: CallAnswer) -> PlanView:
        from cleveragents.api.plans.responses import answer_call

        with self._continued(plan_id) as plan:
            return self._queued(answer_call(self._parts, plan.id, answer, shared=self._shared))

    def _rests(self, plan_id: str) -> bool:
        """Return whether the plan rests. Start a worker for a plan that an earlier client left unfinished."""
        plan = self._settled(plan_id)
        if is_settled(self._parts, plan):
            return True
        self._wake()
        return False

    def _wake(self, plan: Plan | None = None) -> None:
        """Start the client's worker, if it has one, for queued work; or let the caller run the plan."""
        if self._start_worker is not None:
            self._start_worker()
        if self._run_plan is not None and plan is not None:
            self._run_plan(plan)

    def _read(self, plan_id: str) -> Plan:
        return self._access.plan(plan_id, Role.VIEWER)

    def _settled(self, plan_id: str) -> Plan:
        """Return the plan after completing or abandoning an apply whose process died."""
        plan = self._read(plan_id)
        if plan.phase is not Phase.APPLY or not plan.state.running:
            return plan
        self._parts.apply.settle()
        return self._read(plan.id)

    def _operated(self, plan_id: str) -> Plan:
        return self._access.plan(plan_id, Role.OPERATOR)

    def _diffable(self, plan_id: str) -> Plan:
        from cleveragents.api.plans.sandbox_state import ensure_diffable
        from cleveragents.api.reachability import ensure_reachable

        plan = self._read(plan_id)
        ensure_diffable(self._parts, plan)
        ensure_reachable(self._parts, plan)
        return plan

    @contextmanager
    def _decision(self, plan_id: str) -> Iterator[Plan]:
        """Lock the plan during one action of an operator of its project, and yield it."""
        plan = self._operated(plan_id)
        with _DECISIONS.of(plan.id):
            yield self._found(plan)

    @contextmanager
    def _correctable(self, plan_id: str, model: str | None, claim: IdempotencyClaim | None) -> Iterator[Plan]:
        """Lock and yield a plan that can continue with a correction, or that an earlier attempt of this
        request already corrected.
        """
        from cleveragents.api.plans.budget import ensure_model_fits
        from cleveragents.api.reachability import ensure_reachable
        from cleveragents.models.model.budget import BudgetLimits as Bounds

        parts = self._parts
        with self._decision(plan_id) as plan:
            parts.apply.settle()
            plan = self._found(plan)
            if claim is not None and claim.made is not None:
                yield plan
                return
            parts.correction.ensure_correctable(plan)
            ensure_reachable(parts, plan)
            if model is not None:
                ensure_model_fits(parts, plan, model, Bounds())
            with self._adopted(plan) as plan:
                yield plan

    @contextmanager
    def _continued(self, plan_id: str) -> Iterator[Plan]:
        """Lock and yield the plan for an action that continues it. If this client has no terminal that runs
        plans, workers run it afterwards.
        """
        with self._decision(plan_id) as plan, self._adopted(plan) as plan:
            yield plan

    @contextmanager
    def _adopted(self, plan: Plan) -> Iterator[Plan]:
        """Lock and yield the plan for an action. Workers of this machine, or the caller, then continue it."""
        from cleveragents.api.plans.responses import adopted, taken_back

        if not self._shared:
            yield taken_back(self._access, plan)
            return
        with adopted(self._access, plan) as plan:
            yield plan

    @contextmanager
    def _reachable(self, plan_id: str) -> Iterator[Plan]:
        from cleveragents.api.reachability import ensure_reachable

        with self._decision(plan_id) as plan:
            ensure_reachable(self._parts, plan)
            yield plan

    def _found(self, plan: Plan) -> Plan:
        from cleveragents.api.plans.details import find_plan

        return find_plan(self._parts, plan.id)

    def _comment(self, plan: Plan, number: int) -> CommentView:
        return self.comments(plan.id, limit=1, after=str(number - 1)).items[0]

    def _queued(self, plan: Plan) -> PlanView:
        self._wake(plan)
        return self._view(plan)

    def _view(self, plan: Plan) -> PlanView:
        from cleveragents.api.plans.overview import overview_of
        from cleveragents.api.plans.views import PlanView

        return view_of(PlanView, overview_of(self._access, self._found(plan), shared=self._shared))
