"""`agents run` with goals: several at once, what is asked of nobody, what is left, which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cleveragents.api.client import LocalClient
from cleveragents.app.container import Container
from cleveragents.cli.plan.meter import PlanMeter, spending_label
from cleveragents.cli.plan.show import spending_text
from cleveragents.config.loader import load_configuration
from cleveragents.models.model.budget import Spend
from tests import fork_server
from tests.cli_bench import COMMAND, Agents, git, paint_shop, use_home
from tests.processes import lives

pytestmark = pytest.mark.usefixtures("commands_are_forked")
STRATEGY = {
    "summary": "One step does it.",
    "decisions": [{"question": "Where?", "choice": "README.md", "rationale": "it is the only place"}],
    "steps": [{"title": "Do it", "instructions": "as the goal says"}],
}
REVIEW = {"verdict": "accept", "findings": [], "summary": "It does what was asked."}


def rule(when: dict[str, object], **reply: object) -> dict[str, object]:
    return {"when": when, "reply": reply}


def edit(old: str, new: str) -> list[dict[str, object]]:
    return [{"tool": "edit", "arguments": {"path": "README.md", "old": old, "new": new}}]


SCRIPT = {
    "facts": {"input_price": 1.0, "output_price": 2.0},
    "rules": [
        rule({"offered": "edit", "first_user": "Spell colour", "turn": 0}, calls=edit("colour", "color")),
        rule({"offered": "edit", "first_user": "Shout", "turn": 0}, calls=edit("colour", "COLOUR")),
        rule({"offered": "edit", "first_user": "Break", "turn": 0}, fault={"status": 400}),
        rule({"offered": "edit", "first_user": "Wait", "turn": 0}, fault={"hang": True}),
        rule({"offered": "edit"}, text="Done."),
        rule({"system": "^You review"}, text=json.dumps(REVIEW)),
        rule({}, text=json.dumps(STRATEGY)),
    ],
}


@pytest.fixture
def repository(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, state)
    script = tmp_path / "model.yaml"
    script.write_text(yaml.safe_dump(SCRIPT))
    monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", f"scripted/{script}")
    root = paint_shop(tmp_path / "repository")
    monkeypatch.chdir(root)
    return root


def goals(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "goals.txt"
    file.write_text("\n".join(lines))
    return str(file)


# ── What comes of them ────────────────────────────────────────────────────────────────────────────


def test_goals_are_reached_at_once_and_applied_in_order(
    agents: Agents, repository: Path, tmp_path: Path
) -> None:
    file = goals(tmp_path, "# a list", "Spell colour the other way", "", "  Look around", "Shout it")
    ran = agents("run", "-f", file, "--parallel", "3", "--yes", "--format", "json")
    told = json.loads(ran.out)
    assert [plan["goal"] for plan in told] == ["Spell colour the other way", "Look around", "Shout it"]
    assert [plan["state"] for plan in told] == ["applied", "complete", "constrained"]
    assert ran.code == 3  # the third wants to change the very line that the first has changed
    assert (repository / "README.md").read_text() == "The color of it.\n"
    assert told[0]["spending"]["model_calls"] > 2
    shorts = {plan["id"][-6:] for plan in told}
    assert {line.split()[0] for line in ran.err.splitlines() if "step 1 of 1: Do it" in line} == shorts
    assert f"agents plan apply {told[2]['id']}" in ran.err
    assert f"plan {told[2]['id']} needs you: Shout it" in ran.err
    assert ran.err.count("`agents plan review`") == 1


def test_an_invariant_option_is_enforced_and_printed(agents: Agents, repository: Path) -> None:
    rules = ("--invariant", "Never touch the README.md file", "--invariant", "be kind")
    ran = agents("run", "Spell colour the other way", "--yes", *rules)
    assert "invariant, enforced: README.md may not be changed (Never touch the README.md file)" in ran.err
    assert "invariant, not enforced, only part of the actors' prompt (be kind)" in ran.err
    assert git(repository, "status", "--short") == ""
    refused = agents("plan", "log", ran.id, "--format", "json").out
    assert "an invariant forbids: Never touch the README.md file" in refused
    assert agents("run", "Shout it", "--invariant", " ").code == 2


def test_a_check_that_names_no_command_is_no_check(agents: Agents, tmp_path: Path) -> None:
    together = tmp_path / "together.yaml"
    together.write_text("goals: [{name: one, goal: Shout it}]\n")
    for asked in (("Shout it",), ("-f", goals(tmp_path, "Shout it")), ("-f", str(together))):
        refused = agents("run", *asked, "--check", " ")
        assert (refused.code, refused.err.count("a check is a command, such as `pytest -q`")) == (2, 1)


def test_without_yes_results_are_listed_for_review(agents: Agents, repository: Path, tmp_path: Path) -> None:
    file = goals(tmp_path, "Spell colour the other way", "Shout it")
    ran = agents("run", "-f", file)
    assert ran.code == 3
    assert git(repository, "status", "--short") == ""
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == ["plan", "status", "files", "tokens", "goal"]
    assert [row[1] for row in rows[1:]] == ["ready:"] * 2
    assert ran.err.count("agents plan apply") == 2
    # Where there is nothing to say below it, there is no heading.
    said = ran.err.splitlines()
    headings = [line for line in said if line.startswith("plan ") and " needs you: " not in line]
    assert headings == []
    ran = agents("run", "-f", file, "--yes")
    said = ran.err.splitlines()
    heading = next(place for place, line in enumerate(said) if line.startswith("plan "))
    assert said[heading + 1].startswith("applied to 1 file")


def test_a_failed_plan_does_not_keep_others_from_being_applied(
    agents: Agents, repository: Path, tmp_path: Path
) -> None:
    file = goals(tmp_path, "Break it", "Spell colour the other way")
    ran = agents("run", "-f", file, "--yes", "--format", "stream-json")
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert [record["state"] for record in events[-2:]] == ["errored", "applied"]
    assert {event["plan"] for event in events[:-2]} == {record["id"] for record in events[-2:]}
    assert {"say", "node", "thinking", "thought", "tool", "tool_done"} <= {e.get("event") for e in events}
    assert ran.code == 1
    assert f"agents plan resume {events[-2]['id']}" in ran.err
    assert (repository / "README.md").read_text() == "The color of it.\n"


def test_review_applies_nothing_and_exits_with_0(repository: Path) -> None:
    ran = piped(repository, "Spell colour the other way\n# no more\n", "run", "-f", "-", "--review")
    assert ran.returncode == 0, ran.stderr
    assert "ready: the result is ready for review" in ran.stdout
    assert git(repository, "status", "--short") == ""


def piped(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cleveragents", *arguments]
    return subprocess.CompletedProcess(command, *fork_server.ran(command, text, cwd=directory, timeout=120))


# ── What is wrong with the request ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["-f", "missing.txt"], "cannot read the goals in 'missing.txt': No such file or directory"),
        (["-f", "src"], "cannot read the goals in 'src': Is a directory"),
        (["-f", "latin.txt"], "not UTF-8 text (byte 2)"),
        (["-f", "empty.txt"], "no goals in empty.txt"),
        (["-f", "dash.txt"], "is only a dash"),
        (["-f", "many.txt"], "too many goals in many.txt: 1,001"),
        (["-f", "-"], "no goals in stdin"),
        (["-f", "yaml.txt"], "rename it to yaml.txt.yaml"),
        (["-f", "json.txt"], "rename it to json.txt.yaml"),
        (["-f", "broken.txt"], "rename it to broken.txt.yaml"),
        (["-f", "one.txt", "and words"], "cannot be combined with a goal or an action"),
        (["-f", "one.txt", "--action", "builtin/command"], "cannot be combined with a goal or an action"),
        (["-f", "one.txt", "--commit", "Do it"], "--commit needs a single goal"),
        (["-f", "one.txt", "--yes", "--review"], "not both"),
    ],
)
def test_a_list_that_cannot_be_right_is_refused_before_a_plan_is_made(
    agents: Agents, repository: Path, options: list[str], problem: str
) -> None:
    contents = {"latin": b"Gr\xfc\xdfe", "empty": b"# nothing\n\n", "dash": b"-\n", "one": b"a goal\n"}
    contents["yaml"] = b"# all\ngoal: Ship\ngoals:\n  - name: a\n    goal: b\n"
    contents["json"] = b'{"goals": [{"name": "a", "goal": "b"}]}\n'
    contents["broken"] = b"goals:  # of today\n- name: a\n   goal: 'b\n"
    for name, content in {**contents, "many": b"a goal\n" * 1001}.items():
        (repository / f"{name}.txt").write_bytes(content)
    before = agents("plan", "list", "--format", "json").out
    ran = agents("run", *options)
    assert ran.code == 2
    assert problem in ran.err
    assert agents("plan", "list", "--format", "json").out == before


# ── Interrupted ───────────────────────────────────────────────────────────────────────────────────


def answered(
    directory: Path, words: list[tuple[str, int]], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """A command that gets signals when it says certain words."""
    command = [sys.executable, "-m", "tests.signal_responder", json.dumps(words), *arguments]
    return subprocess.CompletedProcess(command, *fork_server.ran(command, cwd=directory, timeout=120))


def test_an_interrupt_pauses_all_of_them(agents: Agents, repository: Path, tmp_path: Path) -> None:
    file = goals(tmp_path, "Wait for the plan", "Wait for ever", "Wait in the queue")
    words = [("step 1 of 1: Do it", int(signal.SIGINT))]
    ran = answered(repository, words, "run", "-f", file, "--parallel", "2", "--format", "json")
    assert ran.returncode == 130, ran.stderr
    assert [plan["status"] for plan in json.loads(ran.stdout)] == ["paused"] * 3
    assert "interrupted: pausing 3 plans" in ran.stderr
    assert ran.stderr.count("agents plan resume") == 3


def test_an_interrupted_plan_resumes_and_repeats_only_the_call_in_progress(
    agents: Agents, repository: Path
) -> None:
    script = "echo x >> made.txt; echo begun; test -e .git/begun || { touch .git/begun; sleep 1000; }"
    settings = ("--set", "sandbox.isolation=off")
    ran = answered(repository, [("^  begun", int(signal.SIGINT))], *settings, *COMMAND, "sh", "-c", script)
    plan_id = ran.stderr.split()[1].rstrip(":")
    assert ran.returncode == 130, ran.stderr
    assert f"plan {plan_id} is paused" in ran.stderr
    assert f"agents plan resume {plan_id}" in ran.stderr
    told = json.loads(agents("plan", "show", plan_id, "--format", "json").out)
    assert (told["status"], told["needs"]) == ("paused", None)
    assert {"resume", "cancel"} <= set(told["can"])
    again = agents("plan", "pause", plan_id)
    assert (again.code, "is already paused; nothing changed" in again.err) == (0, True)
    assert agents(*settings, "plan", "resume", plan_id).code == 3
    agents("plan", "apply", plan_id)
    assert (repository / "made.txt").read_text() == "x\n"
    assert agents("plan", "pause", plan_id).code == 2


def test_sigterm_leaves_plans_resumable(agents: Agents, repository: Path, tmp_path: Path) -> None:
    file = goals(tmp_path, "Wait for the plan", "Wait in the queue")
    words = [("step 1 of 1: Do it", int(signal.SIGTERM))]
    ran = answered(repository, words, "run", "-f", file, "--parallel", "1", "--format", "stream-json")
    assert ran.returncode == 143, ran.stderr
    assert ran.stderr.count("agents plan resume") == 2
    plans = json.loads(agents("plan", "list", "--here", "--format", "json").out)
    assert {plan["state"]: plan["error"] for plan in plans} == {"processing": None, "queued": None}
    for plan in plans:
        assert agents("plan", "cancel", plan["id"]).code == 0


def test_further_interrupts_kill_at_once_and_lose_nothing(
    agents: Agents, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second kills the processes, and a third changes nothing that is recorded."""
    often = ("^  begun", "interrupted: pausing", "interrupted again")
    words = [(word, int(signal.SIGINT)) for word in often]
    marker = f"1000.{os.getpid()}"
    script = f"trap '' TERM INT; echo half > half.txt; echo begun; sleep {marker} & sleep {marker}"
    places = tmp_path / "places"
    places.mkdir()
    monkeypatch.setenv("TMPDIR", str(places))
    settings = ("--set", "sandbox.isolation=off", "--set", "worker.cancel_grace_seconds=60")
    ran = answered(repository, words, *settings, *COMMAND, "sh", "-c", script)
    plan_id = ran.stderr.split()[1].rstrip(":")
    assert ran.returncode == 130, ran.stderr
    assert f"plan {plan_id} is paused" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert subprocess.run(["pgrep", "-f", marker], capture_output=True, check=False).stdout == b""
    assert list(places.iterdir()) == []
    told = json.loads(agents("plan", "show", plan_id, "--format", "json").out)
    assert told["status"] == "paused"
    assert [call["state"] for call in told["calls"]] == ["started"]
    assert agents("plan", "cancel", plan_id, "--reason", "enough").code == 0
    told = json.loads(agents("plan", "show", plan_id, "--format", "json").out)
    assert [(call["state"], call["error"]) for call in told["calls"]] == [("failed", "cancelled: enough")]
    assert agents("plan", "diff", plan_id, "--name-only").out == "half.txt\n"


def test_a_second_interrupt_ends_the_processes_of_every_part_at_once(
    agents: Agents, repository: Path, tmp_path: Path
) -> None:
    marks = [tmp_path / f"{number}.pid" for number in range(2)]
    after = f"while test ! -s {marks[0]}; do sleep 0.02; done; echo all have begun;"
    entries = [
        {
            "name": mark.stem,
            "action": "builtin/command",
            "arguments": {"argv": ["sh", "-c", f"trap '' TERM; echo $$ > {mark}; {then} sleep 1000"]},
        }
        for mark, then in zip(marks, ("", after), strict=True)
    ]
    file = tmp_path / "goals.yaml"
    file.write_text(json.dumps({"goals": entries}))
    words = [("all have begun", int(signal.SIGINT)), ("interrupted: pausing", int(signal.SIGINT))]
    settings = ("--set", "sandbox.isolation=off")
    ran = answered(repository, words, *settings, "run", "-f", str(file), "--parallel", "2")
    plan_id = ran.stderr.split()[1].rstrip(":")
    assert ran.returncode == 130, ran.stderr
    assert not any(lives(int(mark.read_text())) for mark in marks)
    parts = json.loads(agents("plan", "show", plan_id, "--format", "json").out)["sub_plans"]
    assert [part["status"] for part in parts] == ["paused"] * 2


# ── What it costs ─────────────────────────────────────────────────────────────────────────────────


def test_the_meter_reads_the_records(agents: Agents, repository: Path) -> None:
    ran = agents("run", "Spell colour the other way", "--max-usd", "0.5", "--max-tokens", "200000")
    with Container(load_configuration(os.environ, repository).settings) as container:
        plan = container.plan_parts.plans.get(ran.id)
        meter = PlanMeter(container.plan_parts, plan)
        assert spending_label(meter.last) == []
        reading = meter.read()
        client = LocalClient(container)

        def told() -> str:
            return spending_text(client.plans.get(plan.id).spending) or ""

        spent = told()
        budgets, now = container.plan_parts.actor_parts.budgets, container.clock.now()
        named = {"key": "k", "actor": "a/b", "node": "n", "model": "m/x"}
        budgets.reserve(ran.id, ran.id, Spend(10, 7, 1), now=now, **named)
        under_way = told()
        budgets.forfeit(ran.id, now=now)
        cut_off = told()
    # Of a call under way nothing is spent yet; one of which nobody said what it took counts at its worst.
    assert spent.partition(",")[2] == under_way.partition(",")[2]
    assert "$" in under_way
    assert f", at most {reading.spent.tokens + 7:,} tokens and $" in cut_off
    assert cut_off.endswith(": an interrupted call counts with its highest cost")
    tokens, money = spending_label(reading)
    assert tokens == f"{reading.spent.tokens:,} of 200,000 tokens"
    assert reading.spent.tokens > 0
    assert money.endswith(" of $0.5000")
    assert meter.read() == reading  # the store is closed: what held before
