"""Commands through a server do, say and exit as the same commands do where none is between."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cleveragents.cli.run.server_resources import no_resource
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, strategizes
from tests.cli_bench import Ended, command_line, git
from tests.client_bench import Served, interrupt, served
from tests.conditions import wait_until
from tests.remotes import new_remote

pytestmark = pytest.mark.usefixtures("commands_are_forked")
REPLACE = ("--action", "builtin/replace", "--arg", "pattern=colour", "--arg", "replacement=color")
SLOW = ("sh", "-c", "echo begun; sleep 99")
Ask = Callable[..., Ended]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("client")) as made:
        yield made


@pytest.fixture(autouse=True)
def as_committed(bench: Served) -> None:
    git(bench.repository, "checkout", "-fq", ".")
    git(bench.repository, "clean", "-fdq")


@pytest.fixture
def agents(
    bench: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Ask]:
    """A command line of somebody elsewhere, or at the server itself: `on_server`."""
    monkeypatch.chdir(bench.repository)
    with command_line(monkeypatch, capfd) as run:

        def ask(*arguments: str, on_server: bool = False, typed: str | None = None) -> Ended:
            for name, value in bench.environment(on_server=on_server).items():
                monkeypatch.setenv(name, value)
            return run(*arguments, typed=typed)

        yield ask


@pytest.fixture
def asked(bench: Served, agents: Ask, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """A command of an admin through the server."""
    log_in(bench, agents, monkeypatch, "admin")
    return lambda *arguments, typed=None: agents("--server", bench.url, *arguments, typed=typed)


def log_in(bench: Served, agents: Ask, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    from cleveragents.cli.servers import keep_token, logins_file

    keep_token(logins_file({"HOME": str(bench.home)}), bench.url, bench.token(user))


def written(bench: Served) -> str:
    return (bench.repository / "README.md").read_text()


def made(asked: Ask, *more: str) -> dict[str, Any]:
    ended = asked("run", *REPLACE, "--review", "--format", "json", *more)
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def test_every_reading_command_gives_the_same_json(bench: Served, agents: Ask, asked: Ask) -> None:
    plan = made(asked)["id"]
    commands = [
        ("plan", "list"),
        ("plan", "list", "--all", "--limit", "1"),
        ("plan", "list", "--state", "complete"),
        ("plan", "list", "--after", "0"),
        ("plan", "show", plan),
        ("plan", "log", plan),
        ("plan", "log", plan, "1"),
        ("plan", "tree", plan, "--all"),
        ("plan", "diff", plan),
        ("plan", "diff", plan, "src"),
        ("plan", "watch", plan),
        ("jobs", "list"),
        ("jobs", "list", "--limit", "1"),
        ("project", "list"),
        ("resource", "list"),
        ("user", "list"),
    ]
    for words in commands:
        here = agents(*words, "--format", "json", on_server=True)
        there = asked(*words, "--format", "json")
        assert (there.code, json.loads(there.out)) == (here.code, json.loads(here.out)), words
    job = json.loads(asked("jobs", "list", "--format", "json").out)[0]["id"]
    for words in [("jobs", "show", job)]:
        assert asked(*words, "--format", "json").out == agents(*words, "--format", "json", on_server=True).out


def test_every_reading_command_is_readable_by_people(asked: Ask) -> None:
    plan = made(asked)["id"]
    for words, said in [
        (("plan", "list"), plan),
        (("plan", "show", plan), "\nchanges\n"),
        (("plan", "log", plan), "replace"),
        (("plan", "log", plan, "1"), "state"),
        (("plan", "diff", plan), "+The color"),
        (("plan", "diff", plan, "--stat"), "README.md"),
        (("plan", "diff", plan, "--name-only"), "README.md\n"),
        (("jobs", "list"), "succeeded"),
        (("events", "tail"), "plan.moved"),
        (("events", "verify"), "verified"),
        (("actor", "list"), "builtin/executor"),
        (("actor", "show", "builtin/executor"), "nodes"),
        (("actor", "show", "builtin/executor", "--yaml"), "name: mine/executor"),
        (("action", "list"), "builtin/replace"),
        (("action", "show", "builtin/replace"), "pattern"),
        (("model", "list"), "anthropic/"),
        (("context", "where is the colour?"), "colour"),
        (("context", "--files", "--explain", "where is the colour?"), "strategies"),
    ]:
        ended = asked(*words)
        assert ended.code == 0, ended.err
        assert said in ended.out, words
    assert "no decision 7" in asked("plan", "explain", plan, "7").err


def test_from_head_uses_the_commit_of_the_server(bench: Served, asked: Ask) -> None:
    draft = bench.repository / "draft.txt"
    draft.write_text("not committed\n")
    try:
        for more, there in (((), True), (("--from", "HEAD"), False)):
            words = ("run", "--action", "builtin/command", "--review", "--format", "json", *more, "--")
            ended = asked(*words, "sh", "-c", "ls > listed.txt")
            listed = asked("plan", "diff", json.loads(ended.out)["id"]).out
            assert ("draft.txt" in listed, "README.md" in listed) == (there, True), ended.err
    finally:
        draft.unlink()


def test_a_plan_is_made_followed_reviewed_applied_and_undone(bench: Served, asked: Ask) -> None:
    ended = asked("run", *REPLACE)
    assert ended.code == 3
    assert "step 1 of 1: replace" in ended.err
    assert "not applied: review the result" in ended.err
    plan = ended.id
    assert f"agents --server {bench.url} plan apply {plan}" in ended.err
    assert "your files" not in ended.err
    left_out = asked("plan", "review", plan, "src")
    assert "left out: src" in left_out.err
    changeset = json.loads(asked("plan", "log", plan, "1", "--format", "json").out)["changeset"]
    nothing = asked("plan", "review", plan, "--changeset", changeset)
    assert "to be applied: nothing" in nothing.err
    assert (
        f"every change is left out; include it with `agents --server {bench.url} plan review {plan} --accept"
        in (asked("plan", "diff", plan).err)
    )
    assert "every change at these paths is left out" in asked("plan", "diff", plan, "README.md").err
    assert "no changes at these paths" in asked("plan", "diff", plan, "elsewhere").err
    assert "1 file changed" in asked("plan", "review", plan, "--accept", "--changeset", changeset).err
    applied = asked("plan", "apply", plan)
    assert (applied.code, written(bench)) == (0, "The color of it.\n"), applied.err
    assert "applied to 1 file" in applied.err
    (bench.repository / "README.md").write_text("Mine.\n")
    refused = asked("plan", "undo", plan)
    assert (refused.code, "it conflicts with the current state of README.md" in refused.err) == (3, True)
    (bench.repository / "README.md").write_text("The color of it.\n")
    undone = asked("plan", "undo", plan)
    assert (undone.code, written(bench)) == (0, "The colour of it.\n"), undone.err
    assert asked("plan", "undo", plan).code == 2
    assert asked("plan", "delete", plan, "--yes").code == 0
    gone = asked("plan", "show", plan)
    assert (gone.code, f": agents --server {bench.url} plan list\n" in gone.err) == (2, True)
    lost = asked("resource", "remove", "nosuch")
    assert (lost.code, f": agents --server {bench.url} resource list\n" in lost.err) == (2, True)


def test_obstacles_of_an_apply_are_printed_once(bench: Served, asked: Ask) -> None:
    plan = made(asked)["id"]
    (bench.repository / "README.md").write_text("colours of our own\n")
    refused = asked("plan", "apply", plan)
    assert refused.code == 3
    assert refused.err.count("it conflicts with the current state of README.md") == 1, refused.err
    assert f"plan apply {plan}" in refused.err
    assert "it conflicts with the current state of README.md" in asked("plan", "show", plan).out
    asked("plan", "reject", plan)


def _step(title: str, instructions: str, **more: Any) -> dict[str, Any]:
    return {"title": title, "instructions": instructions, **more}


def _planned(*steps: dict[str, Any], decisions: Sequence[str] = ()) -> dict[str, Any]:
    made = [{"question": f"{one}?", "choice": one, "rationale": "it fits"} for one in decisions]
    return says({"summary": "so", "decisions": made, "steps": list(steps)})


def _edits(words: str, new: str) -> dict[str, Any]:
    turn = answer(call("edit", path="README.md", old="colour", new=new))
    return executes(turn, says("done"), when={"first_user": words})


RULES = [
    strategizes(
        _planned(_step("YAML", "write tint"), decisions=["yaml"]),
        when={"first_user": "This was planned before"},
    ),
    strategizes(_planned(_step("a part", "do it")), when={"first_user": "part of a larger goal"}),
    strategizes(
        _planned(_step("one", "write hue", sub_plan=True), _step("other", "write tint", sub_plan=True)),
        when={"first_user": "Split"},
    ),
    strategizes(_planned(_step("JSON", "write hue", decisions=[1]), decisions=["json"])),
    executes(says("I cannot"), when={"first_user": "disagree|conflict|<<<<"}),
    _edits("write hue", "hue"),
    _edits("write tint", "tint"),
    reviews(accept()),
]


@pytest.fixture
def model(bench: Served) -> str:
    path = bench.home / "script.yaml"
    path.write_text(json.dumps({"version": 1, "rules": RULES}))
    return f"scripted/{path}"


def test_decisions_are_shown_explained_and_corrected(agents: Ask, asked: Ask, model: str) -> None:
    plan = asked("run", "Keep settings", "--model", model, "--profile", "trusted").id
    explained = asked("plan", "explain", plan, "1")
    assert "carried out by  JSON" in explained.out
    assert f"plan correct {plan} 1 --guidance" in explained.err
    tried = asked("plan", "correct", f"{plan}.1", "--dry-run")
    assert tried.out == agents("plan", "correct", f"{plan}.1", "--dry-run", on_server=True).out
    guided = asked("plan", "correct", f"{plan}.1", "--dry-run", "--guidance", "x")
    assert (guided.out, "repeat without --dry-run" in guided.err) == (tried.out, True)
    assert "  file: README.md" in tried.out
    corrected = asked("plan", "correct", plan, "1", "--guidance", "people want comments")
    assert corrected.code == 3, corrected.err
    assert (
        f"correction 1 of plan {plan}: decision 1 is superseded; rolled back to checkpoint 1" in corrected.err
    )
    assert "+The tint of it." in asked("plan", "diff", plan).out
    assert "superseded: 1 decision" in asked("plan", "tree", plan).err
    between = ("diff", "--between", f"{plan}@1", plan)
    for words in (
        ("tree", plan, "--all"),
        ("explain", plan, "1"),
        ("explain", plan, "2"),
        (*between, "--format", "json"),
        (*between, "--name-only"),
        ("diff", "--between", f"{plan}@2", plan),
    ):
        here, there = agents("plan", *words, on_server=True), asked("plan", *words)
        assert (there.code, there.out) == (here.code, here.out), words
    assert "-The hue of it.\n+The tint of it." in asked("plan", *between).out
    assert "no differences" in asked("plan", "diff", "--between", plan, plan).err
    assert asked("plan", "explain", plan, "9").code == 2


def test_programs_see_the_same_of_a_plan_wherever_it_runs(
    agents: Ask, asked: Ask, model: str, tmp_path: Path
) -> None:
    words = ("run", "Keep settings", "--model", model, "--profile", "trusted", "--format", "stream-json")
    # In a state of its own: other tests compare the lists of the server and of its machine.
    own = ("--set", f"state.directory={tmp_path / 'state'}")
    here = agents(*own, *words, "--here", on_server=True)
    there = asked(*words)
    assert (there.code, _seen(there)) == (here.code, _seen(here))
    assert {one["event"] for one in _seen(there)} >= {"thinking", "piece", "thought", "tool", "tool_done"}


def _seen(ended: Ended) -> list[dict[str, Any]]:
    """All but the plan at the end; neighbouring pieces of an answer as one, no ids, and no arguments of
    calls, which a server does not record.
    """
    found: list[dict[str, Any]] = []
    for line in ended.out.splitlines()[:-1]:
        one = json.loads(line)
        named = one.pop("plan")
        one.pop("arguments", None)
        one["text"] = one["text"].replace(named, "PLAN")
        if found and one["event"] == "piece" == found[-1]["event"]:
            found[-1]["text"] += one["text"]
        else:
            found.append(one)
    return found


def test_sub_plans_are_followed_and_their_conflicts_resolved(asked: Ask, model: str) -> None:
    ended = asked("run", "Split it", "--model", model, "--profile", "trusted")
    assert (ended.code, "sub-plans conflict in README.md" in ended.err) == (3, True), ended.err
    account = json.loads(asked("plan", "show", ended.id, "--format", "json").out)
    for part in account["sub_plans"]:
        short = part["id"][-6:]
        assert ended.err.count(f"{short}  step 1 of 1: a part\n") == 1, ended.err
        assert ended.err.index(f"{short}  plan {part['id']}: {part['name']}\n") > 0
    watched = asked("plan", "watch", ended.id)
    assert watched.err.count("step 1 of 1: a part\n") == 2
    shown = asked("plan", "resolve", ended.id).out
    assert all(words in shown for words in ("README.md: ", "The hue of it.", "The tint of it."))
    (row,) = json.loads(asked("plan", "resolve", ended.id, "--format", "json").out)
    assert (row["path"], row["marked"], row["ours"]["is"]) == ("README.md", True, "a file")
    assert asked("plan", "resolve", ended.id, "nosuch", "--ours").code == 2
    assert "no conflicts left" in asked("plan", "resolve", ended.id, "README.md", "--theirs").err
    resumed = asked("plan", "resume", ended.id)
    assert (resumed.code, "step 1 of 1" in resumed.err) == (3, False), resumed.err
    listed = asked("plan", "list", "--all").out.splitlines()
    assert [line.split()[-1] for line in listed if "    o" in line] == ["one", "other"]
    tree = asked("plan", "tree", ended.id).out
    assert all(f"sub-plan {part['id']}: {part['name']} (merged)" in tree for part in account["sub_plans"])


def test_goals_of_a_file_are_plans_of_their_own(bench: Served, asked: Ask, model: str) -> None:
    file = bench.home / "goals.txt"
    file.write_text("Keep one thing\n# not this\nKeep another\n")
    words = ("run", "-f", str(file), "--model", model, "--profile", "trusted")
    ended = asked(*words, "--parallel", "1", "--format", "json")
    assert ended.code == 3, ended.err
    first, then = json.loads(ended.out)
    assert first["updated"] <= then["created"]
    assert ended.err.count("step 1 of 1: JSON") == 2
    assert f"plan {then['id']} needs you: Keep another" in ended.err
    reviewed = asked(*words, "--review")
    assert (reviewed.code, reviewed.out.count("the result is ready for review")) == (0, 2), reviewed.err
    started = json.loads(asked(*words, "--background", "--format", "json").out)
    assert [one["goal"] for one in started] == ["Keep one thing", "Keep another"]
    for one in started:
        assert asked("plan", "watch", one["plan"]).code == 3
    assert asked(*words, "--background", "--parallel", "2").code == 2
    # One that no server takes says nothing about those that it has taken.
    file.write_text(f"Keep one thing\n{'x' * 100_001}\n")
    for more in ("--review", "--background"):
        refused = asked(*words, more)
        begun = re.findall(r"plan (\w{26}) (?:is on|runs on)", refused.err)
        assert (refused.code, len(begun), "at most 100000" in refused.err) == (2, 1, True), refused.err
        asked("plan", "watch", *begun)


def test_goals_that_belong_together_are_parts_of_one_plan(bench: Served, asked: Ask) -> None:
    file = bench.home / "goals.yaml"
    replaces = {"action": "builtin/replace", "arguments": {"pattern": "colour", "replacement": "color"}}
    ends = {"action": "builtin/command", "arguments": {"argv": ["sed", "-i", "s/of it/of all/", "README.md"]}}
    goals = [{"name": "spelling", **replaces}, {"name": "more", "needs": ["spelling"], **ends}]
    file.write_text(json.dumps({"goal": "Mend it", "goals": goals}))
    ended = asked("run", "-f", str(file), "--yes", "--profile", "full-auto", "--format", "json")
    assert (ended.code, written(bench)) == (0, "The color of all.\n"), ended.err
    told = json.loads(ended.out)
    assert (told["goal"], [one["name"] for one in told["sub_plans"]]) == ("Mend it", ["spelling", "more"])
    file.write_text(
        json.dumps({"goals": [{"name": "one", "needs": ["two"]}, {"name": "x", "action": "a/b"}]})
    )
    wrong = asked("run", "-f", str(file))
    assert wrong.code == 2
    assert all(said in wrong.err for said in ("two", "a/b")), wrong.err


GREET = """\
name: team/greet
execute: {steps: [{tool: command, with: {argv: [touch, hello.txt]}}]}
"""


def test_files_of_a_resource_are_surveyed_and_trusted_remotely(
    bench: Served, asked: Ask, agents: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, brought = bench.home / "far.git", ".cleveragents/actions/greet.yaml"
    clone = bench.home / "far"
    git(bench.home, "clone", "-q", str(bench.repository), str(clone))
    (clone / brought).parent.mkdir(parents=True)
    (clone / brought).write_text(GREET)
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "greets")
    git(bench.home, "clone", "-q", "--bare", str(clone), str(far))
    branch = git(clone, "rev-parse", "--abbrev-ref", "HEAD").strip()
    address = f"file://{far}"
    assert asked("project", "add", "brought").code == 0
    added = asked("resource", "add", "far", "--project", "brought", "--remote", address, "--branch", branch)
    assert added.code == 0, added.err
    try:
        unread = asked("trust", "--resource", "far")
        assert (unread.code, "touch hello.txt" in unread.err) == (3, True), unread.err
        assert f"agents --server {bench.url} trust --yes --resource far" in unread.err
        for words in (("run", "--action"), ("action", "show")):
            held = asked(*words, "team/greet", "--resource", "far")
            assert f": agents --server {bench.url} trust --resource far\n" in held.err, held.err
        no = asked("trust", "--resource", "far", typed="n\n")
        assert (no.code, "no files were trusted" in no.err) == (1, True)
        given = asked("trust", "--resource", "far", typed="y\n")
        assert (given.code, brought in given.out) == (0, True), given.err
        again = json.loads(asked("trust", "--resource", "far", "--format", "json").out)
        assert [(one["path"], one["state"]) for one in again] == [(brought, "already trusted")]
        assert brought in asked("trust", "--list").out
        assert "team/greet" in asked("action", "list", "--resource", "far").out
        assert brought in asked("trust", "--revoke", "--resource", "far").out
        assert "no trusted files at far" in asked("trust", "--revoke", "--resource", "far").err
        wrong = asked("trust", str(clone))
        assert (wrong.code, "--resource NAME" in wrong.err) == (2, True)
        log_in(bench, agents, monkeypatch, "operator")
        trust = ("--server", bench.url, "trust", "--resource", "far", "--yes")
        foreign = agents(*trust)
        assert (foreign.code, "there is no resource 'far'" in foreign.err) == (2, True), foreign.err
        log_in(bench, agents, monkeypatch, "admin")
        member = asked("project", "add-member", "brought", "operator", "--role", "operator")
        assert member.code == 0, member.err
        log_in(bench, agents, monkeypatch, "operator")
        refused = agents(*trust)
        assert (refused.code, "admin" in refused.err) == (1, True), refused.err
    finally:
        log_in(bench, agents, monkeypatch, "admin")
        assert asked("resource", "remove", "far").code == 0
        assert asked("project", "remove", "brought").code == 0


def test_a_question_is_answered(bench: Served, asked: Ask, agents: Ask, model: str) -> None:
    place = bench.repository / ".cleveragents" / "actors" / "asking.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(ASKING)
    assert agents("trust", str(bench.repository), "--yes", on_server=True).code == 0
    words = ("run", "ask", "--actor", "tests/asking", "--model", model, "--profile", "full-auto", "--review")
    waits = asked(*words)
    assert (waits.code, "plan answer" in waits.err) == (3, True), waits.err
    assert asked("plan", "answer", waits.id, " ").code == 2
    answered = asked("plan", "answer", waits.id, "red")
    assert answered.code == 0, answered.err
    assert "+red" in asked("plan", "diff", waits.id).out
    # One that the server has never seen goes along with the plan, and is known when that goes on.
    sent = bench.home / "mine.yaml"
    sent.write_text(ASKING.replace("tests/asking", "mine/asking"))
    typed = asked(*(str(sent) if word == "tests/asking" else word for word in words), typed="blue\n")
    assert (typed.code, "+blue" in asked("plan", "diff", typed.id).out) == (0, True), typed.err
    assert "mine/asking" not in asked("actor", "list").out
    sent.write_text(ASKING.replace("entry: colour", "entry: nowhere"))
    wrong = asked("run", "ask", "--actor", str(sent), "--model", model)
    assert (wrong.code, "nowhere" in wrong.err) == (2, True), wrong.err


ASKING = """\
name: tests/asking
type: graph
state:
  colour: {type: string}
entry: colour
nodes:
  colour: {type: human, question: "Which colour?", output: colour, next: write}
  write: {type: tool, tool: write, with: {path: told.txt, content: "${colour}"}, next: end}
"""


def test_actions_are_stored_and_file_commands_need_no_server(bench: Served, asked: Ask) -> None:
    file = bench.home / "format.yaml"
    file.write_text("name: team/format\ndescription: d\nexecute: {steps: [{tool: list}]}\n")
    kept = asked("action", "create", str(file))
    assert (kept.code, "team/format" in asked("action", "list").out) == (0, True), kept.err
    again = asked("action", "create", str(file))
    assert (again.code, "or replace it" in again.err) == (2, True), again.err
    assert asked("action", "create", "--replace", str(file)).code == 0
    assert asked("action", "delete", "team/format").code == 0
    actor = bench.home / "asking.yaml"
    actor.write_text(ASKING)
    for words in (("validate",), ("graph",), ("graph", "--mermaid"), ("show",)):
        ended = asked("actor", words[0], str(actor), *words[1:])
        assert ended.code == 0, ended.err
    assert asked("actor", "schema").code == 0
    for words in ((), ("--mermaid",), ("--format", "json")):
        assert "think" in asked("actor", "graph", "builtin/executor", *words).out
    assert "context_tokens" in asked("model", "show", "anthropic/claude-sonnet-4-5").out
    assert asked("model", "show", "no/such").code == 2


def test_yes_applies_and_background_returns_at_once(bench: Served, asked: Ask) -> None:
    ended = asked("run", *REPLACE, "--yes", "--format", "json")
    assert (ended.code, json.loads(ended.out)["state"]) == (0, "applied")
    assert asked("plan", "undo", ended.id).code == 0
    begun = asked("run", *REPLACE, "--background", "--yes", "--format", "json")
    assert json.loads(begun.out)["server"] == bench.url
    assert json.loads(begun.out)["id"] == json.loads(begun.out)["plan"]
    plan = json.loads(begun.out)["plan"]
    watched = asked("plan", "watch", plan, "--format", "json")
    assert (watched.code, json.loads(watched.out)["state"]) == (0, "applied")
    assert asked("plan", "undo", plan).code == 0


def test_a_terminal_is_asked_for_approval_and_about_the_result(bench: Served, asked: Ask) -> None:
    ended = asked("run", *REPLACE, "--profile", "manual", typed="y\nd\ny\n")
    assert (ended.code, written(bench)) == (0, "The color of it.\n"), ended.err
    assert "Approve?" in ended.err
    assert "+The color of it." in ended.out
    assert asked("plan", "undo", ended.id).code == 0
    rejected = asked("run", *REPLACE, typed="r\ny\n")
    assert (rejected.code, "status  discarded" in rejected.out) == (0, True)
    later = asked("run", *REPLACE, typed="n\n")
    assert (later.code, "plan apply" in later.err) == (0, True)


def test_requests_are_approved_or_denied_later(asked: Ask) -> None:
    waiting = asked("run", *REPLACE, "--profile", "manual")
    assert waiting.code == 3
    assert "plan approve" in waiting.err
    approved = asked("plan", "approve", waiting.id, "1")
    assert (approved.code, "2 lines added" in approved.err) == (3, True)
    back = asked("plan", "rollback", waiting.id, "1")
    assert (back.code, "rolled back to checkpoint 1" in back.err) == (0, True)
    assert asked("plan", "resume", waiting.id).code == 3
    assert asked("plan", "cancel", waiting.id).code == 0
    waiting = asked("run", *REPLACE, "--profile", "manual")
    denied = asked("plan", "deny", waiting.id)
    assert (denied.code, "denied:" in denied.err) == (0, True)
    again = asked("plan", "approve", waiting.id)
    assert again.code != 0
    assert "Traceback" not in again.err


def test_a_failed_check_and_a_failed_plan_end_as_here(bench: Served, asked: Ask) -> None:
    unchecked = asked("run", *REPLACE, "--check", "false", "--yes")
    assert (unchecked.code, "check false: failed" in unchecked.err) == (3, True)
    assert written(bench) == "The colour of it.\n"
    failed = asked("run", "--action", "builtin/command", "--profile", "full-auto", "--", "false")
    assert failed.code == 1
    reason, steps = failed.err.index("error: plan"), failed.err.index(" plan resume ")
    assert reason < steps, "the reason comes first"
    assert failed.err.count("ended with exit code 1") == 1


def test_an_interrupted_run_pauses_the_plan(bench: Served, asked: Ask) -> None:
    words = (
        "--action",
        "builtin/command",
        "--profile",
        "full-auto",
        "--",
        "sh",
        "-c",
        "echo begun; sleep 99",
    )
    with bench.begun("--server", bench.url, "run", *words) as process:
        assert process.stderr is not None
        plan = process.stderr.readline().split()[1].rstrip(":")
        while "begun" not in process.stderr.readline().split():
            assert process.poll() is None
        interrupt(process)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, "paused" in out) == (130, True)
    assert asked("plan", "pause", plan).err.startswith(f"plan {plan} is already paused")
    assert asked("plan", "cancel", plan).code == 0


def test_a_running_plan_is_cancelled(bench: Served, asked: Ask) -> None:
    words = ("--action", "builtin/command", "--profile", "full-auto", "--", "sleep", "99")
    plan = json.loads(asked("run", "--background", "--format", "json", *words).out)["plan"]
    wait_until(lambda: plan in asked("plan", "list", "--state", "processing").out)
    assert "diff" not in asked("plan", "diff", plan).out
    ended = asked("plan", "cancel", plan, "--reason", "wrong branch")
    assert (ended.code, "no process is left" in ended.err) == (0, True)
    account = json.loads(asked("plan", "show", plan, "--format", "json").out)
    job, sandbox = account["job"], Path(account["sandbox"])
    assert asked("jobs", "cancel", job).err.startswith(f"job {job} is already cancelled")
    assert sandbox.is_dir()
    assert asked("plan", "cancel", plan, "--remove-sandbox").code == 0
    assert not sandbox.exists()


def test_sandbox_edits_are_captured_and_end_with_a_cancelled_plan(asked: Ask) -> None:
    account = made(asked)
    plan, sandbox = account["id"], Path(account["sandbox"])
    assert "no edits" in asked("plan", "reread", plan).err
    (sandbox / "README.md").write_text("By hand.\n")
    taken_in = asked("plan", "reread", plan)
    assert (taken_in.code, "as call 2: 2 files" in taken_in.err) == (0, True), taken_in.err
    assert "+By hand." in asked("plan", "diff", plan).out
    ended = asked("plan", "cancel", plan, "--remove-sandbox")
    assert (ended.code, sandbox.is_dir()) == (0, False), ended.err


def test_a_model_is_tried_and_a_commit_is_searched_on_the_server(
    bench: Served, asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = bench.home / "hello.yaml"
    hello = {"when": {"user": "Anybody there"}, "reply": {"text": "Here I am."}}
    script.write_text(json.dumps({"version": 1, "rules": [hello]}))
    words = ("model", "test", f"scripted/{script}", "--prompt", "Anybody there?", "--format", "json")
    told = json.loads(asked(*words).out)
    assert (told["answer"], told["cut_off"]) == ("Here I am.", False)
    unscripted = asked("model", "test", f"scripted/{script}", "--prompt", "Something else")
    assert (unscripted.code, "no rule of the script matches" in unscripted.err) == (2, True), unscripted.err
    (bench.repository / "README.md").unlink()
    monkeypatch.chdir(tmp_path)
    there = ("context", "--in", str(bench.repository), "--files", "where is the colour?")
    assert "README.md" not in asked(*there).out.splitlines()
    assert "README.md" in asked(*there, "--at", "HEAD").out.splitlines()


def test_where_there_is_no_file_no_other_words_are_advised(asked: Ask, tmp_path: Path) -> None:
    hollow = tmp_path / "hollow"
    hollow.mkdir()
    assert asked("project", "add", "hollow").code == 0
    assert asked("resource", "add", "hollow", "--project", "hollow", "--path", str(hollow)).code == 0
    question = ("context", "--files", "--resource", "hollow", "zzqqxx")
    ended = asked(*question)
    assert (ended.code, ended.out, ended.err) == (0, "", "note: there is no file in resource hollow\n")
    (hollow / "a.txt").write_text("hello\n")
    assert "try other words" in asked(*question).err


def test_without_a_matching_resource_the_advice_works(
    asked: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = asked("plan", "list", "--here")
    assert (listed.code, "--resource" in listed.err, "omit --here" in listed.err) == (2, False, True)
    empty = no_resource([], "agents --server http://s", "pass --resource NAME")
    add = "`agents --server http://s resource add NAME --project PROJECT`"
    assert empty == f"the server has no resources; add one with {add}"


def test_projects_resources_and_users_are_kept(asked: Ask) -> None:
    assert asked("project", "add", "far", "--max-parallel", "2").code == 0
    added = asked(
        "resource", "add", "far-main", "--project", "far", "--remote", "https://git.example/far.git"
    )
    assert (added.code, "https://git.example/far.git" in added.out) == (0, True)
    assert asked("resource", "add", "x", "--project", "far").code == 2
    assert asked("project", "remove", "far").code == 1
    assert asked("resource", "remove", "far-main").code == 0
    assert asked("project", "remove", "far").code == 0
    assert asked("user", "add", "ada").code == 0
    assert asked("user", "role", "ada", "operator").code == 0
    token = asked("user", "token", "ada", "--label", "laptop", "--format", "json")
    known = json.loads(token.out)
    assert known["token"]
    assert known["id"] in asked("user", "token", "ada", "--list").out
    assert asked("user", "token", "ada", "--revoke", known["id"]).code == 0
    assert asked("user", "remove", "ada").code == 0


def test_a_result_is_pushed_to_a_new_branch_of_a_remote_and_never_over_another(
    asked: Ask, tmp_path: Path
) -> None:
    remote = new_remote(tmp_path, {"README.md": "colour\n"})
    tip, away = remote.tip(), ("--resource", "away")
    assert asked("project", "add", "away").code == 0
    assert asked("resource", "add", "away", "--project", "away", "--remote", remote.address.url).code == 0
    told = asked("run", *REPLACE, "--yes", *away, "--to-branch", "agents/{plan}", "--format", "json")
    plan = json.loads(told.out)
    own = f"agents/{plan['id']}"
    assert (told.code, plan["state"], plan["branch"]) == (0, "applied", own)
    assert f"applied to 1 file of branch {own} of {remote.address.url}" in told.err
    assert (remote.text("README.md", own), remote.tip()) == ("color", tip)
    assert f"pushed to  {own}" in asked("plan", "show", plan["id"]).out
    second = made(asked, *away)["id"]
    refused = asked("plan", "apply", second, "--to-branch", own)
    assert (refused.code, "already exists" in refused.err, "--to-branch NAME" in refused.err) == (
        3,
        True,
        True,
    )
    assert remote.said("rev-parse", f"{own}^") == tip
    for taken_otherwise in ("-x", "HEAD", "refs/heads/main"):
        assert asked("plan", "apply", second, "--to-branch", taken_otherwise).code == 2
    assert asked("plan", "apply", second, "--to-branch", "mine").code == 0
    undone = asked("plan", "undo", second)
    assert f"undone in 1 file of branch mine of {remote.address.url}\ncommitted as " in undone.err
    assert (remote.text("README.md", "mine"), remote.tip()) == ("colour", tip)
    here = asked("run", *REPLACE, "--yes", "--to-branch", "mine")
    assert (here.code, "only plans on git remotes" in here.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("plan", "show", "NOSUCH"), 2, "NOSUCH"),
        (("plan", "apply", "a/../b"), 2, ""),
        (("plan", "show", "\udcff"), 2, "there is no plan"),
        (("run",), 2, "missing goal"),
        (("run", "--yes", "--review", "goal"), 2, "not both"),
        (("run", "--action", "builtin/replace", "--arg", "patern=x"), 2, "pattern"),
        (("run", "--action", "no/such"), 2, "no/such"),
        (("run", "goal", "--resource", "nowhere"), 2, "nowhere"),
        (("run", "goal", "--arg", "x=y"), 2, "--arg needs --action"),
        (("plan", "reread", "no-such"), 2, "there is no plan 'no-such'"),
        (("events", "adopt"), 2, "agents events adopt cannot use a server"),
        (("events", "anchor", "/a"), 2, "agents events anchor cannot use a server"),
        (("events", "verify", "--anchor", "/a"), 2, "--anchor cannot be used with a server"),
        (("events", "verify", "--without-head"), 2, "--without-head cannot be used with a server"),
        (("actor", "run", "builtin/executor"), 2, "agents --server local actor run"),
        (("model", "test"), 2, "no default model: name a model, or set models.default"),
        (("model", "test", "no-provider/of-that-name"), 2, "no-provider"),
        (("context", "--at", "--upload-pack=x", "x"), 2, "--at: should be a commit"),
        (("context", "--at", "nowhere", "x"), 2, "resource shop has no commit nowhere"),
        (("context", "--in", "/no/such", "x"), 2, "/no/such is not a directory"),
        (("context", "--in", "README.md", "x"), 2, "pass a question in a file with --file"),
        (("context", "--in", "/", "--resource", "shop", "x"), 2, "not both"),
        (
            ("context", "--in", "/", "x"),
            2,
            "no resource of the server matches this repository; pass --resource NAME",
        ),
        (
            ("context", "--in", ".git", "x"),
            2,
            "or lies inside a .git directory; pass --resource NAME (resources: ",
        ),
        (("context", "--deadline", "61", "x"), 2, "--deadline: should be less than or equal to 60"),
        (("doctor",), 2, "agents doctor works on this machine only; omit --server"),
        (("mcp", "list"), 2, "agents mcp list works on this machine only; omit --server"),
        (("mcp", "serve", "--workers", "2"), 2, "--workers cannot be used with a server"),
        (("mcp", "serve", "--allow-unisolated"), 2, "--allow-unisolated cannot be used with a server"),
        (("plan", "show", "X/budget"), 2, "there is no plan 'X/budget'"),
        (("plan", "show", ""), 2, "there is no plan ''"),
        (("plan", "diff", "X/budget"), 2, "there is no plan 'X/budget'"),
        (("plan", "diff", "--between", "X/budget", "Y"), 2, "there is no plan 'X/budget'"),
        (("resource", "remove", "a/b"), 2, "there is no resource 'a/b'"),
        (("project", "remove", "a/b"), 2, "there is no project 'a/b'"),
        (("user", "token", "a/b", "--list"), 2, "there is no user or token 'a/b'"),
        (("plan", "shwo", "X"), 2, "did you mean 'show'?"),
        (("plan", "resolve", "X", "a.py"), 2, "pass PATHS"),
        (("plan", "review", "NOSUCH"), 2, "there is no plan 'NOSUCH'"),
        (("plan", "diff", "--between", "@1", "X"), 2, "is not PLAN or PLAN@NUMBER"),
        (("plan", "correct", "X"), 2, "missing DECISION"),
        (("events", "tail", "--type", "no.such"), 2, "no.such"),
        (("actor", "show", "nonsense"), 2, "there is no actor 'nonsense'"),
        (("actor", "validate", "no-such.yaml"), 2, "no-such.yaml"),
        (("run", "-f", "no-such.yaml"), 2, "cannot read the goals in 'no-such.yaml'"),
        (("run", "goal", "-f", "goals.txt"), 2, "cannot be combined with a goal or an action"),
        (("run", "-f", "README.md", "--commit", "x"), 2, "--commit needs a single goal"),
        (("run", "goal", "--include", "x"), 2, "--include cannot be used with a server"),
        (("run", "goal", "--here"), 2, "pass --server local to run the plan in this terminal"),
        (("run", "goal", "--actor", "no-such.yaml"), 2, "no-such.yaml: is not a file"),
        (("run", "goal", "--model", " "), 2, "--model: should not be empty"),
        (("context",), 2, "missing question"),
    ],
)
def test_an_invalid_request_is_reported_and_exits_with_two(
    asked: Ask, words: tuple[str, ...], code: int, said: str
) -> None:
    ended = asked(*words)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("error: ")
    assert said in ended.err
    # What is listed without --server is not what was asked for.
    assert re.search(": agents (plan|resource|project|user) list", ended.err) is None


def test_missing_permissions_and_unknown_users_are_reported(
    bench: Served, agents: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(bench, agents, monkeypatch, "viewer")
    seen = agents("--server", bench.url, "plan", "list")
    refused = agents("--server", bench.url, "run", *REPLACE)
    assert (seen.code, refused.code) == (0, 1)
    assert "the role operator is required" in refused.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert agents("logout", bench.url).code == 0
    stranger = agents("--server", bench.url, "plan", "list")
    assert (stranger.code, f"agents login {bench.url}" in stranger.err) == (1, True)
    assert "no token" in agents("logout", bench.url).err


def test_a_setting_selects_the_server_and_local_does_not(
    bench: Served, agents: Ask, asked: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = made(asked)["id"]
    through = agents("--set", f"server.address={bench.url}", "plan", "list")
    assert plan in through.out
    assert "no single resource" not in through.err
    for said in ("local", ""):
        here = agents("--set", f"server.address={bench.url}", "--server", said, "plan", "list")
        assert (here.code, plan in here.out) == (0, False)
    monkeypatch.chdir(bench.home)
    elsewhere = agents("--set", f"server.address={bench.url}", "plan", "list")
    assert plan in elsewhere.out
    assert "no single resource of the server matches this directory, so the plans of all" in elsewhere.err
    assert agents("--set", f"server.address={bench.url}", "config", "get", "server.port").code == 0
    assert agents("--server", "nonsense", "plan", "list").code == 2
    assert agents("--server", "http://me:pw@host", "plan", "list").code == 2


def test_a_missing_server_is_reported_at_once(agents: Ask) -> None:
    ended = agents("--server", "http://127.0.0.1:9", "plan", "list")
    assert (ended.code, ended.out) == (75, "")
    assert "no server answers at http://127.0.0.1:9" in ended.err


def test_the_resource_is_named_where_the_repository_is_none(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    lost = asked("run", *REPLACE)
    assert (lost.code, "pass --resource NAME (resources: " in lost.err) == (2, True)
    assert asked("run", *REPLACE, "--resource", "shop", "--review").code == 0


def test_in_another_repository_no_plan_of_the_server_is_changed_without_its_name(
    bench: Served, asked: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = made(asked)["id"]
    waiting = asked("run", *REPLACE, "--profile", "manual").id
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(elsewhere, "init", "-q")
    monkeypatch.chdir(elsewhere)
    commands = ["apply", "discard", "publish", "approve", "deny", "resume", "rebase", "review", "undo"]
    for words in [*([command] for command in commands), ["undo", "--yes"], ["answer", "yes"]]:
        refused = asked("plan", *words)
        assert (refused.code, refused.out) == (2, ""), words
        assert "no resource of the server matches this repository; pass a PLAN" in refused.err, words
    assert "colour" in written(bench)
    assert json.loads(asked("plan", "show", plan, "--format", "json").out)["status"] == "ready"
    assert json.loads(asked("plan", "show", waiting, "--format", "json").out)["status"] == "waiting"
    assert " plans of this repository need you" in asked("plan", "show").err  # it changes nothing
    for one in (plan, waiting):
        asked("plan", "cancel", one)
        asked("plan", "delete", one, "--yes")


def test_a_question_that_the_server_does_not_accept_leaves_no_session(asked: Ask, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"version": 1, "rules": [{"reply": {"text": "Hello."}}]}))
    before = asked("session", "list", "--format", "json").out
    refused = asked("ask", "x" * 15_000_000, "--resource", "shop", "--model", f"scripted/{script}")
    assert (refused.code, "bytes of attachments" in refused.err) == (1, True), refused.err
    assert asked("session", "list", "--format", "json").out == before
