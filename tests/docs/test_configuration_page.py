"""The page on configuration lists every setting with its default and the permissions of repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.config.settings import Key, RepositoryPolicy, known_keys

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("| key | default | | a repository |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
ROWS = {cells[1].strip(" `"): cells for cells in (row.split("|") for row in TABLE.splitlines())}
WHERE_ONE_IS = {"state.directory", "database.url"}
"""Their defaults depend on the user."""


def test_the_table_has_every_setting_in_order() -> None:
    assert list(ROWS) == list(known_keys())


@pytest.mark.parametrize("key", known_keys().values(), ids=lambda key: key.dotted)
def test_a_setting_has_its_real_default(key: Key) -> None:
    _, _, default, said, may, _ = ROWS[key.dotted]
    allowed = "may not set it" if key.repository is RepositoryPolicy.NEVER else key.repository.value
    assert may.strip() == allowed
    assert said.strip()
    if key.dotted not in WHERE_ONE_IS:
        shown = default.strip(" `")
        assert shown == _spelt(getattr(key.model(), key.name))


def _spelt(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)
