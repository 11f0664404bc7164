"""A text that comes in pieces is masked as a whole, wherever it is cut."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.domain.redaction import keep_secret, redact_text
from cleveragents.domain.redaction_in_pieces import PieceMask

KEY = "MIIEowIBAAKCAQEAx7f0\nq3Yl9cZZtopsecretline2\nlast+line/of=it\n"
HARMLESS = (
    "collected 3 items\n\ntests/a.py::one PASSED\r[50%]\r[100%]\n3 passed in 0.1 s\nthe basic idea: go on\n"
)
SECRETS = {
    "named": ("log in with password=hunter2hunter2 now\n", ("hunter2",)),
    "named on the next line": ("password:\n  hunter2hunter2\nmore\n", ("hunter2",)),
    "separated on the next line": ("API_KEY\n  = hunter2hunter2\nmore\n", ("hunter2",)),
    "quoted over lines": ('secret = "first half\nsecond half" # end\nmore\n', ("first half", "second half")),
    "bearer": ("Authorization: Bearer abcdef0123456789abcdef\nmore\n", ("abcdef0123456789",)),
    "url": ("cloning https://me:p4ssw0rdlong@example.org/x.git\nok\n", ("p4ssw0rdlong",)),
    "shape": ("the key is sk-abcdefghijklmnopqrstuvwx and goes on\n", ("sk-abcdefghijkl",)),
    "web token": (f"got eyJ{'a' * 300}.{'b' * 300}.{'c' * 60} there\n", ("aaaa", "bbbb", "cccc")),
    "key": (
        f"cat id\n-----BEGIN RSA PRIVATE KEY-----\n{KEY}-----END RSA PRIVATE KEY-----\nend\n",
        tuple(KEY.split()),
    ),
    "key without its end": (f"-----BEGIN PRIVATE KEY-----\n{KEY}", tuple(KEY.split())),
}


def told(text: str, borders: list[int]) -> list[str]:
    """What is told of it, piece by piece."""
    mask = PieceMask()
    edges = [0, *sorted(borders), len(text)]
    said = [mask.feed(text[start:end]) for start, end in pairwise(edges)]
    return [*said, mask.finish()]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_wherever_it_is_cut_in_two(name: str) -> None:
    text, secrets = SECRETS[name]
    for border in range(len(text) + 1):
        whole = "".join(told(text, [border]))
        assert [secret for secret in secrets if secret in whole] == [], border
        assert "***" in whole


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_when_it_comes_in_many_pieces(name: str) -> None:
    text, secrets = SECRETS[name]
    chance = random.Random(name)
    for pieces in (len(text), *(chance.randint(2, 12) for _ in range(60))):
        borders = [*range(len(text))] if pieces == len(text) else chance.sample(range(len(text)), pieces)
        whole = "".join(told(HARMLESS + text, [len(HARMLESS) + border for border in borders]))
        assert [secret for secret in secrets if secret in whole] == [], borders
        assert whole.startswith(HARMLESS)


@given(st.lists(st.integers(0, len(HARMLESS) * 2), max_size=20))
@settings(max_examples=50)
def test_what_holds_no_secret_comes_out_as_it_is(borders: list[int]) -> None:
    assert "".join(told(HARMLESS * 2, borders)) == HARMLESS * 2


def test_whole_lines_are_told_at_once_and_a_line_that_goes_on_nearly() -> None:
    mask = PieceMask()
    assert mask.feed("one\ntwo") == "one\n"
    assert mask.feed("\n") == "two\n"
    words = "and so on " * 30
    assert len(mask.feed(words)) > len(words) - 80
    assert mask.feed("\n") != ""
    assert mask.finish() == ""


def test_what_never_ends_a_word_is_told_in_the_end() -> None:
    mask = PieceMask()
    said = [mask.feed("x" * 5000) for _ in range(10)]
    assert len("".join(said)) >= 40_000
    assert "".join(said) + mask.finish() == "x" * 50_000


def test_much_at_once_is_told_at_once() -> None:
    mask = PieceMask()
    lines = "".join(f"line {number}\n" for number in range(20_000))
    assert mask.feed(lines + "password=hunter2") == lines
    assert mask.feed("hunter2\n") == "password=***\n"


@pytest.mark.parametrize("name", ["web token", "shape", "named"])
def test_a_secret_at_the_end_of_much_text_is_masked_wherever_it_is_cut(name: str) -> None:
    text, secrets = SECRETS[name]
    much = "and so on\n" * 9_000
    for border in range(0, len(text), max(5, len(text) // 12)):
        whole = "".join(told(much + text, [len(much) + border]))
        assert [secret for secret in secrets if secret in whole] == [], border


def test_a_secret_that_this_process_knows_is_masked_across_a_border() -> None:
    known = "correct-horse-battery-staple"
    keep_secret(known)
    for border in range(len(known)):
        assert known not in "".join(told(f"say {known} now\n", [4 + border]))


def test_a_key_without_an_end_holds_back_what_follows_in_little_room() -> None:
    mask = PieceMask()
    said = mask.feed("-----BEGIN PRIVATE KEY-----\n")
    said += "".join(mask.feed(KEY * 200) for _ in range(10))
    assert said == ""
    assert len(mask._held) < 40_000
    said += mask.feed("-----END PRIVATE KEY-----\nand on\n") + mask.finish()
    assert said == "-----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----\nand on\n"


def test_a_quote_that_is_never_closed_holds_back_a_bounded_stretch() -> None:
    mask = PieceMask()
    said = mask.feed('password = "abcdefgh\n') + "".join(
        mask.feed(f"line {n}{' ' * 90}\n") for n in range(150)
    )
    assert "line 120" in said
    assert "abcdefgh" not in said
    assert redact_text(said) == said
