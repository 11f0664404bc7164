"""The terms of code and questions."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.model.code_terms import (
    STOP_WORDS,
    TermCache,
    count_terms,
    split_identifier,
    terms_of,
    terms_of_name,
    whole_of,
    words_of,
)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("get_user", ("get", "user")),
        ("getUser", ("get", "user")),
        ("GET_USER", ("get", "user")),
        ("HTTPServer", ("http", "server")),
        ("parseXML2Json", ("parse", "xml", "2", "json")),
        ("__init__", ("init",)),
        ("sha256sum", ("sha", "256", "sum")),
        ("x", ("x",)),
        ("___", ()),
        ("ÜberGröße", ("über", "größe")),
        ("ДатаСоздания2", ("дата", "создания", "2")),
        ("URLПуть", ("url", "путь")),
    ],
)
def test_a_name_is_split_at_underscores_case_and_digits(name: str, parts: tuple[str, ...]):
    assert split_identifier(name) == parts


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("get_user", ("get", "user", "getuser")),
        ("getUser", ("get", "user", "getuser")),
        ("user", ("user",)),
        ("_user", ("user",)),
        ("utf8", ("utf", "utf8")),
        ("x", ()),
        ("x_1", ("x1",)),
        ("self", ()),
        ("is_for", ("isfor",)),
        ("数据库", ("数据库",)),
    ],
)
def test_a_name_counts_as_its_words_and_then_as_a_whole(name: str, terms: tuple[str, ...]):
    assert terms_of_name(name) == terms


def test_names_written_in_different_ways_are_the_same_whole():
    wholes = {whole_of(name) for name in ("max_length", "maxLength", "MAX_LENGTH", "__max_length")}
    assert wholes == {"maxlength"}


def test_text_is_counted_term_by_term():
    assert terms_of("The user calls get_user(user, 17) in a loop") == {
        "user": 3,
        "calls": 1,
        "get": 1,
        "getuser": 1,
        "loop": 1,
    }


def test_text_in_any_alphabet_has_terms_and_ascii_words_in_it_are_as_ever():
    assert terms_of("Größe der parse_table – размер таблицы") == {
        "größe": 1,
        "der": 1,
        "parse": 1,
        "table": 1,
        "parsetable": 1,
        "размер": 1,
        "таблицы": 1,
    }


def test_words_stay_as_they_are_written_and_in_order():
    assert words_of("b.Ab_c(1x, _)") == ["b", "Ab_c", "x", "_"]
    assert words_of("b.Ab_c(1x, _) é") == ["b", "Ab_c", "x", "_", "é"]


def test_encoded_data_is_no_term():
    digest = "d41d8cd98f00b204e9800998ecf8427e"
    encoded = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    assert terms_of(f"{digest} {encoded}") == {}


def test_a_long_name_keeps_its_words_but_not_the_whole():
    name = "test_that_" + "a_very_long_name_of_words_" * 4 + "works"
    assert set(terms_of_name(name)) == {"test", "very", "long", "name", "words", "works"}


def test_terms_are_bounded_in_length():
    assert terms_of_name("a" * 100_000) == ("a" * 64,)
    assert terms_of_name("q" * 64) == ("q" * 64,)


def test_a_whole_of_just_the_longest_length_is_kept():
    assert terms_of_name("a" * 32 + "_" + "b" * 32)[-1] == "a" * 32 + "b" * 32
    assert terms_of_name("a" * 32 + "_" + "b" * 33) == ("a" * 32, "b" * 33)


def test_words_that_are_found_already_count_like_their_text():
    assert count_terms(["fooBar", "x", "fooBar"]) == {"foo": 2, "bar": 2, "foobar": 2}


def test_a_cache_computes_once_and_stays_bounded():
    asked: list[str] = []

    def find(word: str) -> str:
        asked.append(word)
        return word.upper()

    remembered = TermCache(find, 3)
    for word in ("a", "b", "c", "a", "d", "e", "f", "g"):
        assert remembered[word] == word.upper()
        assert len(remembered) <= 3
    assert asked == ["a", "b", "c", "d", "e", "f", "g"]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_has_terms_that_are_low_bounded_and_no_stop_words(text: str):
    for term, times in terms_of(text).items():
        assert 1 < len(term) <= 64
        assert term == term.lower()
        assert term not in STOP_WORDS
        assert not term.isdigit()
        assert times > 0


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=string.ascii_letters + string.digits + "_", min_size=1, max_size=30))
def test_the_parts_of_a_name_are_all_of_it_but_its_underscores(name: str):
    assert "".join(split_identifier(name)) == whole_of(name)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=string.ascii_letters + "_", min_size=1, max_size=15))
def test_a_name_is_split_alike_beside_letters_of_other_alphabets(name: str):
    assert [part for part in split_identifier(f"{name}_Ж") if part != "ж"] == list(split_identifier(name))
