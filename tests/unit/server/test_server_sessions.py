"""Logging in and out with a browser; users and tokens over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.api.format import timestamp
from cleveragents.server.middleware.identity import COOKIE
from tests.server_bench import ServerBench, server_bench

SECRET = "agents_sk_0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server"), server__session_hours=2) as made:
        yield made


def test_a_browser_is_logged_in_until_it_logs_out(bench: ServerBench) -> None:
    browser = bench.browser("operator")
    account = browser.get("/api/session").json()
    assert account["user"] == {
        "name": "operator",
        "role": "operator",
        "projects": {"default": "operator"},
    }
    assert account["csrf"] == browser.headers["X-CSRF-Token"]
    cookie = browser.cookies[COOKIE]
    assert browser.delete("/api/session").status_code == 204
    assert COOKIE not in browser.cookies
    kept = bench.stranger.get("/api/session", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert kept.status_code == 401
    assert bench.operator.get("/api/session").status_code == 200


def test_a_program_needs_no_word_of_the_page_and_stays_known_when_it_logs_out(bench: ServerBench) -> None:
    account = bench.viewer.get("/api/session").json()
    assert (account["user"]["name"], account["csrf"]) == ("viewer", None)
    assert bench.viewer.delete("/api/session").status_code == 204
    assert bench.viewer.get("/api/session").status_code == 200


def test_a_login_is_over_when_its_time_is(bench: ServerBench) -> None:
    bench.browser("viewer")
    session = bench.container.users.tokens_of("viewer")[-1]
    assert session.kind is TokenKind.BROWSER
    assert session.expires_at == session.created_at + timedelta(hours=2)
    assert session.label


def test_a_login_without_a_valid_token_is_refused(bench: ServerBench) -> None:
    answer = bench.newcomer().post("/api/session", json={"token": "guess"})
    assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "this token is unknown, expired or revoked" in answer.json()["detail"]
    bodies = {
        "body.token is missing": {"tokn": SECRET},
        "body.token should have at least 1 character": {"token": ""},
        "body.token should be a valid string": {"token": [SECRET]},
        "body.token should have at most 512 characters": {"token": SECRET * 20},
    }
    for said, body in bodies.items():
        answer = bench.stranger.post("/api/session", json=body)
        assert (answer.status_code, answer.json()["detail"], SECRET in answer.text) == (422, said, False)


@pytest.mark.parametrize("said", ["Basic YTpi", "Bearer", "Bearer ", "token", ""])
def test_a_malformed_bearer_token_is_refused(bench: ServerBench, said: str) -> None:
    browser = bench.newcomer()
    browser.cookies.set(COOKIE, bench.browser("admin").cookies[COOKIE])
    assert browser.get("/api/session").status_code == 200
    assert browser.get("/api/session", headers={"Authorization": said}).status_code == 401


def test_users_are_added_shown_in_pieces_changed_and_removed(bench: ServerBench) -> None:
    added = bench.admin.post("/api/users", json={"name": "zoe"})
    assert (added.status_code, added.json()["role"]) == (201, "viewer")
    assert bench.admin.post("/api/users", json={"name": "zoe"}).json()["code"] == "already-there"
    assert bench.admin.post("/api/users", json={"name": "Z O E"}).json()["code"] == "invalid-name"
    names: list[str] = []
    after = None
    while True:
        page = bench.admin.get("/api/users", params={"limit": 3, **({"after": after} if after else {})})
        names += [row["name"] for row in page.json()["items"]]
        after = page.json()["next"]
        if after is None:
            break
    assert names == ["admin", "operator", "viewer", "zoe"]
    changed = bench.admin.patch("/api/users/zoe", json={"role": "operator"})
    assert changed.json() == {**added.json(), "role": "operator", "projects": {"default": "operator"}}
    assert bench.admin.get("/api/users/zoe").json() == changed.json()
    assert bench.admin.delete("/api/users/zoe").status_code == 204
    for gone in (bench.admin.get("/api/users/zoe"), bench.admin.delete("/api/users/zoe")):
        assert (gone.status_code, gone.json()["code"]) == (404, "unknown-user")


def test_the_last_admin_can_be_neither_removed_nor_demoted(bench: ServerBench) -> None:
    for answer in (
        bench.admin.delete("/api/users/admin"),
        bench.admin.patch("/api/users/admin", json={"role": "viewer"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "still-used")
    assert bench.admin.get("/api/session").json()["user"]["role"] == Role.ADMIN.value


def test_a_token_is_shown_once_and_works_until_revoked(bench: ServerBench) -> None:
    issued = bench.viewer.post("/api/users/viewer/tokens", json={"label": "laptop", "days": 3})
    assert issued.status_code == 201
    row = issued.json()
    secret = row.pop("token")
    headers = {"Authorization": f"Bearer {secret}"}
    assert bench.newcomer().get("/api/session", headers=headers).json()["user"]["name"] == "viewer"
    listed = bench.viewer.get("/api/users/viewer/tokens").json()["items"]
    assert row in listed
    assert secret not in str(listed)
    assert row["expires"] is not None
    assert bench.viewer.delete(f"/api/tokens/{row['id']}").status_code == 204
    assert bench.newcomer().get("/api/session", headers=headers).status_code == 401


def test_tokens_are_revoked_with_their_issuer(bench: ServerBench) -> None:
    made = bench.viewer.post("/api/users/viewer/tokens", json={"label": "lent"}).json()
    browser = bench.newcomer()
    login = browser.post("/api/session", json={"token": made["token"]})
    browser.headers["X-CSRF-Token"] = login.json()["csrf"]
    kept = browser.post("/api/users/viewer/tokens", json={"label": "kept"}).json()
    assert kept["made_with"] == made["id"]
    assert bench.viewer.delete(f"/api/tokens/{made['id']}").status_code == 204
    headers = {"Authorization": f"Bearer {kept['token']}"}
    assert bench.newcomer().get("/api/session", headers=headers).status_code == 401
    assert browser.get("/api/session").status_code == 401


def test_a_token_cannot_make_its_issued_tokens_outlive_it(bench: ServerBench) -> None:
    """A thief also has the tokens issued with a stolen one."""
    for user, client in (("viewer", bench.viewer), ("admin", bench.admin)):
        stolen = client.post(f"/api/users/{user}/tokens", json={"label": "stolen"}).json()
        thief = _with(bench, stolen["token"])
        made = thief.post(f"/api/users/{user}/tokens", json={}).json()
        browser = bench.newcomer()
        login = browser.post("/api/session", json={"token": made["token"]})
        browser.headers["X-CSRF-Token"] = login.json()["csrf"]
        for one in (thief, _with(bench, made["token"]), browser):
            refused = one.delete(f"/api/tokens/{stolen['id']}?alone=true")
            assert (refused.status_code, refused.json()["code"]) == (422, "request-refused")
            assert refused.json()["errors"][0]["where"] == ["query", "alone"]
        # One in the middle goes, and what was made with it still goes with the first.
        last = _with(bench, made["token"]).post(f"/api/users/{user}/tokens", json={}).json()
        assert thief.delete(f"/api/tokens/{made['id']}?alone=true").status_code == 204
        assert _with(bench, last["token"]).get("/api/session").status_code == 200
        assert client.delete(f"/api/tokens/{stolen['id']}").status_code == 204
        assert _with(bench, last["token"]).get("/api/session").status_code == 401


def test_one_who_has_another_token_replaces_one_and_keeps_what_was_made_with_it(bench: ServerBench) -> None:
    old = bench.viewer.post("/api/users/viewer/tokens", json={}).json()
    new = _with(bench, old["token"]).post("/api/users/viewer/tokens", json={}).json()
    assert bench.viewer.delete(f"/api/tokens/{old['id']}?alone=true").status_code == 204
    assert _with(bench, new["token"]).get("/api/session").status_code == 200


def _with(bench: ServerBench, secret: str) -> TestClient:
    client = bench.newcomer()
    client.headers["Authorization"] = f"Bearer {secret}"
    return client


def test_a_token_that_ends_makes_none_that_holds_longer(bench: ServerBench) -> None:
    users, now = bench.container.users, bench.container.clock.now()
    ends = now + timedelta(hours=1)
    _, secret = users.issue("admin", TokenKind.PROGRAM, "for an hour", now=now, expires_at=ends)
    program = bench.newcomer()
    program.headers["Authorization"] = f"Bearer {secret}"
    browser = bench.newcomer()
    login = browser.post("/api/session", json={"token": secret})
    browser.headers["X-CSRF-Token"] = login.json()["csrf"]
    assert users.tokens_of("admin")[-1].expires_at == ends  # a login would hold for two hours
    for client in (program, browser):
        for name in ("admin", "viewer"):
            refused = client.post(f"/api/users/{name}/tokens", json={"days": 1})
            assert (refused.status_code, refused.json()["code"]) == (422, "request-refused")
            made = client.post(f"/api/users/{name}/tokens", json={}).json()
            assert made["expires"] == timestamp(ends)
            again = bench.newcomer().post(
                f"/api/users/{name}/tokens", json={}, headers={"Authorization": f"Bearer {made['token']}"}
            )
            assert again.json()["expires"] == timestamp(ends)
    unbounded = bench.browser("admin").post("/api/users/viewer/tokens", json={})
    assert unbounded.json()["expires"] is None


def test_others_and_their_tokens_are_an_admins_business(bench: ServerBench) -> None:
    admins = bench.admin.get("/api/users/admin/tokens").json()["items"][0]["id"]
    assert bench.operator.get("/api/users/admin").status_code == 403
    assert bench.operator.get("/api/users/operator").json()["role"] == "operator"
    assert bench.operator.get("/api/users/admin/tokens").status_code == 403
    assert bench.operator.post("/api/users/admin/tokens", json={}).status_code == 403
    assert bench.operator.delete(f"/api/tokens/{admins}").status_code == 404
    assert bench.admin.get("/api/session").status_code == 200
    theirs = bench.admin.post("/api/users/operator/tokens", json={}).json()
    assert bench.admin.delete(f"/api/tokens/{theirs['id']}").status_code == 204
    assert bench.admin.delete(f"/api/tokens/{theirs['id']}").status_code == 404
