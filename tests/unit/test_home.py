"""The name of a state directory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from cleveragents.errors import ConfigurationError
from cleveragents.infrastructure.home import home_id


def test_a_state_directory_is_named_once_and_for_good(tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    first = home_id(state)
    assert len(first) == 26
    assert home_id(state) == first
    assert home_id(tmp_path / "another") != first
    assert [path.name for path in state.iterdir()] == ["home"]
    assert (state / "home").stat().st_mode & 0o777 == 0o600


def test_all_who_name_a_directory_at_once_find_one_name(tmp_path: Path) -> None:
    for number in range(20):
        state = tmp_path / str(number)
        together = Barrier(4)

        def name(state: Path = state, together: Barrier = together) -> str:
            together.wait(30)
            return home_id(state)

        with ThreadPoolExecutor(4) as threads:
            found = {future.result() for future in [threads.submit(name) for _ in range(4)]}
        assert len(found) == 1
        assert [path.name for path in state.iterdir()] == ["home"]


@pytest.mark.parametrize("content", ["", "not a name", "01ARZ3NDEKTSV4RRFFQ69G5FAV and more"])
def test_a_name_that_is_none_is_refused_instead_of_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "home").write_text(content)
    with pytest.raises(ConfigurationError, match="ULID"):
        home_id(tmp_path)
    assert (tmp_path / "home").read_text() == content


def test_a_directory_that_cannot_be_named_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="names this state directory"):
        home_id(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
