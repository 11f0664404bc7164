"""Plans over HTTP, with a worker in this process: made, run, reviewed, applied, undone."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, update

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.plans import local as plans_client
from cleveragents.api.plans.diffs import DiffBounds, PatchBounds, diff_of, masked_patch
from cleveragents.api.plans.review import review_files
from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.storage.service_tables import idempotency_keys
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.apply_bench import git
from tests.server_plan_bench import PlanServer, plan_server

SECRET = "sk-ant-api03-" + "Zq8" * 20
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("server"), sandbox__isolation="off") as server:
        yield server


@pytest.fixture
def known() -> Iterator[None]:
    """The secret is a value that this process knows."""
    secrets = KnownSecrets()
    secrets.add(SECRET)
    yield
    secrets.forget()


def goal(server: PlanServer, path: str, *, old: str = "two", new: str = "2", **body: Any) -> dict[str, Any]:
    """A plan whose actors change one file."""
    model = server.script(
        strategizes(steps({"title": "change it", "instructions": "so", "decisions": [1]})),
        executes(answer(call("edit", path=path, old=old, new=new)), says("done")),
        reviews(accept()),
    )
    return server.make(goal=f"change {path}", model=model, profile="full-auto", apply="review", **body)


def test_a_plan_is_made_reviewed_applied_and_undone(server: PlanServer) -> None:
    made = server.command(
        "echo new > new.txt; echo no > unwanted.txt; sed -i s/alpha/ALPHA/ b.txt", apply="review"
    )
    assert (made["project"], made["resource_name"], made["request"]["by"]) == ("team", "shop", "operator")
    plan = server.rested(made)
    assert (plan["phase"], plan["state"], plan["needs"]) == ("execute", "complete", "review")
    assert "apply" in plan["can"]
    where = f"/plans/{plan['id']}"

    reviewed = server.post(f"{where}/review", {"reject": ["unwanted.txt"]})
    assert reviewed["left_out"] == ["unwanted.txt"]
    files = {file["path"]: file for file in server.get(f"{where}/diff")["files"]}
    assert {path: file["accepted"] for path, file in files.items()} == {
        "b.txt": True,
        "new.txt": True,
        "unwanted.txt": False,
    }
    lines = [(line["kind"], line["text"]) for line in files["b.txt"]["hunks"][0]["lines"]]
    assert lines == [("remove", "alpha"), ("add", "ALPHA")]
    assert files["unwanted.txt"]["hunks"]  # who may take it in again sees it

    job = server.done(server.post(f"{where}/apply", status=202))
    assert (job["kind"], job["state"]) == (f"apply:{plan['id']}", "succeeded")
    applied = server.rested(plan)
    assert (applied["state"], applied["needs"]) == ("applied", None)
    assert "undo" in applied["can"]
    assert (server.repository / "b.txt").read_text() == "ALPHA\n"
    assert not (server.repository / "unwanted.txt").exists()

    (server.repository / "b.txt").write_text("by hand\n")
    refused = server.done(server.post(f"{where}/undo", status=202))
    assert (refused["state"], server.get(where)["state"]) == ("failed", "applied")
    problem = refused["problem"]
    assert (problem["code"], problem["status"], "b.txt" in problem["detail"]) == ("apply-conflict", 409, True)
    (server.repository / "b.txt").write_text("ALPHA\n")
    undone = server.done(server.post(f"{where}/undo", status=202))
    assert (undone["problem"], server.get(where)["state"]) == (None, "undone")
    assert not (server.repository / "new.txt").exists()

    other = server.rested(server.command("true", apply="review"))
    jobs = server.get("/jobs", plan=plan["id"], order="newest")["items"]
    assert [one["kind"] for one in jobs] == [
        f"{what}:{plan['id']}" for what in ("undo", "undo", "apply", "plan")
    ]
    events = server.get("/events", plan=plan["id"], after=0, limit=1000)["items"]
    assert {one["subject"] for one in events} == {plan["id"], *(one["id"] for one in jobs)}
    assert [one["position"] for one in events] == sorted(one["position"] for one in events)
    assert server.get("/events", plan=plan["id"], type="plan.created")["items"] == events[:1]
    assert {one["kind"] for one in server.get("/jobs", plan=other["id"])["items"]} == {f"plan:{other['id']}"}
    assert server.bench.operator.delete(f"/api{where}").status_code == 204
    gone = server.bench.viewer.get(f"/api{where}")
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown-plan")


@pytest.mark.usefixtures("known")
def test_a_patch_is_what_git_takes(
    server: PlanServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = server.rested(
        server.command(
            f"sed -i s/three/THREE/ a.txt; printf '\\0\\1' > raw.bin; echo {SECRET} > key.txt; "
            "echo '-----BEGIN PRIVATE KEY-----' > cut.pem; echo MIIEvAIBADANBg >> cut.pem; echo end > z.txt; "
            "seq 100000 > large.txt",
            apply="review",
        )
    )
    patch, masked = (
        client.get(f"/api/plans/{plan['id']}/diff", params={"format": "patch"})
        for client in (server.bench.operator, server.bench.viewer)
    )
    assert patch.headers["content-type"].startswith("text/x-diff")
    # A user who may not apply it sees no known secrets.
    assert (SECRET in patch.text, SECRET in masked.text) == (True, False)
    assert "+THREE" in masked.text
    assert ("MIIEvAIBADANBg" in masked.text, "+end" in masked.text) == (True, True)
    assert "GIT binary patch" not in masked.text
    # Masking a text blocks other requests.
    assert ("+99999\n" in patch.text, "+99999\n" in masked.text) == (True, False)
    assert re.search(r"\+\+\+ b/large.txt\n\([0-9]+ bytes are not shown: .*\ndiff --git", masked.text)
    other = server.rested(server.command("true", apply="review"))
    whole, read = (
        client.get(f"/api/plans/{other['id']}/comparison", params={"other": plan["id"], "format": "patch"})
        for client in (server.bench.operator, server.bench.viewer)
    )
    assert (SECRET in whole.text, SECRET in read.text, "+THREE" in read.text) == (True, False, True)
    assert "GIT binary patch" not in read.text
    for taken in (patch, whole):
        (tmp_path / "it.patch").write_bytes(taken.content)
        git(server.repository, "apply", "--check", str(tmp_path / "it.patch"))
    monkeypatch.setattr(plans_client, "_MOST_FILES", 2)
    where = f"/api/plans/{other['id']}/comparison"
    few = server.bench.viewer.get(where, params={"other": plan["id"]}).json()
    assert ([file["path"] for file in few["files"]], few["truncated"]) == (["a.txt", "cut.pem"], True)
    much = server.bench.viewer.get(where, params={"other": plan["id"], "format": "patch"})
    assert (much.status_code, "as JSON" in much.json()["detail"]) == (422, True)
    wrong = server.bench.viewer.get(f"/api/plans/{plan['id']}/comparison", params={"other": "ZZZZ"})
    assert (wrong.status_code, wrong.json()["errors"][0]["where"]) == (404, ["query", "other"])


def test_a_masked_patch_is_bounded_and_else_whole() -> None:
    files = [
        b"diff --git a/%d b/%d\n--- a/%d\n+++ b/%d\n@@ -1 +1 @@\n-a\n+b\n" % ((n,) * 4) for n in range(4)
    ]
    patch = b"".join(files)
    assert masked_patch(patch) == patch
    assert masked_patch(b"") == b""
    size = len(files[0])
    cut = masked_patch(patch, PatchBounds(bytes=2 * size + 10))
    assert (cut.startswith(files[0] + files[1][:-1]), cut.count(b"are not shown"), cut.count(b"+b")) == (
        True,
        2,
        2,
    )


def test_a_file_whose_name_is_no_text_hides_nothing_of_its_plan(server: PlanServer) -> None:
    made = server.command("echo x > \"$(printf 'odd\\377')\"; echo 3 > plain.txt", apply="review")
    plan = server.rested(made)
    where = f"/plans/{plan['id']}"
    assert [file["path"] for file in server.get(f"{where}/diff")["files"]] == ["odd\ufffd", "plain.txt"]
    other = server.rested(server.command("true", apply="review"))
    compared = server.get(f"{where}/comparison", other=other["id"])
    assert [file["path"] for file in compared["files"]] == ["odd\ufffd", "plain.txt"]
    assert server.post(f"{where}/review", {"reject": ["plain.txt"]})["left_out"] == ["plain.txt"]
    (server.repository / os.fsdecode(b"odd\xff")).write_text("other\n")
    server.done(server.post(f"{where}/apply", status=202))
    refused = server.get(where)
    assert (refused["state"], refused["in_the_way"]["paths"]) == ("constrained", ["odd\ufffd"])
    # It is left out by the name that it is shown with.
    left = server.post(f"{where}/review", {"reject": ["odd\ufffd"]})["left_out"]
    assert left == ["odd\ufffd", "plain.txt"]
    server.post(f"{where}/review", {"reject": ["even\ufffd"]}, status=409)
    assert server.get("/events", plan=plan["id"])["items"]
    (server.repository / os.fsdecode(b"odd\xff")).unlink()


def test_many_files_are_reviewed_with_one_look_at_the_changes(server: PlanServer) -> None:
    made = server.command("mkdir many; for i in 1 2 3 4 5 6; do echo $i > many/$i; done", apply="review")
    plan = server.parts.plans.get(server.rested(made)["id"])
    looks: list[str] = []

    def listen(*facts: Any) -> None:
        if threading.current_thread() is threading.main_thread() and "FROM change_entries" in facts[2]:
            looks.append(facts[2])

    event.listen(Engine, "before_cursor_execute", listen)
    try:
        verdicts = [("many/1", False), ("many/2", False), ("many", False), ("many/2", True)]
        review_files(server.parts, plan, verdicts)
    finally:
        event.remove(Engine, "before_cursor_execute", listen)
    assert len(looks) == 2, looks  # which changesets there are, and what is in the only one
    left = [f"many/{number}" for number in (1, 3, 4, 5, 6)]
    assert server.get(f"/plans/{plan.id}")["left_out"] == left


def test_decisions_calls_and_spending_are_shown(server: PlanServer) -> None:
    plan = server.rested(goal(server, "a.txt", limits={"steps": 50}))
    where = f"/plans/{plan['id']}"
    assert plan["state"] == "complete", plan["error"]
    (decision,) = server.get(f"{where}/decisions")["items"]
    assert (decision["kind"], decision["question"], decision["state"]) == ("decision", "How?", "active")
    assert server.get(f"{where}/decisions/1")["steps"] == ["change it"]
    assert server.bench.viewer.get(f"/api{where}/decisions/9").status_code == 404
    actors = server.get(f"{where}/graph")["actors"]
    assert [(one["actor"], one["role"]) for one in actors] == [
        ("builtin/strategist", "strategize"),
        ("builtin/executor", "execute"),
        ("builtin/reviewer", "review"),
    ]
    assert actors[0]["edges"][0]["from"] == actors[0]["entry"]
    assert actors[0]["running"] == []
    budget = server.get(f"{where}/budget")
    assert (budget["limits"]["steps"], budget["spent"]["steps"]) == (50, 4)
    (listed,) = server.get(f"{where}/calls")["items"]
    assert server.get(f"{where}/calls/1") == listed
    assert server.bench.viewer.get(f"/api{where}/calls/9").json()["code"] == "unknown-checkpoint"


def test_a_decision_is_corrected_after_looking_at_what_that_undoes(server: PlanServer) -> None:
    plan = server.rested(goal(server, "a.txt", old="five", new="5"))
    where = f"/plans/{plan['id']}"
    preview = server.post(f"{where}/correct", {"decision": 1, "dry_run": True})
    assert (preview["files"], preview["checkpoint"]) == (["a.txt"], 1)
    assert server.get(where)["corrections"] == []
    server.post(f"{where}/correct", {"decision": 1, "guidance": "think again"})
    again = server.rested(plan)
    assert [one["guidance"] for one in again["corrections"]] == ["think again"]
    assert (again["needs"], "resume" in again["can"]) == ("review", False)
    states = [one["state"] for one in server.get(f"{where}/decisions")["items"]]
    assert "superseded" in states
    assert server.post(f"{where}/correct", {"decision": 1}, 422)["code"] == "request-refused"
    assert server.post(f"{where}/correct", {"dry_run": True}, 422)["code"] == "request-refused"
    other = {"guidance": "and mention it", "model": "nowhere/at-all"}
    assert server.post(f"{where}/correct", other, 404)["code"] == "unknown-model"
    headers, unanswered = {"Idempotency-Key": "mention"}, update(idempotency_keys).values(answer=None)
    for _ in range(2):
        said = {"guidance": "and mention it"}
        answered = server.bench.operator.post(f"/api{where}/correct", json=said, headers=headers)
        assert answered.status_code == 200, answered.text
        # As if the server had been killed before it kept its answer.
        server.bench.container.database.write(lambda connection: connection.execute(unanswered))
        assert [one["decision"] for one in server.rested(plan)["corrections"]] == [1, None]


def test_a_call_that_asks_is_approved_or_denied(server: PlanServer) -> None:
    for verb, state in (("approve", "complete"), ("deny", "errored")):
        plan = server.asking("four")
        assert (plan["state"], plan["needs"]) == ("waiting", "approval")
        assert {"approve", "deny", "cancel"} <= set(plan["can"])
        where = f"/plans/{plan['id']}"
        wrong = server.bench.operator.post(f"/api{where}/{verb}", json={"call": 7})
        assert (wrong.status_code, wrong.json()["code"]) == (409, "plan-error")
        server.post(f"{where}/{verb}", {"call": 1})
        assert server.rested(plan)["state"] == state
    assert server.get(where)["needs"] == "error"
    assert server.post(f"{where}/reject")["state"] == "rejected"


def test_an_answer_that_names_no_call_is_to_the_first_that_asks_and_to_no_other(server: PlanServer) -> None:
    writes = (answer(call("write", path=f"leave-{number}.txt", content="x")) for number in (1, 2))
    model = server.script(
        strategizes(steps({"title": "write", "instructions": "so", "decisions": [1]})),
        executes(*writes, says("done")),
        reviews(accept()),
    )
    plan = server.rested(server.make(goal="write twice", model=model, profile="manual", limits={"steps": 4}))
    where = f"/plans/{plan['id']}"
    assert plan["needs"] == "approval", plan["error"]
    server.post(f"{where}/approve")
    second = server.rested(plan)
    asking = [one["number"] for one in second["calls"] if one["state"] == "asked"]
    assert (second["needs"], len(asking)) == ("approval", 1)
    late = server.post(f"{where}/approve", status=409)
    assert f"call {asking[0]} is pending now" in late["detail"]
    # Raising the budget while another request is pending does not answer that request.
    assert "budget" in second["can"]
    assert server.post(f"{where}/budget", {"steps": 40})["limits"]["steps"] == 40
    assert server.get(where)["needs"] == "approval"
    server.post(f"{where}/approve", {"call": asking[0]})
    assert server.rested(plan)["files_changed"] == 2
    server.post(f"{where}/reject")
    assert "and makes no more calls" in server.post(f"{where}/budget", {"steps": 50}, 409)["detail"]


def test_a_directory_that_is_no_repository_has_nothing_committed(server: PlanServer) -> None:
    plain = server.home / "plain"
    plain.mkdir()
    container = server.bench.container
    projects, now = container.projects, container.clock.now()
    projects.add_resource("plain", "team", ResourceKind.DIRECTORY, str(plain), now=now)
    body = {"resource": "plain", "action": "builtin/command", "arguments": {"argv": ["ls"]}, "start": "HEAD"}
    answer = server.bench.operator.post("/api/plans", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, ["body", "start"])
    projects.remove_resource("plain", now=now)


def test_a_question_is_answered(server: PlanServer) -> None:
    place = server.repository / ".cleveragents" / "actors" / "asking.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(ASKING)
    trust = server.parts.trust
    trust.give(server.repository, trust.survey(server.repository).files)
    model = server.script(executes(says("x")))
    plan = server.rested(
        server.make(goal="ask", actor="tests/asking", model=model, profile="full-auto", apply="review")
    )
    assert (plan["needs"], plan["waiting_for"]["what"]) == ("question", "Which colour?"), plan["error"]
    assert "answer" in plan["can"]
    answer = {"action": "plan.answer", "plan": plan["id"], "options": {"text": None}, "text": "Answer"}
    assert (plan["waiting_for"]["remedy"], plan["waiting_for"]["remedies"]) == ("Answer", [answer])
    question = plan["waiting_for"]["question"]
    server.post(f"/plans/{plan['id']}/answer", {"text": "red"}, 422)
    # An answer to an earlier question, which another user has answered, does not answer this one.
    late = server.post(f"/plans/{plan['id']}/answer", {"text": "red", "question": "another"}, 409)
    assert "another question is pending: Which colour?" in late["detail"]
    server.post(f"/plans/{plan['id']}/answer", {"text": "red", "question": question})
    done = server.rested(plan)
    told = server.get(f"/plans/{plan['id']}/files", path="told.txt")
    assert (done["state"], told["content"]) == ("complete", "red")
    assert server.get(f"/plans/{plan['id']}/files", path="told.txt", side="before")["exists"] is False
    place.unlink()
    (graph,) = server.get(f"/plans/{plan['id']}/graph")["actors"]
    assert (graph["actor"], graph["nodes"]) == ("tests/asking", [])
    assert "tests/asking" in graph["problem"]


def test_a_plan_that_has_spent_its_budget_goes_on_with_a_larger_one(server: PlanServer) -> None:
    plan = server.rested(goal(server, "a.txt", old="six", new="6", limits={"steps": 2}))
    where = f"/plans/{plan['id']}"
    assert (plan["state"], plan["needs"]) == ("waiting", "budget")
    assert {"budget", "resume"} <= set(plan["can"])
    for body, places in (({"steps": 1}, [["body", "steps"]]), ({}, [])):
        refused = server.post(f"{where}/budget", body, 422)
        assert refused["code"] == "request-refused"
        assert [one["where"] for one in refused.get("errors", ())] == places
    assert server.post(f"{where}/budget", {"steps": 20})["limits"]["steps"] == 20
    assert server.rested(plan)["state"] == "complete"


def test_a_result_is_committed_on_request(server: PlanServer) -> None:
    git(server.repository, "config", "user.name", "Ada")
    git(server.repository, "config", "user.email", "ada@example.org")
    plan = server.rested(server.command("echo kept > kept.txt", apply="review"))
    where = f"/plans/{plan['id']}"
    server.post(f"{where}/review", {"reject": ["."]})
    assert "you rejected all changes" in server.post(f"{where}/apply", status=409)["detail"]
    server.post(f"{where}/review", {"accept": ["."]})
    server.done(server.post(f"{where}/apply", {"commit": "Keep it"}, 202))
    assert git(server.repository, "log", "-1", "--format=%s", "--name-only").split() == [
        "Keep",
        "it",
        "kept.txt",
    ]


def test_a_conflict_shows_in_the_plan_and_nothing_is_touched(server: PlanServer) -> None:
    plan = server.rested(server.command("echo planned > folder/c.txt", apply="review"))
    (server.repository / "folder" / "c.txt").write_text("somebody's\n")
    job = server.done(server.post(f"/plans/{plan['id']}/apply", status=202))
    refused = server.get(f"/plans/{plan['id']}")
    assert (job["state"], refused["state"], refused["needs"]) == ("failed", "constrained", "conflict")
    assert "folder/c.txt" in refused["error"]
    assert refused["in_the_way"]["paths"] == ["folder/c.txt"]
    assert "folder/c.txt" in refused["in_the_way"]["details"]
    assert refused["waiting_for"] is None
    assert (server.repository / "folder" / "c.txt").read_text() == "somebody's\n"
    assert {"apply", "reject", "review"} <= set(refused["can"])
    # Without the conflict a second job applies the same plan.
    (server.repository / "folder" / "c.txt").write_text("gamma\n")
    assert server.done(server.post(f"/plans/{plan['id']}/apply", status=202))["state"] == "succeeded"
    assert server.get(f"/plans/{plan['id']}")["in_the_way"] is None


def test_a_rollback_takes_calls_back_and_a_resume_makes_them_again(server: PlanServer) -> None:
    plan = server.rested(goal(server, "a.txt", old="seven", new="7"))
    for nothing in ({}, {"discard": True}, {"checkpoint": 1, "withdraw": True}):
        assert server.post(f"/plans/{plan['id']}/rollback", nothing, 422)["code"] == "invalid-request"
    refused = server.post(f"/plans/{plan['id']}/rollback", {"withdraw": True}, 409)
    assert "no unfinished revision" in str(refused)
    back = server.post(f"/plans/{plan['id']}/rollback", {"checkpoint": 1})
    assert (back["files_changed"], back["calls"][0]["state"]) == (0, "reverted")
    assert "resume" in back["can"]
    server.post(f"/plans/{plan['id']}/resume")
    gone_on = server.rested(plan)
    assert (gone_on["files_changed"], "resume" in gone_on["can"]) == (1, False)
    assert (
        server.post(f"/plans/{plan['id']}/rollback", {"checkpoint": 99}, 404)["code"] == "unknown-checkpoint"
    )


@pytest.mark.usefixtures("known")
def test_files_are_read_only_where_the_plan_changed_them(server: PlanServer) -> None:
    script = (
        f"echo 'key = \"{SECRET}\"' > key.txt; "
        "head -c 2000000 /dev/zero | tr '\\0' a > big.txt; printf '\\377' > raw"
    )
    plan = server.rested(server.command(script, apply="review"))
    where = f"/plans/{plan['id']}"
    for path in ("../state/state.db", "/etc/passwd", ".git/config", "a.txt", "key.txt/"):
        refused = server.bench.viewer.get(f"/api{where}/files", params={"path": path})
        assert refused.status_code == 404, path
    big = server.get(f"{where}/files", path="big.txt")
    assert (big["truncated"], big["size"], len(big["content"])) == (True, 2_000_000, 1 << 20)
    raw = server.get(f"{where}/files", path="raw")
    assert (raw["binary"], raw["encoding"], raw["content"]) == (True, "base64", "/w==")
    assert SECRET not in server.get(f"{where}/files", path="key.txt")["content"]
    assert SECRET not in str(server.get(f"{where}/diff"))


def test_a_difference_is_bounded_and_says_so(server: PlanServer) -> None:
    plan = server.rested(
        server.command("seq 30 > many.txt; echo x > one.txt; printf '\\0' > raw", apply="review")
    )
    found = server.parts.plans.get(plan["id"])
    bounded: Any = diff_of(server.parts, found, DiffBounds(lines_of_file=10))
    cut = {file["path"]: (file["truncated"], bool(file["hunks"])) for file in bounded["files"]}
    assert cut == {"many.txt": (True, False), "one.txt": (False, True), "raw": (False, False)}
    assert bounded["truncated"] is True
    few: Any = diff_of(server.parts, found, DiffBounds(files=1))
    assert [file["path"] for file in few["files"]] == ["many.txt"]
    assert few["truncated"] is True
    whole: Any = diff_of(server.parts, found)
    assert whole["truncated"] is False


def test_a_plan_of_the_command_line_is_seen_and_not_run_here(server: PlanServer) -> None:
    plan = server.parts.lifecycle.create(PlanDraft("by hand", "builtin/command", str(server.repository)))
    shown = server.get(f"/plans/{plan.id}")
    assert (shown["project"], shown["can"]) == ("default", ["cancel", "pause"])
    refused = server.post(f"/plans/{plan.id}/resume", status=409)
    assert "a command in a terminal runs the plan; respond there" in refused["detail"]
    assert server.parts.plans.get(plan.id).request.get("queue") is None
    assert (
        server.post(f"/plans/{plan.id}/cancel", {"reason": "enough"})["error"]
        == "cancelled: enough (operator)"
    )
