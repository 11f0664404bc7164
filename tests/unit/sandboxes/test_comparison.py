"""Comparisons of outcomes across sandboxes, and refusals."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cleveragents.api.plans.comparison import ComparisonBounds, ensure_comparable
from cleveragents.core.change import FileState
from cleveragents.core.errors import RequestRefused, SandboxRefused
from cleveragents.sandboxes.comparison import (
    FILES_AND_LINES,
    ResultTree,
    bytes_between,
    changed_between,
    changed_files,
    diff_between,
)
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone


def outcome(home: Path, name: str, object_format: str = "sha1") -> ResultTree:
    root = home / name
    root.mkdir()
    subprocess.run(["git", "init", "-q", f"--object-format={object_format}"], cwd=root, check=True)
    (root / "same.txt").write_text("same\n")
    (root / f"{name}.txt").write_text(f"{name}\n")
    (root / "blob").write_bytes(b"\0" + name.encode())
    sandbox = PrivateClone().create(SandboxRequest(name, root), home / f"sandbox-{name}")
    return ResultTree(sandbox, sandbox.base)


def test_two_sandboxes_are_compared_and_neither_is_changed(tmp_path: Path) -> None:
    one, other = outcome(tmp_path, "one"), outcome(tmp_path, "other")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert b"+other\n" in diff_between(one, other)
    changed = changed_between(one, other)
    assert [(file.path, file.added, file.removed) for file in changed] == [
        ("blob", None, None),
        ("one.txt", 0, 1),
        ("other.txt", 1, 0),
    ]
    assert changed[0].before is not None
    assert changed[0].before.mode == 0o100644
    assert (changed[1].after, changed[2].before) == (None, None)
    assert [file.path for file in changed_between(one, other, ["one.txt"])] == ["one.txt"]
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_a_changed_submodule_is_listed_even_if_gitmodules_ignores_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".gitmodules").write_text('[submodule "part"]\n\tpath = part\n\turl = x\n\tignore = all\n')
    commit = f"160000,{'1' * 40},part"
    for arguments in (("add", "-A"), ("update-index", "--add", "--cacheinfo", commit)):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    sandbox = PrivateClone().create(SandboxRequest("one", root), tmp_path / "sandbox")
    tree = sandbox.tree({"part": FileState(0o160000, "2" * 40)})
    [changed] = changed_files(sandbox.diff(tree, options=FILES_AND_LINES))
    assert (changed.path, changed.after) == ("part", FileState(0o160000, "2" * 40))
    assert sandbox.diff(tree, options=("--raw", "-z")) == b"", "git would ignore it"


def test_refuses_a_comparison_that_is_too_large(tmp_path: Path) -> None:
    one, other = outcome(tmp_path, "one"), outcome(tmp_path, "other")
    files = changed_between(one, other)
    assert bytes_between(one, other, files) == sum(map(len, (b"\0one", b"\0other", b"one\n", b"other\n")))
    ensure_comparable(one, other, ComparisonBounds(files=3, lines=2, bytes=20))
    for bounds, said in (
        (ComparisonBounds(files=2), "differ in 3 files and 2 lines"),
        (ComparisonBounds(lines=1), "differ in 3 files and 2 lines"),
        (ComparisonBounds(bytes=19), "differ in 3 files of 20 bytes"),
    ):
        with pytest.raises(RequestRefused, match=said):
            ensure_comparable(one, other, bounds)


def test_refuses_to_compare_different_object_formats(tmp_path: Path) -> None:
    one, other = outcome(tmp_path, "one"), outcome(tmp_path, "other", "sha256")
    with pytest.raises(SandboxRefused, match="another git object format"):
        diff_between(one, other)
