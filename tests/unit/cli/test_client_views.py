"""What a server tells of plans, as the views of the command line show it, and in the command line's words."""

from __future__ import annotations

from typing import Any

import pytest

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.api.client import HttpClient
from cleveragents.api.plans.views import PlanView
from cleveragents.api.transport import HttpTransport
from cleveragents.api.views import view_of
from cleveragents.cli.commands import cli
from cleveragents.cli.output import Output
from cleveragents.cli.plan.meter import ViewMeter, plan_of
from cleveragents.cli.plan.view import printed_at_end
from cleveragents.cli.render.output_view import PlanOutputView
from cleveragents.cli.render.rich_view import RichView
from cleveragents.cli.servers import refused_fields
from cleveragents.core.errors import NotAuthenticated, ServerUnreachable
from cleveragents.plans.model.plan import Plan, PlanState
from tests.unit.cli.test_rich_view import Screen

NOBODY = "http://127.0.0.1:9"


def shown(name: str, *, parent: str | None = None, tokens: int = 0, **more: Any) -> PlanView:
    moment = "2026-11-15T12:00:00Z"
    limits = {"usd": 0.5, "tokens": None, "steps": None, "seconds": None}
    spending = {"model_calls": 1, "tokens": tokens, "usd": 0.25, "limits": limits}
    known = {"goal": "Say color", "action": "builtin/goal", "phase": "execute", "state": "processing"}
    times = {"created": moment, "updated": moment, "resource": "/srv/shop", "request": {"name": "a part"}}
    tree = {"parent": parent, "root": parent or name, "depth": 0 if parent is None else 1}
    said = {"id": name, "spending": spending, **known, **times, **tree, **more}
    lists = dict.fromkeys(_LISTS, ())
    return view_of(PlanView, {**dict.fromkeys(_NOTHING), **lists, **_COUNTS, **said})


_NOTHING = (
    *("branch", "error", "in_the_way", "isolation", "job", "needs", "out_of_reach", "project"),
    *("resource_name", "review_problem", "sandbox", "waiting_for"),
)
_LISTS = (
    *("calls", "can", "changes", "checks", "conflicts", "corrections", "ignored", "left_out"),
    *("nested_repositories", "next_steps", "notes", "parts_left_out", "renames", "sub_plans"),
)
_COUNTS = {"files_changed": 0, "sub_plans_done": 0, "meaning": "execute/processing"}


class Board:
    """What a board and its views are told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def view_of(self, plan: Plan) -> Board:
        return self

    def say(self, message: str) -> None:
        self.told.append(("say", message))

    def seen(self, seen: Progress) -> None:
        self.told.append((seen.kind.value, (seen.actor, seen.node, seen.text, seen.failed)))

    def output(self, chunk: bytes) -> None:
        self.told.append(("output", chunk))

    def close(self) -> None:
        self.told.append(("close", None))


def test_recorded_pieces_look_as_on_the_server() -> None:
    board = Board()
    view = PlanOutputView(board, plan_of(shown("A")))
    for kind, text in (
        ("node", '{"actor": "builtin/executor", "node": "think"}'),
        ("model", "I will "),
        ("model", "edit it."),
        ("progress", "  edit a.txt\n    it failed: no such line\nstep 1 of 2: do it\n"),
        ("output", "1 passed\n"),
        ("nonsense", "of a newer server"),
        ("node", '{"actor": "builtin/executor", "node": "think", "event": "thinking", "text": "a/model"}'),
        ("node", '{"actor": "builtin/executor", "node": "think", "event": "tool", "tool": "edit"}'),
        ("progress", "  edit a.txt\n"),
        ("node", '{"actor": "builtin/executor", "broken by a mask'),
        ("node", '{"actor": "builtin/executor", "node": "think", "event": "tool_done", "text": "ok"}'),
        ("node", '{"actor": "builtin/executor", "node": "think", "event": "of a newer server"}'),
        ("model", "Done.\n"),
        ("model", "\n"),
    ):
        view.show("A", kind, text)
    view.show("nobody", "output", "lost")
    view.close()
    at = ("builtin/executor", "think")
    assert board.told == [
        ("node", (*at, "", False)),
        ("thinking", (*at, "", False)),
        ("piece", (*at, "I will ", False)),
        ("piece", (*at, "edit it.", False)),
        ("thought", (*at, "I will edit it.", False)),
        ("tool", (*at, "edit a.txt", False)),
        ("tool_done", (*at, "no such line", True)),
        ("say", "step 1 of 2: do it"),
        ("output", b"1 passed\n"),
        ("thinking", (*at, "a/model", False)),
        ("thought", (*at, "", False)),
        ("tool", (*at, "edit a.txt", False)),
        ("tool_done", (*at, "ok", False)),
        ("thinking", (*at, "", False)),
        ("piece", (*at, "Done.", False)),
        ("piece", (*at, "\n", False)),
        ("thought", (*at, "Done.\n", False)),
        ("close", None),
    ]
    assert ProgressKind("tool_done") is ProgressKind.TOOL_DONE


def test_on_a_terminal_a_served_plan_is_drawn_live_and_nothing_of_the_drawing_stays() -> None:
    screen = Screen(100)
    meter = ViewMeter(shown("01M7FAFVRNZ56XTRRK66P37001", tokens=10))
    rich = RichView(meter, hint="Ctrl-C pauses it", stream=screen, size=screen.size, clock=lambda: 100.0)

    class OneView(Board):
        def view_of(self, plan: Plan) -> Any:
            return rich

        def close(self) -> None:
            rich.close()

    view = PlanOutputView(OneView(), meter.last.plan)
    at = '{"actor": "builtin/executor", "node": "think"'
    pieces = [
        ("progress", "step 1 of 2: look\n"),
        ("node", f"{at}}}"),
        ("node", f'{at}, "event": "thinking", "text": "a/model"}}'),
        ("model", "Let me look at it. "),
    ]
    for kind, text in pieces:
        view.show(meter.last.plan.id, kind, text)
    meter.take(shown(meter.last.plan.id, tokens=1234))
    rich.draw()
    drawn = screen.text.splitlines()
    assert drawn[0] == "step 1 of 2: look"
    assert drawn[1].startswith("── running · step 1 of 2: look ─")
    assert drawn[2].endswith("executor is thinking (a/model)")
    assert drawn[3:] == [
        "  Let me look at it.",
        "1,234 tokens · $0.2500 of $0.5000 · 0:00 · Ctrl-C pauses it",
    ]
    view.show(meter.last.plan.id, "progress", "  read a.py\n")
    view.close()
    assert screen.text.splitlines() == ["step 1 of 2: look", "  “Let me look at it.”", "  read a.py"]


def test_a_meter_knows_the_tree_from_views_and_events() -> None:
    meter = ViewMeter(shown("A", tokens=10))
    meter.take(shown("B", parent="A", tokens=5))
    meter.hear("plan.moved", "B", {"phase": "execute", "state": "complete"})
    meter.hear("model_call.ended", "B", {"tokens": 7})
    meter.hear("model_call.ended", "A", {"tokens": 7})  # asked for instead, with its price
    meter.hear("plan.moved", "elsewhere", {"phase": "execute", "state": "complete"})
    (part,) = meter.below
    assert (part.plan.state, part.spent.tokens, meter.read().spent.tokens) == (PlanState.COMPLETE, 12, 10)
    assert (meter.last.spent.picodollars, meter.last.limits.picodollars) == (25 * 10**10, 5 * 10**11)
    meter.take(shown("A", tokens=30, state="complete", spending=_unspent()))
    assert (meter.last.plan.state, meter.last.limits.picodollars) == (PlanState.COMPLETE, None)


def _unspent() -> dict[str, Any]:
    return {"model_calls": None, "tokens": None, "usd": None, "limits": None}


def test_refused_fields_are_called_as_options() -> None:
    errors = [
        {"where": ["body", "limits", "usd"], "problem": "Input should be greater than 0"},
        {"where": ["body", "checks", "3"], "problem": "String should match pattern '\\S'"},
        {"where": ["body", "unheard", "of"], "problem": "Value error, a text has no NUL in it"},
        {"where": [], "problem": "Field required"},
    ]
    assert refused_fields(errors) == (
        "--max-usd: should be greater than 0; --check: has an invalid format; "
        "unheard.of: a text has no NUL in it; the request: field required"
    )
    assert [refused_fields(nothing) for nothing in (None, [], "words", [1])] == [None] * 4


@pytest.mark.parametrize(
    ("lost", "again"),
    [
        (ServerUnreachable(NOBODY, "it is gone"), "the server answers"),
        (NotAuthenticated("log in"), "you have logged in again"),
    ],
)
def test_a_lost_server_prints_how_to_follow_the_plan(
    capsys: pytest.CaptureFixture[str], lost: Exception, again: str
) -> None:
    with (
        cli.make_context("agents", ["--server", NOBODY, "plan"]),
        HttpClient(HttpTransport(NOBODY, None)) as client,
        pytest.raises(type(lost)),
        printed_at_end(client, Output("plain"), "01A"),
    ):
        raise lost
    said = " ".join(capsys.readouterr().err.split())
    watch = f"agents --server {NOBODY} plan watch 01A"
    assert said == f"the plan continues without this connection; once {again}, follow it with `{watch}`"
