"""Uploaded YAML, paths and refs run nothing by themselves; plans run them under their policy."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.app.worker_parts import WorkerParts
from tests.server_bench import ServerBench, server_bench

SECONDS_LIMIT = 60.0
ACTION = """\
name: team/touch
execute:
  steps:
    - tool: command
      with: {{argv: [touch, "{marker}"]}}
profile: full-auto
"""
ACTOR = """\
name: team/mole
description: Reads what it should not.
entry: think
nodes:
  think: {type: llm, prompt_file: /etc/passwd, system_file: ../../../../etc/passwd}
"""
HOSTILE = {
    "a Python object": "!!python/object/apply:os.system ['touch {marker}']",
    "one within an action": "name: team/x\nexecute: !!python/object/apply:os.system ['touch {marker}']\n",
    "a tag of its own": "name: team/x\nexecute: !include /etc/passwd\n",
    "a bomb of aliases": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)),
    "depth without end": "[" * 20_000,
    "no YAML": "\x00\x01: {{{{",
    "nothing": " ",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server"), server__requests_per_minute=100_000) as made:
        made.repository()
        yield made


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_yaml_is_a_mistake_and_nothing_else(bench: ServerBench, tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "marker"
    yaml = HOSTILE[kind].replace("{marker}", str(marker))
    action = bench.admin.post("/api/actions", json={"yaml": yaml})
    assert action.status_code == 422, action.text
    actor = bench.operator.post("/api/actors/validation", json={"yaml": yaml})
    assert actor.status_code == 422 or actor.json()["valid"] is False
    goals = bench.operator.post("/api/plans", json={"resource": "shop", "goals": yaml})
    assert goals.status_code == 422, goals.text
    for answer in (action, actor, goals):
        assert "root:" not in answer.text
        assert "Traceback" not in answer.text
    assert not marker.exists()
    assert [row for row in bench.admin.get("/api/actions").json()["items"] if row["origin"] == "user"] == []


def test_an_actor_that_names_files_of_the_server_reads_none_of_them(bench: ServerBench) -> None:
    answer = bench.operator.post("/api/actors/validation", json={"yaml": ACTOR})
    assert answer.json()["valid"] is False
    assert "root:" not in answer.text


def test_goals_that_name_files_of_the_server_read_none_of_them(bench: ServerBench, tmp_path: Path) -> None:
    secret = tmp_path / "mine.yaml"
    secret.write_text("name: mine/secret\ntype: llm\nprompt: xyzzy\nnonsense: xyzzy\n")
    goals = {"goals": [{"name": "one", "goal": "do it", "actor": str(secret)}]}
    request = {"resource": "shop", "goals": json.dumps(goals)}
    answer = bench.operator.post("/api/plans", json=request)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-goals"), answer.text
    assert "xyzzy" not in answer.text
    assert "must be NAMESPACE/NAME, not a file" in answer.json()["detail"]
    both = bench.operator.post("/api/plans", json={**request, "goal": "do it"})
    assert (both.status_code, both.json()["code"]) == (422, "request-refused")


SENT = {
    "a program of its own": ("type: command\nargv: [touch, {marker}]\nprompt: x\n", "may start a program"),
    "an agent of its own": ("type: acp\nargv: [touch, {marker}]\nprompt: x\n", "may start a program"),
    "a file of the server": (
        "entry: a\nnodes: {a: {type: subgraph, actor: {file}, next: end}}\n",
        "there is no actor",
    ),
    "a prompt of the server": ("type: llm\nprompt: {file: passwd.md}\n", "write the prompt inline"),
}


@pytest.mark.parametrize("kind", SENT)
def test_an_actor_that_is_sent_starts_no_program_and_reads_no_file(
    bench: ServerBench, tmp_path: Path, kind: str
) -> None:
    marker, file = tmp_path / "marker", tmp_path / "mine.yaml"
    file.write_text("name: mine/secret\ntype: llm\nprompt: xyzzy\n")
    yaml, why = SENT[kind]
    text = "name: team/mole\n" + yaml.replace("{marker}", str(marker)).replace("{file}", str(file))
    request = {"resource": "shop", "goal": "do it", "actor_yaml": text, "profile": "full-auto"}
    answer = bench.operator.post("/api/plans", json=request)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-actor"), answer.text
    assert why in answer.json()["detail"]
    assert answer.json()["errors"][0]["where"] == ["body", "actor_yaml"]
    assert "xyzzy" not in answer.text
    assert not marker.exists()


def test_an_actor_that_is_sent_takes_no_place_of_what_is_shipped_and_is_one_of_two_ways(
    bench: ServerBench,
) -> None:
    yaml = "name: external/claude-code\ntype: llm\nprompt: x\n"
    request = {"resource": "shop", "goal": "do it", "actor_yaml": yaml}
    taken = bench.operator.post("/api/plans", json=request)
    assert (taken.status_code, "reserved for built-in actors" in taken.json()["detail"]) == (422, True), (
        taken.text
    )
    both = bench.operator.post("/api/plans", json={**request, "actor": "builtin/executor"})
    assert (both.status_code, both.json()["code"]) == (422, "request-refused")


def test_an_uploaded_action_or_actor_does_not_loosen_what_a_plan_may(
    bench: ServerBench, tmp_path: Path
) -> None:
    """The action asks for full-auto; the plans are made with a profile that asks before every command."""
    marker = tmp_path / "marker"
    made = bench.admin.post("/api/actions", json={"yaml": ACTION.format(marker=marker)})
    assert made.status_code == 201, made.text
    sent = f"name: team/hand\ntype: tool\ntool: command\nwith: {{argv: [touch, {marker}]}}\n"
    for wanted in ({"action": "team/touch"}, {"goal": "do it", "actor_yaml": sent}):
        request = {"resource": "shop", "profile": "manual", **wanted}
        plan_id = bench.operator.post("/api/plans", json=request).json()["id"]
        with WorkerParts(bench.container).start(name="worker", concurrency=1):
            give_up = time.monotonic() + SECONDS_LIMIT
            while (account := bench.viewer.get(f"/api/plans/{plan_id}").json())["needs"] is None:
                assert time.monotonic() < give_up, json.dumps(account)
                threading.Event().wait(0.05)
            assert account["needs"] == "approval", account["error"]
            assert bench.viewer.post(f"/api/plans/{plan_id}/approve", json={}).status_code == 403
            assert bench.operator.post(f"/api/plans/{plan_id}/deny", json={}).status_code < 300
    assert not marker.exists()
    assert bench.admin.delete("/api/actions/team/touch").status_code == 204


def test_an_uploaded_action_cannot_take_the_place_of_a_shipped_one(bench: ServerBench) -> None:
    for name in ("builtin/command", "../x", "team/../../etc", "a/b/c"):
        yaml = ACTION.format(marker="x").replace("team/touch", name)
        assert bench.admin.post("/api/actions", json={"yaml": yaml, "replace": True}).status_code == 422


@pytest.mark.parametrize(
    ("kind", "location"),
    [
        ("remote", "ext::sh -c 'touch marker'"),
        ("remote", "--upload-pack=touch marker"),
        ("remote", "fd::17"),
        ("remote", "https://example.org/-oProxyCommand=x\n"),
        ("remote", "ssh://-oProxyCommand=touch/x"),
        ("remote", "ssh://git@-oProxyCommand=touch/x"),
        ("remote", "git@-oProxyCommand=x:y"),
        ("remote", "git@-oX:y"),
        ("remote", "-oX@host:y"),
        ("remote", "git@host:-oX"),
        ("path", "relative/path"),
        ("path", "/nul\0l"),
    ],
)
def test_a_location_that_would_run_something_is_no_resource(
    bench: ServerBench, kind: str, location: str
) -> None:
    answer = bench.admin.post("/api/resources", json={"name": "evil", "project": "paint", kind: location})
    assert answer.status_code == 422, answer.text
    assert "evil" not in bench.admin.get("/api/resources").text


@pytest.mark.parametrize(
    "branch", ["--exec=x", "-x", "a..b", "a b", "../../x", "x\n", "refs/heads/../x", "a:b", "x.lock"]
)
def test_a_branch_that_looks_like_an_option_or_path_is_refused(bench: ServerBench, branch: str) -> None:
    request = {"name": "far", "project": "paint", "remote": "https://example.org/x.git"}
    answer = bench.admin.post("/api/resources", json={**request, "branch": branch})
    assert answer.status_code == 422, answer.text
    good = {**request, "branch": "main", "check": False}
    assert bench.admin.post("/api/resources", json=good).status_code == 201
    assert bench.admin.delete("/api/resources/far").status_code == 204


@pytest.mark.parametrize(
    "path", ["../../../../../../etc/passwd", "/etc/passwd", ".git/config", "a/../../state.db"]
)
def test_a_plan_shows_no_file_but_those_it_changed(bench: ServerBench, path: str) -> None:
    plan_id = bench.operator.post(
        "/api/plans", json={"resource": "shop", "action": "builtin/command", "arguments": {"argv": ["true"]}}
    ).json()["id"]
    for side in ("before", "after"):
        answer = bench.admin.get(f"/api/plans/{plan_id}/files", params={"path": path, "side": side})
        assert answer.status_code in (404, 409, 422), answer.text
        assert "root:" not in answer.text
    for hostile in ("..%2f..%2fetc", "%00", "-x"):
        assert bench.admin.get(f"/api/plans/{hostile}").status_code in (404, 422)
    for name in ("../shop", "/etc", "-x", "shop/../.."):
        answer = bench.operator.post("/api/plans", json={"resource": name, "goal": "g"})
        assert answer.status_code in (404, 422)


@pytest.mark.parametrize(
    "content",
    [
        "root:*:20228:hunter2:\n",
        "hunter2: {a: 1}\n",
        "a: *hunter2\n",
        "b: !hunter2 c\n",
        "rules of hunter2: no\n",
    ],
)
def test_a_model_that_is_a_file_of_the_machine_tells_nothing_of_what_is_in_it(
    bench: ServerBench, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "shadow"
    file.write_text(content)
    body = {"resource": "shop", "goal": "x", "model": f"scripted/{file}"}
    answer = bench.operator.post("/api/plans", json=body)
    assert "not a script" in answer.json()["detail"]
    assert "hunter2" not in answer.text
    file.unlink()
    # Nor whether it is there.
    missing = bench.operator.post("/api/plans", json=body)
    assert (answer.status_code, answer.json()) == (missing.status_code, missing.json())


@pytest.mark.parametrize("kind", ["pipe", "directory", "/dev/zero", "/proc/self/mem"])
def test_a_script_that_is_not_a_regular_file_is_reported_as_missing(
    bench: ServerBench, tmp_path: Path, kind: str
) -> None:
    place = Path(kind) if kind.startswith("/") else tmp_path / kind
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    model = f"scripted/{place}"
    for path, body in (("/models/trial", {}), ("/plans", {"resource": "shop", "goal": "x"})):
        answer = bench.operator.post(f"/api{path}", json={**body, "model": model})
        assert answer.status_code == 404, answer.text
        assert f"there is no file {place}, or not a script" in answer.json()["detail"]


def test_a_model_that_is_a_very_large_file_is_refused_without_being_read(
    bench: ServerBench, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_text("rules: []\n")
    with file.open("r+b") as opened:
        opened.truncate(1 << 40)
    body = {"resource": "shop", "goal": "x", "model": f"scripted/{file}"}
    answer = bench.operator.post("/api/plans", json=body)
    assert answer.status_code == 422, answer.text
    assert "larger than" in answer.json()["detail"]


def test_errors_of_an_actor_do_not_contain_its_secrets(bench: ServerBench) -> None:
    secret = "sk-live-0123456789abcdefghijklmnop"
    yaml = f"name: team/x\n{secret}: 1\n"
    said = bench.operator.post("/api/actors/validation", json={"yaml": yaml})
    assert said.json()["problems"]
    assert secret not in said.text
