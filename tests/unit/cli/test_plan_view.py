"""A plan on the command line, from its view: reasons, next steps, exit codes."""

from __future__ import annotations

from typing import Any

import click
import pytest

from cleveragents.api.plans.views import PlanView
from cleveragents.api.views import view_of
from cleveragents.cli.commands import cli
from cleveragents.cli.plan.exit_codes import exit_code
from cleveragents.cli.plan.view import next_steps, print_changes, print_reason
from tests.scripted_server import plan_account

APPLY = {"action": "plan.apply", "plan": "P1", "options": {}, "text": "apply the result to your files"}


def plan(**more: Any) -> PlanView:
    return view_of(PlanView, plan_account(phase="execute", state="complete") | more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"state": "waiting", "waiting_for": {"for": "leave", "what": "run it?"}}, "waiting: run it?\n"),
        ({"state": "waiting", "waiting_for": None, "meaning": "it waits here"}, "waiting: it waits here\n"),
        ({"state": "errored", "error": "step 1\nno such file"}, "failed: step 1\n  no such file\n"),
        ({"state": "cancelled", "error": "cancelled: enough"}, "cancelled: enough\n"),
        ({"state": "complete"}, ""),
    ],
)
def test_the_reason_is_printed(more: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    print_reason(plan(**more))
    assert capfd.readouterr().err == said


def test_steps_go_the_way_of_the_command() -> None:
    done = plan(steps=[APPLY], resource="/srv/shop")
    with click.Context(cli, info_name="agents") as context:
        context.params = {"server": "local"}
        assert next_steps(done) == [("agents plan apply P1", "apply the result to your files")]
        assert next_steps(done, commit="a b") == [
            ("agents plan apply P1 --commit 'a b'", "apply the result to your files")
        ]
    with click.Context(cli, info_name="agents") as context:
        context.params = {"server": "http://shop.example:8000"}
        assert next_steps(done) == [
            ("agents --server http://shop.example:8000 plan apply P1", "apply the result to /srv/shop")
        ]


def test_files_left_out_of_the_apply_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    lacks = {"parts_left_out": [{"name": "docs", "why": "cancelled"}], "removed_submodules": ["lib"]}
    assert print_changes(plan(ignored=["out.o"], **lacks)) is False
    said = capfd.readouterr().err
    assert said.startswith("nothing was changed\nleft out: docs (cancelled)\n")
    assert "not applied because git ignores them: out.o" in said
    assert "lib was removed, but .gitmodules still names it" in said


CHANGE = {"path": "a", "change": "created", "added": 1, "removed": 0, "before": None, "after": None}
CHECK = {"name": "c", "command": "c", "required": True, "ended": "2026-11-15T12:00:00Z", "details": ""}


@pytest.mark.parametrize(
    ("code", "more"),
    [
        (1, {"state": "errored"}),
        (130, {"state": "cancelled"}),
        (0, {"phase": "apply", "state": "applied"}),
        (75, {"state": "processing"}),
        (75, {"state": "waiting", "needs": None, "waiting_for": {"for": "sub-plans"}}),
        (3, {"state": "waiting", "needs": "approval"}),
        (0, {"changes": []}),
        (3, {"changes": [CHANGE]}),
        (0, {"changes": [CHANGE], "parent": "P0"}),
        (3, {"checks": [CHECK | {"verdict": "failed"}]}),
        (3, {"checks": [CHECK | {"verdict": "passed", "stale": True}]}),
        (0, {"checks": [CHECK | {"verdict": "passed"}]}),
    ],
)
def test_a_plan_ends_a_command_with_its_exit_code(code: int, more: dict[str, Any]) -> None:
    assert exit_code(plan(**more)) == code


def test_a_result_for_review_is_no_question() -> None:
    assert exit_code(plan(changes=[CHANGE]), only_review=True) == 0
