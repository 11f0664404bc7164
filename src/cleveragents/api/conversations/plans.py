"""The plans of a conversation, for its tools. They use the client of the acting user.

Only these methods of `Plans` are used: `create`, `correct`, `revise`, `get`, `summary` and `diff`. The result
of a plan that a conversation starts always waits for a person, even if the profile allows `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.api.plans.budget import present_limits
from cleveragents.api.plans.details import shown_resource
from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.conversations.model import PlanLink
from cleveragents.conversations.plan_tools import PlanNote
from cleveragents.core.errors import ConversationBudgetExhausted, NotAllowed, ToolRefused, UnknownPlan
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits
from cleveragents.tools.tool_results import cut

if TYPE_CHECKING:
    from cleveragents.api.plans.local import LocalPlans
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.container import Container
    from cleveragents.conversations.model import Conversation
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["LocalConversationPlans", "left_for_plan"]

_START, _CORRECT, _SHOW = "start_plan", "correct_plan", "show_plan"
_MOST_READ = 200
_MOST_LISTED = 50
_MOST_ENDED = 20
_MOST_FILES = 40
_MOST_CHARACTERS = 4_000
_MOST_DIFF = 20_000


class LocalConversationPlans:
    """`ConversationPlans` for one turn. `plans_now` returns the plans with the current rights of the turn's
    author. `told` receives each plan that the turn starts or corrects.
    """

    def __init__(
        self,
        container: Container,
        plans_now: Callable[[], LocalPlans],
        held: Conversation,
        told: Callable[[Progress], None] = lambda seen: None,
    ) -> None:
        self._container = container
        self._plans_now = plans_now
        self._held = held
        self._told = told

    def start(self, goal: str, *, step: str) -> PlanNote:
        claim = self._claim(step, _START, goal)
        held = self._held
        request = PlanRequest(
            goal=goal,
            repository=held.resource,
            resource=held.resource_name,
            model=held.model,
            profile=held.profile,
            limits=Limits() if claim.made is not None else self._limits(),
            apply="review",  # a person reviews what a conversation started
        )
        return self._heard(_START, self._plans_now().create(request, claim=claim))

    def list(self) -> Sequence[PlanNote]:
        found: list[PlanNote] = []
        plans, ended = self._plans_now(), 0
        for plan_id in list(reversed(self._started()))[:_MOST_READ]:
            try:
                note = _note(plans.summary(plan_id))
            except (UnknownPlan, NotAllowed):  # deleted, or moved out of reach
                continue
            if note.status in _ENDED:
                ended += 1
                if ended > _MOST_ENDED:  # guard: old plans that have ended do not displace open ones
                    continue
            found.append(note)
        return found[:_MOST_LISTED]

    def show(self, plan_id: str) -> PlanNote:
        return _note(self._in_repository(plan_id))

    def diff(self, plan_id: str, path: str | None) -> str:
        view = self._in_repository(plan_id)
        found = self._plans_now().diff(view.id)
        files = [file for file in found.files if file.accepted and path in (None, file.path)]
        if path is not None and not files:
            raise ToolRefused(_SHOW, f"plan {view.id} does not change {path}")
        kept = [replace(file, hunks=tuple(one for one in file.hunks if one.accepted)) for file in files]
        note = ["… more files or lines are left out …"] if found.truncated else []
        # guard: masked before the cut, which could leave a part of a secret
        return cut(redact_content_text("\n".join([*map(str, kept), *note])), _MOST_DIFF)

    def correct(self, plan_id: str, message: str, *, step: str) -> PlanNote:
        plans = self._plans_now()
        view = plans.get(plan_id)
        if view.id not in self._started():  # guard: a session changes its own plans only
            raise ToolRefused(_CORRECT, f"this session did not start plan {view.id}; a person can correct it")
        claim = self._claim(step, _CORRECT, view.id, message)
        if claim.made is None and "revise" in view.can:
            return self._heard(_CORRECT, plans.revise(view.id, message, claim=claim))
        return self._heard(_CORRECT, plans.correct(view.id, message, claim=claim))

    def _in_repository(self, plan_id: str) -> PlanView:
        view = self._plans_now().get(plan_id)
        ours = (self._held.project, shown_resource(self._held.resource))
        if (view.project, view.resource) != ours:  # guard: a session is about one repository
            raise UnknownPlan(plan_id)
        return view

    def _heard(self, tool: str, view: PlanView) -> PlanNote:
        self._told(Progress(ProgressKind.PLAN, "", tool, view.id))
        return _note(view)

    def _is_final(self, plan_id: str) -> bool:
        """Return whether the plan can spend nothing more: it is deleted, or has ended and cannot be
        corrected.
        """
        try:
            return self._plans_now().summary(plan_id).status.value in _FINAL
        except UnknownPlan:
            return True
        except NotAllowed:
            return False

    def _started(self) -> Sequence[str]:
        links = self._container.conversations.store.plans_of(self._held.id)
        return [link.plan_id for link in links if link.tool == _START]

    def _claim(self, step: str, tool: str, *arguments: str) -> IdempotencyClaim:
        digest = sha256("\0".join(arguments).encode("utf-8", "surrogatepass")).hexdigest()
        link = PlanLink("", tool, self._held.turns, digest)
        container = self._container
        return container.conversations.store.claim(self._held.held, step, link, now=container.clock.now())

    def _limits(self) -> Limits:
        """Return the limits of one more plan, from the remaining budget of the conversation. Raises
        `ConversationBudgetExhausted`.
        """
        parts = self._container.plan_parts
        budgets = parts.actor_parts.budgets
        own = budgets.view(self._held.id)
        taken = []
        for plan_id in dict.fromkeys(self._started()):  # all of them, also those out of reach of the user
            final = self._is_final(plan_id)
            # A plan has a budget from its first model call on, and its requested limits before.
            limits = BudgetLimits() if final else present_limits(parts, parts.plans.get(plan_id))
            taken.append((limits, budgets.view(plan_id).spent, final))
        left = left_for_plan(
            own.limits,
            (own.spent.picodollars, own.spent.tokens, own.spent.steps),
            [
                (spent.picodollars, spent.tokens, spent.steps)
                if final
                else (limits.picodollars or 0, limits.tokens or 0, limits.steps or 0)
                for limits, spent, final in taken
            ],
        )
        if isinstance(left, str):
            raise ConversationBudgetExhausted(self._held.id, "nothing is left for another plan", left)
        return Limits(
            usd=None if left.picodollars is None else left.picodollars / PICODOLLARS,
            tokens=left.tokens,
            steps=left.steps,
        )


_FINAL = frozenset({"applied", "undone", "discarded", "cancelled"})
"""The statuses of plans that no correction continues."""
_ENDED = _FINAL | {"unchanged", "merged"}
"""The statuses of plans that wait for nothing."""


def left_for_plan(
    limits: BudgetLimits, own: tuple[int, int, int], plans: Sequence[tuple[int, int, int]]
) -> BudgetLimits | str:
    """Return the limits of one more plan: the limits of the conversation, minus the spending of its turns and
    the spending or limits of its plans. The amounts are picodollars, tokens and steps. If nothing
    is left, return the name of the limit: `usd`, `tokens` or `steps`.
    """
    most = {"usd": limits.picodollars, "tokens": limits.tokens, "steps": limits.steps}
    left: list[int | None] = []
    for number, (name, limit) in enumerate(most.items()):
        if limit is None:
            left.append(None)
            continue
        rest = limit - own[number] - sum(amounts[number] for amounts in plans)
        if rest <= 0:
            return name
        left.append(rest)
    return BudgetLimits(*left)


def _note(view: PlanView | PlanSummary) -> PlanNote:
    from cleveragents.api.plans.views import PlanView

    short = PlanNote(
        id=view.id,
        goal=view.goal[:_MOST_CHARACTERS],
        status=view.status.value,
        needs=view.meaning if view.needs is not None else "",
        error=(view.error or "")[:_MOST_CHARACTERS],
    )
    if not isinstance(view, PlanView):
        return short
    return PlanNote(
        id=short.id,
        goal=short.goal,
        status=short.status,
        needs=short.needs,
        error=short.error,
        answer=(view.answer or "")[:_MOST_CHARACTERS],
        files=tuple(
            f"{one.path} ({one.change}, +{one.added or 0} -{one.removed or 0})"
            for one in view.changes[:_MOST_FILES]
        ),
        checks=tuple(
            f"{one.name}: {one.verdict}{' (out of date)' if one.stale else ''}" for one in view.checks
        ),
    )
