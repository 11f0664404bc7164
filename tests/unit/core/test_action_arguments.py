"""Arguments of actions: the values of each type, and the reports of mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.actions.arguments import Argument, ArgumentType
from cleveragents.core.actions.model import Action, is_action_name
from cleveragents.core.errors import InvalidArguments
from cleveragents.core.json_value import JsonValue

T = ArgumentType


def action(*arguments: Argument) -> Action:
    return Action("team/format", arguments=arguments)


def said(do: object) -> str:
    with pytest.raises(InvalidArguments) as refused:
        do()
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (T.STRING, "", ""),
        (T.STRING, "a=b", "a=b"),
        (T.INTEGER, "-7", -7),
        (T.NUMBER, "1.5", 1.5),
        (T.NUMBER, "2", 2.0),
        (T.BOOLEAN, "Yes", True),
        (T.BOOLEAN, "0", False),
        (T.LIST, "a,b", ("a,b",)),
        (T.LIST, '["a", "b"]', ("a", "b")),
        (T.LIST, "[]", ()),
        (T.PATH, "src/a b", "src/a b"),
        (T.PATH, ".", "."),
        (T.PATH, "a..b", "a..b"),
    ],
)
def test_parses_text_into_the_type_of_the_argument(kind: T, text: str, value: JsonValue) -> None:
    assert action(Argument("x", kind)).parse([f"x={text}"]) == {"x": value}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (T.STRING, "not-utf8-\udcff"),
        (T.STRING, "a\0b"),
        (T.INTEGER, "1.0"),
        (T.INTEGER, "seven"),
        (T.INTEGER, "9" * 10_000),
        (T.NUMBER, "nan"),
        (T.NUMBER, "1e999"),
        (T.NUMBER, ""),
        (T.BOOLEAN, "maybe"),
        (T.LIST, "[1]"),
        (T.LIST, "[unclosed"),
        (T.LIST, "[" * 100_000),
        (T.PATH, "/etc/passwd"),
        (T.PATH, "../x"),
        (T.PATH, "a/../../x"),
        (T.PATH, ""),
    ],
)
def test_reports_a_wrong_argument_with_its_type(kind: T, text: str) -> None:
    message = said(lambda: action(Argument("x", kind)).parse([f"x={text}"]))
    assert f"x should be {kind.spoken}" in message
    assert message.startswith("action team/format: ")
    assert len(message) < 400


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (T.STRING, 3),
        (T.INTEGER, True),
        (T.INTEGER, "3"),
        (T.INTEGER, 3.0),
        (T.NUMBER, False),
        (T.NUMBER, float("inf")),
        (T.BOOLEAN, "true"),
        (T.BOOLEAN, 1),
        (T.LIST, "abc"),
        (T.LIST, [1]),
        (T.PATH, 3),
    ],
)
def test_a_value_of_another_type_is_refused_not_converted(kind: T, value: JsonValue) -> None:
    assert f"x should be {kind.spoken}" in said(lambda: action(Argument("x", kind)).bind({"x": value}))


def test_a_file_named_like_an_option_stays_a_file() -> None:
    assert action(Argument("x", T.PATH)).parse(["x=-rf"]) == {"x": "./-rf"}


def test_applies_defaults_and_reports_missing_arguments() -> None:
    found = action(Argument("a", T.INTEGER, default=3), Argument("b", T.BOOLEAN, default=False))
    assert found.bind({}) == {"a": 3, "b": False}
    assert "x (path) is missing" in said(lambda: action(Argument("x", T.PATH)).bind({}))


def test_reports_every_mistake_at_once() -> None:
    found = action(Argument("path", T.PATH), Argument("count", T.INTEGER))
    message = said(lambda: found.parse(["pth=a", "count=x", "word"]))
    assert "there is no argument 'pth'; did you mean path?" in message
    assert "count should be an integer" in message
    assert "'word' is not name=value" in message
    message = said(lambda: found.bind({"zzz": 1}))
    assert "there is no argument 'zzz'; known: path, count" in message
    assert "path (path) is missing" in message


def test_only_lists_may_be_given_repeatedly() -> None:
    found = action(Argument("files", T.LIST), Argument("n", T.INTEGER, default=1))
    assert found.parse(["files=a", 'files=["b", "c"]']) == {"files": ("a", "b", "c"), "n": 1}
    assert "n is given twice" in said(lambda: found.parse(["files=a", "n=1", "n=2"]))


def test_the_rest_goes_to_the_argument_that_takes_it() -> None:
    declared = action(Argument("command", T.LIST, default=()), Argument("argv", T.LIST, rest=True))
    assert declared.parse([], ["ls", "--", "-l"]) == {"command": (), "argv": ("ls", "--", "-l")}
    usual = action(Argument("command", T.LIST))
    assert usual.parse([], ["ls"]) == {"command": ("ls",)}


def test_refuses_words_after_the_dashes_without_an_argument_or_given_twice() -> None:
    assert "takes no words after --" in said(lambda: action().parse([], ["ls"]))
    text = action(Argument("command", T.STRING))
    assert "takes no words after --" in said(lambda: text.parse(["command=x"], ["ls"]))
    both = action(Argument("argv", T.LIST, rest=True))
    assert "argv is given twice" in said(lambda: both.parse(["argv=ls"], ["ls"]))
    assert "argv (list) is missing" in said(lambda: both.parse([], []))


@given(st.text())
def test_any_text_either_fits_or_is_refused_with_a_sentence(text: str) -> None:
    for kind in ArgumentType:
        taker = action(Argument("x", kind))
        try:
            values = taker.parse([f"x={text}"])
        except InvalidArguments as error:
            told = str(error)
        else:
            told = "x should be what it is" if taker.bind(values) == values else ""
        assert "x should be" in told


@pytest.mark.parametrize("name", ["a/b", "team/format-2", "0/0", "a" * 64 + "/b"])
def test_names_are_a_namespace_and_a_name(name: str) -> None:
    assert is_action_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a", "a/", "/b", "a/b/c", "A/b", "a_b/c", "-a/b", "a/b-", "../b", "a/b\n", "ä/b", "a" * 65 + "/b"],
)
def test_refuses_other_texts_as_names(name: str) -> None:
    assert not is_action_name(name)
