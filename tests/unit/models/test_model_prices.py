"""Prices and limits: the shipped list, the user's list, and unknown models."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.core.errors import ConfigurationError
from cleveragents.models.catalogue import UNKNOWN_CONTEXT, UNKNOWN_OUTPUT, PriceList
from cleveragents.models.model.budget import PICODOLLARS, Price
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import ModelFacts


def test_a_million_tokens_cost_what_the_list_says() -> None:
    price = PriceList().facts("openai/gpt-4o").price
    assert price is not None
    assert price.of(Usage(10**6, 0)) == 2.5 * PICODOLLARS
    assert price.of(Usage(0, 10**6)) == 10 * PICODOLLARS
    assert price.of(Usage(10**6, 0, 10**6)) == 1.25 * PICODOLLARS


def test_input_that_a_provider_caches_has_its_own_prices() -> None:
    price = PriceList().facts("anthropic/claude-sonnet-4-5").price
    assert price is not None
    assert price.of(Usage(10**6, 0, 10**6)) == 0.3 * PICODOLLARS
    assert price.of(Usage(10**6, 0, 0, 10**6)) == 3.75 * PICODOLLARS
    assert price.of(Usage(3 * 10**6, 0, 10**6, 10**6)) == (3 + 0.3 + 3.75) * PICODOLLARS
    assert price.of(Usage(0, 0, 10**6)) == 0.3 * PICODOLLARS


@pytest.mark.parametrize("price", [Price(8, 5), Price(8, 5, 2), Price(8, 5, 2, 10), Price(8, 5, 9)])
@pytest.mark.parametrize("usage", [Usage(6, 2), Usage(6, 2, 6), Usage(6, 2, 0, 6), Usage(6, 2, 2, 3)])
def test_no_call_costs_more_than_its_worst_case(price: Price, usage: Usage) -> None:
    assert price.of(usage) <= price.worst(Usage(6, 2))


def test_a_cache_write_at_anthropic_is_never_taken_for_ordinary_input(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[models."anthropic/new"]\ninput = 4\noutput = 5\n'
        '[models."anthropic/other"]\ninput = 4\noutput = 5\ncache_write = 6\n'
        '[models."openai/new"]\ninput = 4\noutput = 5\n'
    )
    names = ("anthropic/new", "anthropic/other", "openai/new")
    prices = [PriceList(str(own)).facts(name).price for name in names]
    assert [price.cache_write for price in prices if price] == [5_000_000, 6_000_000, None]


def test_every_shipped_model_has_a_price_and_sensible_limits() -> None:
    listed = PriceList().known()
    assert len(listed) > 15
    for facts in listed:
        assert facts.price is not None
        assert facts.price.output >= facts.price.input > (facts.price.cached or 0), facts.name
        assert facts.context_tokens > facts.output_tokens >= 1024
    assert PriceList().as_of.startswith("20")


@pytest.mark.parametrize(
    ("dated", "plain"),
    [
        ("openai/gpt-4o-2024-08-06", "openai/gpt-4o"),
        ("anthropic/claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5"),
        ("anthropic/claude-3-5-haiku-latest", "anthropic/claude-3-5-haiku"),
        ("anthropic/claude-sonnet-4-0", "anthropic/claude-sonnet-4"),
        ("google/gemini-2.0-flash-001", "google/gemini-2.0-flash"),
    ],
)
def test_a_dated_name_has_the_facts_of_the_undated_one(dated: str, plain: str) -> None:
    prices = PriceList()
    assert prices.facts(dated).name == dated
    assert prices.facts(dated).price == prices.facts(plain).price


def test_a_listed_dated_name_has_its_own_facts() -> None:
    assert PriceList().facts("openai/gpt-4o-2024-05-13").price == Price(5_000_000, 15_000_000)


def test_an_unlisted_model_has_an_unknown_price() -> None:
    unknown = ModelFacts("openai/gpt-99", UNKNOWN_CONTEXT, UNKNOWN_OUTPUT, None)
    assert PriceList().facts("openai/gpt-99") == unknown


def test_the_users_price_list_takes_precedence_and_adds_models(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[models."openai/gpt-4o"]\ninput = 0.000001\noutput = 0\ncontext_tokens = 5\n'
        '[models."openai/local"]\ncontext_tokens = 8192\n'
    )
    prices = PriceList(str(own))
    assert prices.facts("openai/gpt-4o") == ModelFacts("openai/gpt-4o", 5, 4096, Price(1, 0))
    assert prices.facts("openai/local") == ModelFacts("openai/local", 8192, 4096, None)
    names = [facts.name for facts in prices.known()]
    assert "openai/local" in names
    assert names == sorted(names)


def test_the_list_says_which_models_take_images_and_pdfs(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[models."openai/local"]\nimage_tokens = 900\n')
    prices = PriceList(str(own))
    taken = {
        name: ((facts := prices.facts(name)).image_tokens is not None, facts.pdf_tokens is not None)
        for name in ("openai/gpt-4.1-2025-04-14", "openai/o3-mini", "openai/gpt-99", "openai/local")
    }
    assert taken == {
        "openai/gpt-4.1-2025-04-14": (True, True),
        "openai/o3-mini": (False, False),
        "openai/gpt-99": (False, False),
        "openai/local": (True, False),
    }
    bounds = {facts.name: facts.pdf_tokens for facts in prices.known() if facts.pdf_tokens is not None}
    assert bounds == {name: prices.facts(name).context_tokens for name in bounds}, (
        "only the window bounds a PDF"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[models."a/b"]\nimage_tokens = 0', "whole number greater than 0"),
        ('[models."a/b"]\npdf_tokens = true', "whole number greater than 0"),
        ("what?", "is not valid TOML"),
        ("", "has no table [models"),
        ('models."a/b" = 3', "must be a table"),
        ('[models."a/b"]\ninput = 1', "needs both input and output"),
        ('[models."a/b"]\ninput = -1\noutput = 1', "is not a price"),
        ('[models."a/b"]\ninput = 0.0000001\noutput = 1', "is not a price"),
        ('[models."a/b"]\ninput = nan\noutput = 1', "is not a price"),
        ('[models."a/b"]\ninput = "1"\noutput = 1', "must be a number"),
        ('[models."a/b"]\ninput = true\noutput = 1', "must be a number"),
        ('[models."a/b"]\ncontext_tokens = 0', "whole number greater than 0"),
        ('[models."a/b"]\nprice = 0', "unknown key 'price'; known: cache_write, cached"),
    ],
)
def test_an_invalid_price_list_names_the_place(tmp_path: Path, text: str, problem: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        PriceList(str(own))
    assert problem in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_a_list_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        PriceList(str(tmp_path / "none.toml"))
