"""Vectors from a package's files, without importing the package."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cleveragents.context.strategies import embeddings as word_vectors
from cleveragents.context.strategies.embeddings import read_matrix, vector_files


def _file(folder: Path, header: object, data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path = folder / "weights.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_the_matrix_is_where_the_header_says(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.float16).reshape(2, 3)
    tensor = {"dtype": "F16", "shape": [2, 3], "data_offsets": [4, 16]}
    header = {"__metadata__": {"a": "b"}, "embedding": tensor}
    found = read_matrix(_file(tmp_path, header, b"\0" * 4 + rows.tobytes()))
    assert found.tolist() == rows.tolist()


@pytest.mark.parametrize(
    "header", [{}, {"a": {"dtype": "F32", "shape": [1, 1]}}, {"a": {"dtype": "F16", "shape": [1]}}]
)
def test_a_file_without_a_matrix_is_refused(tmp_path: Path, header: object) -> None:
    with pytest.raises(ValueError, match="matrix"):
        read_matrix(_file(tmp_path, header))


def test_a_file_that_is_not_a_script_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(ValueError, match="header"):
        read_matrix(path)


def test_texts_that_mean_the_same_are_nearer_and_nothing_is_imported_for_it() -> None:
    before = "wordllama" in sys.modules
    vectors = word_vectors.word_vectors().embed(
        ["a cat sleeps", "the kitten naps", "parse the config file", ""]
    )
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert not vectors[3].any()
    assert ("wordllama" in sys.modules) == before


def test_without_the_package_there_are_no_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "find_spec", lambda name: None)
    assert vector_files() is None
    word_vectors.word_vectors.cache_clear()
    with pytest.raises(FileNotFoundError):
        word_vectors.word_vectors()
