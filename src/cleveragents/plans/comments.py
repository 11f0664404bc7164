"""Comments on plans: add them, answer them, and send the open ones to the executor as one batch.

A comment is sent in the transaction that gives the plan its next task. So after a kill, a comment is either
unsent, or sent together with a task that a resume carries out. A comment that arrives during a revision
belongs to the next revision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.changes.model.merge_conflict import REBASE, RESOLVE
from cleveragents.core.change import GITLINK, FileState
from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    PlanError,
    Remedy,
    RequestRefused,
    SandboxMissing,
    StaleFile,
    UnknownFile,
)
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.core.tool import CallState
from cleveragents.plans.corrections.correct import PlanCorrection
from cleveragents.plans.history import PlanResult
from cleveragents.plans.model.comment import (
    MOST_LINES,
    Comment,
    CommentAnchor,
    CommentLines,
    CommentState,
    NewAnswer,
    NewComment,
    anchor_of,
    answers_in,
    lines_now,
    named_lines,
    revision_text,
    times_in,
)
from cleveragents.plans.model.correction import Correction
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.strategy import Task, earlier_result
from cleveragents.plans.remote.sandboxes import RemoteSandboxes
from cleveragents.plans.store.sql_comment_store import SqlCommentStore
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.storage.columns import kept_text
from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["PlanComments", "ensure_open"]

_DONE = (Phase.EXECUTE, PlanState.COMPLETE)
_TOLD = 300
_LONGEST_REASON = 2_000
_WITHDRAWN = "the revision was withdrawn"
_CHANGED = "the lines were changed"


class PlanComments(Struct, frozen=True):
    """The comments of plans. Stateless: any thread and process may comment on a plan at any time."""

    store: SqlCommentStore
    correction: PlanCorrection
    result: PlanResult
    sandboxes: RemoteSandboxes
    clock: Clock

    def add(
        self,
        plan: Plan,
        text: str,
        *,
        author: str,
        lines: CommentLines | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Comment:
        """Add a comment of a person. Raises `RequestRefused` without text or if the file has no such lines;
        `UnknownFile` if the plan did not change the file; `StaleFile` if the file is not the one that was
        seen; `PlanError` if the plan has ended; `SandboxMissing`.
        """
        _ensure_read(plan)
        words = redact_content_text(text.strip())
        if not words:
            raise RequestRefused("the comment is empty", "text")
        anchor = None if lines is None else self._anchor(plan, lines)
        made = NewComment(words, author, anchor=anchor)
        (kept,) = self.store.add(plan.id, [made], now=self.clock.now(), claim=claim, ensure=_ensure_read)
        return kept

    def answer(
        self, plan: Plan, number: int, state: CommentState, *, author: str, reason: str = ""
    ) -> Comment:
        """Resolve, decline or reopen a comment for a person. Raises `UnknownComment`."""
        made = NewAnswer(state, author, redact_content_text(reason.strip()))
        return self.store.answer(plan.id, number, made, now=self.clock.now())

    def places(self, plan: Plan, comments: Sequence[Comment]) -> Mapping[int, tuple[int, int] | None]:
        """Return the current lines of all comments on lines, by the number of the comment; None for outdated
        comments.
        """
        anchored = [(one.number, one.made.anchor) for one in comments if one.made.anchor is not None]
        if not anchored:
            return {}
        try:
            sandbox: Sandbox | None = self.sandboxes.look(plan.id)
        except SandboxMissing:
            sandbox = None
        states = self._states(plan, sandbox)
        base = self._base(plan, sandbox, {anchor.path for _, anchor in anchored if anchor.of_base})
        return {
            number: _place(anchor, base if anchor.of_base else states, sandbox) for number, anchor in anchored
        }

    def revise(
        self,
        plan: Plan,
        message: str = "",
        *,
        model: str | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> tuple[Correction, Plan]:
        """Send all open comments to the executor, with the message, and queue the plan.

        Comments that an unfinished revision already sent are not sent again. Raises `PlanError` if there is
        nothing to send; the errors of `PlanCorrection.revise`.
        """
        # While the task of an earlier batch is not done, its comments are still with the executor.
        pending = plan.phase is not Phase.APPLY and plan.phase_state != _DONE
        found = [
            one
            for one in self.store.of_plan(plan.id)
            if one.is_open and not (pending and one.batch is not None)
        ]
        words = redact_content_text(message.strip())
        if not found and not words:
            resume = Remedy("plan.resume", plan.id, text="Continue it")
            raise PlanError(plan.id, "no open comment to send", (resume,) if pending else ())
        count = "1 comment" if len(found) == 1 else f"{len(found)} comments"
        task = Task(
            f"revise: {count}" if found else "revise", revision_text(found, self.places(plan, found), words)
        )
        guidance = _guidance(found, words) or f"Settle the findings of the review ({count})."
        numbers = [one.number for one in found]
        return self.correction.revise(plan, guidance, task, numbers, model=model, claim=claim)

    def withdraw(self, plan: Plan, *, author: str, discard: bool = False) -> Plan:
        """Withdraw the revisions without a good result, as `PlanCorrection.withdraw` does, and reopen the
        comments that their actors settled, in the same transaction. The `author` is the person who withdraws
        them.
        """
        ready = earlier_result(plan)
        if ready is None:
            return self.correction.withdraw(plan, discard=discard)
        made = NewAnswer(CommentState.OPEN, author, _WITHDRAWN)
        reopen = self.store.reopening(plan.id, ready, made, now=self.clock.now())
        return self.correction.withdraw(plan, discard=discard, also=reopen)

    def record_review(
        self, plan: Plan, actor: str, findings: Sequence[str], *, key: str, accepted: bool
    ) -> Sequence[Comment]:
        """Store the findings of a reviewer as open comments and return them, one for each finding.

        If an open comment has the same text as a finding, that comment is returned, and no comment is added.
        Earlier findings of the same reviewer that the review does not repeat are marked as resolved.
        """
        texts = [] if accepted else [kept_text(redact_content_text(finding)) for finding in findings]
        mine = [
            one
            for one in self.store.of_plan(plan.id)
            if one.is_open and one.made.by_actor and one.made.author == actor
        ]
        why = "accepted by the review" if accepted else "the next review did not repeat the finding"
        for one in mine:
            if one.made.text not in texts:
                made = NewAnswer(CommentState.RESOLVED, actor, why, by_actor=True)
                self.store.answer(plan.id, one.number, made, now=self.clock.now())
        known = {one.made.text: one for one in mine}
        new = [
            NewComment(text, actor, by_actor=True, anchor=self._named(plan, text), key=f"{key}.{number}")
            for number, text in enumerate(texts)
            if text not in known
        ]
        added = self.store.add(plan.id, new, now=self.clock.now())
        known |= {made.text: one for made, one in zip(new, added, strict=True)}
        return [known[text] for text in texts]

    def record_answers(self, plan: Plan, actor: str, report: str, *, by_change: bool = False) -> None:
        """Store the answers to comments in the report of an executor, which may have no tools. A repeated
        report adds no answer twice. An answer is ignored if its comment was never sent or is already settled,
        if it is `resolved` without a change of a file, or `declined` without a reason.

        With `by_change`, a comment on lines that the report does not mention is resolved if the revision
        changed exactly these lines.
        """
        given = answers_in(report)
        every = {one.number: one for one in self.store.of_plan(plan.id)} if given else {}
        for number, state, said in given:
            comment, reason = every.get(number), redact_content_text(said)[:_LONGEST_REASON]
            if comment is None or not comment.is_open or not (comment.batch or comment.made.by_actor):
                continue
            call = self._last_change(plan, comment) if state is CommentState.RESOLVED else None
            repeated = (actor, reason) in [(made.author, made.reason) for made in _since_withdrawal(comment)]
            settles = call is not None if state is CommentState.RESOLVED else bool(reason)
            if repeated or not settles:  # guard: a replayed report undoes no person's reopening
                continue
            made = NewAnswer(state, actor, reason, by_actor=True, call=call)
            with suppress(PlanError):
                self.store.answer(plan.id, number, made, now=self.clock.now(), ensure=ensure_open)
        if by_change:
            self._record_changed_lines(plan, actor, {number for number, _, _ in given})

    def _record_changed_lines(self, plan: Plan, actor: str, answered: Collection[int]) -> None:
        """Resolve the comments whose lines were changed since they were sent, except those in `answered`."""
        sent = {one.number: one.created_at for one in self.correction.corrections.of_plan(plan.id)}
        calls = self.result.history.calls(plan.id)
        others = {call.number for call in calls if call.step is None or call.tool in (REBASE, RESOLVE)}
        for one in self.store.of_plan(plan.id):
            since = sent.get(one.batch or 0)
            if since is None or not one.is_open or one.number in answered:
                continue
            # guard: a replayed run undoes no person's reopening
            repeated = any(each.created_at >= since and each.made.by_actor for each in one.answers)
            changing = [] if repeated else self._changing(plan, since)
            if not others.isdisjoint(changing):  # guard: a rebase or a person may have changed the lines
                continue
            if changing and self._has_changed_lines(plan, one.made.anchor, changing[0]):
                made = NewAnswer(CommentState.RESOLVED, actor, _CHANGED, by_actor=True, call=changing[-1])
                with suppress(PlanError):
                    self.store.answer(plan.id, one.number, made, now=self.clock.now(), ensure=ensure_open)

    def _has_changed_lines(self, plan: Plan, anchor: CommentAnchor | None, first: int) -> bool:
        """Return whether the lines were in their file once before the call `first`, and are gone now."""
        if anchor is None or anchor.of_base:
            return False
        history, sandbox = self.result.history, self.sandboxes.look(plan.id)
        versions = history.states_before(plan.id, first), history.states(plan.id)
        before, now = (
            0 if state is None or state.mode == GITLINK else times_in(anchor, sandbox.content(state.content))
            for state in (states.get(anchor.path) for states in versions)
        )
        # guard: a file that is gone may have been renamed, and equal lines elsewhere may be the ones meant
        return before == 1 and now == 0 and versions[1].get(anchor.path) is not None

    def _last_change(self, plan: Plan, comment: Comment) -> int | None:
        """Return the number of the last call that changed files since the comment."""
        return max(self._changing(plan, comment.created_at), default=None)

    def _changing(self, plan: Plan, since: datetime) -> list[int]:
        """Return the numbers of the calls since this time that changed files, in order."""
        changed = {change.changeset_id for change in self.result.history.changes(plan.id)}
        return [
            call.number
            for call in self.result.history.calls(plan.id)
            if call.state is CallState.ENDED and call.changeset_id in changed and call.started_at >= since
        ]

    def _named(self, plan: Plan, text: str) -> CommentAnchor | None:
        """Return the anchor of the lines that a finding names at its beginning; None if it names no lines of
        the result.
        """
        named = named_lines(text)
        if named is None or named[2] >= named[1] + MOST_LINES:
            return None
        try:
            return self._anchor(plan, CommentLines(*named))
        except (RequestRefused, UnknownFile, SandboxMissing):
            return None

    def _anchor(self, plan: Plan, lines: CommentLines) -> CommentAnchor:
        sandbox = self.sandboxes.look(plan.id)
        path = lines.path.removeprefix("./")
        states = self._states(plan, sandbox)
        if path not in states:  # guard: only files that the plan changed are readable
            raise UnknownFile(plan.id, path)
        state = self._base(plan, sandbox, [path])[path] if lines.before else states[path]
        blob = None if state is None else state.content
        if lines.blob not in (None, blob):  # guard: the comment belongs to the lines that were seen
            raise StaleFile(plan.id, path)
        content = None if state is None or state.mode == GITLINK else sandbox.content(state.content)
        if state is None or content is None:
            where = "before the change" if lines.before else "in the result"
            raise RequestRefused(f"{path} has no lines {where}; comment on the plan instead", "line")
        anchor = anchor_of(path, state.content, content, lines.start, lines.end)
        if anchor is None:
            count = len(content.splitlines())
            raise RequestRefused(f"{path} has {count} lines, so no lines {lines.start}-{lines.end}", "line")
        return replace(anchor, of_base=lines.before)

    def _base(
        self, plan: Plan, sandbox: Sandbox | None, paths: Collection[str]
    ) -> Mapping[str, FileState | None]:
        """Return the states of these files in the base of the plan, which a rebase replaces."""
        if sandbox is None or not paths:
            return {}
        return sandbox.base_states(paths, self.result.base(plan, sandbox))

    def _states(self, plan: Plan, sandbox: Sandbox | None) -> Mapping[str, FileState | None]:
        """Return the states of all changed files, including files that were left out."""
        states = self.result.history.states(plan.id)
        if sandbox is None:
            return states
        try:
            read = self.result.read(plan, sandbox)
            # Without the drift: a diff shows a file that was left out with the changes of the plan.
            return {**states, **dict(read.states(every_hunk=True).items() - read.drift.items())}
        except PlanError:  # the accepted changes cannot be separated from the others
            return states


def _place(
    anchor: CommentAnchor, states: Mapping[str, FileState | None], sandbox: Sandbox | None
) -> tuple[int, int] | None:
    state = states.get(anchor.path)

    def content() -> bytes | None:
        return None if sandbox is None or state is None else sandbox.content(state.content)

    return lines_now(anchor, None if state is None else state.content, content)


def _ensure_read(plan: Plan) -> None:
    """Raise `PlanError` if the plan has ended: no agent would read a comment."""
    if plan.state.ended:
        run = Remedy("run", options={"goal": None}, text="Start a new plan")
        raise PlanError(plan.id, f"already {status_word(plan)}, so no agent reads a comment", (run,))


def _since_withdrawal(comment: Comment) -> Sequence[NewAnswer]:
    """Return the answers since the last withdrawal of a revision, because the next revision may answer in the
    same words.
    """
    made = [one.made for one in comment.answers]
    again = (n for n in range(len(made), 0, -1) if made[n - 1].reason == _WITHDRAWN)
    return made[next(again, 0) :]


def ensure_open(comment: Comment) -> None:
    """Raise `PlanError` if the comment is resolved or declined."""
    if not comment.is_open:  # guard: a person settled the comment meanwhile
        raise PlanError(comment.plan_id, f"comment {comment.number} is already {comment.state.value}")


def _guidance(comments: Sequence[Comment], message: str) -> str:
    """Return the message and the comments of people, shortened, for all later runs of actors."""
    lines = [message] if message else []
    for one in comments:
        if not one.made.by_actor:
            where = "" if one.made.anchor is None else f"{one.made.anchor.path}: "
            text = " ".join(one.made.text.split())
            lines.append(where + (text if len(text) <= _TOLD else f"{text[: _TOLD - 1]}…"))
    return "\n".join(lines)
