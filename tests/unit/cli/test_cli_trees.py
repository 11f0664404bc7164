"""Trees of plans from the command line: goals that belong together, run, shown, answered and ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.responses import ensure_decidable
from cleveragents.api.plans.status_text import short_status_of
from cleveragents.cli.plan.exit_codes import joint_exit_code
from cleveragents.core.errors import PlanError, Remedy, remedies_record
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import PlanFacts
from tests import fork_server
from tests.cli_bench import Agents, Ended, paint_shop, use_home
from tests.tree_bench import tree_bench

pytestmark = pytest.mark.usefixtures("commands_are_forked")

SED = "{action: builtin/command, arguments: {argv: [sed, -i, s/colour/%s/, %s]}, name: %s}"
TWO_AND_ONE = """\
goal: Say color
checks: ["grep -q color README.md"]
goals:
  - {name: readme, action: builtin/replace, arguments: {pattern: colour, replacement: color, glob: README.md}}
  - name: code
    action: builtin/command
    arguments: {argv: [sed, -i, s/colour/color/, src/paint.py]}
    checks: ["grep -q color src/paint.py"]
  - name: count
    action: builtin/command
    arguments: {argv: [sh, -c, "cat README.md src/paint.py | grep -c color > count"]}
    needs: [readme, code]
"""
ASKING = """\
goals:
  - {name: readme, action: builtin/replace, arguments: {pattern: colour, replacement: color, glob: README.md}}
  - {name: code, action: builtin/command, arguments: {argv: [sed, -i, s/colour/color/, src/paint.py]}}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    monkeypatch.setenv("CLEVERAGENTS_SANDBOX_ISOLATION", "off")
    root = paint_shop(tmp_path / "shop")
    monkeypatch.chdir(root)
    return root


def run(agents: Agents, text: str, *options: str, typed: str | None = None) -> Ended:
    # Outside of what is worked on, so that no plan sees it.
    file = Path.cwd().parent / "goals.yaml"
    file.write_text(text)
    return agents("run", "-f", str(file), *options, typed=typed)


def shown(agents: Agents, plan_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agents("plan", "show", plan_id, "--format", "json").out)
    return found


def parts_of(agents: Agents, plan_id: str) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in shown(agents, plan_id)["sub_plans"]}


def listed(agents: Agents, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(agents("plan", "list", *options, "--format", "json").out)
    return found


# ── All goes well ─────────────────────────────────────────────────────────────────────────────────


def test_goals_run_by_their_needs_and_are_applied_as_one_plan(agents: Agents, repository: Path) -> None:
    ran = run(agents, TWO_AND_ONE, "--yes", "--commit", "Say color")
    assert ran.code == 0, ran.err
    assert (repository / "count").read_text() == "2\n"
    lines = ran.err.splitlines()
    for first, then in (
        ("sub-plan 1 of 3 starts: readme", "merged: readme (1 file)"),
        ("sub-plan 2 of 3 starts: code", "merged: code (1 file)"),
        ("merged: readme (1 file)", "sub-plan 3 of 3 starts: count"),
        ("merged: code (1 file)", "sub-plan 3 of 3 starts: count"),
        ("merged: count (1 file)", "check grep -q color README.md"),
    ):
        assert lines.index(first) < lines.index(then)
    assert "3 files changed, 3 lines added, 2 lines removed" in ran.err

    account = shown(agents, ran.id)
    assert (account["parent"], account["root"], account["depth"]) == (None, ran.id, 0)
    assert [(part["name"], part["needs"], part["merged"]) for part in account["sub_plans"]] == [
        ("readme", [], True),
        ("code", [], True),
        ("count", ["readme", "code"], True),
    ]
    assert (account["conflicts"], account["corrections"]) == ([], [])
    code = account["sub_plans"][1]["id"]
    # What a sub-plan says has its name before it, and what the whole says has not.
    assert f"{code[-6:]}  plan {code}: code" in lines
    part = shown(agents, code)
    assert (part["parent"], part["root"], part["depth"]) == (ran.id, ran.id, 1)
    assert [check["command"] for check in part["checks"]] == ["grep -q color src/paint.py"]
    text = agents("plan", "show", code).out
    assert f"merged: the result is in {ran.id[-6:]}" in text
    assert f"part of    {ran.id}: Say color" in text
    refused = agents("plan", "apply", code)
    assert (refused.code, f"agents plan apply {ran.id}" in refused.err) == (2, True), refused.err
    refused = agents("plan", "review", code, "src/paint.py")
    assert (refused.code, "already merged into plan" in refused.err) == (2, True), refused.err

    assert [plan["id"] for plan in listed(agents)] == [ran.id]
    every = listed(agents, "--all")
    assert [plan["depth"] for plan in every] == [0, 1, 1, 1]
    assert (every[0]["sub_plans"], every[0]["sub_plans_done"]) == (3, 3)
    rows = agents("plan", "list", "--all").out.splitlines()
    assert rows[1].endswith("Say color")
    assert rows[2].endswith("    readme")


@pytest.mark.parametrize("options", [(), ("--review",)])
def test_a_result_of_goals_names_the_review(agents: Agents, options: tuple[str, ...]) -> None:
    ran = run(agents, TWO_AND_ONE, *options)
    assert ran.code == (0 if options else 3)
    assert "one key each, with `agents plan review`" in " ".join(ran.err.split())


def test_stream_json_names_the_plan_and_its_parent(agents: Agents) -> None:
    ran = run(agents, ASKING, "--format", "stream-json")
    assert ran.code == 3, ran.err
    events = [json.loads(line) for line in ran.out.splitlines()]
    root = events[-1]
    assert len(root["sub_plans"]) == 2
    for part in root["sub_plans"]:
        own = [event for event in events if event.get("plan") == part["id"]]
        assert own[0]["text"] == f"plan {part['id']}: {part['name']}"
        assert {event["parent"] for event in own} == {root["id"]}
    assert all("parent" not in event for event in events[:-1] if event["plan"] == root["id"])


def test_the_goals_of_a_file_are_judged_before_a_plan_is_made(agents: Agents, repository: Path) -> None:
    text = """\
goals:
  - {name: a, action: builtin/comand, arguments: {argv: [ls]}}
  - {name: b, action: builtin/command, arguments: {argv: ls}}
  - {name: c, goal: Needs a model}
  - {name: d, action: builtin/replace, arguments: {pattern: "(", replacement: x, regex: true}}
  - {name: e, action: builtin/goals}
"""
    ran = run(agents, text)
    assert ran.code == 2
    for told in (
        "line 2: a: there is no action 'builtin/comand'; did you mean builtin/command?",
        "line 3: b: action builtin/command: argv should be",
        "line 4: c: models.default: no default model",
        "line 5: d: action builtin/replace: '(' is not a regular expression",
        "line 6: e: builtin/goals takes its goals from a file",
    ):
        assert f"goals.yaml, {told}" in ran.err, ran.err
    assert "is not a valid list of goals: 5 mistakes, listed above" in ran.err
    assert "goals.yaml is not a valid list of goals: line 1: 'goals' is missing" in (
        run(agents, "goal: x").err
    )
    assert listed(agents) == []
    for options, problem in (
        (["--set", "plan.max_fan_out=1"], "2 goals exceed the limit of 1"),
        (["--set", "plan.max_depth=0"], "raise the setting plan.max_depth above 0"),
    ):
        (repository.parent / "goals.yaml").write_text(ASKING)
        refused = agents(*options, "run", "-f", str(repository.parent / "goals.yaml"))
        assert (refused.code, problem in refused.err) == (2, True), refused.err
    for more, problem in (
        (["Some goal"], "-f FILE cannot be combined with a goal"),
        (["--profile", "bold"], "bold"),
    ):
        refused = run(agents, ASKING, *more)
        assert (refused.code, problem in refused.err) == (2, True), refused.err
    assert "cannot read the goals in 'missing.yml'" in agents("run", "-f", "missing.yml").err
    assert agents("run", "--action", "builtin/goals").code == 2


def test_yaml_on_stdin_is_one_plan_and_a_limit_that_it_cannot_reach_does_no_harm(
    repository: Path,
) -> None:
    command = [sys.executable, "-m", "cleveragents", "run", "-f", "-", "--max-usd", "5", "--format", "json"]
    _, out, err = fork_server.ran(command, ASKING, timeout=120)
    told = json.loads(out)
    assert (told["goal"], told["state"]) == ("2 goals: readme, code", "complete"), err


# ── Somebody is needed ────────────────────────────────────────────────────────────────────────────


def test_approving_a_sub_plan_continues_the_parent(agents: Agents, repository: Path) -> None:
    ran = run(agents, ASKING, "--profile", "manual")
    assert ran.code == 3, ran.err
    asking = parts_of(agents, ran.id)["readme"]["id"]
    assert f"sub-plan {asking} needs you: readme" in ran.err
    assert f"agents plan approve {asking} 1  approve the request" in ran.err
    assert f"1/2 sub-plans done; {asking[-6:]} needs you" in ran.out
    assert [plan["id"] for plan in listed(agents)] == [ran.id, asking]
    assert f"readme (part of {ran.id[-6:]})" in agents("plan", "list", "--after", ran.id).out
    watched = agents("plan", "watch", ran.id)
    assert (watched.code, f"sub-plan {asking} needs you: readme" in watched.err) == (3, True), watched.err
    wrong = agents("plan", "apply", ran.id)
    assert (wrong.code, "is waiting" in wrong.err) == (2, True), wrong.err

    done = agents("plan", "approve", asking)
    assert done.code == 3, done.err
    assert "merged: readme (1 file)" in done.err
    assert f"agents plan apply {ran.id}" in done.err
    assert done.out.startswith(f"plan    {ran.id}")
    assert agents("plan", "apply", ran.id).code == 0
    assert (repository / "README.md").read_text() == "The color of it.\n"


def test_each_sub_plan_that_needs_approval_is_named(agents: Agents) -> None:
    text = """\
goals:
  - {name: red, action: builtin/replace, arguments: {pattern: colour, replacement: red, glob: README.md}}
  - {name: blue, action: builtin/replace, arguments: {pattern: other, replacement: blue, glob: src/*}}
  - {name: last, action: builtin/command, arguments: {argv: [touch, last]}, needs: [red, blue]}
"""
    ran = run(agents, text, "--profile", "manual")
    parts = parts_of(agents, ran.id)
    assert {name: part["status"] for name, part in parts.items()} == {
        "red": "waiting",
        "blue": "waiting",
        "last": "not started",
    }
    table = agents("plan", "show", ran.id).out
    for name in ("red", "blue"):
        assert f"agents plan approve {parts[name]['id']} 1" in table
        assert f"agents plan approve {parts[name]['id']} 1" in ran.err
        assert f"approve the request ({name})" in table
    assert f"{parts['red']['id'][-6:]} and {parts['blue']['id'][-6:]} need you" in table
    assert f"agents plan resume {ran.id}" not in table
    tree = agents("plan", "tree", ran.id).out
    assert f"sub-plan {parts['red']['id']}: red" in tree
    assert "sub-plan: last (not started; needs red, blue)" in tree
    rows = json.loads(agents("plan", "tree", ran.id, "--format", "json").out)
    assert [(row["name"], row["status"], row["needs"]) for row in rows] == [
        ("red", "waiting", []),
        ("blue", "waiting", []),
        ("last", "not started", ["red", "blue"]),
    ]
    assert "waiting (0/3 sub-plans)" in agents("plan", "list", "--format", "json").out
    assert agents("plan", "cancel", ran.id).code == 0
    assert parts_of(agents, ran.id)["last"]["status"] == "not run"


def test_on_a_terminal_one_is_asked_for_a_sub_plan_as_for_a_plan(agents: Agents, repository: Path) -> None:
    ran = run(agents, ASKING, "--profile", "manual", "--format", "plain", typed="y\ny\n")
    assert ran.code == 0, ran.err
    assert "Approve? [y]es, [n]o" in ran.err
    assert (repository / "README.md").read_text() == "The color of it.\n"
    assert (repository / "src/paint.py").read_text() == "color = 1\nother = 2\n"


def test_denying_a_sub_plan_reports_its_parent(agents: Agents) -> None:
    ran = run(agents, ASKING, "--profile", "manual")
    asking = parts_of(agents, ran.id)["readme"]["id"]
    denied = agents("plan", "deny", asking)
    assert f"part of plan {ran.id}, failed" in denied.err
    assert parts_of(agents, ran.id)["readme"]["state"] == "errored"
    failed = shown(agents, ran.id)
    assert failed["state"] == "errored"
    assert "readme" in failed["error"]


def test_conflicting_sub_plans_need_a_person(agents: Agents, repository: Path) -> None:
    red, blue = (SED % (colour, "README.md", colour) for colour in ("red", "blue"))
    # One after the other: the second is the one that disagrees.
    ran = run(agents, f"goals: [{red}, {blue}]", "--parallel", "1")
    assert ran.code == 3, ran.err
    assert "waiting: sub-plans conflict in README.md" in ran.err
    assert f"agents plan resolve {ran.id}" in ran.err
    (conflict,) = shown(agents, ran.id)["conflicts"]
    assert (conflict["path"], conflict["marked"]) == ("README.md", True)
    assert conflict["sub_plan"] == parts_of(agents, ran.id)["blue"]["id"]
    text = agents("plan", "show", ran.id).out
    assert "waiting: conflict between its sub-plans" in text
    assert "open conflicts" in text
    assert agents("plan", "resolve", ran.id, "README.md", "--theirs").code == 0
    assert shown(agents, ran.id)["conflicts"] == []
    text = agents("plan", "show", ran.id).out
    assert "waiting: all conflicts are resolved; can be resumed" in text
    assert f"agents plan resolve {ran.id}" not in text
    assert agents("plan", "resume", ran.id).code == 3
    # Who takes the decision back has to decide again.
    (resolved,) = (call for call in shown(agents, ran.id)["calls"] if call["tool"] == "resolve")
    assert (resolved["changed"], "README.md" in resolved["what"]) == (1, True), resolved
    assert agents("plan", "rollback", ran.id, str(resolved["number"])).code == 0
    text = agents("plan", "show", ran.id).out
    assert "waiting: conflict between its sub-plans" in text
    assert f"agents plan resolve {ran.id}" in text
    assert f"agents plan apply {ran.id}" not in text
    waits = agents("plan", "resume", ran.id)
    assert (waits.code, "the plan is already done" in waits.err) == (3, False), waits.err
    assert agents("plan", "resolve", ran.id, "README.md", "--theirs").code == 0
    assert agents("plan", "resume", ran.id, "--yes").code == 0
    assert (repository / "README.md").read_text() == "The blue of it.\n"


# ── Something fails, or is ended ──────────────────────────────────────────────────────────────────


def test_a_failed_sub_plan_fails_its_parent_and_is_retried_with_it(
    agents: Agents, repository: Path, tmp_path: Path
) -> None:
    luck = tmp_path / "luck"
    text = f"""\
goals:
  - {SED % ("red", "README.md", "good")}
  - {{name: bad, action: builtin/command, arguments: {{argv: [test, -e, {luck}]}}}}
  - {{name: after, needs: [bad], action: builtin/command, arguments: {{argv: [touch, after]}}}}
"""
    ran = run(agents, text)
    assert ran.code == 1, ran.err
    bad = parts_of(agents, ran.id)["bad"]["id"]
    assert f"agents plan log {bad}" in ran.err
    assert "list the tool calls of 'bad'" in ran.err
    assert "not run as a result: sub-plan 3 of 3 (after)" in ran.err
    table = agents("plan", "show", ran.id).out
    assert "not started" in table
    states = {name: (part["state"], part["merged"]) for name, part in parts_of(agents, ran.id).items()}
    assert states == {"good": ("complete", True), "bad": ("errored", False), "after": (None, False)}
    # The whole failed, and does not go on because a part of it does: that is said.
    luck.touch()
    part = agents("plan", "resume", bad)
    assert part.code == 0, part.err
    assert "unchanged: the result is not merged yet" in part.out
    assert f"agents plan resume {ran.id}" in part.err
    again = agents("plan", "resume", ran.id, "--yes")
    assert again.code == 0, again.err
    assert (repository / "after").exists()
    assert (repository / "README.md").read_text() == "The red of it.\n"


def test_with_fail_fast_the_others_are_ended(agents: Agents) -> None:
    text = """\
fail_fast: true
goals:
  - {name: long, action: builtin/command, arguments: {argv: [sleep, "600"]}}
  - {name: bad, action: builtin/command, arguments: {argv: ["false"]}}
"""
    ran = run(agents, text)
    assert ran.code == 1, ran.err
    states = {name: part["state"] for name, part in parts_of(agents, ran.id).items()}
    assert states == {"bad": "errored", "long": "errored"}  # it can go on when the other is mended
    parts = parts_of(agents, ran.id)
    assert {name: part["status"] for name, part in parts.items()} == {"bad": "failed", "long": "paused"}
    assert "list the tool calls of 'bad'" in ran.err
    assert "list the tool calls of 'long'" not in ran.err
    error = shown(agents, ran.id)["error"]
    assert error.index("(bad) failed") < error.index("(long) was stopped")
    assert (
        "paused: stopped because another sub-plan failed" in agents("plan", "show", parts["long"]["id"]).out
    )


def test_a_tree_is_cancelled_cleaned_up_and_deleted_as_one(agents: Agents, tmp_path: Path) -> None:
    ran = run(agents, ASKING, "--profile", "manual")
    parts = parts_of(agents, ran.id)
    cancelled = agents("plan", "cancel", ran.id)
    assert cancelled.code == 0, cancelled.err
    assert f"cancelled plan {ran.id} with its sub-plans; no process is left" in cancelled.err
    states = {name: part["state"] for name, part in parts_of(agents, ran.id).items()}
    assert states == {"readme": "cancelled", "code": "complete"}
    assert "is already cancelled" in agents("plan", "cancel", ran.id).err
    whole = agents("plan", "delete", parts["readme"]["id"], "--yes")
    assert (whole.code, f"agents plan delete {ran.id}" in whole.err) == (2, True), whole.err
    assert agents("gc", "--older-than", "0m").code == 0
    assert not list((tmp_path / "state" / "sandboxes").glob("01*/tree"))
    deleted = agents("plan", "delete", ran.id, "--yes")
    assert f"deleted plan {ran.id} with its sub-plans" in deleted.err
    assert listed(agents, "--all") == []
    assert agents("doctor").code == 0


def test_cancelling_a_sub_plan_reports_its_parent(agents: Agents) -> None:
    ran = run(agents, ASKING, "--profile", "manual")
    asking = parts_of(agents, ran.id)["readme"]["id"]
    ended = agents("plan", "cancel", asking, "--remove-sandbox")
    assert ended.code == 0, ended.err
    assert f"part of plan {ran.id}" in ended.err
    failed = agents("plan", "resume", ran.id)
    assert (failed.code, "readme" in failed.err) == (1, True), failed.err
    without = agents("plan", "resume", ran.id)
    assert without.code == 3, without.err
    assert f"agents plan apply {ran.id}" in without.err


# ── Models ────────────────────────────────────────────────────────────────────────────────────────

SCRIPT = """\
version: 1
facts: {input_price: 1.0, output_price: 4.0}
rules:
  - when: {system: "You plan changes", first_user: "part of a larger goal"}
    turns:
      - text: '{"summary": "s", "steps": [{"title": "Do it", "instructions": "Do it."}], "decisions": []}'
  - when: {system: "You plan changes"}
    turns:
      - text: |
          {"summary": "In two parts.", "decisions": [],
           "steps": [{"title": "Rename in the readme", "instructions": "colour to color, README.md only",
                      "sub_plan": true},
                     {"title": "Rename in the code", "instructions": "colour to color, paint.py only",
                      "sub_plan": true}]}
  - when: {system: "You change files", first_user: "README.md only"}
    turns:
      - calls: [{tool: edit, arguments: {path: README.md, old: colour, new: color}}]
      - text: "I renamed it."
  - when: {system: "You change files"}
    turns:
      - calls: [{tool: edit, arguments: {path: src/paint.py, old: colour, new: color}}]
      - text: "I renamed it."
  - when: {system: "You review a change"}
    turns:
      - text: '{"verdict": "accept", "findings": [], "summary": "Right."}'
  - reply: {text: "Nobody asked."}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    return f"scripted/{tmp_path}/script.yaml"


def test_a_goal_that_is_split_spends_one_budget_and_its_parts_say_their_share(
    agents: Agents, repository: Path, model: str
) -> None:
    ran = agents("run", "Say color", "--model", model, "--max-usd", "1", "--parallel", "2", "--yes")
    assert ran.code == 0, ran.err
    assert (repository / "README.md").read_text() == "The color of it.\n"
    assert (repository / "src/paint.py").read_text() == "color = 1\nother = 2\n"
    whole = shown(agents, ran.id)
    parts = [shown(agents, part["id"])["spending"] for part in whole["sub_plans"]]
    assert [part["model_calls"] for part in parts] == [4, 4]
    assert whole["spending"]["model_calls"] == 10
    assert 0 < parts[0]["tokens"] < whole["spending"]["tokens"]
    assert sum(part["usd"] for part in parts) < whole["spending"]["usd"] < 1
    assert parts[0]["limits"]["usd"] == 1.0
    text = agents("plan", "show", ran.id).out
    assert "10 model calls" in text
    assert f"Rename in the code ({whole['sub_plans'][1]['id'][-6:]})" in text


def test_a_tree_without_budget_continues_with_a_larger_one(
    agents: Agents, repository: Path, model: str
) -> None:
    text = f"""\
goals:
  - {{name: readme, goal: "Rename, README.md only", model: {model}}}
  - {{name: code, goal: Rename in paint.py, model: {model}}}
"""
    ran = run(agents, text, "--max-steps", "3", "--yes")
    assert ran.code == 3, ran.err
    assert "needs you" in ran.err
    less = agents("plan", "resume", ran.id, "--max-steps", "2")
    assert (less.code, "already has 3 steps" in less.err) == (2, True), less.err
    again = agents("plan", "resume", ran.id, "--max-steps", "99", "--yes")
    assert again.code == 0, again.err
    assert (repository / "README.md").read_text() == "The color of it.\n"
    assert (repository / "src/paint.py").read_text() == "color = 1\nother = 2\n"


# ── What it means ─────────────────────────────────────────────────────────────────────────────────


def test_a_plan_with_sub_plans_elsewhere_exits_with_75(tmp_path: Path) -> None:
    with tree_bench(tmp_path) as bench:
        plan = bench.made("whole")
        waiting = PlanFacts(waiting_for={"for": "sub-plans", "what": "1 of its sub-plans is at work"})
        way = ["strategize/queued", "strategize/processing", "strategize/complete", "execute/queued"]
        for step in [*way, "execute/processing", "execute/waiting"]:
            phase, state = step.split("/")
            facts = waiting if state == "waiting" else None
            now = bench.container.clock.now()
            plan = bench.parts.plans.move(plan, (Phase(phase), PlanState(state)), facts, now=now)
        assert joint_exit_code([0, 75]) == 75
        assert joint_exit_code([0, 75, 3]) == 3
        assert joint_exit_code([75, 130]) == 1
        assert short_status_of(bench.parts, plan).startswith("running")
        # Nobody works on any: that is what is missing.
        assert [step.action for step in steps_from(bench.parts, plan)] == ["plan.resume", "plan.cancel"]


@pytest.mark.parametrize(
    ("stored", "options"),
    [
        ({"remedy": "`agents plan resume X --max-usd 0.02`"}, {"limits.usd": "0.02"}),
        ({"remedy": "`agents plan resume X --timeout TIME`"}, {"limits.seconds": 0.0}),
        ({"remedy": "more"}, {"limits.tokens": None}),
        (
            remedies_record((Remedy("plan.resume", "X", {"limits.steps": 4}, "Resume it"),)),
            {"limits.steps": 4},
        ),
    ],
)
def test_a_plan_that_waits_for_budget_says_which_also_one_of_the_version_before(
    tmp_path: Path, stored: dict[str, Any], options: dict[str, Any]
) -> None:
    with tree_bench(tmp_path) as bench:
        plan = bench.made("whole")
        facts = PlanFacts(waiting_for={"for": "budget", "what": "it is used up", **stored})
        now = bench.container.clock.now()
        for state in (PlanState.QUEUED, PlanState.PROCESSING, PlanState.WAITING):
            moved = facts if state is PlanState.WAITING else None
            plan = bench.parts.plans.move(plan, (Phase.STRATEGIZE, state), moved, now=now)
        resume, _ = steps_from(bench.parts, plan)
        assert (resume.action, resume.options.keys()) == ("plan.resume", options.keys())
        assert "limits.seconds" in options or resume.options == options
        with pytest.raises(PlanError) as refused:
            ensure_decidable(plan)
        assert ("agents plan resume" in str(refused.value)) == ("agents" in stored["remedy"])
