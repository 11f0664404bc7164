"""Jobs, workers, context, actors, actions, models, projects and resources, as the server answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from cleveragents.access.model.project import ResourceKind
from cleveragents.jobs.model.job import Job, NewJob
from cleveragents.jobs.ports import WorkerRecord
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.server.problems import problem
from tests.cli_bench import git, paint_shop
from tests.server_bench import ServerBench, server_bench

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
ACTION = """\
name: team/format
description: Formats the code.
execute:
  steps:
    - tool: command
      with: {argv: [make, format]}
"""
ACTOR = """\
name: team/triage
type: llm
description: Says what an issue is about.
prompt: Say in one sentence what this is about.
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint_shop(tmp_path_factory.mktemp("paint") / "shop")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[ServerBench]:
    home = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch, server_bench(home) as bench:
        patch.setenv("HOME", str(home))  # ignore the actors of the user who runs the tests
        patch.delenv("XDG_CONFIG_HOME", raising=False)
        now = bench.container.clock.now()
        bench.project("paint")
        bench.container.projects.add_resource("wall", "paint", ResourceKind.DIRECTORY, str(shop), now=now)
        remote = "git@git.example:wall.git"
        bench.container.projects.add_resource(
            "far", "paint", ResourceKind.REMOTE, remote, branch="main", now=now
        )
        yield bench


def got(client: TestClient, path: str) -> Any:
    answer = client.get(f"/api{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: Any, status: int, code: str) -> str:
    """Return the detail of the problem."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["detail"])


def submitted(bench: ServerBench, kind: str, payload: dict[str, Any] | None = None) -> Job:
    return bench.container.jobs.submit(NewJob(kind, payload or {}), now=bench.container.clock.now())


def test_jobs_come_in_pieces_each_once_and_masked(bench: ServerBench) -> None:
    jobs = [submitted(bench, "demo", {"password": SECRET, "n": n}).id for n in range(5)]
    seen: list[dict[str, Any]] = []
    after = ""
    while True:
        piece = got(bench.admin, f"/jobs?limit=2{after}")
        assert len(piece["items"]) <= 2
        seen += piece["items"]
        if piece["next"] is None:
            break
        after = f"&after={piece['next']}"
    assert [job["id"] for job in seen if job["kind"] == "demo"] == jobs
    assert SECRET not in str(seen)
    newest = got(bench.admin, "/jobs?limit=2&order=newest")
    assert [job["id"] for job in newest["items"]] == jobs[:-3:-1]
    following = got(bench.admin, f"/jobs?limit=2&order=newest&after={newest['next']}")
    assert [job["id"] for job in following["items"]] == jobs[-3:-5:-1]
    one = got(bench.admin, f"/jobs/{jobs[0]}")
    assert (one["state"], one["attempt"], one["payload"]["n"]) == ("queued", 0, 0)
    others = got(bench.admin, "/jobs?limit=200&state=running&state=failed")
    assert not {job["id"] for job in others["items"]} & set(jobs)
    # Jobs of no plan belong to no project.
    shown = got(bench.operator, "/jobs?limit=200")
    assert shown["next"] is None
    assert not {job["id"] for job in shown["items"]} & set(jobs)
    refused(bench.operator.get(f"/api/jobs/{jobs[0]}"), 404, "unknown-job")


def test_a_job_is_cancelled_by_an_operator_once_and_says_why(bench: ServerBench) -> None:
    new = PlanDraft("goal", "builtin/command", "/nowhere", project="paint")
    plan = bench.container.plan_parts.lifecycle.create(new)
    job = submitted(bench, f"plan:{plan.id}").id
    refused(bench.viewer.post(f"/api/jobs/{job}/cancel"), 403, "not-allowed")
    first = bench.operator.post(f"/api/jobs/{job}/cancel", json={"reason": "wrong branch"})
    assert (first.status_code, first.json()["state"]) == (200, "cancelled")
    assert first.json()["cancel_reason"] == "wrong branch"
    again = bench.operator.post(f"/api/jobs/{job}/cancel")
    assert again.json()["cancel_reason"] == "wrong branch"
    refused(bench.operator.post("/api/jobs/none/cancel"), 404, "unknown-job")
    assert refused(bench.viewer.get("/api/jobs/none"), 404, "unknown-job") == "there is no job 'none'"


def test_a_worker_that_fell_silent_is_lost_and_one_that_left_is_gone(bench: ServerBench) -> None:
    now = bench.container.clock.now()
    working = WorkerRecord(
        id="w1",
        name="one",
        host="here",
        pid=1,
        home="home",
        engine="embedded",
        queue="plans",
        concurrency=4,
        running=2,
        state="working",
        started_at=now - timedelta(hours=1),
        seen_at=now,
    )
    long_ago = now - timedelta(minutes=10)
    registry = bench.container.worker_registry
    registry.report(working)
    registry.report(replace(working, id="w2", seen_at=long_ago))
    registry.report(replace(working, id="w3", seen_at=long_ago, state="gone"))
    with subprocess.Popen(["true"]) as died:
        died.wait()
    here = replace(working, host=socket.gethostname(), home=bench.container.home)
    registry.report(replace(here, id="w4", pid=died.pid))
    registry.report(replace(here, id="w5", pid=os.getpid(), running=0))
    items = got(bench.viewer, "/workers")["items"]
    assert [(one["id"], one["state"], one["running"]) for one in items] == [
        ("w1", "working", 2),
        ("w2", "lost", 0),
        ("w3", "gone", 0),
        ("w4", "lost", 0),
        ("w5", "idle", 0),
    ]
    piece = got(bench.viewer, "/workers?limit=1&after=w1")
    assert ([one["id"] for one in piece["items"]], piece["next"]) == (["w2"], "w2")


def test_a_question_about_a_resource_is_answered_within_its_bounds(bench: ServerBench) -> None:
    question = {"question": "Where is the colour set?", "resource": "wall", "budget": 500, "deadline": 30}
    refused(bench.viewer.post("/api/context", json=question), 403, "not-allowed")
    answer = bench.operator.post("/api/context", json=question)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert "src/paint.py" in found["files"]
    assert found["tokens"] <= found["budget"] == 500
    assert all(one["found_by"] for one in found["fragments"])
    for wrong in ({"deadline": 3600}, {"budget": 1}, {"question": ""}, {"resource": "../wall"}):
        refused(bench.operator.post("/api/context", json={**question, **wrong}), 422, "invalid-request")


def test_no_question_leads_out_of_what_is_registered(bench: ServerBench, shop: Path) -> None:
    ask = {"question": "What is there?", "resource": "nowhere"}
    refused(bench.operator.post("/api/context", json=ask), 404, "unknown-resource")
    ask["resource"] = str(shop)
    refused(bench.operator.post("/api/context", json=ask), 422, "invalid-request")


def test_a_remote_is_asked_about_as_its_branch_is_now(bench: ServerBench, shop: Path, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    git(shop, "clone", "-q", "--bare", str(shop), str(remote))
    branch = git(remote, "symbolic-ref", "--short", "HEAD").strip()
    new = {"name": "away", "project": "paint", "remote": f"file://{remote}", "branch": branch}
    assert bench.admin.post("/api/resources", json=new).status_code == 201
    ask = {"question": "Where is the colour set?", "resource": "away", "deadline": 30}
    assert "src/paint.py" in bench.operator.post("/api/context", json=ask).json()["files"]
    (shop / "src/colour_mixer.py").write_text("def mix_colour(one, other): ...\n")
    git(shop, "add", "src/colour_mixer.py")
    git(shop, "commit", "-qm", "mix")
    git(shop, "push", "-q", str(remote), f"HEAD:{branch}")
    assert "src/colour_mixer.py" in bench.operator.post("/api/context", json=ask).json()["files"]
    before = bench.operator.post("/api/context", json={**ask, "at": "HEAD~1"}).json()
    assert ("src/paint.py" in before["files"], "src/colour_mixer.py" in before["files"]) == (True, False)
    refused(bench.operator.post("/api/context", json={**ask, "at": "v9"}), 422, "request-refused")
    refused(bench.operator.post("/api/context", json={**ask, "at": "--output=x"}), 422, "invalid-request")
    remote.rename(tmp_path / "gone.git")
    refused(bench.operator.post("/api/context", json=ask), 503, "remote-unreachable")
    assert bench.admin.delete("/api/resources/away").status_code == 204


def test_actions_of_a_repository_are_listed_and_usable_once_trusted(bench: ServerBench, shop: Path) -> None:
    folder = shop / ".cleveragents"
    (folder / "actions").mkdir(parents=True)
    (folder / "actions" / "own.yaml").write_text(ACTION.replace("team/", "shop/"))
    (folder / "actors").mkdir()
    (folder / "actors" / "own.yaml").write_text(ACTOR.replace("team/", "shop/"))
    for kind, name in (("actions", "shop/format"), ("actors", "shop/triage")):
        names = {one["name"]: one for one in got(bench.viewer, f"/{kind}?resource=wall")["items"]}
        assert (names[name]["origin"], names[name]["trusted"]) == ("repository", False)
        assert name not in str(got(bench.viewer, f"/{kind}"))
        assert name not in str(got(bench.viewer, f"/{kind}?resource=far")), "its files are elsewhere"
        refused(bench.viewer.get(f"/api/{kind}/{name}"), 404, f"unknown-{kind[:-1]}")
        untrusted = bench.viewer.get(f"/api/{kind}/{name}?resource=wall")
        refused(untrusted, 409, "not-trusted")
        assert untrusted.json()["remedies"][0]["options"] == {"resource": "wall"}
        refused(bench.viewer.get(f"/api/{kind}?resource=nowhere"), 404, "unknown-resource")
    made = bench.operator.post("/api/plans", json={"resource": "wall", "action": "shop/format"})
    refused(made, 409, "not-trusted")
    assert made.json()["remedies"][0]["options"] == {"resource": "wall"}


def test_an_actor_is_shown_with_its_graph_and_its_file(bench: ServerBench) -> None:
    shown = got(bench.viewer, "/actors/builtin/executor")
    graph = shown["graph"]
    names = {node["name"] for node in graph["nodes"]}
    assert graph["entry"] in names
    assert {edge["from"] for edge in graph["edges"]} <= names
    assert "name: mine/executor" in shown["yaml"]


def test_actors_of_the_server_user_do_not_reveal_their_home(
    bench: ServerBench, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = bench.state.parent / ".config" / "cleveragents" / "actors"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(ACTOR)
    row = next(one for one in got(bench.viewer, "/actors")["items"] if one["name"] == "team/triage")
    assert (row["origin"], row["source"]) == ("user", "mine.yaml")
    (folder / "mine.yaml").unlink()


@pytest.mark.parametrize("path", ["/actors/x/mine.yaml", "/actors/..%2f..%2fetc/passwd", "/actions/a/b.yaml"])
def test_a_name_is_never_a_file(bench: ServerBench, path: str) -> None:
    answer = bench.viewer.get(f"/api{path}")
    assert answer.status_code in (404, 422)
    assert answer.json()["code"] in ("not-found", "invalid-request")


def test_the_yaml_of_an_actor_is_judged_line_by_line_and_reads_no_file(bench: ServerBench) -> None:
    def judged(yaml: str) -> Any:
        answer = bench.operator.post("/api/actors/validation", json={"yaml": yaml})
        assert answer.status_code == 200, answer.text
        return answer.json()

    good = judged(ACTOR)
    assert (good["valid"], good["name"], good["problems"]) == (True, "team/triage", [])
    assert [node["type"] for node in good["graph"]["nodes"]] == ["llm"]
    bad = judged(ACTOR.replace("type: llm", "type: lim"))
    assert (bad["valid"], bad["name"], bad["graph"]) == (False, None, None)
    assert any("line 2" in problem for problem in bad["problems"])
    beside = bench.state.parent / "secret.md"
    beside.write_text(SECRET)
    for file in ("secret.md", str(beside), "../secret.md"):
        said = judged(ACTOR.replace("prompt: Say", f"prompt: {{file: {file}}} #"))
        assert not said["valid"]
        assert SECRET not in str(said)
    assert not judged("!!python/object/apply:os.system ['true']")["valid"]
    assert not judged("a: &a [x, x]\nb: [*a, *a]")["valid"]
    refused(bench.viewer.post("/api/actors/validation", json={"yaml": ACTOR}), 403, "not-allowed")


def test_an_actors_yaml_does_not_tell_which_files_the_server_has(bench: ServerBench) -> None:
    part = bench.state.parent / "part.yaml"

    def problems(actor: str) -> list[str]:
        node = f"{{type: subgraph, actor: {actor}}}"
        yaml = f"name: team/whole\ntype: graph\nentry: part\nnodes:\n  part: {node}\n"
        answer = bench.operator.post("/api/actors/validation", json={"yaml": yaml})
        found: list[str] = answer.json()["problems"]
        return found

    assert problems("builtin/executor") == []
    missing = problems(str(part))
    part.write_text("type: lim")
    assert problems(str(part)) == missing != []


def test_an_action_is_kept_by_an_admin_shown_and_deleted_and_runs_nothing(bench: ServerBench) -> None:
    made = {"yaml": ACTION}
    for client in (bench.viewer, bench.operator):
        refused(client.post("/api/actions", json=made), 403, "not-allowed")
    created = bench.admin.post("/api/actions", json=made)
    assert (created.status_code, created.json()["name"]) == (201, "team/format")
    assert created.json()["steps"][0]["with"] == {"argv": ["make", "format"]}
    assert got(bench.viewer, "/actions/team/format") == created.json()
    refused(bench.admin.post("/api/actions", json=made), 409, "action-exists")
    assert bench.admin.post("/api/actions", json={**made, "replace": True}).status_code == 201
    refused(bench.operator.delete("/api/actions/team/format"), 403, "not-allowed")
    assert bench.admin.delete("/api/actions/team/format").status_code == 204
    refused(bench.viewer.get("/api/actions/team/format"), 404, "unknown-action")
    assert "built in" in refused(
        bench.admin.delete("/api/actions/builtin/replace"), 422, "configuration-error"
    )
    assert got(bench.viewer, "/jobs?state=running")["items"] == []


def test_an_invalid_action_reports_every_mistake_and_is_not_stored(bench: ServerBench) -> None:
    wrong = ACTION.replace("name: team/format", "name: Format").replace("tool: command", "tool: commando")
    said = refused(bench.admin.post("/api/actions", json={"yaml": wrong}), 422, "invalid-action")
    assert "line 1" in said
    assert "line 5" in said
    for yaml in ("!!python/object/apply:os.system ['true']", "x" * 65_536, "name: builtin/mine\n"):
        refused(bench.admin.post("/api/actions", json={"yaml": yaml}), 422, "invalid-action")
    refused(bench.admin.post("/api/actions", json={"yaml": "x" * 65_537}), 422, "invalid-request")
    assert all(one["origin"] == "builtin" for one in got(bench.viewer, "/actions")["items"])


def test_models_and_profiles_name_the_defaults(bench: ServerBench) -> None:
    models = got(bench.viewer, "/models?provider=anthropic&limit=1000")["items"]
    assert models
    assert all(one["model"].startswith("anthropic/") and one["input"] > 0 for one in models)
    profiles = got(bench.viewer, "/profiles")["items"]
    assert [one["name"] for one in profiles if one["default"]] == ["supervised"]
    by_name = {one["name"]: one["verdicts"] for one in profiles}
    assert (by_name["review"]["network"], by_name["full-auto"]["apply"]) == ("deny", "allow")
    about = got(bench.viewer, "/about")
    assert (about["engine"], about["database"], about["default_profile"]) == (
        "embedded",
        "sqlite",
        "supervised",
    )


def test_a_model_is_asked_something_small_and_its_failure_is_not_tried_again(
    bench: ServerBench, tmp_path: Path
) -> None:
    script = tmp_path / "script.yaml"
    rules = [
        {"when": {"user": "five words"}, "reply": {"text": f"The key is {SECRET}."}},
        {"when": {"user": "away"}, "reply": {"fault": {"status": 503, "retry_after_seconds": 0}}},
    ]
    script.write_text(json.dumps({"rules": rules}))
    trial: dict[str, Any] = {"model": f"scripted/{script}"}
    refused(bench.viewer.post("/api/models/trial", json=trial), 403, "not-allowed")
    told = bench.operator.post("/api/models/trial", json=trial)
    assert (told.status_code, SECRET in told.text, told.json()["cut_off"]) == (200, False, False), told.text
    away = bench.operator.post("/api/models/trial", json={**trial, "prompt": "away?"})
    refused(away, 409, "model-unavailable")
    refused(bench.operator.post("/api/models/trial", json={}), 422, "request-refused")


def test_only_what_was_shown_is_trusted_and_only_by_an_admin(bench: ServerBench, tmp_path: Path) -> None:
    repository = paint_shop(tmp_path / "brings")
    content = '{"mcpServers": {"evil": {"command": "sh", "cwd": "sub", "env": {"K": "${OPENAI_API_KEY}"}}}}'
    (repository / ".mcp.json").write_text(content)
    bench.project("brings")
    body = {"name": "brings", "project": "brings", "path": str(repository)}
    assert bench.admin.post("/api/resources", json=body).status_code == 201
    where = "/api/resources/brings/trust"
    for client in (bench.viewer, bench.operator):
        refused(client.get(where), 403, "not-allowed")
        refused(client.post(where, json={"files": [{"path": "x", "digest": "0" * 64}]}), 403, "not-allowed")
        refused(client.post(f"{where}/revoke"), 403, "not-allowed")
        refused(client.get("/api/trust"), 403, "not-allowed")
    (file,) = got(bench.admin, "/resources/brings/trust")["files"]
    assert (file["path"], file["trusted"]) == (".mcp.json", False)
    assert file["preview"] == [
        "server evil: sh",
        "  receives your variable OPENAI_API_KEY (env K)",
        "  env K=${OPENAI_API_KEY}",
        "  cwd sub",
    ]
    seen = {"files": [{"path": file["path"], "digest": file["digest"]}]}
    # The repository changes between the survey and the trust.
    (repository / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "rm"}}}')
    refused(bench.admin.post(where, json=seen), 409, "changed-meanwhile")
    gone = {"files": [*seen["files"], {"path": "../.mcp.json", "digest": file["digest"]}]}
    refused(bench.admin.post(where, json=gone), 409, "changed-meanwhile")
    assert got(bench.admin, "/trust")["items"] == []
    (repository / ".mcp.json").write_text(content)
    given = bench.admin.post(where, json=seen)
    assert [one["trusted"] for one in given.json()["files"]] == [True], given.text
    assert [one["digest"] for one in got(bench.admin, "/trust")["items"]] == [file["digest"]]
    event = got(bench.admin, "/events?type=trust.given")["items"][-1]
    assert event["facts"]["by"] == "admin"
    assert got(bench.viewer, "/events?type=trust.given")["items"] == []
    assert len(bench.admin.post(f"{where}/revoke").json()["paths"]) == 1
    assert got(bench.admin, "/resources/brings/trust")["files"][0]["trusted"] is False
    for path in ("resources", "projects"):
        assert bench.admin.delete(f"/api/{path}/brings").status_code == 204


def test_a_file_with_a_non_text_name_can_be_trusted(bench: ServerBench, tmp_path: Path) -> None:
    repository = paint_shop(tmp_path / "odd")
    skill = repository / "skills" / "odd"
    skill.mkdir(parents=True)
    for name in (b"one\xfe", b"one\xff"):
        Path(os.fsdecode(os.fsencode(skill) + b"/" + name)).write_text("Be odd.\n")
    (repository / ".mcp.json").write_text('{"mcpServers": {"\\ud800": {"command": "sh"}}}')
    bench.project("odd")
    body = {"name": "odd", "project": "odd", "path": str(repository)}
    assert bench.admin.post("/api/resources", json=body).status_code == 201
    files = got(bench.admin, "/resources/odd/trust")["files"]
    assert [one["path"] for one in files] == [".mcp.json", *["skills/odd/one\ufffd"] * 2]
    seen = {"files": [{"path": one["path"], "digest": one["digest"]} for one in files]}
    given = bench.admin.post("/api/resources/odd/trust", json=seen)
    assert [one["trusted"] for one in given.json()["files"]] == [True, True, True], given.text
    assert len(got(bench.admin, "/trust")["items"]) == 3
    assert len(bench.admin.post("/api/resources/odd/trust/revoke").json()["paths"]) == 3
    for path in ("resources", "projects"):
        assert bench.admin.delete(f"/api/{path}/odd").status_code == 204


def test_no_more_models_are_tried_at_once_than_a_server_has_threads_for(
    bench: ServerBench, tmp_path: Path
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"rules": [{"reply": {"text": "Hello."}}]}))
    trial = {"model": f"scripted/{script}"}
    for _ in range(5):  # sequential requests are not limited
        assert bench.operator.post("/api/models/trial", json=trial).status_code == 200
    with ExitStack() as under_way:
        for _ in range(4):
            under_way.enter_context(bench.service.trials.one("held"))
        away = bench.operator.post("/api/models/trial", json=trial)
        refused(away, 429, "too-many-at-once")
        assert int(away.headers["Retry-After"]) > 0
    assert bench.operator.post("/api/models/trial", json=trial).status_code == 200


def test_parallel_verifications_are_limited(bench: ServerBench) -> None:
    with bench.service.verifications.one("held"), bench.service.verifications.one("held"):
        refused(bench.admin.get("/api/events/verification"), 429, "too-many-at-once")
    assert got(bench.admin, "/events/verification")["ok"]


def test_an_unlisted_model_can_be_shown(bench: ServerBench, tmp_path: Path) -> None:
    unlisted = got(bench.viewer, "/models?name=openai/gpt-from-next-year")["items"][0]
    assert (unlisted["model"], unlisted["input"]) == ("openai/gpt-from-next-year", None)
    refused(bench.viewer.get("/api/models?name=opnai/gpt-4o"), 404, "unknown-model")
    refused(bench.viewer.get("/api/models?provider=opnai"), 422, "request-refused")
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"rules": [{"reply": {"text": "Hello."}}]}))
    # Which files there are is nothing that a viewer can find out.
    refused(bench.viewer.get(f"/api/models?name=scripted/{script}"), 403, "not-allowed")
    refused(bench.viewer.get("/api/models?name=scripted//nowhere"), 403, "not-allowed")
    assert got(bench.operator, f"/models?name=scripted/{script}")["items"][0]["key"] == "not needed"


def test_pieces_of_a_list_join_to_the_whole_list(bench: ServerBench) -> None:
    for path in ("/models", "/profiles", "/actors", "/actions", "/projects", "/resources"):
        whole = got(bench.viewer, f"{path}?limit=1000")
        assert whole["next"] is None
        pieces: list[Any] = []
        after: str | None = None
        while True:
            params = {"limit": "3", **({} if after is None else {"after": after})}
            piece = bench.viewer.get(f"/api{path}", params=params).json()
            pieces += piece["items"]
            after = piece["next"]
            if after is None:
                break
        assert pieces == whole["items"]


def test_projects_and_resources_are_added_by_admins_and_seen_by_members(
    bench: ServerBench, shop: Path
) -> None:
    for client in (bench.viewer, bench.operator):
        refused(client.post("/api/projects", json={"name": "new"}), 403, "not-allowed")
        refused(client.delete("/api/projects/paint"), 403, "not-allowed")
        new = {"name": "new", "project": "paint", "path": str(shop)}
        refused(client.post("/api/resources", json=new), 403, "not-allowed")
        refused(client.delete("/api/resources/wall"), 403, "not-allowed")
    added = bench.admin.post("/api/projects", json={"name": "new", "max_parallel": 2})
    assert (added.status_code, added.json()["max_parallel"], added.json()["resources"]) == (201, 2, 0)
    twice = bench.admin.post("/api/projects", json={"name": "new"})
    refused(twice, 409, "already-there")
    assert [one["where"] for one in twice.json()["errors"]] == [["body", "name"]]
    inside = {"name": "inside", "project": "new", "path": str(shop / "src")}
    resource = bench.admin.post("/api/resources", json=inside)
    assert (resource.status_code, resource.json()["location"]) == (201, str(shop))
    refused(bench.viewer.get("/api/resources?project=new"), 404, "unknown-project")
    member = bench.admin.put("/api/projects/new/members/viewer", json={"role": "viewer"})
    assert member.status_code == 200, member.text
    assert [one["name"] for one in got(bench.viewer, "/resources?project=new")["items"]] == ["inside"]
    counts = {one["name"]: one["resources"] for one in got(bench.viewer, "/projects")["items"]}
    assert counts == {"default": 0, "new": 1, "paint": 2}
    assert "inside" in refused(bench.admin.delete("/api/projects/new"), 409, "still-used")
    assert bench.admin.delete("/api/resources/inside").status_code == 204
    assert bench.admin.delete("/api/projects/new").status_code == 204
    for gone, code, where in (
        (bench.viewer.get("/api/resources?project=new"), "unknown-project", ["query", "project"]),
        (bench.admin.delete("/api/resources/inside"), "unknown-resource", ["path", "name"]),
    ):
        refused(gone, 404, code)
        assert [one["where"] for one in gone.json()["errors"]] == [where]


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        ({}, "invalid-resource", "either `path` or `remote`"),
        ({"path": "/tmp", "remote": "git@git.example:x"}, "invalid-resource", "either `path` or `remote`"),
        ({"path": "src"}, "invalid-resource", "absolute"),
        ({"path": "/tmp\0"}, "invalid-resource", "absolute"),
        ({"path": "/no/such/place"}, "sandbox-refused", "no such directory"),
        ({"path": "/tmp", "branch": "main"}, "invalid-resource", "`branch` is for a `remote`"),
        ({"remote": "ext::sh -c id"}, "invalid-name", "remote"),
        ({"remote": "https://me:hunter2-hunter2@git.example/x"}, "invalid-name", "use ssh"),
        ({"remote": "git@git.example:x", "branch": "--force"}, "invalid-name", "branch"),
    ],
)
def test_a_resource_unfit_for_plans_is_refused(
    bench: ServerBench, wrong: dict[str, str], code: str, words: str
) -> None:
    answer = bench.admin.post("/api/resources", json={"name": "odd", "project": "paint", **wrong})
    said = refused(answer, 422, code)
    assert words in said
    assert "hunter2" not in answer.text
    assert [one["name"] for one in got(bench.viewer, "/resources")["items"]] == ["far", "wall"]


def test_a_remote_is_asked_for_its_branch_before_it_is_added(
    bench: ServerBench, shop: Path, tmp_path: Path
) -> None:
    there = {"name": "asked", "project": "paint", "remote": f"file://{shop}"}
    lacks = bench.admin.post("/api/resources", json={**there, "branch": "no-such"})
    assert "no-such" in refused(lacks, 422, "invalid-resource")
    assert [one["where"] for one in lacks.json()["errors"]] == [["body", "branch"]]
    nowhere = {**there, "remote": f"file://{tmp_path}/nowhere.git"}
    for more, warned in (({}, True), ({"check": False}, False)):
        added = bench.admin.post("/api/resources", json={**nowhere, **more})
        assert (added.status_code, added.json()["warning"] is not None) == (201, warned)
        assert bench.admin.delete("/api/resources/asked").status_code == 204
    added = bench.admin.post(
        "/api/resources", json={**there, "branch": git(shop, "symbolic-ref", "--short", "HEAD").strip()}
    )
    assert (added.status_code, added.json()["warning"]) == (201, None)
    assert bench.admin.delete("/api/resources/asked").status_code == 204


def test_a_missing_directory_is_reported(bench: ServerBench, tmp_path: Path) -> None:
    now = bench.container.clock.now()
    place = str(tmp_path / "gone")
    bench.container.projects.add_resource("gone", "paint", ResourceKind.DIRECTORY, place, now=now)
    asked = bench.operator.post("/api/context", json={"question": "What?", "resource": "gone"})
    assert "the directory no longer exists" in refused(asked, 422, "sandbox-refused")
    bench.container.projects.remove_resource("gone", now=now)


@pytest.mark.usefixtures("plain_faults")
def test_a_fault_is_in_the_log_with_the_number_that_its_answer_has(
    bench: ServerBench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors of the database do not reveal SQL to clients, and are in the log."""
    database = bench.container.database
    database.write(lambda connection: connection.exec_driver_sql("ALTER TABLE resources RENAME TO elsewhere"))
    try:
        answer = bench.viewer.get("/api/resources")
    finally:
        database.write(
            lambda connection: connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO resources")
        )
    said = answer.json()
    assert (answer.status_code, said["code"]) == (500, "database-failed")
    assert said["request_id"] == answer.headers["X-Request-Id"]
    assert said["request_id"] in said["detail"]
    assert "resources" not in answer.text
    assert "no such table" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "said"),
    [
        ("GET", "/api/nowhere", b"", "not-found", "/api/openapi.json"),
        ("PUT", "/api/plans", b"", "method-not-allowed", "header Allow"),
        ("POST", "/api/projects", b'{"name": "\xff"}', "invalid-request", "JSON in UTF-8"),
        ("POST", "/api/projects", b"{name", "invalid-request", "the body is not JSON: at character 1, "),
        (
            "POST",
            "/api/projects",
            b'{"name": "p i"}',
            "invalid-request",
            "name should be lower-case letters",
        ),
    ],
)
def test_http_errors_have_a_remedy(
    bench: ServerBench, method: str, path: str, body: bytes, code: str, said: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = bench.admin.request(method, path, content=body, headers=headers)
    assert (answer.json()["code"], said in answer.json()["detail"]) == (code, True), answer.text
    assert answer.status_code == (400 if "JSON" in said else answer.json()["status"])


def test_a_problem_has_its_remedies_as_data_and_no_command_line(bench: ServerBench) -> None:
    told = bench.viewer.get("/api/plans/7QX2").json()
    listing = {"action": "plan.list", "plan": None, "options": {}, "text": "List the plans"}
    assert (told["detail"], told["remedies"]) == ("there is no plan '7QX2'", [listing])
    assert "command_line" not in told
    quoted = "Add a --json flag; `agents plan undo 01K` takes it back"  # as version 0.1.0 stored it
    assert json.loads(bytes(problem(422, "x", quoted).body))["detail"] == quoted
