"""The actions on a plan: for each, a question that shows its effects, and the call of the client.

A question shows the current plan, and its call names the shown object: the number of the pending call, the
pending question, or the version of the plan. If the plan has changed since, the client refuses the call, and
nothing happens.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cleveragents.api.format import counted, duration_text
from cleveragents.api.plans.client import CANCELLED
from cleveragents.api.plans.details import verdict_text
from cleveragents.api.views import as_json, every
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.cli.budget_options import read_limits
from cleveragents.cli.plan.conflicts import blocking_lines, other_side, resolved_by
from cleveragents.cli.plan.correct import preview_lines
from cleveragents.cli.plan.view import change_lines
from cleveragents.cli.plan.work import asking_call, discard_question, longer_approvals
from cleveragents.cli.terminal_app.dialogs import DialogChoice, DialogField, DialogQuestion, Tell, Values
from cleveragents.core.errors import PlanError, RequestRefused, ResultChanged
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.client import ApprovalScope, Side
    from cleveragents.api.plans.detail_views import DecisionNode
    from cleveragents.api.plans.views import LimitsView, PlanView

__all__ = ["ACTIONS", "PlanAction", "PlanActions"]

_ANSWER_KEYS = "123456789"
_TEXT = "text"


@dataclass(frozen=True, slots=True)
class PlanAction:
    """An action in the terminal app: its name in the API, its key and its label."""

    name: str
    key: str
    label: str


ACTIONS = (
    PlanAction("approve", "a", "Approve"),
    PlanAction("deny", "n", "Deny"),
    PlanAction("answer", "w", "Answer"),
    PlanAction("budget", "b", "Budget"),
    PlanAction("review", "d", "Review"),
    PlanAction("apply", "A", "Apply"),
    PlanAction("reject", "x", "Discard"),
    PlanAction("revise", "g", "Request changes"),
    PlanAction("rebase", "e", "Rebase"),
    PlanAction("resolve", "v", "Resolve"),
    PlanAction("resume", "r", "Resume"),
    PlanAction("pause", "p", "Pause"),
    PlanAction("correct", "c", "Correct"),
    PlanAction("undo", "u", "Undo"),
    PlanAction("cancel", "k", "Cancel"),
)
"""The actions that a key starts, if the API offers them for the plan. No such key confirms a dialog: a key
that is pressed twice by mistake approves nothing.
"""
_SCOPE_KEYS = {"plan": "o", "project": "l"}


class PlanActions:
    """The questions about one plan. Every method calls the client: use it in a worker thread.

    `seen` is the tree of the diff that was shown last, if any. An apply takes no other result.
    """

    def __init__(self, client: Client, plan_id: str, seen: str | None = None) -> None:
        self._client = client
        self._plan_id = plan_id
        self._seen = seen
        self._questions: Mapping[str, Callable[[PlanView], DialogQuestion]] = {
            "approve": self._approve,
            "deny": self._deny,
            "answer": self._answer,
            "budget": self._budget,
            "apply": self._apply,
            "reject": self._discard,
            "revise": self._revise,
            "rebase": partial(self._continue, "Rebase", client.plans.rebase),
            "resolve": self._resolve,
            "resume": partial(self._continue, "Resume", client.plans.resume),
            "pause": self._pause,
            "undo": self._undo,
            "cancel": self._cancel,
        }

    def question(self, name: str) -> DialogQuestion:
        """Return the question of an action. Raises `PlanError` if the plan does not offer the action now, and
        `ResultChanged` for the apply of another result than the one that was seen.
        """
        plan = self._client.plans.get(self._plan_id)
        if name not in plan.can:
            raise PlanError(plan.id, f"{plan.meaning}; {name} is not possible now")
        return self._questions[name](plan)

    def decisions(self) -> list[DecisionNode]:
        """Return the decisions that can be corrected."""
        from cleveragents.api.plans.detail_views import DecisionNode

        nodes = every(lambda after: self._client.plans.decisions(self._plan_id, after=after))
        return [node for node in nodes if isinstance(node, DecisionNode) and node.state == "active"]

    def correction(self, number: int | None) -> DialogQuestion:
        """Return the question for guidance: about a decision, with the effects of its correction, or about
        the whole plan.
        """
        plans, lines = self._client.plans, ["Nothing is undone; the guidance applies from now on."]
        if number is not None:
            lines = preview_lines(plans.preview_correction(self._plan_id, number))

        def act(values: Values, tell: Tell) -> str:
            plans.correct(self._plan_id, values[_TEXT], decision=number)
            return "corrected"

        title = "Add guidance?" if number is None else f"Correct decision {number}?"
        field = DialogField(_TEXT, "Guidance: what to do instead, and why", several_lines=True)
        return DialogQuestion(title, lines, [DialogChoice("enter", "Correct", act)], [field], stays=True)

    def comment(
        self,
        path: str | None = None,
        line: int | None = None,
        *,
        before: bool = False,
        shown: str = "",
        blob: str | None = None,
    ) -> DialogQuestion:
        """Return the question for a comment: on the plan, or on a line of a file. `shown` is that line, and
        `blob` the object id of its file.
        """

        def act(values: Values, tell: Tell) -> str:
            if not values[_TEXT].strip():
                raise RequestRefused("the comment is empty", _TEXT)
            side: Side = "before" if before else "after"
            made = self._client.plans.comment(
                self._plan_id, values[_TEXT], path=path, line=line, side=side, blob=blob
            )
            return f"comment {made.number} added{f' on {made.place}' if made.path else ''}"

        place = "the plan" if path is None else f"{path}:{line}{' (before the change)' if before else ''}"
        lines = [f"> {shown}"] if shown else []
        field = DialogField(_TEXT, "The agent gets it when you request changes.", several_lines=True)
        return DialogQuestion(
            f"Comment on {place}", lines, [DialogChoice("enter", "Comment", act)], [field], stays=True
        )

    def _approve(self, plan: PlanView) -> DialogQuestion:
        number, lines = self._pending_call(plan)
        scopes, rule = longer_approvals(plan, number)

        def act(scope: ApprovalScope, values: Values, tell: Tell) -> str:
            pattern = None if scope == "once" else rule
            self._client.plans.approve(plan.id, call=number, scope=scope, pattern=pattern)
            return f"approved: call {number}"

        choices = [DialogChoice("y", "Approve once", partial(act, "once"))]
        if plan.approval is not None:
            places = {"plan": plan.approval.plan_scope, "project": plan.approval.project_scope}
            choices += [
                DialogChoice(_SCOPE_KEYS[scope], f"Approve `{rule}` in {places[scope]}", partial(act, scope))
                for scope in scopes.values()
            ]
        return DialogQuestion("Approve this call?", lines, choices)

    def _deny(self, plan: PlanView) -> DialogQuestion:
        number, lines = self._pending_call(plan)

        def act(values: Values, tell: Tell) -> str:
            reason = values[_TEXT].strip() or None
            self._client.plans.deny(plan.id, call=number, reason=reason)
            return f"denied: call {number}"

        field = DialogField(_TEXT, "Reason for the agent (optional)", several_lines=True)
        return DialogQuestion("Deny this call?", lines, [DialogChoice("enter", "Deny", act)], [field])

    def _pending_call(self, plan: PlanView) -> tuple[int, list[str]]:
        """Return the number of the pending call, and the call in full."""
        pending = asking_call(plan)
        if pending is None:
            raise PlanError(plan.id, "no approval is pending")
        call = self._client.plans.call(plan.id, pending.number)
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        return call.number, [
            f"Waiting: {waiting.get('what') or plan.meaning}",
            "",
            f"call {call.number}: {call.tool}",
            *_argument_lines(call.arguments),
            f"in {plan.place}",
        ]

    def _answer(self, plan: PlanView) -> DialogQuestion:
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        choices = waiting.get("choices")
        offered = [*dict.fromkeys(map(str, choices))] if isinstance(choices, Sequence) else []

        def act(chosen: str | None, values: Values, tell: Tell) -> str:
            text = values[_TEXT] if chosen is None else chosen
            if not text.strip():
                raise RequestRefused("the answer is empty", _TEXT)
            asked = str(waiting.get("question"))
            self._client.plans.answer(plan.id, text, question=asked)
            return "answered"

        lines = [str(waiting.get("what") or plan.meaning)]
        if offered and len(offered) <= len(_ANSWER_KEYS):
            keys = zip(_ANSWER_KEYS, offered, strict=False)
            return DialogQuestion(
                "Answer", lines, [DialogChoice(key, one, partial(act, one)) for key, one in keys]
            )
        field = DialogField(_TEXT, "Your answer", several_lines=True)
        return DialogQuestion("Answer", lines, [DialogChoice("enter", "Answer", partial(act, None))], [field])

    def _budget(self, plan: PlanView) -> DialogQuestion:
        plans = self._client.plans
        budget = plans.budget(plan.id)

        fields = _limit_fields(budget.limits)

        def act(values: Values, tell: Tell) -> str:
            known = {field.name: field.text for field in fields}
            changed = {name: text for name, text in values.items() if text.strip() != known[name]}
            if not changed:
                raise RequestRefused("no limit was changed", "limits")
            plans.raise_budget(plan.id, read_limits(changed))
            return "budget raised"

        spent = f"{budget.spent.tokens:,} tokens, {counted(budget.spent.steps, 'model call')}"
        cost = "unknown price" if budget.spent.usd is None else f"${budget.spent.usd:.4f}"
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        asked = [f"Waiting: {waiting['what']}"] if waiting.get("for") == "budget" else []
        lines = [*asked, f"Spent: {cost}, {spent}", "A limit is a total for the plan and its sub-plans."]
        return DialogQuestion("Raise the budget?", lines, [DialogChoice("enter", "Raise", act)], fields)

    def _apply(self, plan: PlanView) -> DialogQuestion:
        tree = self._seen or plan.tree
        if plan.tree not in (None, tree):  # guard: the dialog would describe a result whose diff was not seen
            raise ResultChanged(plan.id)

        def act(values: Values, tell: Tell) -> str:
            applied = self._client.plans.apply(plan.id, version=plan.version, tree=tree, progress=tell)
            done = applied.last_apply
            files = len(plan.changes) if done is None else done.files
            return f"applied to {counted(files, 'file')} of {plan.place}"

        lines = [f"Apply to {plan.place}:", *change_lines(plan), *_check_lines(plan)]
        lines += [f"left out: {name}" for name in plan.left_out]
        return DialogQuestion("Apply the result?", lines, [DialogChoice("y", "Apply", act)])

    def _discard(self, plan: PlanView) -> DialogQuestion:
        def act(values: Values, tell: Tell) -> str:
            self._client.plans.discard(plan.id, version=plan.version)
            return "discarded" if plan.changes else "closed"

        verb = "Discard" if plan.changes else "Close"
        lines = [*(change_lines(plan) if plan.changes else []), "Your files stay as they are."]
        return DialogQuestion(discard_question(plan), lines, [DialogChoice("y", verb, act)])

    def _undo(self, plan: PlanView) -> DialogQuestion:
        def act(values: Values, tell: Tell) -> str:
            done = self._client.plans.undo(plan.id, progress=tell).last_apply
            files = len(plan.changes) if done is None else done.files
            return f"undone in {counted(files, 'file')} of {plan.place}"

        lines = [f"Undo in {plan.place}; later edits stay:", *change_lines(plan)]
        return DialogQuestion("Undo the apply?", lines, [DialogChoice("y", "Undo", act)])

    def _revise(self, plan: PlanView) -> DialogQuestion:
        def act(values: Values, tell: Tell) -> str:
            self._client.plans.revise(plan.id, values[_TEXT])
            return "changes requested"

        sent = f"{counted(plan.open_comments, 'open comment')} and your message go to the agent."
        field = DialogField(_TEXT, "Message for the agent (optional with comments)", several_lines=True)
        return DialogQuestion(
            "Request changes?", [sent], [DialogChoice("enter", "Request changes", act)], [field]
        )

    def _continue(self, label: str, act_on: Callable[[str], PlanView], plan: PlanView) -> DialogQuestion:
        def act(values: Values, tell: Tell) -> str:
            now = act_on(plan.id)
            return "the plan continues" if now.needs is None else now.meaning

        steps = [step.text for step in plan.steps if step.action == f"plan.{label.lower()}"]
        lines = [plan.meaning, *([plan.error] if plan.error else []), *steps[:1]]
        return DialogQuestion(f"{label}?", lines, [DialogChoice("y", label, act)])

    def _resolve(self, plan: PlanView) -> DialogQuestion:
        def act(take: Take, values: Values, tell: Tell) -> str:
            return f"resolved; {resolved_by(self._client.plans, plan, take, tell).meaning}"

        choices = [
            DialogChoice("o", "Take the lines of the plan", partial(act, Take.OURS)),
            DialogChoice("t", f"Take the lines of the {other_side(plan)}", partial(act, Take.THEIRS)),
        ]
        lines = blocking_lines(plan)
        if not lines:
            raise PlanError(plan.id, "the plan has no open conflicts")
        return DialogQuestion("Resolve these conflicts?", lines, choices)

    def _pause(self, plan: PlanView) -> DialogQuestion:
        def act(values: Values, tell: Tell) -> str:
            self._client.plans.pause(plan.id)
            return "the plan pauses"

        lines = ["Finished calls stay; the call in progress is made again after a resume."]
        return DialogQuestion("Pause the plan and its sub-plans?", lines, [DialogChoice("y", "Pause", act)])

    def _cancel(self, plan: PlanView) -> DialogQuestion:
        def act(values: Values, tell: Tell) -> str:
            reason = values[_TEXT].strip()
            self._client.plans.cancel(plan.id, reason=reason or CANCELLED)
            return "the plan is cancelled"

        lines = ["Ends the plan, its sub-plans and all their processes. Its result can no longer be applied."]
        field = DialogField(_TEXT, "Reason (optional)")
        return DialogQuestion(
            "Cancel the plan?", lines, [DialogChoice("enter", "Cancel the plan", act)], [field]
        )


def _argument_lines(arguments: object) -> list[str]:
    """Return the arguments of a call, complete, one to a line; a command as a shell would take it."""
    if not isinstance(arguments, Mapping):
        return [f"  {arguments}"]
    return [f"  {name}: {_argument(value)}" for name, value in arguments.items()]


def _argument(value: JsonValue) -> str:
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(one, str) for one in value)
    ):
        return shlex.join(map(str, value))
    return str(value)


def _check_lines(plan: PlanView) -> list[str]:
    return [
        f"check {check.name}: {verdict_text(as_json(check))}{', required' if check.required else ''}"
        for check in plan.checks
    ]


def _limit_fields(limits: LimitsView) -> list[DialogField]:
    return [
        DialogField("max_usd", "Dollars", "" if limits.usd is None else f"{limits.usd:.10g}"),
        DialogField("max_tokens", "Tokens", "" if limits.tokens is None else str(limits.tokens)),
        DialogField("max_steps", "Model calls", "" if limits.steps is None else str(limits.steps)),
        DialogField(
            "timeout", "Time, such as 30m", "" if limits.seconds is None else duration_text(limits.seconds)
        ),
    ]
