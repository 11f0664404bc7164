"""The name of a state directory."""

from __future__ import annotations

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from cleveragents.core.errors import ConfigurationError
from cleveragents.storage.home import home_id


def test_a_state_directory_is_named_once_and_for_good(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    first = home_id(state)
    assert len(first) == 26
    assert home_id(state) == first
    assert home_id(tmp_path / "another") != first
    assert sorted(path.name for path in state.iterdir()) == ["home", "home.place"]
    assert (state / "home").stat().st_mode & 0o777 == 0o600


def test_concurrent_first_uses_of_a_directory_agree_on_one_name(tmp_path: Path) -> None:
    for number in range(20):
        state = tmp_path / str(number)
        together = Barrier(4)

        def name(state: Path = state, together: Barrier = together) -> str:
            together.wait(30)
            return home_id(state)

        with ThreadPoolExecutor(4) as threads:
            found = {future.result() for future in [threads.submit(name) for _ in range(4)]}
        assert len(found) == 1
        assert sorted(path.name for path in state.iterdir()) == ["home", "home.place"]


def test_a_directory_keeps_its_name_when_it_moves(tmp_path: Path) -> None:
    """Renamed; moved to another disk; or restored from its own copy."""
    state, moved = tmp_path / "state", tmp_path / "moved"
    name = home_id(state)
    state.rename(moved)
    assert home_id(moved) == name
    shutil.copytree(moved, state)
    shutil.rmtree(moved)
    assert home_id(state) == name
    shutil.copytree(state, tmp_path / "copy")
    shutil.rmtree(state)
    (tmp_path / "copy").rename(state)
    assert home_id(state) == name


def test_refuses_a_copy_while_the_original_exists_until_it_gets_a_new_name(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    name = home_id(state)
    shutil.copytree(state, copy)
    with pytest.raises(ConfigurationError, match=f"is a copy of {state}; delete {copy}/home"):
        home_id(copy)
    assert home_id(state) == name
    (copy / "home").unlink()
    own = home_id(copy)
    assert own not in ("", name)
    assert (home_id(state), home_id(copy)) == (name, own)


def test_refuses_a_copy_with_the_same_inode_number(tmp_path: Path) -> None:
    """The root of every volume has the same number."""
    state, copy = tmp_path / "state", tmp_path / "copy"
    home_id(state)
    shutil.copytree(state, copy)
    place = copy / "home.place"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"inode": copy.stat().st_ino}))
    with pytest.raises(ConfigurationError, match=f"is a copy of {state}"):
        home_id(copy)


def test_refuses_a_copy_made_of_hard_links(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    home_id(state)
    shutil.copytree(state, copy, copy_function=os.link)
    with pytest.raises(ConfigurationError, match=f"is a copy of {state}"):
        home_id(copy)


def test_accepts_the_same_directory_on_another_path(tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    name = home_id(state)
    elsewhere.symlink_to(state)
    place = state / "home.place"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"path": str(elsewhere)}))
    assert home_id(state) == name


def test_works_even_if_the_place_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = home_id(tmp_path)
    (tmp_path / "home.place").unlink()

    def refused(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for method in ("write_text", "unlink"):
        monkeypatch.setattr(Path, method, refused)
    assert home_id(tmp_path) == name


def test_refuses_a_copy_on_another_machine_until_a_person_decides(
    tmp_path: Path,
) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    name = home_id(state)
    shutil.copytree(state, copy)
    shutil.rmtree(state)
    place = copy / "home.place"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"machine": "another"}))
    with pytest.raises(
        ConfigurationError, match=f"on another machine; if .* delete {place}; otherwise delete"
    ):
        home_id(copy)
    place.unlink()
    assert home_id(copy) == name
    place.write_text("nothing that makes sense")
    assert home_id(copy) == name


@pytest.mark.parametrize("content", ["", "not a name", "01ARZ3NDEKTSV4RRFFQ69G5FAV and more"])
def test_refuses_an_invalid_name_instead_of_replacing_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "home").write_text(content)
    with pytest.raises(ConfigurationError, match="ULID"):
        home_id(tmp_path)
    assert (tmp_path / "home").read_text() == content


def test_reports_a_directory_that_cannot_store_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="the name of this state directory"):
        home_id(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
