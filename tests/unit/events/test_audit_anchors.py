"""Anchors: their signatures, and the files, URLs and git branches that store them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cleveragents.access.model.project import RemoteAddress
from cleveragents.core.errors import AnchorFailed, ConfigurationError
from cleveragents.events.anchors import targets
from cleveragents.events.anchors.audit_anchors import (
    anchor_line,
    create_signing_key,
    load_public_keys,
    load_signing_key,
    public_key_text,
    read_anchors,
)
from cleveragents.events.anchors.git_target import FILE, GitTarget
from cleveragents.events.anchors.targets import FileTarget, UrlTarget, open_target
from cleveragents.events.chain import Anchor, Tip
from cleveragents.events.head import lock_within
from cleveragents.sandboxes.mirror import Mirrors
from tests.apply_bench import git
from tests.races.hammer import hammer

KEY = Ed25519PrivateKey.generate()
ANCHOR = Anchor("a" * 64, Tip(7, "b" * 64), "2026-01-01T00:00:00Z")
LINE = anchor_line(ANCHOR, KEY)


# ── Signatures ────────────────────────────────────────────────────────────────────────────────────


def signed(payload: str, **changed: str) -> bytes:
    fields = json.loads(LINE) | {
        "payload": payload,
        "signature": b64encode(KEY.sign(payload.encode())).decode(),
    }
    return json.dumps(fields | changed).encode()


def stated(**changed: object) -> bytes:
    return signed(json.dumps(json.loads(json.loads(LINE)["payload"]) | changed))


def test_an_anchor_is_read_as_it_was_signed() -> None:
    content = f"\n{LINE}\n\n{LINE}\n".encode()
    found = read_anchors("there", content, [KEY.public_key()])
    assert found.anchors == (ANCHOR, ANCHOR)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not an anchor"),
        (b"[]", "not an anchor"),
        (b"null", "not an anchor"),
        (b"\xff", "not an anchor"),
        (b"[" * 100_000, "not an anchor"),
        (LINE.encode()[:-40], "not an anchor"),
        (signed("{}", signature="!"), "not an anchor"),
        (signed("{}", signature=""), "the signature is not valid"),
        (LINE.replace(":7,", ":8,").encode(), "the signature is not valid"),
        (signed("{}", key="\x1b[2J" + "0" * 64), "signed with another key"),
        (anchor_line(ANCHOR, Ed25519PrivateKey.generate()).encode(), "signed with another key"),
        (signed("{}"), "cannot be read"),
        (signed("7"), "cannot be read"),
        (signed("[" * 100_000), "cannot be read"),
        (stated(type="another"), "another type"),
        (stated(events=0), "cannot be read"),
        (stated(events=True), "cannot be read"),
        (stated(events=1.5), "cannot be read"),
        (stated(events=2**63), "cannot be read"),
        (stated(hash="x"), "cannot be read"),
        (stated(log=7), "cannot be read"),
        (stated(time="soon"), "cannot be read"),
        (stated(time="2026-01-01\x1b00:00:00Z"), "cannot be read"),
        (stated(time="2026-13-01T00:00:00Z"), "cannot be read"),
    ],
)
def test_reports_invalid_anchors_by_line(line: bytes, problem: str) -> None:
    found = read_anchors("there", LINE.encode() + b"\n" + line, [KEY.public_key()])
    assert found.anchors == (ANCHOR,)
    [reported] = found.problems
    assert reported.startswith("line 2: ")
    assert problem in reported
    assert "\x1b" not in reported


def test_counts_lines_that_are_not_anchors() -> None:
    found = read_anchors("there", b"x\n" * 1000, [KEY.public_key()])
    assert len(found.problems) == 6
    assert found.problems[-1] == "and 995 more lines that are not valid anchors"


def test_openssl_verifies_an_anchor(tmp_path: Path) -> None:
    fields = json.loads(LINE)
    (tmp_path / "key.pem").write_text(public_key_text(KEY.public_key()))
    (tmp_path / "payload").write_text(fields["payload"])
    (tmp_path / "signature").write_bytes(b64decode(fields["signature"]))
    command = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in payload -sigfile signature"
    ended = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "Signature Verified Successfully")


# ── Keys ──────────────────────────────────────────────────────────────────────────────────────────


def pem(key: Ed25519PrivateKey | X25519PrivateKey, password: bytes | None = None) -> bytes:
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)


def test_a_signing_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "anchor.key"
    hammer(lambda n: create_signing_key(path), threads=4)
    made = path.read_bytes()
    create_signing_key(path)
    assert path.read_bytes() == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["anchor.key"]
    assert load_signing_key(path)


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (None, 0o600, "cannot be read: No such file"),
        (pem(KEY), 0o604, "accessible to other users"),
        (b"x", 0o600, "not a private key"),
        (b"x" * 70_000, 0o600, "too large"),
        (pem(X25519PrivateKey.generate()), 0o600, "not an Ed25519 key"),
        (pem(KEY, b"secret"), 0o600, "is encrypted"),
    ],
)
def test_a_signing_key_that_cannot_be_used_is_refused(
    content: bytes | None, mode: int, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"audit.anchor_key_file: .*{problem}"):
        load_signing_key(path)


def test_a_signing_key_may_come_from_a_command() -> None:
    reading, writing = os.pipe()
    os.write(writing, pem(KEY))
    os.close(writing)
    try:
        assert pem(load_signing_key(Path(f"/dev/fd/{reading}"))) == pem(KEY)
    finally:
        os.close(reading)


def test_several_public_keys_may_be_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "public.pem"
    other = Ed25519PrivateKey.generate().public_key()
    path.write_text(public_key_text(other) + "\n" + public_key_text(KEY.public_key()))
    assert read_anchors("there", LINE.encode(), load_public_keys(path)).anchors == (ANCHOR,)
    for content in (b"", b"x", pem(KEY), b"-----END PUBLIC KEY-----"):
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"audit\.anchor_public_key_file"):
            load_public_keys(path)
    with pytest.raises(ConfigurationError, match="No such file"):
        load_public_keys(tmp_path / "missing")


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────


def test_concurrent_writers_lose_no_line(tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "anchors.jsonl")
    assert target.read() == b""
    hammer(lambda n: [target.append(f"{n}-{i} {'x' * 500}") for i in range(10)], threads=4)
    lines = target.read().decode().splitlines()
    assert sorted(line.split()[0] for line in lines) == sorted(
        f"{n}-{i}" for n in range(4) for i in range(10)
    )


def test_a_truncated_line_does_not_damage_the_next(tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "anchors.jsonl")
    target.path.write_text("cut o")
    target.append("whole")
    assert target.read() == b"cut o\nwhole\n"


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = FileTarget(tmp_path / "anchors.jsonl")
    target.append("first")
    write = os.write
    monkeypatch.setattr(targets.os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with pytest.raises(AnchorFailed, match="no space left"):
        target.append("second")
    assert target.read() == b"first\n"


def test_reports_a_missing_share_instead_of_creating_it(tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "share" / "anchors.jsonl")
    with pytest.raises(AnchorFailed, match="does not exist"):
        target.read()
    with pytest.raises(AnchorFailed, match="No such file"):
        target.append("line")
    assert not (tmp_path / "share").exists()
    with pytest.raises(AnchorFailed, match="directory"):
        FileTarget(tmp_path).read()


def test_waits_for_a_locked_file_only_until_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = FileTarget(tmp_path / "anchors.jsonl")
    target.append("line")
    monkeypatch.setattr(targets, "_LOCK_SECONDS", 0.0)
    with target.path.open() as held:
        lock_within(held.fileno(), 0.0)
        with pytest.raises(AnchorFailed, match="another process holds"):
            target.append("line")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MAX_BYTES", 3)
    (tmp_path / "anchors.jsonl").write_text("long")
    with pytest.raises(AnchorFailed, match="larger than"):
        FileTarget(tmp_path / "anchors.jsonl").read()


# ── URLs ──────────────────────────────────────────────────────────────────────────────────────────


class Collector(ThreadingHTTPServer):
    """Stores posted lines. `status` is answered instead, if set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.kept = b""
        self.status = 0
        self.tokens: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/anchors"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_GET(self) -> None:
        self._answer(self.server.kept)

    def do_POST(self) -> None:
        posted = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.status:
            self.server.kept += posted
        self._answer(b"")

    def _answer(self, content: bytes) -> None:
        self.server.tokens.append(self.headers["Authorization"])
        self.send_response(self.server.status or 200)
        self.send_header("Location", "https://elsewhere.example/")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def running() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def collector(running: Collector) -> Collector:
    running.kept, running.status, running.tokens = b"", 0, []
    return running


def test_a_url_gets_each_line_with_the_token_and_gives_all_of_them(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANCHOR_TOKEN", " secret\n")
    target = open_target(f"{collector.url}?sig=hidden", mirrors=tmp_path, token_variable="ANCHOR_TOKEN")
    assert target.read() == b""
    target.append("one")
    target.append("two")
    assert target.read() == b"one\ntwo\n"
    assert set(collector.tokens) == {"Bearer secret"}
    assert target.name == collector.url
    monkeypatch.setattr(targets, "MAX_BYTES", 3)
    with pytest.raises(AnchorFailed, match="larger than"):
        target.read()


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 500, 503])
def test_reports_an_unsuccessful_status(status: int, collector: Collector) -> None:
    collector.status = status
    target = UrlTarget(collector.url, "secret")
    for ask in (target.read, lambda: target.append("line")):
        with pytest.raises(AnchorFailed, match=f"status {status}") as failed:
            ask()
        assert "secret" not in str(failed.value)


@pytest.mark.parametrize("status", [404, 405])
def test_a_missing_url_has_no_anchors_and_refuses_new_ones(status: int, collector: Collector) -> None:
    collector.status = status
    target = UrlTarget(collector.url)
    assert target.read() == b""
    with pytest.raises(AnchorFailed, match=f"status {status}"):
        target.append("line")


def test_reports_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(AnchorFailed, match="refused"):
        UrlTarget(f"http://127.0.0.1:{port}/").read()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http://anchors.example/", "use https://"),
        ("http://127.0.0.1.example/", "use https://"),
        ("https://name:word@anchors.example/", "contains credentials"),
        ("https://token@anchors.example/", "contains credentials"),
        ("https:///path", "no host"),
        ("https://[/", "not a URL"),
        ("ftp://anchors.example/", "names no target"),
        ("file://relative", "names no target"),
        ("", "names no target"),
        ("git+ext::sh -c id#main", "remote"),
        ("git+https://name:word@git.example/a.git#main", "without user name and password"),
        ("git+https://git.example/a.git#../main", "branch"),
    ],
)
def test_refuses_an_invalid_or_unsafe_target(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=problem) as refused:
        open_target(text, mirrors=tmp_path)
    assert "word" not in str(refused.value).replace("password", "")


def test_a_token_that_is_not_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="NO_SUCH_TOKEN is not set"):
        open_target("https://anchors.example/", mirrors=tmp_path, token_variable="NO_SUCH_TOKEN")


def test_every_kind_of_target_is_recognised(tmp_path: Path) -> None:
    texts = ["/a/b", "a/b", "file:///a/b", "git+file:///srv/a.git", "git+ssh://git@git.example/a.git#build"]
    names = [open_target(text, mirrors=tmp_path).name for text in texts]
    assert names == [
        "/a/b",
        "a/b",
        "/a/b",
        "file:///srv/a.git#audit-anchors",
        "ssh://git.example/a.git#build",
    ]


# ── Git remotes ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "audit.git")
    git(tmp_path / "audit.git", "config", "receive.denyNonFastForwards", "true")
    git(tmp_path / "audit.git", "config", "receive.denyDeletes", "true")
    return tmp_path / "audit.git"


def target_of(remote: Path, mirrors: str = "mirrors") -> GitTarget:
    return GitTarget(RemoteAddress(f"file://{remote}", "build-1"), remote.parent / mirrors)


def commit_on(remote: Path, tip: str, listed: str) -> str:
    """Move the branch, as another user, to a commit with these entries."""
    made = subprocess.run(
        ["git", "mktree"], cwd=remote, input=listed, capture_output=True, text=True, check=True
    )
    name = ("-c", "user.name=n", "-c", "user.email=e@localhost")
    commit = git(remote, *name, "commit-tree", "-p", tip, "-m", "another", made.stdout.strip()).strip()
    git(remote, "update-ref", "refs/heads/build-1", commit)
    return commit


def lines_of(remote: Path) -> list[str]:
    return git(remote, "show", f"refs/heads/build-1:{FILE}").splitlines()


def test_a_branch_gets_a_commit_for_each_line_and_keeps_other_files(remote: Path) -> None:
    target = target_of(remote)
    assert target.read() == b""
    target.append("one")
    first = git(remote, "rev-parse", "build-1").strip()
    blob = git(remote, "hash-object", "-w", str(remote / "HEAD")).strip()
    listed = git(remote, "ls-tree", first).strip()
    second = commit_on(remote, first, f"{listed}\n100755 blob {blob}\tRÉADME\n")
    target.append("two")
    assert target.read() == b"one\ntwo\n"
    assert lines_of(remote) == ["one", "two"]
    assert f"100755 blob {blob}" in git(remote, "ls-tree", "build-1")
    assert git(remote, "rev-list", "--count", "build-1").strip() == "3"
    assert git(remote, "rev-parse", "build-1~1").strip() == second


@pytest.mark.parametrize("problem", ["", "cannot lock ref 'refs/heads/build-1'"])
def test_a_push_that_was_too_slow_is_made_again_on_top(
    problem: str, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = Mirrors.push
    others = iter(["another"])

    def overtaken(mirrors: Mirrors, *arguments: Any) -> str:
        for line in others:
            if problem:
                return problem
            target_of(remote, "elsewhere").append(line)
        return push(mirrors, *arguments)

    target = target_of(remote)
    target.append("first")
    monkeypatch.setattr(Mirrors, "push", overtaken)
    target.append("mine")
    assert lines_of(remote) == ["first", *([] if problem else ["another"]), "mine"]


def test_a_push_whose_answer_was_lost_is_not_made_twice(
    remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = Mirrors.push
    monkeypatch.setattr(Mirrors, "push", lambda *arguments: push(*arguments) or "the connection was cut")
    target_of(remote).append("one")
    assert lines_of(remote) == ["one"]


def test_a_branch_that_always_moves_is_given_up(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mirrors, "push", lambda *arguments: "failed to lock")
    monkeypatch.setattr("cleveragents.events.anchors.git_target._TRIES", 2)
    with pytest.raises(AnchorFailed, match="moved during each of 2 tries"):
        target_of(remote).append("one")


def test_reports_a_remote_that_refuses_or_is_gone(remote: Path) -> None:
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(AnchorFailed, match=r"did not accept the anchor: .*pre-receive hook declined"):
        target_of(remote).append("one")
    remote.rename(remote.with_name("gone"))
    for ask in (target_of(remote).read, lambda: target_of(remote).append("one")):
        with pytest.raises(AnchorFailed, match=r"does not appear to be a git repository|does not exist"):
            ask()


def test_refuses_a_branch_whose_anchor_file_is_not_a_file_or_too_large(
    remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(remote)
    target.append("one")
    monkeypatch.setattr("cleveragents.events.anchors.git_target.MAX_BYTES", 2)
    with pytest.raises(AnchorFailed, match="larger than"):
        target.read()
    first = git(remote, "rev-parse", "build-1").strip()
    tree = git(remote, "rev-parse", f"{first}^{{tree}}").strip()
    commit_on(remote, first, f"040000 tree {tree}\t{FILE}\n")
    with pytest.raises(AnchorFailed, match="is a tree"):
        target.read()
