"""Plans of a server: jobs that were cancelled or refused, long lists, and a server of 0.1.0."""

from __future__ import annotations

from typing import Any

import pytest

from cleveragents.api.plans.summary import PlanSummary
from cleveragents.api.plans.views import PlanView
from cleveragents.api.views import view_of
from cleveragents.core.errors import (
    ApplyConflict,
    ApplyRefused,
    CheckFailed,
    CleverAgentsError,
    NotAllowed,
    PlanError,
    StalePlan,
)
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.errors.families import code_of
from cleveragents.plans.model.plan import PlanState
from tests.scripted_server import (
    MOMENT,
    Reply,
    client_of,
    job_row,
    plan_account,
    plan_row,
)


@pytest.mark.parametrize("ended", ["apply", "undo"])
def test_a_cancelled_job_is_no_success(ended: str) -> None:
    def answer(method: str, path: str, _: dict[str, list[str]]) -> Reply:
        if method == "POST" or path.startswith("/jobs/"):
            return 200, job_row("cancelled", cancel_reason="changed my mind")
        return 200, plan_account()

    with client_of(answer) as client, pytest.raises(PlanError) as caught:
        getattr(client.plans, ended)("01A")
    assert caught.value.reason == "cancelled: changed my mind"


@pytest.mark.parametrize(
    ("error", "exits"),
    [
        (ApplyConflict("01A", ("a.txt",)), 3),
        (CheckFailed("01A", "tests", "did not pass"), 3),
        (StalePlan("01A", 7), 75),
        (NotAllowed("ann", "viewer", "operator"), 1),
    ],
)
def test_a_job_that_was_refused_raises_the_error_of_the_server(error: CleverAgentsError, exits: int) -> None:
    caught = _refused({"code": code_of(error), "facts": facts_of(error)}, str(error))
    assert (type(caught), str(caught), caught.exit_code) == (type(error), str(error), exits)


@pytest.mark.parametrize("result", [None, {"code": "apply-conflict"}])
def test_a_refused_job_without_facts_says_its_plan_once(result: dict[str, Any] | None) -> None:
    assert str(_refused(result, "plan 01A: so it is")) == "plan 01A: so it is"


def test_a_refused_apply_of_an_older_server_needs_a_person_if_the_plan_is_blocked() -> None:
    caught = _refused(None, "plan 01A: not applied: a.txt conflicts", phase="apply", state="constrained")
    assert (type(caught), caught.exit_code) == (ApplyRefused, 3)
    assert str(caught) == "plan 01A was not applied: a.txt conflicts; nothing was changed"


def test_the_last_lines_of_an_apply_are_read_before_it_counts_as_done() -> None:
    """More output than one answer holds arrived with the end of the job."""
    pieces = [
        {"plan_id": "01A", "number": number, "kind": "progress", "text": f"line {number}\n", "time": MOMENT}
        for number in range(1, 6)
    ]

    def answer(method: str, path: str, query: dict[str, list[str]]) -> Reply:
        if path.endswith("/output"):
            after = int(query.get("after", ["0"])[0])
            found = pieces[after : after + 2] if begun else []
            return 200, {"items": found, "next": None}
        if method == "POST" or path.startswith("/jobs/"):
            begun.append(True)
            return 200, job_row("succeeded")
        return 200, plan_account()

    begun: list[bool] = []
    said: list[str] = []
    with client_of(answer) as client:
        client.plans.apply("01A", progress=said.append)
    assert said == [f"line {number}" for number in range(1, 6)]


def _refused(result: dict[str, Any] | None, said: str, **plan: str) -> CleverAgentsError:
    def answer(method: str, path: str, _: dict[str, list[str]]) -> Reply:
        if method == "POST" or path.startswith("/jobs/"):
            return 200, job_row("failed", error=said, result=result)
        return 200, plan_account(**plan)

    with client_of(answer) as client, pytest.raises(CleverAgentsError) as caught:
        client.plans.apply("01A")
    return caught.value


@pytest.mark.parametrize(
    ("phase", "state", "needs", "rests"),
    [
        ("execute", "complete", "review", True),
        ("execute", "processing", None, False),
        ("strategize", "complete", None, False),
        ("execute", "waiting", None, False),
        ("execute", "waiting", "approval", True),
        ("apply", "applied", None, True),
    ],
)
def test_a_plan_of_an_older_server_is_read(phase: str, state: str, needs: str | None, rests: bool) -> None:
    said = {"phase": phase, "state": state, "needs": needs}
    assert view_of(PlanSummary, plan_row(**said)).at_rest is rests
    shown = view_of(PlanView, plan_account(**said))
    assert (shown.at_rest, shown.steps) == (rests, ())


@pytest.mark.parametrize(("verdict", "held"), [("failed", True), ("passed", False)])
def test_a_result_of_an_older_server_that_its_reviewer_rejects_is_held_back(verdict: str, held: bool) -> None:
    review = {"name": "review", "command": "", "verdict": verdict, "required": True, "details": ""}
    said = plan_account() | {"checks": [{**review, "ended": "2026-01-01T12:00:00Z"}]}
    assert bool(view_of(PlanView, said).held_back) is held


def test_an_older_server_has_no_summaries() -> None:
    def answer(_: str, path: str, query: dict[str, list[str]]) -> Reply:
        if path.endswith("/summary"):
            return 404, {"code": "not-found", "detail": "there is nothing at this address"}
        if path.endswith("/output"):
            return 200, {"items": [], "next": None}
        return 200, plan_account()

    with client_of(answer) as client:
        assert client.plans.summary("01A") == view_of(PlanSummary, plan_row(at_rest=True))
        assert client.plans.wait("01A", timeout=5).state is PlanState.COMPLETE
        assert list(client.plans.watch("01A")) == []


def test_an_older_server_shows_conflicts_with_the_plan_and_whole_patches() -> None:
    conflict = {"path": "a", "kind": "modify/delete", "sub_plan": "01B", "marked": False, "base": None}
    sides = {"ours": {"mode": "100644", "content": "9f"}, "theirs": None}
    patch = b"diff --git a/a b/a\n+1\ndiff --git a/b b/b\n+2\n"

    def answer(_: str, path: str, query: dict[str, list[str]]) -> Reply:
        if path.endswith("/conflicts"):
            return 404, {"code": "not-found", "detail": "there is nothing at this address"}
        if path.endswith("/diff"):
            return 200, patch
        return 200, plan_account() | {"conflicts": [conflict | sides]}

    with client_of(answer) as client:
        (found,) = client.plans.conflicts("01A").items
        assert (found.path, found.ours.what, found.theirs.what) == ("a", "a file", "no file")
        assert (found.ours.content, found.title) == ("9f", "01B")
        assert client.plans.patch("01A", paths=["b"]) == b"diff --git a/b b/b\n+2\n"


def test_long_lists_are_asked_for_in_pieces() -> None:
    limits: list[int] = []

    def answer(_: str, path: str, query: dict[str, list[str]]) -> Reply:
        limit, after = int(query["limit"][0]), int(query.get("after", ["0"])[0])
        limits.append(limit)
        assert limit <= 1000
        numbers = range(after + 1, after + limit + 1)
        if path.endswith("/output"):
            piece = {"plan_id": "01A", "kind": "output", "text": "", "time": MOMENT}
            return 200, {"items": [{**piece, "number": number} for number in numbers], "next": numbers[-1]}
        node: dict[str, Any] = {
            "kind": "correction",
            "decision": None,
            "superseded": [],
            "guidance": "",
            "created": MOMENT,
        }
        node |= {"by_itself": False, "outcome": None}
        return 200, {"items": [{**node, "number": number} for number in numbers], "next": str(numbers[-1])}

    with client_of(answer) as client:
        assert [piece.number for piece in client.plans.output("01A", limit=1500)] == [*range(1, 1501)]
        page = client.plans.decisions("01A", limit=1500)
        assert (len(page.items), page.next) == (1500, "1500")
    assert limits == [1000, 500, 1000, 500]
