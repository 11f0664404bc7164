"""The kind of a file by its path."""

from __future__ import annotations

import pytest

from cleveragents.context.model.code import is_documentation, kind_of


@pytest.mark.parametrize(
    "path",
    [
        "tests/helpers.py", "pkg/tests/data.py", "test_a.py", "a/b_test.go", "conftest.py", "web/a.test.ts",
        "web/a.spec.jsx", "src/test/java/A.java", "core/src/test/java/A.java", "core/ATest.java",
        "app/tests.py", "spec/a_spec.rb", "web/__tests__/a.js", "test/a.js",
    ],
)  # fmt: skip
def test_a_test_is_recognised_by_its_path_or_name(path: str) -> None:
    assert kind_of(path) == "test"


@pytest.mark.parametrize(
    "path",
    ["django/test/client.py", "numpy/testing/api.py", "src/latest.py", "a/contest.py", "scrapy/utils/test.py",
     "pkg/attestation.go", "docs/conf.py", "A.JAVA"],
)  # fmt: skip
def test_product_code_is_a_source_whatever_its_name(path: str) -> None:
    assert kind_of(path) == "source"


@pytest.mark.parametrize("path", ["README.md", "Makefile", "tests/data.json", "LICENSE", "a.unknown", ""])
def test_files_that_are_not_code_are_text(path: str) -> None:
    assert kind_of(path) == "text"


def test_documentation_is_recognised_by_its_suffix_or_path() -> None:
    assert is_documentation("README.md")
    assert is_documentation("docs/conf.py")
    assert not is_documentation("src/docs.py")
