"""Screens of one plan that read it again when it changes, and ask before each action."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from cleveragents.cli.terminal_app.client_screen import ClientScreen, error_lines
from cleveragents.cli.terminal_app.dialogs import ActionDialog, DialogQuestion, Done, RefusedAction, Values
from cleveragents.cli.terminal_app.events import call_after
from cleveragents.cli.terminal_app.plan_actions import PlanActions
from cleveragents.core.errors import ResultChanged

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.views import PlanView
    from cleveragents.cli.terminal_app.messages import PlanChanged

__all__ = ["ActionScreen"]

_REST_SECONDS = 0.2
"""The time between two readings: a plan may change a thousand times a second."""

_Facts = TypeVar("_Facts")
_Result = TypeVar("_Result")


class ActionScreen(ClientScreen[None], Generic[_Facts]):
    """A screen of one plan. `plan_id` may be an unambiguous part of the id; `plan` is None until the first
    reading.
    """

    def __init__(self, client: Client, plan_id: str) -> None:
        super().__init__()
        self.client = client
        self.plan: PlanView | None = None
        self.seen: str | None = None
        """The tree of the diff that was shown last; None if no diff was shown."""
        self._named = plan_id
        self._loading = self._again = self._asking = False
        self._then: list[Callable[[], object]] = []
        self._due: list[Callable[[], object]] = []

    @property
    def plan_id(self) -> str:
        """The id of the plan."""
        return self._named if self.plan is None else self.plan.id

    @property
    def actions(self) -> PlanActions:
        """The actions on the plan."""
        return PlanActions(self.client, self.plan_id, self.seen)

    def read(self) -> _Facts:
        """Read the plan. Runs in a worker thread."""
        raise NotImplementedError

    def show(self, facts: _Facts) -> None:
        """Show the plan, and set `plan`."""
        raise NotImplementedError

    def show_changed(self) -> None:
        """Show the result that replaced the one that was seen."""
        self.reload()

    def show_unread(self) -> None:
        """Show that the plan cannot be read, after the error was shown as a notice."""

    def on_mount(self) -> None:
        self.reload()

    def on_screen_resume(self) -> None:
        if self.plan is not None:
            self.reload()

    def on_plan_changed(self, event: PlanChanged) -> None:
        if event.plan_id == self.plan_id:
            self.reload()

    def reload(self, then: Callable[[], object] | None = None) -> None:
        """Read the plan again, then call `then`. Requests during a reading, and shortly after it, are served
        by one more reading.
        """
        self._then += [] if then is None else [then]
        if self._loading:
            self._again = True
            return
        self._loading = True
        self._due, self._then = self._then, []
        self.call(self.read, self._was_read, self._was_not_read)

    def offers(self, name: str) -> bool:
        """Return whether the API offers the action for the plan."""
        return self.plan is not None and name in self.plan.can

    def action_back(self) -> None:
        self.dismiss()

    def ask(self, name: str, values: Values | None = None, problem: str = "") -> None:
        """Open the dialog of an action, for the plan as it is now. While the dialog opens, further requests
        are ignored.
        """
        if not self._asking:
            opened = partial(self.open, name=name, values=values, problem=problem)
            self.prepare(partial(self.actions.question, name), opened)

    def prepare(self, act: Callable[[], _Result], done: Callable[[_Result], object]) -> None:
        """Read the data of a dialog, then open the dialog with `done`."""
        self._asking = True
        self.call(act, partial(self._prepared, done), self._not_prepared)

    def open(
        self, question: DialogQuestion, name: str, values: Values | None = None, problem: str = ""
    ) -> None:
        """Open a dialog with this question. `name` is the action."""
        self.app.push_screen(ActionDialog(question, values, problem), partial(self._answered, name))

    def _prepared(self, done: Callable[[_Result], object], result: _Result) -> None:
        self._asking = False
        done(result)

    def _not_prepared(self, error: Exception) -> None:
        self._asking = False
        self._refused(error)

    def _refused(self, error: Exception) -> None:
        self.report(error)
        if isinstance(error, ResultChanged):
            self.show_changed()
        else:
            self.reload()

    def _was_read(self, facts: _Facts) -> None:
        self.show(facts)
        self.refresh_bindings()
        self._reading_ended()

    def _was_not_read(self, error: Exception) -> None:
        self.report(error)
        self.show_unread()
        self._reading_ended()

    def _reading_ended(self) -> None:
        call_after(self, _REST_SECONDS, self._rested)
        for act in self._due:
            act()

    def _rested(self) -> None:
        self._loading = False
        if self._again:
            self._again = False
            self.reload()

    def _answered(self, name: str, outcome: Done | RefusedAction | None) -> None:
        if isinstance(outcome, RefusedAction) and isinstance(outcome.error, ResultChanged):
            self._refused(outcome.error)  # guard: the new result is seen before the next question
        elif isinstance(outcome, RefusedAction):
            self.report(outcome.error)
            self.reload(partial(self._ask_again, name, outcome))
        elif isinstance(outcome, Done):
            self.inform(outcome.message)
            self.reload()

    def _ask_again(self, name: str, refused: RefusedAction) -> None:
        """Ask about the plan as it is now, if it still offers the action. The typed text stays."""
        if self.offers(name):
            self.ask(name, refused.values, "\n".join(error_lines(refused.error, self.prefix)))
