"""The commit and repository of a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.place import ground_of
from cleveragents.core.errors import SourceMissing
from tests.index_bench import Bench


@pytest.mark.parametrize("words", ["HEAD~1..HEAD", "HEAD..HEAD", "HEAD~1...HEAD", "^HEAD"])
def test_a_range_of_commits_is_refused_and_a_single_one_is_not(tmp_path: Path, words: str) -> None:
    tree = Bench(tmp_path).repository().write({"a.py": "alpha"})
    first = tree.commit("first")
    tree.write({"a.py": "beta"}).commit("second")
    assert ground_of(CodePlace(tree.root, "HEAD~1")).commit == first
    with pytest.raises(SourceMissing, match="does not name a single commit"):
        ground_of(CodePlace(tree.root, words))
