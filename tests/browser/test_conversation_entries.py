"""The entries of a plan's conversation: messages, calls, checks and the actions of people, in order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page

NOON = "2026-01-01T12:00:00Z"


def conversation(page: Page, pieces: list[tuple[str, str]], **plan: Any) -> list[Any]:
    """Return each entry of the conversation as its kind and its most telling field."""
    run = """async (given) => {
        const m = await import('/static/js/plan/transcript.js');
        const transcript = new m.Transcript();
        given.pieces.forEach(([kind, text], at) =>
          transcript.add({kind, text, number: at + 1, time: given.noon}));
        return m.conversationOf(transcript, given.plan, given.plan.events ?? []).map((one) => {
          const said = {call: one.call?.number, check: one.verdict}[one.kind] ?? (one.guidance ?? one.text);
          return [one.kind, typeof said === 'string' ? said.trim() : said];
        });
    }"""
    given = {"pieces": [list(one) for one in pieces], "plan": plan, "noon": NOON}
    found: list[Any] = page.evaluate(run, given)
    return found


def thinking(actor: str = "builtin/executor") -> tuple[str, str]:
    return ("node", json.dumps({"actor": actor, "node": "think", "event": "thinking"}))


def called(number: int, tool: str, what: str) -> dict[str, Any]:
    return {"number": number, "tool": tool, "what": what, "state": "ended", "changed": 0, "error": None}


def event(position: int, kind: str, time: str = NOON, **facts: Any) -> dict[str, Any]:
    return {"position": position, "type": kind, "subject": "p", "facts": facts, "time": time}


def test_messages_and_calls_stand_in_the_order_of_the_output(page: Page) -> None:
    pieces = [
        ("progress", "making a sandbox\n"),
        thinking(),
        ("model", "I read "),
        ("model", "the file.\n"),
        ("progress", '  read {"path": "a.py"}\n'),
        thinking(),
        ("model", "Now I change it.\n"),
        ("progress", '  edit {"path": "a.py", "old": "x", "new": "y"}\n'),
    ]
    calls = [called(1, "read", "path=a.py"), called(2, "edit", "path=a.py, old=x, new=y")]
    assert conversation(page, pieces, calls=calls) == [
        ["message", "I read the file."],
        ["call", 1],
        ["message", "Now I change it."],
        ["call", 2],
    ]


def test_no_call_is_missing_or_doubled_if_the_output_does_not_match(page: Page) -> None:
    """Output is bounded and dropped if it comes too fast, and a resumed plan repeats lines."""
    calls = [called(1, "read", "path=a"), called(2, "command", "ls"), called(3, "read", "path=b")]
    pieces = [
        ("progress", '  read {"path": "b"}\n'),
        ("progress", '  read {"path": "b"}\n'),
        ("progress", '  unknown {"path": "c"}\n'),
        ("model", "later"),
    ]
    assert conversation(page, pieces, calls=calls) == [
        ["call", 1],
        ["call", 2],
        ["call", 3],
        ["message", "later"],
    ]
    assert conversation(page, [], calls=calls) == [["call", 1], ["call", 2], ["call", 3]]


def test_the_answer_is_not_shown_twice(page: Page) -> None:
    pieces = [thinking(), ("model", "Done.\n"), thinking("builtin/reviewer"), ("model", "Fine.\n")]
    assert conversation(page, pieces, answer="Done.") == [["message", "Fine."]]
    assert conversation(page, pieces, answer=None) == [["message", "Done."], ["message", "Fine."]]


def test_each_run_of_a_check_has_its_own_verdict(page: Page) -> None:
    checks = [
        {"name": "tests", "command": "sh t.sh", "verdict": "passed", "stale": False, "details": "3 passed"}
    ]
    ended = [event(n, "check.ended", check="tests", verdict=v) for n, v in ((1, "failed"), (2, "passed"))]
    run = ("progress", "check tests: sh t.sh\n")
    found = conversation(page, [run, thinking(), ("model", "I fix it."), run], checks=checks, events=ended)
    assert found == [["check", "failed"], ["message", "I fix it."], ["check", "passed"]]
    assert conversation(page, [], checks=checks, events=ended) == [["check", "passed"]]


def test_guidance_stands_where_a_person_gave_it(page: Page) -> None:
    later = "2026-01-01T12:05:00Z"
    corrected = event(5, "plan.corrected", later, by="admin")
    corrections = [{"number": 1, "created": later, "guidance": "Shorter, please"}]
    found = conversation(page, [("model", "Long.")], corrections=corrections, events=[corrected])
    assert found == [["message", "Long."], ["act", "Shorter, please"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"path": "a", "old": "x\ny\nz\n", "new": "x\nY\nz\n"},
            ["context x", "remove y", "add Y", "context z"],
        ),
        ({"path": "a", "content": "one\ntwo\n"}, ["add one", "add two"]),
        ({"path": "a", "edits": [{"old": "p", "new": "q"}, {"old": "r", "new": ""}]}, None),
        ({"argv": ["ls"]}, []),
        ({"path": "a", "old": 3, "new": None}, []),
    ],
)
def test_the_small_diff_of_a_call_is_made_from_its_arguments(
    page: Page, arguments: dict[str, Any], expected: list[str] | None
) -> None:
    run = """async (given) => { const m = await import('/static/js/plan/call_diff.js');
        return (m.changeOf(given)?.lines ?? []).map((one) => `${one.kind} ${one.text}`); }"""
    assert page.evaluate(run, arguments) == (
        ["remove p", "add q", "remove r"] if expected is None else expected
    )
