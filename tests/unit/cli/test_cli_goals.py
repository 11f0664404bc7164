"""Goals from the command line, with a scripted model: run, decided, answered, paid for."""

from __future__ import annotations

import json
import re
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import click
import pytest

from cleveragents import connect
from cleveragents.api.format import duration_text
from cleveragents.cli.budget_options import Duration
from cleveragents.cli.run.goals_file import text_of_stdin
from cleveragents.core.tool import TOOLS_OF_PLANS
from tests.cli_bench import Agents, git, paint_shop, use_home

SCRIPT = """\
version: 1
facts: {input_price: 1.0, output_price: 4.0}
rules:
  - when: {system: "You plan changes"}
    turns:
      - calls: [{tool: grep, arguments: {pattern: colour}}]
      - text: |
          {"summary": "s", "steps": [{"title": "Rename", "instructions": "colour to color"}],
           "decisions": [{"question": "How?", "choice": "By hand", "rationale": "Two places.",
                          "alternatives": [{"choice": "sed", "reason": "too blunt"}], "confidence": 0.8},
                         {"question": "Where?", "choice": "src", "rationale": "It is code."}]}
  - when: {system: "You change files"}
    turns:
      - calls: [{tool: edit, arguments: {path: src/paint.py, old: colour, new: color}}]
      - text: "I renamed it."
  - when: {system: "You review a change"}
    turns:
      - text: '{"verdict": "accept", "findings": [], "summary": "Right."}'
  - reply: {text: "Nobody asked."}
"""
ASKER = """\
name: me/asker
type: graph
entry: ask
state: {reply: {type: string}, said: {type: string}}
nodes:
  ask: {type: human, question: "Which colour for ${goal}?", choices: [red, blue], output: reply, next: say}
  say: {type: llm, prompt: "Paint it ${reply}.", output: said}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    (tmp_path / "script.yaml").write_text(SCRIPT)
    actors = tmp_path / "home" / ".config" / "cleveragents" / "actors"
    actors.mkdir(parents=True)
    (actors / "asker.yaml").write_text(ASKER)
    root = paint_shop(tmp_path / "shop")
    monkeypatch.chdir(root)
    monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", f"scripted/{tmp_path}/script.yaml")
    return root


def test_a_goal_is_planned_worked_on_reviewed_and_applied(agents: Agents, repository: Path) -> None:
    ran = agents("run", "Say color", "in the code", "--yes")
    assert ran.code == 0, ran.err
    assert (repository / "src/paint.py").read_text() == "color = 1\nother = 2\n"
    for line in ("decided: How? By hand", "planned: 1. Rename", "step 1 of 1: Rename", "applied to 1 file"):
        assert line in ran.err
    tree = agents("plan", "tree", ran.id).out
    assert "1. How? → By hand (80%)" in tree
    assert "2. Where? → src" in tree
    assert tree.index("1. How?") < tree.index("2. Where?")
    why = agents("plan", "explain", ran.id, "1").out
    assert "instead of 1  sed: too blunt" in why
    shown = json.loads(agents("plan", "show", ran.id, "--format", "json").out)
    assert shown["goal"] == "Say color in the code"
    assert shown["spending"]["model_calls"] == 5
    assert shown["spending"]["usd"] > 0
    rows = json.loads(agents("plan", "tree", ran.id, "--format", "json").out)
    assert [(row["number"], row["parent"]) for row in rows] == [(1, None), (2, 1)]
    missing = agents("plan", "explain", ran.id, "9")
    assert (missing.code, "has no decision 9; it has 2" in missing.err) == (2, True)


ANSWER = "# Colours\n\n" + "\n".join(f"- {number}: {'a long line ' * 20}" for number in range(30))
QUESTION = f"""\
version: 1
rules:
  - when: {{system: "You plan changes"}}
    reply:
      text: '{{"summary": "s", "decisions": [], "steps": [{{"title": "Look", "instructions": "Look."}}]}}'
  - reply: {{text: {json.dumps(ANSWER)}}}
"""


def test_the_answer_to_a_question_is_printed_whole_and_kept(agents: Agents, tmp_path: Path) -> None:
    (tmp_path / "question.yaml").write_text(QUESTION)
    ran = agents("run", "Which colours are there?", "--model", f"scripted/{tmp_path}/question.yaml")
    assert ran.code == 0, ran.err
    assert ANSWER.strip() in ran.out
    shown = agents("plan", "show", ran.id)
    assert ANSWER.strip() in shown.out
    told = json.loads(agents("plan", "show", ran.id, "--format", "json").out)
    assert (told["status"], told["answer"]) == ("unchanged", ANSWER)
    assert [step["action"] for step in told["steps"]] == ["plan.log", "plan.delete"]


def test_an_answer_is_masked_like_the_transcript(agents: Agents, tmp_path: Path) -> None:
    secret = "DB_PASSWORD=correct-horse-7"
    (tmp_path / "question.yaml").write_text(QUESTION.replace("# Colours", f"# Colours {secret}"))
    ran = agents("run", "Which colours?", "--model", f"scripted/{tmp_path}/question.yaml", "--format", "json")
    assert json.loads(ran.out)["answer"].startswith("# Colours DB_PASSWORD=***")
    assert "correct-horse-7" not in agents("plan", "show", ran.id).out


def test_a_plan_run_in_front_keeps_its_transcript(agents: Agents) -> None:
    """Others read it from the database, as they read that of a plan on a server."""
    ran = agents("run", "Say color", "--yes")
    with connect() as client:
        pieces = client.plans.output(ran.id)
    kinds = {piece.kind: "" for piece in pieces}
    for piece in pieces:
        kinds[piece.kind] += piece.text
    assert "I renamed it." in kinds["model"]
    assert "step 1 of 1: Rename" in kinds["progress"]


def test_gc_removes_transcripts_of_plans_that_cannot_continue(agents: Agents) -> None:
    ran = agents("run", "Say color")
    assert ran.code == 3
    assert "transcripts of" not in agents("gc", "--older-than", "0m").err
    assert agents("plan", "apply", ran.id).code == 0
    assert "transcripts of" not in agents("gc", "--older-than", "1h").err
    dry = agents("gc", "--older-than", "0m", "--dry-run").err
    assert "transcripts of 1 plan: would be removed" in dry
    assert "transcripts of 1 plan: removed" in agents("gc", "--older-than", "0m").err
    assert "transcripts of" not in agents("gc", "--older-than", "0m").err
    assert "How? → By hand" in agents("plan", "tree", ran.id).out


def test_a_plan_without_a_strategist_decided_nothing(agents: Agents) -> None:
    ran = agents("run", "--action", "builtin/command", "--", "true")
    assert "no decisions" in agents("plan", "tree", ran.id).err
    assert "it has 0" in agents("plan", "explain", ran.id, "1").err


def test_a_budget_that_is_spent_is_waited_for_and_raised(agents: Agents, repository: Path) -> None:
    ran = agents("run", "Say color", "--yes", "--max-steps", "3")
    assert ran.code == 3, ran.err
    assert "3 of 3 steps spent" in ran.err
    assert f"agents plan resume {ran.id} --max-steps 4  raise the limit and continue" in ran.err
    less = agents("plan", "resume", ran.id, "--max-steps", "2")
    assert (less.code, "already has 3 steps" in less.err) == (2, True), less.err
    assert "colour" in (repository / "src/paint.py").read_text()
    again = agents("plan", "resume", ran.id, "--max-steps", "9", "--yes")
    assert again.code == 0, again.err
    assert (repository / "src/paint.py").read_text() == "color = 1\nother = 2\n"
    assert json.loads(agents("plan", "show", ran.id, "--format", "json").out)["spending"]["model_calls"] == 5


def test_a_plan_without_time_names_a_larger_limit(agents: Agents) -> None:
    ran = agents("run", "Say color", "--timeout", "0.001s")
    assert (ran.code, "waiting: the time limit is reached" in ran.err) == (3, True), ran.err
    assert f"agents plan resume {ran.id} --timeout 61s  raise the limit and continue" in ran.err
    again = agents("plan", "resume", ran.id, "--timeout", "61s", "--yes")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("given", "seconds", "spelt"),
    [("90", 90, "90s"), ("90s", 90, "90s"), ("1.5m", 90, "90s"), ("30M", 1800, "30m"), ("24h", 86400, "1d")],
)
def test_durations_are_read_and_shown_with_a_unit(given: str, seconds: float, spelt: str) -> None:
    assert Duration().convert(given, None, None) == seconds
    assert duration_text(seconds) == spelt


@pytest.mark.parametrize("wrong", ["", "MORE", "-1", "0", "0m", "31d", "1w", "1h30m", "nan", "1e9"])
def test_an_invalid_duration_is_refused(wrong: str) -> None:
    with pytest.raises(click.BadParameter, match=r"30d|write 90s"):
        Duration().convert(wrong, None, None)


def test_a_call_of_a_tool_that_is_not_there_is_seen_and_kept(agents: Agents, tmp_path: Path) -> None:
    script = SCRIPT.replace("tool: edit, arguments: {path", "tool: editt, arguments: {path")
    (tmp_path / "typo.yaml").write_text(script)
    ran = agents("run", "Say color", "--model", f"scripted/{tmp_path}/typo.yaml")
    assert "  editt {" in ran.err
    assert "    it failed: there is no tool 'editt'; available: " in ran.err
    [*_, kept] = json.loads(agents("plan", "log", ran.id, "--format", "json").out)
    assert (kept["tool"], kept["state"]) == ("editt", "failed")
    assert "there is no tool 'editt'" in kept["error"]


def test_a_plan_that_failed_before_it_did_anything_says_why_wherever_it_is_looked_at(
    agents: Agents, tmp_path: Path
) -> None:
    dull = tmp_path / "dull.yaml"
    dull.write_text('version: 1\nrules: [{reply: {text: "No idea.", usage: {unsaid: true}}}]\n')
    failed = agents("run", "Do it", "--model", f"scripted/{dull}")
    assert failed.code == 1, failed.err
    assert f"agents plan show {failed.id}" in failed.err
    why = json.loads(agents("plan", "show", failed.id, "--format", "json").out)["error"]
    watched = agents("plan", "watch", failed.id)
    assert (watched.code, f"failed: {why}" in watched.err) == (1, True), watched.err
    assert f"no calls: {why}" in agents("plan", "log", failed.id).err
    # Nobody said what the answers took.
    told = " tokens, unknown price: an interrupted call counts with its highest cost"
    assert re.search(rf"model calls?, at most [0-9,]+{told}", agents("plan", "show", failed.id).out)


def test_an_actor_runs_alone_and_asks(agents: Agents) -> None:
    ran = agents("actor", "run", "me/asker", "the door")
    assert (ran.code, "waiting: Which colour for the door? (red, blue)" in ran.err) == (3, True), ran.err
    assert "status  waiting: needs your answer" in ran.out
    wrong = agents("plan", "answer", ran.id, "green")
    assert (wrong.code, "'green' is not one of the choices: red, blue" in wrong.err) == (2, True)
    answered = agents("plan", "answer", ran.id, "red")
    assert answered.code == 0, answered.err
    assert "“Nobody asked.”" in answered.err
    assert agents("plan", "answer", ran.id, "red").code == 2
    typed = agents("actor", "run", "me/asker", "the door", "--format", "json", typed="blue\n")
    assert json.loads(typed.out)["values"] == {"reply": "blue", "said": "Nobody asked."}
    nothing = agents("actor", "run", "builtin/executor", "Rename it")
    assert "report  I renamed it." in nothing.out


def test_a_plan_for_review_stays_for_review_after_a_resume(agents: Agents, repository: Path) -> None:
    """`--review` counts for the plan, not for the command that happened to begin it."""
    asks = "  ask: {type: human, question: Now?, output: reply, next: write}\n"
    writes = "  write: {type: tool, tool: write, with: {path: door.txt, content: red}}\n"
    Path("ask.yaml").write_text(
        "name: me/painter\ntype: graph\nentry: ask\nstate: {reply: {}}\nnodes:\n" + asks + writes
    )
    as_goal = ("run", "the door", "--actor", "./ask.yaml")
    door = repository / "door.txt"
    for begun in ((*as_goal, "--review"), ("actor", "run", "./ask.yaml", "the door"), as_goal):
        ran = agents(*begun, "--profile", "full-auto")
        assert (ran.code, "waiting: Now?" in ran.err) == (3, True), ran.err
        assert not door.exists()
        answered = agents("plan", "answer", ran.id, "yes")
        left = begun is not as_goal
        assert (answered.code, door.exists()) == (0, not left), answered.err
        assert ("agents plan apply" in answered.err) is left


def test_an_actor_may_refer_to_the_built_in_actors(agents: Agents) -> None:
    """And what was found valid is there when it runs."""
    actor = f"name: me/knows\ntype: llm\nprompt: hello\ntools: [read, {', '.join(TOOLS_OF_PLANS)}]\n"
    Path("knows.yaml").write_text(actor)
    valid = agents("actor", "validate", "knows.yaml")
    assert valid.code == 0, valid.err
    ran = agents("actor", "run", "knows.yaml", "the door")
    assert ran.code == 0, ran.err


def test_line_breaks_of_goals_and_questions_are_line_breaks_where_there_is_room(agents: Agents) -> None:
    asker = ASKER.replace("Which colour for ${goal}?", r"Which colour?\n- ${goal}")
    Path("asker.yaml").write_text(asker)
    ran = agents("actor", "run", "asker.yaml", "the door\nand the wall")
    assert f"plan {ran.id}: the door and the wall\n" in ran.err
    assert "waiting: Which colour?\n  - the door\n  and the wall (red, blue)\n" in ran.err
    watched = agents("plan", "watch", ran.id)
    assert "waiting: Which colour?\n  - the door\n" in watched.err
    shown = agents("plan", "show", ran.id).out
    assert "Which colour? - the door and the wall (red, blue)\n" in shown
    assert "the door and the wall\n" in agents("plan", "list").out
    applied = agents("plan", "apply", ran.id)
    assert "waiting: Which colour? - the door and the wall (red, blue)" in applied.err
    said = "".join([ran.err, ran.out, watched.err, watched.out, shown, applied.err])
    assert "\\n" not in said


def test_watch_replays_a_finished_plan_in_order(agents: Agents) -> None:
    ran = agents("run", "Say color", "--yes", "--check", "true")
    watched = agents("plan", "watch", ran.id, "--format", "stream-json")
    told = [json.loads(line) for line in watched.out.splitlines()[:-1]]
    told = [one for one in told if one["event"] in ("say", "thinking", "tool")]
    seen = [one["actor"] if one["event"] == "thinking" else one["text"].split()[0] for one in told]
    strategist, executor, reviewer = (f"builtin/{name}" for name in ("strategist", "executor", "reviewer"))
    planned = [strategist, "grep", strategist]
    worked = [executor, "edit", executor]
    assert seen == ["plan", *planned, *worked, "check", reviewer, "check", "applied"]


def test_an_actor_runs_from_a_file_and_is_found_again_from_anywhere(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.yaml").write_text(ASKER.replace("me/asker", "me/other"))
    ran = agents("actor", "run", "mine.yaml", "the door")
    assert (ran.code, "waiting: Which colour for the door?" in ran.err) == (3, True), ran.err
    monkeypatch.chdir(tmp_path)
    assert agents("plan", "answer", ran.id, "red").code == 0
    monkeypatch.chdir(tmp_path / "shop")
    typed = agents("run", "the door", "--actor", "./mine.yaml", typed="blue\n")
    assert (typed.code, "“Nobody asked.”" in typed.err) == (0, True), typed.err


def test_a_file_that_is_no_actor_is_refused_before_there_is_a_plan(agents: Agents) -> None:
    Path("mine.yaml").write_text(ASKER.replace("say}", "sya}").replace("type: llm", "type: lmm"))
    wrong = agents("actor", "run", "mine.yaml", "the door")
    assert wrong.code == 2
    assert "error: mine.yaml is not a valid actor" in wrong.err
    assert "there is no node 'sya'; did you mean 'say'?" in wrong.err
    assert "pass a file instead of -" in agents("actor", "run", "-", "the door").err
    assert "is not a file" in agents("actor", "run", "gone.yaml", "the door").err
    assert json.loads(agents("plan", "list", "--format", "json").out) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("Do it", "--model", "nonsense"), "provider/model"),
        (("Do it", "--model", "opnai/gpt"), "openai"),
        (("Do it", "--actor", "builtin/executer"), "did you mean builtin/executor?"),
        (("Do it", "--max-usd", "0"), "--max-usd"),
        (("  ",), "missing goal"),
        (("--action", "builtin/command", "--model", "scripted/x", "--", "true"), "has none"),
        (("--action", "builtin/command", "--max-tokens", "5", "--", "true"), "has none"),
    ],
)
def test_a_wrong_goal_makes_no_plan(agents: Agents, arguments: tuple[str, ...], told: str) -> None:
    wrong = agents("run", *arguments)
    assert (wrong.code, told in wrong.err) == (2, True), wrong.err
    assert json.loads(agents("plan", "list", "--format", "json").out) == []


def test_a_limit_of_money_needs_a_price(agents: Agents, tmp_path: Path) -> None:
    (tmp_path / "free.yaml").write_text("rules:\n  - reply: {text: hello}\n")
    wrong = agents("run", "Do it", "--model", f"scripted/{tmp_path}/free.yaml", "--max-usd", "1")
    assert (wrong.code, "cannot enforce a limit in dollars: the price of" in wrong.err) == (2, True)


def test_a_limit_of_money_of_the_actors_own_needs_a_price_before_there_is_a_plan(
    agents: Agents, tmp_path: Path
) -> None:
    (tmp_path / "free.yaml").write_text("rules:\n  - reply: {text: hello}\n")
    actors = tmp_path / "home" / ".config" / "cleveragents" / "actors"
    (actors / "outer.yaml").write_text(OUTER)
    (actors / "inner.yaml").write_text(
        INNER.replace("MODEL", f"scripted/{tmp_path}/free.yaml") + "limits: {usd: 1}\n"
    )
    wrong = agents("run", "Do it", "--actor", "me/outer")
    assert (wrong.code, "cannot enforce the limit in dollars of me/inner" in wrong.err) == (
        2,
        True,
    )
    assert json.loads(agents("plan", "list", "--format", "json").out) == []


@pytest.mark.parametrize("is_a_repository", [False, True])
def test_where_the_sandboxes_are_kept_no_plan_is_made(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_a_repository: bool
) -> None:
    if is_a_repository:
        git(tmp_path, "init", "-q")
    monkeypatch.chdir(tmp_path)
    wrong = agents("run", "Do it")
    assert (wrong.code, "`cd` into a project" in wrong.err) == (2, True), wrong.err
    assert json.loads(agents("plan", "list", "--format", "json").out) == []


def test_where_the_sandboxes_are_ignored_a_plan_is_made(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("/state/\n/home/\n/shop/\n")
    monkeypatch.chdir(tmp_path)
    assert agents("run", "--action", "builtin/command", "--", "true").code == 0


def test_a_goal_on_stdin_must_be_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO("Say café".encode("latin-1"))))
    with pytest.raises(click.UsageError, match=r"cannot read the goal on stdin: not UTF-8 text \(byte 7\)"):
        text_of_stdin("the goal on stdin")


OUTER = """\
name: me/outer
type: graph
entry: inner
state: {said: {type: string}}
nodes: {inner: {type: subgraph, actor: me/inner, inputs: {goal: "${goal}"}, outputs: {said: said}}}
"""
INNER = """\
name: me/inner
type: graph
entry: ask
state: {said: {type: string}}
nodes: {ask: {type: llm, prompt: "Say ${goal}.", model: "MODEL", output: said}}
"""


def test_a_limit_of_money_needs_the_price_of_every_model_that_may_be_asked(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a node in a subgraph, and of the fallback; for a run and for a resume."""
    (tmp_path / "free.yaml").write_text("rules:\n  - reply: {text: hello}\n")
    free = f"scripted/{tmp_path}/free.yaml"
    actors = tmp_path / "home" / ".config" / "cleveragents" / "actors"
    (actors / "outer.yaml").write_text(OUTER)
    (actors / "inner.yaml").write_text(INNER.replace("MODEL", free))
    unknown = "cannot enforce a limit in dollars: the price of"
    wrong = agents("run", "Do it", "--actor", "me/outer", "--max-usd", "1")
    assert (wrong.code, f"{unknown} {free} is unknown" in wrong.err) == (2, True), wrong.err
    monkeypatch.setenv("CLEVERAGENTS_MODELS_FALLBACK", free)
    wrong = agents("run", "Do it", "--max-usd", "1")
    assert (wrong.code, unknown in wrong.err) == (2, True), wrong.err
    assert json.loads(agents("plan", "list", "--format", "json").out) == []
    monkeypatch.delenv("CLEVERAGENTS_MODELS_FALLBACK")
    waits = agents("run", "Do it", "--actor", "me/outer", "--max-tokens", "1")
    assert waits.code == 3, waits.err
    wrong = agents("plan", "resume", waits.id, "--max-usd", "1", "--max-tokens", "90000")
    assert (wrong.code, unknown in wrong.err) == (2, True), wrong.err
    done = agents("plan", "resume", waits.id, "--max-tokens", "90000")
    assert done.code == 0, done.err
    spending = json.loads(agents("plan", "show", waits.id, "--format", "json").out)["spending"]
    assert (spending["usd"], spending["limits"]["usd"]) == (None, None)


def test_a_resume_that_is_refused_raises_no_limit(agents: Agents) -> None:
    waits = agents("run", "Say color", "--max-steps", "1", "--max-tokens", "50000")
    assert waits.code == 3, waits.err

    def limits() -> dict[str, int]:
        spending: dict[str, dict[str, int]] = json.loads(
            agents("plan", "show", waits.id, "--format", "json").out
        )["spending"]
        return spending["limits"]

    assert agents("plan", "resume", waits.id, "--max-steps", "2").code == 3
    kept = limits()
    assert (kept["steps"], kept["tokens"]) == (2, 50_000)
    assert agents("plan", "cancel", waits.id).code == 0
    assert agents("plan", "resume", waits.id, "--max-steps", "9").code == 2
    assert limits() == kept


def test_a_plan_that_needs_approval_gets_no_larger_budget(agents: Agents) -> None:
    asks = agents("run", "Say color", "--profile", "manual", "--max-steps", "8")
    assert asks.code == 3, asks.err
    wrong = agents("plan", "resume", asks.id, "--max-steps", "9")
    assert (wrong.code, "agents plan approve" in wrong.err) == (2, True), wrong.err
    shown = json.loads(agents("plan", "show", asks.id, "--format", "json").out)
    assert shown["spending"]["limits"]["steps"] == 8


def test_limits_are_for_plans_with_actors(agents: Agents) -> None:
    failed = agents("run", "--action", "builtin/command", "--", "false")
    wrong = agents("plan", "resume", failed.id, "--max-tokens", "5")
    assert (wrong.code, "limits need an actor" in wrong.err) == (2, True), wrong.err


def test_without_a_model_the_remedy_is_printed(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLEVERAGENTS_MODELS_DEFAULT")
    wrong = agents("run", "Do it")
    assert wrong.code == 2
    assert "agents config set models.default" in wrong.err


GUIDED = """\
rules:
  - when: {first_user: "Always say please", offered: skill}
    turns:
      - calls: [{tool: skill, arguments: {name: manners}}]
      - text: "I know how."
  - when: {first_user: "Always say please"}
    reply: {text: "I read the instructions."}
  - reply: {text: "Nobody told me."}
"""


def test_instructions_are_read_and_skills_once_they_are_trusted(
    agents: Agents, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "guided.yaml").write_text(GUIDED)
    model = ("--model", f"scripted/{tmp_path}/guided.yaml")
    run = ("run", "Be polite", "--actor", "builtin/executor", *model)
    assert "Nobody told me" in agents(*run).err
    (repository / "AGENTS.md").write_text("Always say please.\n")
    skill = repository / ".cleveragents/skills/manners/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: manners\ndescription: How to ask.\n---\nSay it twice.\n")
    assert "I read the instructions" in agents(*run).err
    assert agents("trust", "--yes").code == 0
    assert "I know how" in agents(*run).err
