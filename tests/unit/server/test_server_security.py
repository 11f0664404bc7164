"""The threats of docs/explanation/security.md, each tried against the server."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from sqlalchemy import select
from starlette.testclient import TestClient

from cleveragents.access.model.user import TokenKind
from cleveragents.server.middleware.identity import COOKIE
from cleveragents.server.middleware.responses import CONTENT_SECURITY_POLICY
from cleveragents.storage.tables import METADATA
from tests.server_bench import ServerBench, server_bench

UNKNOWN = "agents_sk_" + "0" * 64


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server"), server__body_bytes=2048) as made:
        yield made


def test_a_name_that_was_made_to_lead_here_is_refused_even_with_a_token(bench: ServerBench) -> None:
    answer = bench.admin.get("/api/users", headers={"Host": "evil.example:8420"})
    assert (answer.status_code, answer.json()["code"]) == (421, "unknown-host")
    page = bench.stranger.get("/", headers={"Host": "evil.example"})
    assert page.status_code == 421


def test_a_page_of_others_changes_nothing_with_the_cookie_of_its_visitor(bench: ServerBench) -> None:
    browser = bench.browser("admin")
    word = browser.headers.pop("X-CSRF-Token")
    new = {"name": "mallory", "role": "admin"}
    plain = browser.post("/api/users", json=new)
    assert (plain.status_code, plain.json()["code"]) == (403, "csrf")
    wrong = browser.post("/api/users", json=new, headers={"X-CSRF-Token": word[:-1] + "x"})
    assert wrong.status_code == 403
    other = bench.browser("admin").headers["X-CSRF-Token"]
    assert browser.post("/api/users", json=new, headers={"X-CSRF-Token": other}).status_code == 403
    for origin in ("http://evil.example", "http://127.0.0.1:3000", "null"):
        headers = {"X-CSRF-Token": word, "Origin": origin}
        assert browser.post("/api/users", json=new, headers=headers).json()["code"] == "foreign-origin"
    assert [user.name for user in bench.container.users.list()] == ["admin", "operator", "viewer"]
    fine = {"X-CSRF-Token": word, "Origin": "http://127.0.0.1:8420", "Sec-Fetch-Site": "same-origin"}
    assert browser.delete("/api/users/nobody", headers=fine).status_code == 404


def test_a_foreign_page_cannot_log_in(bench: ServerBench) -> None:
    login = {"token": bench.tokens["viewer"]}
    answer = bench.stranger.post("/api/session", json=login, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    form = bench.stranger.post(
        "/api/session", content=json.dumps(login), headers={"Content-Type": "text/plain"}
    )
    assert form.status_code == 415
    assert "set-cookie" not in {**answer.headers, **form.headers}


def test_a_page_of_others_reads_nothing_not_even_a_stream(bench: ServerBench) -> None:
    browser = bench.browser("admin")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ):
        for path in ("/api/users", "/api/events/stream?after=0"):
            answer = browser.get(path, headers={**headers, "Accept": "text/event-stream"})
            assert (answer.status_code, answer.json()["code"]) == (403, "foreign-origin")
            assert "access-control-allow-origin" not in answer.headers
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert browser.options("/api/users", headers=asked).status_code == 403


def test_the_cookie_is_read_by_no_script_and_sent_by_no_page_of_others(bench: ServerBench) -> None:
    client = TestClient(bench.app, "http://127.0.0.1:8420")
    answer = client.post("/api/session", json={"token": bench.tokens["viewer"]})
    said = answer.headers["set-cookie"]
    assert said.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=604800"} <= set(said.split("; "))
    assert "Secure" not in said, "over http a browser would not send it"
    secure = TestClient(bench.app, "https://127.0.0.1")
    over_tls = secure.post("/api/session", json={"token": bench.tokens["viewer"]})
    assert "Secure" in over_tls.headers["set-cookie"]
    assert bench.tokens["viewer"] not in said


def test_two_session_cookies_are_refused(bench: ServerBench) -> None:
    cookie = f"{COOKIE}={bench.browser('admin').cookies[COOKIE]}"
    good = bench.stranger.get("/api/session", headers={"Cookie": f"a=b; {cookie}; c"})
    assert good.status_code == 200
    planted = bench.stranger.get("/api/session", headers={"Cookie": f"{cookie}; {COOKIE}=other"})
    assert planted.status_code == 401


def test_browser_and_program_tokens_are_not_interchangeable(bench: ServerBench) -> None:
    cookie = bench.browser("admin").cookies[COOKIE]
    assert bench.stranger.get("/api/users", headers={"Authorization": f"Bearer {cookie}"}).status_code == 401
    program = bench.stranger.get("/api/users", headers={"Cookie": f"{COOKIE}={bench.tokens['admin']}"})
    assert program.status_code == 401


def test_the_database_contains_no_token_and_no_session(bench: ServerBench) -> None:
    browser = bench.browser("admin")
    with bench.container.database.read() as connection:
        kept = repr([list(connection.execute(select(table))) for table in METADATA.tables.values()])
    digests = [word for word in kept.replace("'", " ").split() if len(word) == 64]
    assert digests
    for secret in (*bench.tokens.values(), browser.cookies[COOKIE], browser.headers["X-CSRF-Token"]):
        assert secret.removeprefix("agents_sk_") not in kept
    for digest in digests:
        headers = {"Authorization": f"Bearer {digest}"}
        assert bench.newcomer().get("/api/session", headers=headers).status_code == 401


def test_no_token_is_taken_from_an_address(bench: ServerBench) -> None:
    for name in ("token", "access_token", "authorization"):
        answer = bench.stranger.get("/api/session", params={name: bench.tokens["admin"]})
        assert answer.status_code == 401


def test_no_line_of_the_log_holds_a_secret(
    bench: ServerBench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from cleveragents.config.logging import configure_logging

    settings = bench.container.settings
    configure_logging(settings)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    secret = bench.tokens["operator"]
    browser = bench.browser("operator")
    bench.operator.get(f"/api/users?password={secret}&after={secret}")
    bench.operator.get(f"/api/users/{secret}")
    bench.operator.get(f"/api/{secret}")
    issued = browser.post("/api/users/operator/tokens", json={"label": "x"}).json()["token"]
    said = capfd.readouterr().err + caplog.text
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [line["user"] for line in lines if line["event"] == "server.request"][1:] == ["operator"] * 4
    assert all(line["request_id"] and line["status"] for line in lines)
    for hidden in (secret, issued, browser.cookies[COOKIE], browser.headers["X-CSRF-Token"]):
        assert hidden.removeprefix("agents_sk_") not in said


def test_an_error_does_not_repeat_a_secret_of_the_request(bench: ServerBench) -> None:
    secret = bench.tokens["viewer"]
    for answer in (
        bench.admin.get(f"/api/users/{secret[:40]}"),
        bench.admin.post("/api/users", json={"name": secret, "role": secret}),
        bench.admin.request("DELETE", f"/api/tokens/{secret[:60]}"),
    ):
        assert answer.status_code in (404, 422)
        assert secret[:40].removeprefix("agents_sk_") not in answer.text


def test_token_guessing_is_slowed_down_without_affecting_valid_tokens(tmp_path: Path) -> None:
    with server_bench(tmp_path) as bench:
        wrong = {"Authorization": f"Bearer {UNKNOWN}"}
        answers = [bench.stranger.get("/api/session", headers=wrong) for _ in range(15)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 5
        assert int(answers[-1].headers["retry-after"]) > 0
        login = bench.stranger.post("/api/session", json={"token": UNKNOWN})
        assert login.status_code == 429
        assert bench.admin.get("/api/session").status_code == 200
        assert bench.stranger.post("/api/session", json={"token": bench.tokens["viewer"]}).status_code == 201


def test_a_rate_limit_affects_only_its_user(tmp_path: Path) -> None:
    with server_bench(tmp_path, server__requests_per_minute=5) as bench:
        answers = [bench.viewer.get("/api/session") for _ in range(7)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
        assert answers[-1].json()["code"] == "too-many-requests"
        assert "retry-after" in answers[-1].headers
        assert bench.operator.get("/api/session").status_code == 200
        assert [bench.stranger.get("/").status_code for _ in range(6)][-1] == 429


def test_no_request_is_larger_than_allowed_whether_or_not_it_says_so(bench: ServerBench) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * 500

    json_is_said = {"Content-Type": "application/json"}
    said = bench.admin.post("/api/users", content=b"x" * 3000, headers=json_is_said)
    unsaid = bench.admin.post("/api/users", content=pieces(), headers=json_is_said)
    for answer in (said, unsaid):
        assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
    keyed = bench.admin.post(
        "/api/users", content=pieces(), headers={**json_is_said, "Idempotency-Key": "large"}
    )
    assert keyed.status_code == 413


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%00", "a%0d%0aSet-Cookie:x", "-rf", "%ed%a0%80"])
def test_a_name_that_is_a_path_or_a_line_is_no_name(bench: ServerBench, name: str) -> None:
    for answer in (
        bench.admin.get(f"/api/users/{name}"),
        bench.admin.get(f"/api/users/{name}/tokens"),
        bench.admin.delete(f"/api/tokens/{name}"),
    ):
        assert answer.status_code == 404
        assert "set-cookie" not in answer.headers


def test_every_answer_tells_browsers_to_run_and_frame_nothing(bench: ServerBench) -> None:
    for answer in (
        bench.admin.get("/api/users"),
        bench.stranger.get("/api/users"),
        bench.stranger.get("/nowhere"),
        bench.stranger.get("/", headers={"Host": "evil.example"}),
        bench.admin.post("/api/users", content=b"x" * 3000),
    ):
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "server" not in answer.headers
    assert bench.admin.get("/api/users").headers["cache-control"] == "no-store"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_every_role_may_what_it_may_and_no_more(bench: ServerBench) -> None:
    wanted = {"stranger": 401, "viewer": 403, "operator": 403, "admin": 200}
    assert {name: bench.client(name).get("/api/users").status_code for name in wanted} == wanted
    promote = {
        name: bench.client(name).patch("/api/users/viewer", json={"role": "viewer"}) for name in wanted
    }
    assert {name: answer.status_code for name, answer in promote.items()} == wanted


def test_a_viewer_changes_nothing_and_an_operator_manages_nothing(bench: ServerBench) -> None:
    """Fails for a new route that lets the wrong role change something."""
    own = {"/api/session", "/api/tokens/{token_id}"}
    trusted = "/api/resources/{name}/trust"  # for server admins, and of a project
    managed = ("/api/users", "/api/projects", "/api/resources", "/api/actions")
    for path, methods in bench.app.openapi()["paths"].items():
        for method in {"post", "put", "patch", "delete"} & set(methods):
            known = re.sub(r"{(plan|rule|conversation)_id}", "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A", path)
            address = known.replace("{", "").replace("}", "")
            # An object of a project that the user cannot see is not found, whatever their role.
            of_project = methods[method].get("x-role-in") == "project" or path == trusted
            expected = 404 if of_project else 403
            if path not in own:
                answer = bench.viewer.request(method, address, json={})
                assert (method, path, answer.status_code) == (method, path, expected)
            if path.startswith(managed):
                answer = bench.operator.request(method, address, json={})
                assert (method, path, answer.status_code) == (method, path, expected)


def test_a_route_of_the_api_that_asks_for_no_user_is_the_login_alone(bench: ServerBench) -> None:
    """Fails for a new route without an access rule."""
    open_paths = {("POST", "/api/session")}
    found: set[tuple[str, str]] = set()
    for path, methods in bench.app.openapi()["paths"].items():
        for method in methods:
            if path.startswith("/api"):
                filled = path.replace("{", "").replace("}", "")
                answer = bench.stranger.request(method.upper(), filled, json={})
                if answer.status_code != 401:
                    found.add((method.upper(), path))
    assert found == open_paths


def test_a_token_that_was_revoked_or_whose_user_is_gone_opens_nothing(bench: ServerBench) -> None:
    now = bench.container.clock.now()
    bench.admin.post("/api/users", json={"name": "temp", "role": "admin"})
    token, secret = bench.container.users.issue("temp", TokenKind.PROGRAM, "", now=now)
    headers = {"Authorization": f"Bearer {secret}"}
    assert bench.stranger.get("/api/users", headers=headers).status_code == 200
    bench.admin.patch("/api/users/temp", json={"role": "viewer"})
    assert bench.stranger.get("/api/users", headers=headers).status_code == 403
    assert bench.admin.delete(f"/api/tokens/{token.id}").status_code == 204
    assert bench.newcomer().get("/api/session", headers=headers).status_code == 401
    assert bench.admin.delete("/api/users/temp").status_code == 204


@pytest.mark.parametrize("said", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_does_not_say_it_is_json_is_refused(bench: ServerBench, said: str | None) -> None:
    headers = {} if said is None else {"Content-Type": said}
    body = json.dumps({"name": "ada", "role": "viewer"}).encode()
    answer = bench.admin.post("/api/users", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")
    pieces = bench.admin.post("/api/users", content=iter([body]), headers=headers)
    assert pieces.status_code == 415
