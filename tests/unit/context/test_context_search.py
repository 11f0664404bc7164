"""The search functions of strategies: BM25, path suffixes, path words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.context.code_index import CodePlace
from cleveragents.context.model.code import Field
from cleveragents.context.search.bm25 import Bm25Table, Corpus, best, pooled
from cleveragents.context.search.import_graph import ImportGraph
from cleveragents.context.search.path_words import PathEnds, PathWords, stem
from cleveragents.context.search.question_search import shared_search
from cleveragents.testing.code_index import MemorySnapshot


def _snapshot(files: dict[str, str]) -> MemorySnapshot:
    return MemorySnapshot(files, CodePlace(Path("/nowhere")))


def test_scores_are_those_of_the_formula() -> None:
    code = _snapshot({"a.py": "apple = 1\napple = 2\n", "b.py": "apple = pear\n", "c.py": "plum = plum\n"})
    corpus = Corpus(code)
    table = Bm25Table(corpus, corpus.find(code, Field.BODY, ["apple", "nut"]), documents=True, k1=1.2, b=0.75)
    scores = table.scores({"apple": 2.0, "nut": 1.0, "unasked": 1.0})
    rarity = np.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    twice, once = (rarity * 2 * n * 2.2 / (n + 1.2) for n in (2, 1))  # all have the same length
    paths = {file.path: float(scores[file.document]) for file in code.files}
    assert paths == pytest.approx({"a.py": twice, "b.py": once, "c.py": 0.0})


def test_a_corpus_ignores_other_documents() -> None:
    files = {"a.py": "apple = 1\n", "b.py": "apple = pear\n", "c.py": "plum = plum\n"}
    alone = {path: text for path, text in files.items() if path != "c.py"}
    whole, part = _snapshot(files), _snapshot(alone)
    corpus = Corpus(whole, {file.document for file in whole.files if file.path in alone})
    within = Bm25Table(corpus, corpus.find(whole, Field.BODY, ["apple", "plum"]), documents=True)
    other = Corpus(part)
    expected = Bm25Table(other, other.find(part, Field.BODY, ["apple", "plum"]), documents=True)
    query = {"apple": 1.0, "plum": 1.0}
    by_path = {file.path: float(within.scores(query)[file.document]) for file in whole.files}
    for file in part.files:
        assert by_path[file.path] == pytest.approx(float(expected.scores(query)[file.document]))
    assert by_path["c.py"] == 0.0


def test_coverage_is_the_share_of_matching_terms() -> None:
    code = _snapshot({"a.py": "apple = pear\n", "b.py": "apple = 1\n"})
    corpus = Corpus(code)
    table = Bm25Table(corpus, corpus.find(code, Field.BODY, ["apple", "pear"]), documents=True)
    covered = table.coverage({"apple": 1.0, "pear": 1.0})
    by_path = {file.path: float(covered[file.document]) for file in code.files}
    assert by_path["a.py"] == pytest.approx(1.0)
    assert 0 < by_path["b.py"] < 0.5


def test_the_best_three_chunks_count_and_no_more() -> None:
    code = _snapshot({"a.py": "".join(f"def f{n}():\n    return apple\n" for n in range(5))})
    corpus = Corpus(code)
    scores = np.asarray([1, 8, 2, 4, 1], dtype=np.float32)
    assert pooled(corpus, scores).tolist() == [8 + 4 / 2 + 2 / 4]
    assert pooled(corpus, np.zeros(5, dtype=np.float32)).tolist() == [0.0]


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 10))
def test_the_best_come_first_and_of_equal_ones_the_first(values: list[int], most: int) -> None:
    expected = sorted((n for n, value in enumerate(values) if value), key=lambda n: (-values[n], n))[:most]
    assert best(np.asarray(values, dtype=np.float32), most) == expected


PATHS = [
    "src/kite/wire.py",
    "src/kite/__init__.py",
    "lib/a/util.py",
    "lib/b/util.py",
    "setup.py",
    "web/index.ts",
]


@pytest.mark.parametrize(
    ("mention", "meant"),
    [
        ("wire.py", ["src/kite/wire.py"]),
        ("kite/wire.py", ["src/kite/wire.py"]),
        ("./src/kite/wire.py", ["src/kite/wire.py"]),
        ("other/wire.py", []),
        ("util.py", ["lib/a/util.py", "lib/b/util.py"]),
        ("x/b/util.py", ["lib/b/util.py"]),
        ("/home/me/setup.py", ["setup.py"]),
        ("/", []),
        ("gone.py", []),
    ],
)
def test_paths_are_compared_from_their_ends(mention: str, meant: list[str]) -> None:
    assert PathEnds(PATHS).meant(mention) == meant


def test_a_name_that_too_many_files_have_matches_none() -> None:
    ends = PathEnds([f"p{number}/__init__.py" for number in range(20)])
    assert ends.meant("__init__.py") == []
    assert ends.one("p3/__init__.py") == "p3/__init__.py"
    assert PathEnds([f"p{number}/x/y.py" for number in range(20)]).files_of(["x", "y"]) == []


def test_modules_are_files_and_packages_are_their_first() -> None:
    ends = PathEnds(PATHS)
    assert ends.module("kite.wire.open_socket") == {"src/kite/wire.py": 1.0}
    assert ends.module("wire") == {}
    assert ends.files_of(["kite"]) == ["src/kite/__init__.py"]
    assert ends.exactly(["web"]) == ["web/index.ts"]
    assert ends.exactly([]) == []
    assert ends.files_of([]) == []


def test_modules_of_several_languages_are_found_where_they_are_imported() -> None:
    code = _snapshot(
        {
            "app/main.py": "",
            "app/sub/part.py": "",
            "web/src/a.ts": "",
            "web/lib/b.ts": "",
            "src/net/wire.rs": "",
            "go/pkg/server.go": "",
        }
    )
    graph = ImportGraph(shared_search(code, "x"))
    assert graph.modules(".sub.part", "app/main.py") == ["app/sub/part.py"]
    assert graph.modules("..main", "app/sub/part.py") == ["app/main.py"]
    assert graph.modules(".....main", "app/sub/part.py") == []
    assert graph.modules("'../lib/b.js'", "web/src/a.ts") == ["web/lib/b.ts"]
    assert graph.modules("crate::net::wire", "src/main.rs") == ["src/net/wire.rs"]
    assert graph.modules("pkg/server", "go/main.go") == ["go/pkg/server.go"]
    assert graph.modules("self", "src/main.rs") == []


@pytest.mark.parametrize(
    "words",
    [
        ("parse", "parser", "parsers", "parsing"),
        ("cookie", "cookies"),
        ("query", "queries"),
        ("class",),
        ("register", "registered", "registering"),
        ("plot", "plots", "plotted", "plotting"),
        ("call", "called", "caller"),
    ],
)
def test_forms_of_a_word_are_one(words: tuple[str, ...]) -> None:
    assert len({stem(word) for word in words}) == 1
    assert stem("is") == "is"


def test_a_rare_word_of_a_path_says_more() -> None:
    words = PathWords(["app/core/cookies.py", "app/core/wire.py", "app/other.py"])
    scores = words.scores({"core": 1.0, "cookie": 1.0})
    assert max(scores["path"], key=lambda path: scores["path"][path]) == "app/core/cookies.py"
    assert list(scores["share"]) == ["app/core/cookies.py"]
    assert words.scores({"nowhere": 1.0}) == {"path": {}, "share": {}}
