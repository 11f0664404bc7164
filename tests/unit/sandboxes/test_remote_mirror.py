"""Mirrors of git remotes: fetch, checkout and push."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cleveragents.access.model.project import RemoteAddress
from cleveragents.core.errors import GitFailed, RemoteUnreachable, SandboxRefused
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.mirror import Mirrors
from cleveragents.storage.files import paths
from tests.apply_bench import git
from tests.plan_bench import FILES
from tests.remotes import Remote, new_remote


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return new_remote(tmp_path)


@pytest.fixture
def mirrors(tmp_path: Path) -> Mirrors:
    return Mirrors(tmp_path / "mirrors")


def test_a_fetch_finds_the_current_branch(remote: Remote, mirrors: Mirrors) -> None:
    assert mirrors.fetched(remote.address) == remote.tip()
    moved = remote.commit({"new.txt": "new\n"})
    assert mirrors.value_of(remote.address, remote.address.ref) != moved
    assert mirrors.fetched(remote.address) == moved


def test_a_fetch_follows_rewritten_and_removed_branches(remote: Remote, mirrors: Mirrors) -> None:
    git(remote.directory, "branch", "old", "main")
    mirrors.fetch(remote.address)
    assert mirrors.value_of(remote.address, "refs/heads/old") == remote.tip()
    git(remote.directory, "branch", "-D", "old")
    git(remote.clone, "commit", "-q", "--amend", "-m", "other words")
    git(remote.clone, "push", "-qf", "origin", "main")
    assert mirrors.fetched(remote.address) == remote.tip()
    assert mirrors.value_of(remote.address, "refs/heads/old") is None


def test_a_checkout_has_the_files_of_its_commit(remote: Remote, mirrors: Mirrors) -> None:
    first = mirrors.fetched(remote.address)
    place = mirrors.checkout(remote.address, first)
    remote.commit({"a.txt": "changed\n"})
    second = mirrors.checkout(remote.address, mirrors.fetched(remote.address))
    assert mirrors.checkout(remote.address, first) == place != second
    assert {path: (place / path).read_text() for path in FILES} == dict(FILES)
    assert (second / "a.txt").read_text() == "changed\n"
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "symbolic-ref", "HEAD").strip() == "refs/heads/main"


def test_fetches_a_missing_commit(remote: Remote, mirrors: Mirrors) -> None:
    mirrors.fetch(remote.address)
    moved = remote.commit({"a.txt": "changed\n"})
    assert (mirrors.checkout(remote.address, moved) / "a.txt").read_text() == "changed\n"


def test_refuses_an_unknown_commit(remote: Remote, mirrors: Mirrors) -> None:
    with pytest.raises(SandboxRefused, match="no longer has commit"):
        mirrors.checkout(remote.address, "1" * 40)


def test_concurrent_checkouts_are_one(remote: Remote, mirrors: Mirrors) -> None:
    commit = mirrors.fetched(remote.address)
    with ThreadPoolExecutor(4) as threads:
        found = {
            f.result() for f in [threads.submit(mirrors.checkout, remote.address, commit) for _ in "1234"]
        }
    [place] = found
    assert [path.name for path in place.parent.iterdir()] == [commit]


def test_a_file_in_place_of_a_checkout_is_an_error(remote: Remote, mirrors: Mirrors) -> None:
    commit = mirrors.fetched(remote.address)
    place = mirrors.checkout(remote.address, commit)
    shutil.rmtree(place)
    place.write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        mirrors.checkout(remote.address, commit)
    assert [path.name for path in place.parent.iterdir()] == [commit]


def test_a_recently_requested_checkout_is_not_unused(remote: Remote, mirrors: Mirrors) -> None:
    commit = mirrors.fetched(remote.address)
    place = mirrors.checkout(remote.address, commit)
    os.utime(place, (0, 0))
    assert mirrors.unused([]) == [place]
    assert mirrors.unused([place]) == []
    mirrors.checkout(remote.address, commit)
    assert mirrors.unused([]) == []


def test_only_an_unneeded_mirror_is_removed(remote: Remote, mirrors: Mirrors) -> None:
    url = remote.address.url
    commit = mirrors.fetched(remote.address)
    checkout = mirrors.checkout(remote.address, commit)
    assert mirrors.known(remote.address) == checkout
    [lock] = mirrors.directory.glob("*.lock")
    os.utime(lock, (0, 0))
    [mirror] = mirrors.unneeded(())
    assert mirrors.unneeded([url]) == []
    assert not mirrors.remove(mirror, lambda: [url])  # a plan appeared after the search
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not mirrors.remove(mirror, list)  # a fetch is running
    mirrors.fetch(remote.address)
    assert not mirrors.remove(mirror, list)  # it was just fetched
    os.utime(lock, (0, 0))
    assert mirrors.remove(mirror, list)
    assert not checkout.exists()
    assert mirrors.known(remote.address) is None
    assert mirrors.fetched(remote.address) == commit


def test_a_killed_removal_leaves_no_partial_checkout(
    remote: Remote, mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = mirrors.fetched(remote.address)
    place = mirrors.checkout(remote.address, commit)
    [lock] = mirrors.directory.glob("*.lock")
    [mirror] = mirrors.directory.glob("*.git")

    def interrupted(parent: int, name: str) -> None:
        for path in mirrors.directory.glob(f"**/{name}/**/a.txt"):
            path.unlink()
        raise KeyboardInterrupt

    for remove in (lambda: mirrors.discard(place), lambda: mirrors.remove(mirror, list)):
        os.utime(place, (0, 0))
        os.utime(lock, (0, 0))
        with monkeypatch.context() as patch:
            patch.setattr(paths, "_remove_directory", interrupted)
            with pytest.raises(KeyboardInterrupt):
                remove()
        mirrors.fetch(remote.address)
        assert mirrors.checkout(remote.address, commit) == place
        assert {path: (place / path).read_text() for path in FILES} == dict(FILES)
        assert git(place, "status", "--porcelain") == ""
    assert len([*mirrors.directory.glob("**/*.new")]) == 3


def test_a_checkout_requested_meanwhile_is_not_discarded(remote: Remote, mirrors: Mirrors) -> None:
    commit = mirrors.fetched(remote.address)
    place = mirrors.checkout(remote.address, commit)
    assert not mirrors.discard(place)
    assert place.is_dir()
    os.utime(place, (0, 0))
    assert mirrors.discard(place)
    assert not place.exists()
    assert mirrors.discard(place)  # another process was faster


def test_a_push_moves_the_branch_only_from_the_expected_commit(remote: Remote, mirrors: Mirrors) -> None:
    seen = mirrors.fetched(remote.address)
    ours = _commit_on(mirrors.repository(remote.address), seen)
    theirs = remote.commit({"new.txt": "new\n"})
    assert mirrors.push(remote.address, mirrors.repository(remote.address), ours, "refs/heads/main", seen)
    assert remote.tip() == theirs
    mirrors.fetch(remote.address)
    next_one = _commit_on(mirrors.repository(remote.address), theirs)
    source = mirrors.repository(remote.address)
    assert mirrors.push(remote.address, source, next_one, "refs/heads/main", theirs) == ""
    assert remote.tip() == next_one


def test_a_push_of_a_new_branch_refuses_an_existing_one(remote: Remote, mirrors: Mirrors) -> None:
    seen = mirrors.fetched(remote.address)
    source = mirrors.repository(remote.address)
    assert mirrors.push(remote.address, source, seen, "refs/heads/next", "") == ""
    assert remote.tip("next") == seen
    ours = _commit_on(source, seen)
    assert mirrors.push(remote.address, source, ours, "refs/heads/next", "") != ""
    assert remote.tip("next") == seen


def test_an_unreachable_remote_is_reported_without_credentials(tmp_path: Path, mirrors: Mirrors) -> None:
    address = RemoteAddress("file://me:secret@localhost" + str(tmp_path / "none.git"), "main")
    with pytest.raises(RemoteUnreachable) as told:
        mirrors.fetch(address)
    assert "secret" not in str(told.value)
    kept = [path for path in (tmp_path / "mirrors").rglob("*") if path.is_file()]
    assert all(b"secret" not in path.read_bytes() for path in kept)


def test_a_missing_branch_is_named(remote: Remote, mirrors: Mirrors) -> None:
    with pytest.raises(SandboxRefused, match="no branch nowhere"):
        mirrors.fetched(RemoteAddress(remote.address.url, "nowhere"))


def test_a_hanging_fetch_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("GIT_SSH", str(program))
    with pytest.raises(RemoteUnreachable, match="no answer within"):
        Mirrors(tmp_path / "mirrors", seconds=0.5).fetch(RemoteAddress("ssh://host/shop.git", "main"))


def test_waiting_for_a_held_mirror_times_out(remote: Remote, tmp_path: Path) -> None:
    mirrors = Mirrors(tmp_path / "mirrors", seconds=0.2)
    with (
        mirrors._held(remote.address),
        pytest.raises(RemoteUnreachable, match="timed out waiting for another fetch"),
    ):
        mirrors.fetch(remote.address)


def test_an_old_lock_of_a_killed_fetch_is_removed(
    remote: Remote, mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors.fetch(remote.address)
    lock = mirrors.repository(remote.address).directory / "refs/heads/main.lock"
    lock.write_text("")
    remote.commit({"new.txt": "new\n"})
    with monkeypatch.context() as patch, pytest.raises(RemoteUnreachable, match="lock"):
        patch.setattr("cleveragents.sandboxes.mirror._LOCK_SECONDS", -3600.0)
        os.utime(lock, (2**32, 2**32))  # not old by any measure
        mirrors.fetch(remote.address)
    os.utime(lock, (0, 0))
    assert mirrors.fetched(remote.address) == remote.tip()


def test_no_hook_or_program_of_a_repository_runs(remote: Remote, mirrors: Mirrors, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    remote.commit(
        {".gitattributes": "* filter=evil\n", ".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ext::sh\n'}
    )
    commit = mirrors.fetched(remote.address)
    hooks = mirrors.repository(remote.address).directory / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "pre-push", "post-checkout"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {trace}\n")
        (hooks / name).chmod(0o755)
    mirrors.checkout(remote.address, commit)
    mirrors.push(remote.address, mirrors.repository(remote.address), commit, "refs/heads/next", "")
    assert not trace.exists()


def test_an_invalid_commit_is_none(remote: Remote, mirrors: Mirrors) -> None:
    mirrors.fetch(remote.address)
    with pytest.raises(GitFailed):
        mirrors.repository(remote.address).git("cat-file", "-e", "1" * 40)
    assert mirrors.value_of(remote.address, "1" * 40) is None


def _commit_on(repository: PrivateRepository, parent: str) -> str:
    identity = ("-c", "user.name=one", "-c", "user.email=one@example.com")
    tree = repository.text("rev-parse", f"{parent}^{{tree}}")
    return repository.text(*identity, "commit-tree", "-p", parent, "-m", "ours", tree)
