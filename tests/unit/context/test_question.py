"""Parsing of questions; any text is a valid question."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.model.question import (
    ParsedQuestion,
    TraceFrame,
    error_of,
    frame_of,
    read_question,
    source_of,
)

ISSUE = """\
Column serialization fails with `name`
<!-- Please check that the development version
still produces the same bug -->
- [x] I have searched for duplicates

### Description
A structured column cannot be round-tripped through `Table.write()`. See io/misc/yaml.py and
https://github.com/astropy/astropy/blob/main/astropy/table/serialize.py#L12 for "SerializedColumn".

```python
from astropy.table import Table
t = Table([1, 2])
t.write('a.ecsv')
```

Traceback (most recent call last):
  File "/usr/lib/python3.9/site-packages/astropy/table/table.py", line 12, in write
    self.do_write(path)
  File "/usr/lib/python3.9/site-packages/astropy/io/registry.py", line 99, in do_write
    raise ValueError("duplicate keys")
ValueError: duplicate keys in 'name'

### Versions
some platform that nobody needs
numpy: 1.21.2
"""


def test_an_issue_is_split_into_its_parts() -> None:
    question = read_question(ISSUE)
    assert question.title == "Column serialization fails with `name`"
    assert "round-tripped" in question.prose
    assert "t = Table([1, 2])" in question.code
    assert question.frames == (
        TraceFrame("/usr/lib/python3.9/site-packages/astropy/table/table.py", 12, "write"),
        TraceFrame("/usr/lib/python3.9/site-packages/astropy/io/registry.py", 99, "do_write"),
    )
    assert question.errors == ("ValueError: duplicate keys in 'name'",)
    assert question.paths == ("io/misc/yaml.py", "astropy/table/serialize.py")
    assert {"Table.write", "astropy.table"} <= set(question.dotted)
    assert {"name", "Table", "write", "SerializedColumn"} <= set(question.identifiers)
    assert "SerializedColumn" in question.quoted
    assert question.ticked == ("name", "Table.write()")
    assert {"Table", "do_write"} <= set(question.code_names)


def test_issue_template_text_is_left_out() -> None:
    text = read_question(ISSUE).text
    for boilerplate in ("development version", "searched for duplicates", "nobody needs", "1.21.2", "github"):
        assert boilerplate not in text


def test_a_typed_question_is_only_prose() -> None:
    question = read_question("where are retries counted")
    assert question == ParsedQuestion(title="where are retries counted")


def test_an_unclosed_comment_drops_only_itself() -> None:
    question = read_question("Title\nwords <!-- and so on")
    assert question.title == "Title"
    assert "so on" not in question.text


def test_an_error_in_the_title_is_title_and_error() -> None:
    question = read_question("ImportError: cannot import name 'Statement'\nwhen I run it")
    assert question.title == "ImportError: cannot import name 'Statement'"
    assert question.errors == (question.title,)


def test_an_unclosed_fence_does_not_swap_code_and_prose() -> None:
    question = read_question("Title\n```python\nfirst = 1\n```python\nsecond = 2\n```\nthe words")
    assert question.code == "first = 1\nsecond = 2"
    assert "the words" in question.prose


def test_shell_prompts_are_not_part_of_the_code() -> None:
    question = read_question("Title\n>>> import flask\n>>> flask.run()\n")
    assert question.code == "import flask\nflask.run()"


def test_a_section_on_the_environment_ends_with_the_next_heading() -> None:
    question = read_question("Title\n## Environment\nlinux box\n## Details\nit hangs")
    assert "linux" not in question.prose
    assert "it hangs" in question.prose


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ('  File "a/b.py", line 3, in run', TraceFrame("a/b.py", 3, "run")),
        ('  File "a/b.py", line 3', TraceFrame("a/b.py", 3)),
        (
            "File ~/lib/x.py:165, in Frame.__eq__(self, value)",
            TraceFrame("~/lib/x.py", 165, "Frame.__eq__"),
        ),
        ("~/lib/variable.py in transpose(self, *dims)", TraceFrame("~/lib/variable.py", 0, "transpose")),
        ("src/flask/app.py:12: in wsgi_app", TraceFrame("src/flask/app.py", 12, "wsgi_app")),
        ("tests/test_a.py:7: ValueError", TraceFrame("tests/test_a.py", 7)),
        ("\tat org.x.Bar.baz(Bar.java:12)", TraceFrame("Bar.java", 12, "org.x.Bar.baz")),
        ("    at doIt (/srv/app/lib/run.js:10:5)", TraceFrame("/srv/app/lib/run.js", 10, "doIt")),
        ("    at file:///srv/app/main.mjs:3:1", TraceFrame("/srv/app/main.mjs", 3)),
        ("from lib/a.rb:4:in `each'", TraceFrame("lib/a.rb", 4, "each")),
        ("\t/go/src/x/main.go:33 +0x1d", TraceFrame("/go/src/x/main.go", 33)),
        ("thread 'main' panicked at src/lib.rs:8:9:", TraceFrame("src/lib.rs", 8)),
        ("  --> src/main.rs:2:5", TraceFrame("src/main.rs", 2)),
        ("src/a.c:10:3: error: expected ';'", TraceFrame("src/a.c", 10)),
        ("#1  0x00 in parse (p=0x0) at src/parse.c:120", TraceFrame("src/parse.c", 120, "parse")),
        ('  File "<stdin>", line 1, in <module>', None),
        ("it takes place at 12:30 in town", None),
    ],
)
def test_frames_of_several_languages(line: str, frame: TraceFrame | None) -> None:
    assert frame_of(line) == frame


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ValueError: too many values", "ValueError: too many values"),
        ("E   requests.exceptions.SSLError: bad handshake", "SSLError: bad handshake"),
        ("Caused by: java.lang.IllegalStateException: closed", "IllegalStateException: closed"),
        ("error[E0382]: borrow of moved value", "borrow of moved value"),
        ("panic: runtime error: index out of range", "runtime error: index out of range"),
        ("note: this is no error", None),
        ("ValueError", None),
    ],
)
def test_errors_of_several_languages(line: str, error: str | None) -> None:
    assert error_of(line) == error


def test_an_excerpt_loses_its_numbers_and_arrow() -> None:
    assert source_of("-> 1657     is_equiv = self") == "    is_equiv = self"
    assert source_of("     12") == ""
    assert source_of("    return x") == "    return x"


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(max_size=400),
        st.lists(
            st.sampled_from(
                ["```", "<!--", "-->", "\n", "    ", "`", "File \"a.py\", line 1",
                 "x.py:1: in f", "A.b", "…", "\r",
                 "ValueError: x", "http://a/blob/m/x.py", "1.2.3", "## Version", "\ud800", "\x00", "'", '"']
            ),
            max_size=60,
        ).map("".join),
    )
)  # fmt: skip
def test_any_text_is_a_question(text: str) -> None:
    question = read_question(text)
    assert len(question.title) <= 300
    assert len(question.text) <= 3 * len(text) + 100
    for names in (
        question.paths,
        question.dotted,
        question.identifiers,
        question.code_names,
        question.errors,
    ):
        assert len(set(names)) == len(names) <= 400
    question.text.encode("utf-8")


@pytest.mark.parametrize("piece", ["a", "a.", "`", "<", "_A", "[\n", "a/", "  ", "1.2", "Error: ", "é"])
def test_a_million_characters_are_read_in_part(piece: str) -> None:
    question = read_question(piece * (1_000_000 // len(piece)))
    assert len(question.text) <= 400_000
