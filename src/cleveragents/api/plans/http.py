"""Plans of a server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from cleveragents.api.format import printable_name
from cleveragents.api.jobs import HttpJobs, JobView
from cleveragents.api.plans.client import CANCELLED, ApprovalScope, FileSide, Side, until, watched
from cleveragents.api.plans.detail_views import (
    BudgetView,
    CallView,
    CommentView,
    ComparisonView,
    ConflictSideView,
    CorrectionPreview,
    DiffView,
    ExplainedDecisionView,
    FileView,
    OpenConflictView,
    OutputView,
    TreeNode,
    tree_node,
)
from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.api.plans.summary import Needs, PlanCount, PlanSummary, plan_counts
from cleveragents.api.plans.views import ConflictView, FileStateView, PlanView
from cleveragents.api.publish import PublishView
from cleveragents.api.search import FoundPlan
from cleveragents.api.views import Page, every, understood, view_of
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import (
    ApplyRefused,
    CleverAgentsError,
    PlanError,
    RequestRefused,
    ServerFailed,
    UnknownPlan,
)
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.model.comment import CommentState
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.api.transport import HttpTransport

__all__ = ["HttpPlans"]

_ID = re.compile(r"[0-9A-Za-z]+")
_MOST_PIECES = 1000
_MOST_STANDINGS = 1000
_MOST_PATHS, _LONGEST_PATH = 20, 1024  # limits of an address
_COUNTED = ("sub_plans", "sub_plans_done", "sub_plans_left_out")


class HttpPlans:
    """Plans of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

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
        query = {
            "state": [state.value for state in states],
            "needs": [*needs] or None,
            "project": project,
            "resource": resource,
            "all": "true" if sub_plans else None,
        }
        return self._http.page(PlanSummary, "/plans", limit, after, **query)

    def counts(self) -> tuple[PlanCount, ...]:
        try:
            return self._http.page(PlanCount, "/plan-counts", _MOST_STANDINGS, None).items
        except ServerFailed as error:
            if error.code != "not-found":
                raise
            # A server of 0.1.0 does not count them.
            plans = every(lambda after: self.list(limit=1000, after=after))
            return plan_counts(Counter((plan.phase, plan.state) for plan in plans if plan.parent is None))

    def search(self, text: str, *, project: str | None = None, limit: int = 20) -> tuple[FoundPlan, ...]:
        said = self._http.get("/search", text=text, project=project, limit=limit)
        with understood(said.status):
            return tuple(view_of(FoundPlan, one) for one in said["items"])

    def get(self, plan_id: str) -> PlanView:
        return view_of(PlanView, self._http.get(_path(plan_id)))

    def summary(self, plan_id: str) -> PlanSummary:
        try:
            return view_of(PlanSummary, self._http.get(_path(plan_id, "summary")))
        except ServerFailed as error:
            if error.code != "not-found":
                raise
        return _summary_of(self.get(plan_id))  # a server of 0.1.0 has no summaries

    def create(self, request: PlanRequest) -> PlanView:
        if request.resource is None:
            raise RequestRefused("a server runs plans on registered resources only: name one", "resource")
        return view_of(PlanView, self._http.post("/plans", request.body()))

    def watch(self, plan_id: str) -> Iterator[OutputView]:
        plan_id = self.get(plan_id).id
        yield from watched(
            lambda: self.summary(plan_id).at_rest,
            lambda after: self.output(plan_id, after=after),
            self._http.sleep,
        )

    def wait(self, plan_id: str, *, timeout: float | None = None) -> PlanView:
        plan_id = self.get(plan_id).id
        for _ in until(timeout, f"waiting for plan {plan_id}", self._http.sleep):
            if self.summary(plan_id).at_rest:
                break
        return self.get(plan_id)

    def pause(self, plan_id: str) -> PlanView:
        return self._posted(plan_id, "pause")

    def cancel(self, plan_id: str, *, reason: str = CANCELLED, discard: bool = False) -> PlanView:
        given = {"discard": True} if discard else {}  # a server of 0.1.0 does not know the field
        return self._posted(plan_id, "cancel", reason=reason, **given)

    def delete(self, plan_id: str, *, force: bool = False) -> None:
        self._http.delete(_path(plan_id), force="true" if force else None)

    def remove_sandbox(self, plan_id: str) -> None:
        self._http.delete(_path(plan_id, "sandbox"))

    def resume(self, plan_id: str, *, model: str | None = None, limits: Limits | None = None) -> PlanView:
        return self._posted(plan_id, "resume", model=model, limits=limits and limits.body())

    def approve(
        self,
        plan_id: str,
        *,
        call: int | None = None,
        scope: ApprovalScope = "once",
        pattern: str | None = None,
    ) -> PlanView:
        # A server of 0.1.0 refuses unknown fields.
        more = {} if scope == "once" and pattern is None else {"scope": scope, "pattern": pattern}
        return self._posted(plan_id, "approve", call=call, **more)

    def deny(self, plan_id: str, *, call: int | None = None, reason: str | None = None) -> PlanView:
        return self._posted(plan_id, "deny", call=call, **({} if reason is None else {"reason": reason}))

    def answer(
        self, plan_id: str, text: str, *, question: str | None = None, first: bool = False
    ) -> PlanView:
        if question is None and first:
            return self._posted(plan_id, "answer", text=text, first=True)
        if question is None:
            waiting = self.get(plan_id).waiting_for
            asked = waiting.get("question") if isinstance(waiting, Mapping) else None
            question = str(asked or "none")  # without a pending question the server refuses the answer
        return self._posted(plan_id, "answer", text=text, question=question)

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
        said = self._lines_so_far(plan_id, progress)
        job = self.submit_apply(plan_id, commit=commit, to_branch=to_branch, version=version, tree=tree)
        return self._done(plan_id, job, said)

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
        # A server of 0.1.0 refuses unknown fields.
        asked = {"unattended": True} if unattended else {}
        seen = {name: value for name, value in (("version", version), ("tree", tree)) if value is not None}
        body = {"commit": commit, "to_branch": to_branch, **asked, **seen}
        return view_of(JobView, self._http.post(_path(plan_id, "apply"), body))

    def undo(
        self,
        plan_id: str,
        *,
        commit: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> PlanView:
        said = self._lines_so_far(plan_id, progress)
        return self._done(plan_id, self.submit_undo(plan_id, commit=commit), said)

    def submit_undo(self, plan_id: str, *, commit: str | None = None) -> JobView:
        return view_of(JobView, self._http.post(_path(plan_id, "undo"), {"commit": commit}))

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
        from cleveragents.api.publish import publish_remote

        return publish_remote(self, plan_id, branch, message)

    def discard(self, plan_id: str, *, version: int | None = None) -> PlanView:
        return self._posted(plan_id, "reject", **({} if version is None else {"version": version}))

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
        return self._posted(
            plan_id,
            "review",
            accept=[*accept],
            reject=[*reject],
            accept_changesets=[*accept_changesets],
            reject_changesets=[*reject_changesets],
            **({"accept_hunks": [*accept_hunks]} if accept_hunks else {}),
            **({"reject_hunks": [*reject_hunks]} if reject_hunks else {}),
        )

    def rollback(
        self,
        plan_id: str,
        checkpoint: int | None = None,
        *,
        discard: bool = False,
        version: int | None = None,
    ) -> PlanView:
        target = {"withdraw": True} if checkpoint is None else {"checkpoint": checkpoint}
        seen = {} if version is None else {"version": version}
        return self._posted(plan_id, "rollback", **target, **seen, discard=discard)

    def capture(self, plan_id: str) -> PlanView:
        return self._posted(plan_id, "reread")

    def rebase(self, plan_id: str) -> PlanView:
        return self._posted(plan_id, "rebase")

    def resolve(
        self, plan_id: str, path: str, take: Take, *, version: int | None = None, tree: str | None = None
    ) -> PlanView:
        seen = {name: value for name, value in (("version", version), ("tree", tree)) if value is not None}
        return self._posted(plan_id, "resolve", path=path, take=take.value, **seen)

    def conflicts(
        self, plan_id: str, *, limit: int = 100, after: str | None = None
    ) -> Page[OpenConflictView]:
        try:
            return self._http.page(OpenConflictView, _path(plan_id, "conflicts"), limit, after)
        except ServerFailed as error:
            if error.code != "not-found":
                raise
        # a server of 0.1.0 returns them with the plan
        return Page(items=tuple(_with_sides(conflict) for conflict in self.get(plan_id).conflicts))

    def correct(
        self, plan_id: str, guidance: str, *, decision: int | None = None, model: str | None = None
    ) -> PlanView:
        return self._posted(plan_id, "correct", guidance=guidance, decision=decision, model=model)

    def preview_correction(self, plan_id: str, decision: int) -> CorrectionPreview:
        body = {"decision": decision, "dry_run": True}
        return view_of(CorrectionPreview, self._http.post(_path(plan_id, "correct"), body))

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
        body = {"text": text, "path": path, "line": line, "end_line": end_line}
        body |= {} if side == "after" else {"side": side}
        body |= {} if blob is None else {"blob": blob}
        return view_of(CommentView, self._http.post(_path(plan_id, "comments"), body))

    def comments(self, plan_id: str, *, limit: int = 1000, after: str | None = None) -> Page[CommentView]:
        return self._http.page(CommentView, _path(plan_id, "comments"), limit, after)

    def answer_comment(
        self, plan_id: str, number: int, state: CommentState, *, reason: str = ""
    ) -> CommentView:
        body = {"state": state.value, "reason": reason}
        return view_of(CommentView, self._http.post(_path(plan_id, f"comments/{number}"), body))

    def revise(self, plan_id: str, message: str = "", *, model: str | None = None) -> PlanView:
        return self._posted(plan_id, "revise", message=message, model=model)

    def budget(self, plan_id: str) -> BudgetView:
        return view_of(BudgetView, self._http.get(_path(plan_id, "budget")))

    def raise_budget(self, plan_id: str, limits: Limits) -> BudgetView:
        return view_of(BudgetView, self._http.post(_path(plan_id, "budget"), limits.body()))

    def calls(self, plan_id: str, *, limit: int = 100, after: str | None = None) -> Page[CallView]:
        return self._http.page(CallView, _path(plan_id, "calls"), limit, after)

    def call(self, plan_id: str, number: int) -> CallView:
        return view_of(CallView, self._http.get(_path(plan_id, f"calls/{number}")))

    def decisions(self, plan_id: str, *, limit: int = 1000, after: str | None = None) -> Page[TreeNode]:
        return self._http.read_page(tree_node, _path(plan_id, "decisions"), limit, after)

    def decision(self, plan_id: str, number: int) -> ExplainedDecisionView:
        return view_of(ExplainedDecisionView, self._http.get(_path(plan_id, f"decisions/{number}")))

    def diff(self, plan_id: str) -> DiffView:
        return view_of(DiffView, self._http.get(_path(plan_id, "diff")))

    def patch(self, plan_id: str, *, paths: Sequence[str] = (), renames: bool = False) -> bytes:
        return self._patch(_path(plan_id, "diff"), paths, renames)

    def file(self, plan_id: str, path: str, *, side: FileSide = "after") -> FileView:
        return view_of(FileView, self._http.get(_path(plan_id, "files"), path=path, side=side))

    def compare(
        self, plan_id: str, other: str, *, before: int | None = None, other_before: int | None = None
    ) -> ComparisonView:
        query = {"other": other, "before": before, "other_before": other_before}
        return view_of(ComparisonView, self._http.get(_path(plan_id, "comparison"), **query))

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
        query = {"other": other, "before": before, "other_before": other_before}
        return self._patch(_path(plan_id, "comparison"), paths, renames, **query)

    def output(self, plan_id: str, *, after: int = 0, limit: int = 500) -> tuple[OutputView, ...]:
        pieces: tuple[OutputView, ...] = ()
        while True:
            asked = min(limit - len(pieces), _MOST_PIECES)
            said = self._http.get(_path(plan_id, "output"), after=after, limit=asked)
            with understood(said.status):
                found = tuple(view_of(OutputView, piece) for piece in said["items"])
                if found and found[-1].number <= after:  # guard: this would never end
                    raise ValueError("the server sent the same page of output twice")
            pieces += found
            if len(found) < asked or len(pieces) >= limit:
                return pieces
            after = found[-1].number

    def _patch(self, address: str, paths: Sequence[str], renames: bool, **query: object) -> bytes:
        from cleveragents.api.plans.diffs import patch_of_files

        names = [printable_name(path) for path in paths]
        fits = len(names) <= _MOST_PATHS and all(len(name) <= _LONGEST_PATH for name in names)
        said: dict[str, object] = {"path": names, "renames": "true" if renames else None} if fits else {}
        found = self._http.content(address, format="patch", **said, **query)
        # Without names a server sends all files, as a server of 0.1.0 always does.
        return patch_of_files(found, names) if names else found

    def _posted(self, plan_id: str, action: str, **body: object) -> PlanView:
        return view_of(PlanView, self._http.post(_path(plan_id, action), body))

    def _lines_so_far(self, plan_id: str, progress: Callable[[str], None] | None) -> _Lines | None:
        """Pass new output of the plan to `progress`."""
        if progress is None:
            return None
        number = 0
        while pieces := self.output(plan_id, after=number):
            number = pieces[-1].number
        return _Lines(progress, number)

    def _done(self, plan_id: str, job: JobView, said: _Lines | None) -> PlanView:
        """Return the plan once the job has succeeded. Raise the error of a job that failed or was
        cancelled."""
        from cleveragents.core.errors.facts import error_from_facts

        jobs = HttpJobs(self._http)
        for _ in until(None, "", self._http.sleep):
            job = jobs.get(job.id)  # read before the output, or its end is missed
            while said is not None and (pieces := self.output(plan_id, after=said.number)):
                said.tell(pieces)
            if job.state.ended:
                break
        result = job.result if isinstance(job.result, Mapping) else {}
        facts = result.get("facts")
        if job.state is not JobState.SUCCEEDED:
            remedies = () if job.problem is None else job.problem.remedies
            code = str(result.get("code"))
            known = error_from_facts(code, facts, remedies) if isinstance(facts, Mapping) else None
            reason = (job.error or f"cancelled: {job.cancel_reason}").removeprefix(f"plan {plan_id}: ")
            raise known or self._refused(plan_id, reason)
        return self.get(plan_id)

    def _refused(self, plan_id: str, reason: str) -> CleverAgentsError:
        """Return the error of a failed job that has no error fields, as from a server of 0.1.0. If the plan
        is blocked, the error is one that a person can resolve.
        """
        if self.get(plan_id).state is not PlanState.CONSTRAINED:
            return PlanError(plan_id, reason)
        return ApplyRefused(plan_id, reason.removeprefix("not applied: "))


def _path(plan_id: str, of_it: str = "") -> str:
    """Return the URL path of a plan on the server, or of its part `of_it`. Raises `UnknownPlan`."""
    if not _ID.fullmatch(plan_id):  # guard: an id must not change the path
        raise UnknownPlan(plan_id)
    return f"/plans/{plan_id}/{of_it}" if of_it else f"/plans/{plan_id}"


def _with_sides(conflict: ConflictView) -> OpenConflictView:
    def side(state: FileStateView | None) -> ConflictSideView:
        if state is None:
            return ConflictSideView(what="no file", path=conflict.path, mode=None, content=None)
        return ConflictSideView(what="a file", path=conflict.path, mode=state.mode, content=state.content)

    return OpenConflictView(
        path=conflict.path,
        kind=conflict.kind,
        marked=conflict.marked,
        sub_plan=conflict.sub_plan,
        title=conflict.sub_plan,
        file=None,
        ours=side(conflict.ours),
        theirs=side(conflict.theirs),
        text="",
    )


@dataclass(slots=True)
class _Lines:
    """The receiver of a plan's status lines, and the number of the last output that was read."""

    progress: Callable[[str], None]
    number: int

    def tell(self, pieces: Sequence[OutputView]) -> None:
        for piece in pieces:
            self.number = piece.number
            if piece.kind == "progress":
                for line in piece.text.splitlines():
                    self.progress(line)


def _summary_of(plan: PlanView) -> PlanSummary:
    shared = {
        field.name: getattr(plan, field.name) for field in fields(PlanSummary) if field.name not in _COUNTED
    }
    return PlanSummary(
        **shared,
        sub_plans=len(plan.sub_plans),
        sub_plans_done=plan.sub_plans_done,
        sub_plans_left_out=len(plan.parts_left_out),
    )
