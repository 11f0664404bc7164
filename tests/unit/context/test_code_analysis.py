"""Properties of the analysis of any content: chunks cover it, nothing breaks it, and it ends."""

from __future__ import annotations

import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleveragents.context.analysis import ANALYSIS_VERSION, analyse
from cleveragents.context.analysis.language import language_of
from cleveragents.context.analysis.syntax import Lines, read_syntax
from cleveragents.context.model.code import Field, FileAnalysis

ENDINGS = ("py", "js", "ts", "tsx", "go", "rs", "java", "c", "cpp", "rb", "md", "rst", "txt")

PIECES = (
    "class A", "def f", "fn f", "func f", "function f", "(", ")", "{", "}", "[", "]", "<", ">", ":", ";", ",",
    "=", "=>", "\n", "\n\n", "\n    ", "\t", '"', "'", "`", '"""', "'''", "//", "/*", "*/", "#", "# T", "@x",
    "import a", "from a import b", "use a::{b", "#include <a>", "#define A", "template <T>", "struct S",
    "impl S", "module M", "end", "do", "if x", "return", "x", "a.b", "::", "\\", "$", "ä", "数", "\r\n",
    "===", "---", "```", "x = 1",
)  # fmt: skip


def check(analysis: FileAnalysis, data: bytes) -> None:
    """Check that chunks are in order and cover every line once, and that everything named is
    within the file.
    """
    text = data.removeprefix(b"\xef\xbb\xbf")
    lines = text.count(b"\n") + (not text.endswith(b"\n")) if text else 0
    if analysis.opaque is not None:
        assert analysis.chunks == ()
        return
    assert analysis.lines == lines
    covered = [line for chunk in analysis.chunks for line in range(chunk.span.first, chunk.span.last + 1)]
    assert covered == list(range(1, lines + 1))
    for position, definition in enumerate(analysis.definitions):
        assert 1 <= definition.span.first <= definition.span.last <= lines
        assert definition.span.contains(definition.signature)
        assert definition.name
        assert definition.parent is None or definition.parent < position
        if definition.parent is not None:
            assert analysis.definitions[definition.parent].span.contains(definition.span)
    for chunk in analysis.chunks:
        assert chunk.definition is None or 0 <= chunk.definition < len(analysis.definitions)
        assert all(chunk.terms.values())
        body = chunk.terms.get(Field.BODY, {})
        for field in (Field.DOC, Field.STRING, Field.REFERENCE):
            for term, times in chunk.terms.get(field, {}).items():
                assert body[term] >= times > 0


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(ENDINGS), st.binary(max_size=400))
@example("py", b"")
@example("py", b"\n")
@example("py", b"\xef\xbb\xbf")
@example("py", b"\xef\xbb\xbfx = 1")
@example("rb", b"\xff\xfe")
def test_any_bytes_are_analysed(ending: str, data: bytes):
    check(analyse(f"a.{ending}", data), data)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(ENDINGS), st.lists(st.sampled_from(PIECES), max_size=60))
def test_anything_that_looks_like_code_is_analysed(ending: str, pieces: list[str]):
    data = " ".join(pieces).encode()
    check(analyse(f"a.{ending}", data), data)


HOSTILE = {
    "deep parentheses": b"(\n" * 10_000,
    "deep blocks": b"if (a) {\n" * 1_000,
    "deep indentation": b"\n".join(b" " * depth + b"if x:" for depth in range(150)),
    "nothing but errors": b"a?\n" * 1_000,
    "strings that never end": (b'"' * 40 + b"\n") * 50,
    "comments that never end": b"/*\n" * 1_000,
    "lists in lists": b"use a::{\n" * 500,
    "half a file": b"class A:\n    def f(self, x=(1,\n",
    "half a character": "class Ä: pass".encode()[:7],
    "latin-1": "# gr\xf6\xdfe\nx = 1\n".encode("latin-1") * 50,
    "controls": bytes(range(1, 32)) * 100,
}


@pytest.mark.parametrize("ending", ["py", "ts", "go", "rs", "cpp", "rb"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_content_is_analysed(ending: str, hostile: str):
    check(analyse(f"a.{ending}", HOSTILE[hostile]), HOSTILE[hostile])


def test_a_parser_that_takes_too_long_is_given_up_on():
    """The clock jumps ahead with the second piece, as if the parser were slow; then there is no third."""
    language = language_of("a.py", b"")
    assert language is not None
    lines = Lines(b"def f():\n    return 1\n" * 2_000)
    asked: list[float] = []

    def slow() -> float:
        asked.append(100.0 * len(asked))
        return asked[-1]

    assert read_syntax(language, lines, slow) is None
    assert len(asked) == 2
    assert read_syntax(language, lines, lambda: 0.0) is not None


def test_a_file_too_large_for_a_grammar_is_read_as_text():
    data = b"def f(): return 'something'\n" * 20_000
    analysis = analyse("a.py", data)
    check(analysis, data)
    assert (analysis.language, analysis.opaque) == ("text", None)


def test_code_with_too_many_errors_is_read_as_text():
    assert analyse("a.py", b"(\n" * 30_000).language == "text"
    nested = b"def f():\n    x = [\n" + b"    (\n" * 30_000
    check(analyse("a.py", nested), nested)


def test_a_large_file_is_read_in_pieces_as_if_it_were_read_at_once():
    function = "def größe_%d(x):\n    '''Doc %d.'''\n    return [x, \"%d\"]\n\n\n"
    data = "".join(function % (n, n, n) for n in range(700)).encode()
    analysis = analyse("a.py", data)
    check(analysis, data)
    assert [one.name for one in analysis.definitions] == [f"größe_{n}" for n in range(700)]
    assert [chunk.span.first for chunk in analysis.chunks] == list(range(1, 3_500, 5))


def test_a_syntax_error_leaves_the_rest_of_the_file_as_it_is():
    data = b"def before(): pass\n\nx = = (\n\ndef after(): pass\n"
    names = [one.name for one in analyse("a.py", data).definitions]
    assert "before" in names
    assert "after" in names


@pytest.mark.parametrize(
    ("path", "data", "because"),
    [
        ("a.png", b"\x89PNG\0\0", "binary"),
        ("a.py", b"x = 1\n" * 200_000, "too large"),
        ("a.py", b"# @generated by a tool\nx = 1\n", "generated"),
        ("a.go", b"// Code generated by protoc. DO NOT EDIT.\npackage a\n", "generated"),
        ("a.py", b"\n# tables.py\n# This file is automatically generated from b.y\n", "generated"),
        ("a.js", b"var a=1;" * 1_000, "generated"),
        ("a.json", b'{"a": 1}' * 1_000, "generated"),
    ],
)
def test_generated_files_are_not_searched(path: str, data: bytes, because: str):
    analysis = analyse(path, data)
    assert analysis.opaque == because
    assert analysis.chunks == ()
    assert analysis.lines == data.count(b"\n") + (not data.endswith(b"\n"))


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("a.cfg", b"some = words\n" * 70_000),
        ("a.md", b"long lines of words " * 1_000),
        ("a.md", b"This file is auto-generated.\n"),
        ("a.py", b"import generated\nEDIT = 'do it'\n"),
        ("a.py", b"x = 1\n" * 500 + b"# DO NOT EDIT\n"),
        ("a.py", b"# Writes tables.\nHEADER = '# This file is automatically generated'\n"),
        ("a.py", b"# DO NOT EDIT without asking\nx = 1\n"),
        ("a.py", b"# The latter part is autogenerated by a script.\nx = 1\n"),
        ("a.json", b'{"short": "line"}'),
        ("a.bin", b"text" * 2_100 + b"\n" * 100 + b"\0"),
    ],
)
def test_handwritten_files_are_searched(path: str, data: bytes):
    analysis = analyse(path, data)
    assert analysis.opaque is None
    assert analysis.chunks


def test_an_empty_file_has_no_lines_and_no_chunks():
    assert analyse("a.py", b"") == FileAnalysis("python", 0)


def test_a_file_without_words_is_one_chunk_without_terms():
    (chunk,) = analyse("a.txt", b"\n\n1 2 3\n").chunks
    assert (chunk.span.first, chunk.span.last, chunk.terms) == (1, 3, {})


def test_a_latin_1_file_is_decoded():
    analysis = analyse("a.py", "größe = 1\n".encode("latin-1"))
    assert analysis.chunks[0].terms[Field.NAME] == {"größe": 1}


def test_long_module_code_is_split_but_a_long_function_is_one_chunk():
    rest = "".join(f"name_{n} = {n}\n" for n in range(500))
    function = "def f():\n" + "".join(f"    use(name_{n})\n" for n in range(500))
    analysis = analyse("a.py", (rest + function).encode())
    spans = [(chunk.span.first, chunk.span.last) for chunk in analysis.chunks]
    assert spans == [(1, 166), (167, 333), (334, 500), (501, 1001)]


def test_a_long_string_across_chunks_is_counted_in_each():
    text = "".join(f"word{chr(97 + n % 26)}\n" for n in range(450))
    analysis = analyse("a.py", f'TEXT = """\n{text}"""\n'.encode())
    assert len(analysis.chunks) == 3
    assert [sum(chunk.terms[Field.STRING].values()) for chunk in analysis.chunks] == [149, 151, 150]
    assert all(Field.REFERENCE not in chunk.terms for chunk in analysis.chunks[1:])


def test_lines_between_functions_are_a_chunk_if_they_are_more_than_two():
    few = b"def f():\n    one()\n\nf.first = 1\nf.second = 2\n\ndef g():\n    two()\n"
    many = few.replace(b"f.second = 2\n", b"f.second = 2\nf.third = 3\n")
    assert [chunk.span.first for chunk in analyse("a.py", few).chunks] == [1, 7]
    assert [chunk.span.first for chunk in analyse("a.py", many).chunks] == [1, 3, 8]


def test_definitions_on_one_line_leave_no_line_out():
    data = b"class A { one() {} two() {} }\nclass B { three() {} }\n"
    analysis = analyse("a.js", data)
    check(analysis, data)
    names = [set(chunk.terms[Field.NAME]) for chunk in analysis.chunks]
    assert names == [{"one", "two"}, {"three"}]


MARKDOWN = b"""Intro words.

# First part

Text.

## Inner *part* ##

```
# no heading
```

# Second part
Words.
"""


def test_markdown_headings_are_sections():
    analysis = analyse("docs/a.md", MARKDOWN)
    check(analysis, MARKDOWN)
    assert [
        (analysis.qualified(number), one.kind, one.span.first, one.span.last)
        for number, one in enumerate(analysis.definitions)
    ] == [
        ("First part", "section", 3, 12),
        ("First part.Inner *part*", "section", 7, 12),
        ("Second part", "section", 13, 14),
    ]
    assert [(chunk.span.first, chunk.span.last, chunk.definition) for chunk in analysis.chunks] == [
        (1, 2, None),
        (3, 6, 0),
        (7, 12, 1),
        (13, 14, 2),
    ]
    assert analysis.chunks[1].terms == {
        Field.DOC: {"first": 1, "part": 1, "text": 1},
        Field.BODY: {"first": 1, "part": 1, "text": 1},
        Field.NAME: {"first": 1, "part": 1},
    }


RST = b"""=====
Title
=====

Intro.

Part
----

Words.

- a list

Other
-----
Words, and
a short underline that is none
---
"""


def test_underlined_headings_are_sections():
    analysis = analyse("docs/a.rst", RST)
    check(analysis, RST)
    assert [
        (analysis.qualified(number), one.span.first, one.span.last, one.signature.last)
        for number, one in enumerate(analysis.definitions)
    ] == [("Title", 2, 18, 3), ("Title.Part", 7, 13, 8), ("Title.Other", 14, 18, 15)]


def test_text_without_headings_falls_into_chunks_of_sixty_lines():
    analysis = analyse("a.cfg", b"some = words\n" * 130)
    assert [chunk.span.last for chunk in analysis.chunks] == [60, 120, 130]
    assert analysis.chunks[0].terms[Field.REFERENCE] == {"some": 60, "words": 60}


def test_threads_may_analyse_at_once():
    data = b"class A:\n    def f(self):\n        return 'x'\n" * 200
    results: list[FileAnalysis] = []
    threads = [threading.Thread(target=lambda: results.append(analyse("a.py", data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [analyse("a.py", data)] * 4


def test_the_version_says_which_analysis_it_is():
    assert ANALYSIS_VERSION >= 1
