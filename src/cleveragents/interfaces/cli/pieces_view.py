"""What plans print that run elsewhere, piece by piece as it is kept, shown as if they ran here."""

from __future__ import annotations

from collections.abc import Iterator

from cleveragents.domain.progress import Progress, ProgressKind
from cleveragents.interfaces.cli.live_view import LiveView, PlainView
from cleveragents.interfaces.cli.output import Output

__all__ = ["PiecesView"]

_SHORT = 6


class PiecesView:
    """Shows a plan and those below it. Not thread-safe: who watches tells it."""

    def __init__(self, plan_id: str, parent_id: str | None, output: Output | None) -> None:
        self.plan_id = plan_id
        self._stream = output is not None and output.format == "stream-json"
        self._views: dict[str, LiveView] = {}
        self._thoughts: dict[str, str] = {}
        self.add(plan_id, parent_id)

    def __iter__(self) -> Iterator[str]:
        """The plans that are shown."""
        return iter(list(self._views))

    def __contains__(self, plan_id: object) -> bool:
        return plan_id in self._views

    def add(self, plan_id: str, parent_id: str | None) -> None:
        """One more is shown, from now on."""
        if plan_id in self._views:
            return
        if self._stream:
            from cleveragents.interfaces.cli.stream_view import StreamView

            self._views[plan_id] = StreamView(plan_id, parent_id=parent_id)
        else:
            prefix = "" if plan_id == self.plan_id else f"{plan_id[-_SHORT:]}  "
            self._views[plan_id] = PlainView(prefix)

    def say(self, message: str) -> None:
        """About the plan itself."""
        self._views[self.plan_id].say(message)

    def show(self, plan_id: str, kind: str, text: str) -> None:
        """A piece of what it printed."""
        view = self._views.get(plan_id)
        if view is None:
            return
        if kind == "model":
            self._thoughts[plan_id] = self._thoughts.get(plan_id, "") + text
            return
        self._end_thought(plan_id)
        if kind == "progress":
            for line in text.splitlines():
                view.say(line)
        elif kind == "output":
            view.output(text.encode("utf-8", "surrogateescape"))

    def close(self) -> None:
        """Nothing more is shown. A second call changes nothing."""
        for plan_id, view in self._views.items():
            self._end_thought(plan_id)
            view.close()

    def _end_thought(self, plan_id: str) -> None:
        """What a model said is shown when it has ended, in a line, as of a plan that runs here."""
        thought = self._thoughts.pop(plan_id, "")
        if thought:
            self._views[plan_id].seen(Progress(ProgressKind.THOUGHT, "", "", thought))
