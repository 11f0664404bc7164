"""Files that cannot be recorded: named, moved out of the sandbox, and never the end of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.core.errors import SandboxMissing, SandboxRefused
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from tests.sandbox_resources import commit_all, git, make_repository, write


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    library = make_repository(tmp_path / "library", {"code.py": "1\n"})
    resource = make_repository(tmp_path / "r", {"a": "a\n", ".gitignore": "build/\n"})
    git(resource, "submodule", "--quiet", "add", str(library), "sub")
    commit_all(resource)
    return PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")


def aside(sandbox: Sandbox) -> dict[str, str]:
    places = sandbox.root.parent.glob("aside-*")
    return {
        str(path.relative_to(place)): path.read_text()
        for place in places
        for path in place.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("path", ["GIT~1", "d/.GIT/x", "sub/build/o", "sub/new.py"])
def test_an_unrecordable_file_is_named_with_a_working_remedy(sandbox: Sandbox, path: str) -> None:
    write(sandbox.root, {path: "odd\n", "a": "changed\n", "new": "new\n"})
    named = "sub" if path.startswith("sub") else path
    with pytest.raises(SandboxRefused, match=f"cannot record '{named}': .*roll the plan back"):
        sandbox.scan()
    assert sandbox.put_aside() == (named,)
    assert aside(sandbox) == {path: "odd\n"}
    assert set(sandbox.scan()) == {"a", "new"}, "nothing else was touched"
    assert sandbox.put_aside() == ()


def test_a_nested_repository_is_scanned_without_running_its_programs(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    for name in ("sub", "nested"):
        git(sandbox.root, "init", "-q", name)
        write(sandbox.root, {f"{name}/f": "1\n"})
        commit_all(sandbox.root / name)
        git(sandbox.root / name, "config", "filter.x.clean", f"touch {tmp_path}/ran; cat")
        write(sandbox.root, {f"{name}/.git/info/attributes": "* filter=x\n", f"{name}/f": "2\n"})
    write(sandbox.root, {"nested/GIT~1": "odd\n"})
    assert sandbox.put_aside() == ("nested/GIT~1",)
    assert set(sandbox.scan()) == {"nested/f"}
    assert not (tmp_path / "ran").exists()


def test_a_file_in_place_of_a_submodule_is_moved_out(sandbox: Sandbox) -> None:
    (sandbox.root / "sub").rmdir()
    write(sandbox.root, {"sub": "a file\n"})
    assert sandbox.put_aside() == ("sub",)
    assert sandbox.scan() == {}
    assert aside(sandbox) == {"sub": "a file\n"}


@pytest.mark.parametrize("left", ["", "{", "{}", '{"gitlinks": [], "readable": [], "notes": []}', "[]"])
def test_damaged_facts_mean_a_missing_sandbox(sandbox: Sandbox, left: str) -> None:
    facts = sandbox.root.parent / "sandbox.json"
    facts.write_text(left)
    with pytest.raises(SandboxMissing, match="damaged"):
        PrivateClone().open("plan-1", Path("r"), sandbox.root.parent)
