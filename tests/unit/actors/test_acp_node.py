"""Sessions with an ACP agent: requests to the client and own actions are recorded as separate calls under the
plan's policy; an interrupted session starts again with a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cleveragents.actors.model.actor import ProgressKind
from cleveragents.core.actions.model import broken_by
from cleveragents.core.errors import NeedsHuman, ToolRefused
from tests.acp_bench import SessionBench, library_steps, steps
from tests.plan_bench import PlanBench


@pytest.fixture
def bench(plans: PlanBench) -> SessionBench:
    return SessionBench(plans)


def test_client_requests_and_own_actions_are_recorded_as_separate_calls(
    bench: SessionBench,
) -> None:
    said = bench.talk(
        library_steps(
            ("think", "what is there?"),
            ("plan", "look", "write"),
            ("read", "b.txt"),
            ("secretly", "own.txt", "mine\n"),
            ("write", "new.txt", "new\n"),
            ("secretly", "own.txt", "mine, later\n"),
            ("terminal", "echo $GIVEN > made.txt && echo out"),
            ("terminal", "cat", "made.txt"),
            ("ask", "execute", "leave"),
            ("serve", "echo ready; sleep 600"),
            ("direct", "b.txt", "beta\n"),
            ("say", "all done"),
        )
    )
    assert said == "all done"
    assert bench.made() == [
        "acp ended",
        "read ended",
        "acp ended own.txt",
        "write ended new.txt",
        "acp ended own.txt",
        "command ended made.txt",
        "command ended",
        "acp ended",
        "command ended",
        "acp ended b.txt",
    ]
    bench.plans.ensure_consistent(bench.plan)
    assert bench.text("made.txt") == "given\n"
    # In as many pieces as masking produces: the last word is held back while it may be part of a secret.
    assert " ".join(bench.seen(ProgressKind.THINKING)).split() == ["what", "is", "there?"]
    thoughts = [text.strip() for text in bench.seen(ProgressKind.THOUGHT)]
    assert "[ ] look; [ ] write" in thoughts
    assert "read:alpha" in thoughts[1]
    assert "exit:0:out" in thoughts[1]
    assert "leave:allow_once" in thoughts[1]
    assert "ended:SIGTERM" in thoughts[1]
    assert thoughts[-1] == "all done"
    assert "edit b.txt" in bench.seen(ProgressKind.TOOL)
    assert "".join(bench.seen(ProgressKind.PIECE)).strip().endswith("all done")


def test_a_file_is_read_in_parts_and_unfaithful_content_is_refused(
    bench: SessionBench,
) -> None:
    root = bench.sandbox.root
    said = bench.talk(
        steps(
            ("read", "a.txt", 2, 2),
            ("secretly", "long.txt", "x" * 250_000),
            ("read", "long.txt"),
            ("terminal", r"printf '\377\376' > odd.bin"),
            ("read", "odd.bin"),
            ("read", "nowhere.txt"),
        )
    )
    assert "read:two\nthree\n" in said
    assert said.count("refused:") == 3
    assert "too long" in said
    assert "is not UTF-8 text" in said
    assert (root / "odd.bin").read_bytes() == b"\xff\xfe"


def test_concurrent_requests_run_in_order(bench: SessionBench) -> None:
    """An agent that does not wait for answers would lose an edit to an earlier one without noticing."""
    bench.talk(steps(("write_at_once", "new.txt", 40)))
    assert bench.text("new.txt") == "version 39\n"
    written = [call.arguments["content"] for call in bench.calls() if call.tool == "write"]
    assert written == [f"version {number}\n" for number in range(40)]


def test_a_running_command_can_be_read_and_killed_or_ends_with_the_session(
    bench: SessionBench,
) -> None:
    said = bench.talk(
        steps(("serve", "echo ready; sleep 600"), ("leave_running", "echo ready; echo x > y.txt; sleep 600"))
    )
    assert said == "ended:SIGTERM"
    assert bench.made() == ["acp ended", "command ended", "command ended y.txt"]
    outcome = bench.calls()[1].result
    assert isinstance(outcome, Mapping)
    assert outcome["exit_code"] is None


def test_a_command_that_cannot_be_run_says_so_in_its_terminal(bench: SessionBench) -> None:
    said = bench.talk(
        steps(
            ("terminal", "no-such-program"),
        )
    )
    assert said.startswith("exit:126:")
    assert "no-such-program" in said


def test_an_answer_applies_to_the_same_request_of_the_next_session(
    bench: SessionBench,
) -> None:
    request = steps(
        ("secretly", "before.txt", "x"),
        ("ask", "fetch", "look"),
        ("ask", "fetch", "look"),
        ("tell_prompt",),
    )
    with pytest.raises(NeedsHuman, match="needs approval for network"):
        bench.talk(request, policy="supervised")
    assert bench.made() == ["acp failed", "acp asked", "acp ended before.txt"]
    assert bench.calls()[0].error == "stopped to wait for a person"
    bench.answer(granted=True)
    with pytest.raises(NeedsHuman):  # the same action for the second time is another request
        bench.talk(request, policy="supervised")
    bench.answer(granted=False)
    said = bench.talk(request, policy="supervised")
    assert said.startswith("look:allow_once look:reject_once An earlier session")
    assert [call.state.value for call in bench.calls()] == [
        *("failed", "ended", "ended", "failed", "failed", "ended")
    ]
    bench.plans.ensure_consistent(bench.plan)


def test_a_question_that_the_next_session_does_not_ask_is_closed(bench: SessionBench) -> None:
    with pytest.raises(NeedsHuman):
        bench.talk(steps(("ask", "fetch", "look")), policy="supervised")
    assert bench.talk(steps(("say", "without")), policy="supervised") == "without"
    assert bench.made() == ["acp failed", "acp failed", "acp ended"]
    assert bench.calls()[1].error == "the agent continued without it"


def test_approval_to_start_and_for_the_network_is_requested_once(bench: SessionBench) -> None:
    request = steps(("write", "b.txt", "beta\n"), ("write", "b.txt", "gamma\n"))
    asked = []
    for _ in range(3):
        with pytest.raises(NeedsHuman) as needed:
            bench.talk(request, policy="manual", network=True)
        asked.append(str(needed.value))
        bench.answer(granted=True)
    wanted = ["network", "command", "edit"]
    assert [f"approval for {what}" in text for what, text in zip(wanted, asked, strict=True)] == [True] * 3
    with pytest.raises(NeedsHuman):
        bench.talk(request, policy="manual", network=True)
    bench.answer(granted=True)
    assert bench.talk(request, policy="manual", network=True) == ""
    assert bench.text("b.txt") == "gamma\n"
    kinds = [(call.tool, call.approval) for call in bench.calls() if call.approval is not None]
    assert kinds == [("acp", "granted"), ("acp", "granted"), ("write", "granted"), ("write", "granted")]
    bench.plans.ensure_consistent(bench.plan)


def test_a_session_denied_by_policy_is_not_started(bench: SessionBench) -> None:
    with pytest.raises(ToolRefused, match="needs the network"):
        bench.talk(steps(("say", "x")), policy="ci", network=True)
    with pytest.raises(ToolRefused, match="denied by the policy"):
        bench.talk(steps(("say", "x")), policy="review+ci")
    assert bench.made() == ["acp failed", "acp failed"]
    assert bench.told == []


def test_a_denied_session_is_not_started(bench: SessionBench) -> None:
    with pytest.raises(NeedsHuman, match="approval for command"):
        bench.talk(steps(("say", "x")), policy="manual")
    bench.answer(granted=False)
    with pytest.raises(ToolRefused, match="denied by a person"):
        bench.talk(steps(("say", "x")), policy="manual")
    assert bench.made() == ["acp failed"]


@pytest.mark.parametrize("reason", ["max_tokens", "max_turn_requests", "refusal", "cancelled"])
def test_only_a_turn_that_was_ended_is_a_success(bench: SessionBench, reason: str) -> None:
    with pytest.raises(ToolRefused, match="its last message: so far"):
        bench.talk(steps(("say", "so far"), ("stop", reason)))
    assert bench.made() == ["acp failed"]


def test_a_finished_session_is_not_repeated(bench: SessionBench) -> None:
    assert bench.talk(steps(("say", "first")), network=True) == "first"
    assert bench.talk(steps(("say", "second"))) == "first"
    assert bench.made() == ["acp ended"]


def test_a_broken_invariant_is_reverted_and_reported_to_the_agent(bench: SessionBench) -> None:
    invariants = ("never change b.txt",)
    assert broken_by(invariants, ["b.txt"]) is not None
    said = bench.talk(
        steps(
            ("secretly", "b.txt", "beta\n"), ("write", "new.txt", "new\n"), ("write", "new.txt", "newer\n")
        ),
        invariants=invariants,
    )
    assert "reverted" in said
    assert (bench.text("b.txt"), bench.text("new.txt")) == ("alpha\n", "newer\n")
    with pytest.raises(ToolRefused, match="reverted"):
        bench.talk(steps(("secretly", "b.txt", "beta\n")), invariants=invariants, step="2.work.1")
    assert bench.text("b.txt") == "alpha\n"
    bench.plans.ensure_consistent(bench.plan)


def test_an_agent_gets_only_the_named_variables_and_home_files(
    bench: SessionBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent/settings").write_text("mine")
    (tmp_path / ".other").write_text("not for it")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANTED", "given")
    monkeypatch.setenv("UNWANTED", "kept")
    said = bench.talk(
        steps(("environment", "WANTED", "UNWANTED"), ("at_home", ".agent/settings"), ("at_home", ".other")),
        environment=("WANTED",),
        home=(".agent",),
    )
    assert said == "WANTED=given,UNWANTED=None home:mine home:None"


def test_an_isolated_agent_works(plans: PlanBench) -> None:
    bench = SessionBench(plans, isolation="auto")
    said = bench.talk(steps(("secretly", "own.txt", "x"), ("write", "new.txt", "y"), ("say", "done")))
    assert said == "done"
    assert bench.made() == ["acp ended", "acp ended own.txt", "write ended new.txt"]


def test_a_missing_program_is_reported_before_any_approval(bench: SessionBench) -> None:
    request = {"argv": ("no-such-agent",), "prompt": "x", "install": "buy one", "network": True}
    with pytest.raises(ToolRefused, match=r"'no-such-agent' not found on your PATH; install it: buy one$"):
        bench.talk(request, policy="supervised")
    assert bench.made() == []
