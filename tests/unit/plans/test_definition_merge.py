"""Merging code into a file by the names of its definitions."""

from __future__ import annotations

import pytest

from cleveragents.plans.tools.definition_merge import MergeRefused, merge_definitions

CLASS = '''import os


class Shop:
    """A shop."""

    size = 3

    @property
    def total(self):
        return 1

    def close(self):
        return 2


def main():
    return Shop()


if __name__ == "__main__":
    main()
'''


def test_a_method_without_its_class_replaces_the_only_one() -> None:
    merged = merge_definitions("a.py", CLASS, "def close(self):\n    return 3\n")
    assert merged.text == CLASS.replace("return 2", "return 3")
    assert merged.replaced == ("close",)


def test_methods_that_the_class_lacks_are_added_and_the_others_stay() -> None:
    methods = "    def close(self):\n        return 4\n\n    def open(self):\n        return 5\n"
    piece = f"class Shop:\n    # ... existing code\n{methods}"
    merged = merge_definitions("a.py", CLASS, piece)
    assert "return 4\n\n    def open(self):\n        return 5\n" in merged.text
    assert "    @property\n    def total" in merged.text
    assert merged.added == ("Shop.open",)


def test_new_functions_come_before_the_main_block() -> None:
    merged = merge_definitions("a.py", CLASS, "def helper():\n    return 6\n")
    assert 'return Shop()\n\n\ndef helper():\n    return 6\n\n\nif __name__ == "__main__":' in merged.text


def test_missing_imports_are_added_once() -> None:
    piece = "import os\nfrom json import (\n    dumps,\n    loads,\n)\n\ndef main():\n    return dumps(1)\n"
    merged = merge_definitions("a.py", CLASS, piece)
    assert merged.text.startswith("import os\nfrom json import (\n    dumps,\n    loads,\n)\n\n\nclass Shop")


def test_a_piece_with_everything_replaces_the_file() -> None:
    new = CLASS.replace("size = 3", "size = 4")
    assert merge_definitions("a.py", CLASS, new).text == new


def test_a_piece_without_the_imports_does_not_replace_the_file() -> None:
    new = CLASS.replace("import os\n\n\n", "").replace("return 1", "return 7")
    merged = merge_definitions("a.py", CLASS, new)
    assert merged.text.startswith("import os\n")
    assert "return 7" in merged.text


def test_an_ambiguous_method_is_refused() -> None:
    two = "class A:\n    def f(self):\n        return 1\n\n\nclass B:\n    def f(self):\n        return 2\n"
    with pytest.raises(MergeRefused, match="2 definitions of f"):
        merge_definitions("a.py", two, "def f(self):\n    return 3\n")


@pytest.mark.parametrize(
    ("path", "old", "piece", "new"),
    [
        (
            "a.js",
            "function f() {\n  return 1;\n}\n\nfunction g() {\n  return 2;\n}\n",
            "function g() {\n  return 3;\n}\n",
            "return 3",
        ),
        (
            "a.go",
            "package a\n\nfunc F() int {\n\treturn 1\n}\n\nfunc G() int { return 2 }\n",
            "func F() int {\n\treturn 3\n}\n",
            "return 3",
        ),
        (
            "a.rs",
            "fn f() -> i32 {\n    1\n}\n\nfn g() -> i32 {\n    2\n}\n",
            "fn f() -> i32 {\n    3\n}\n",
            "    3",
        ),
    ],
)
def test_other_languages(path: str, old: str, piece: str, new: str) -> None:
    merged = merge_definitions(path, old, piece)
    assert new in merged.text
    assert "2" in merged.text or "1" in merged.text
    assert len(merged.text.splitlines()) == len(old.splitlines())
