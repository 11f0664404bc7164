"""A search masks a bounded number of texts, whatever the plans contain."""

from __future__ import annotations

from cleveragents.api.search import first_matches
from cleveragents.plans.store.sql_plan_search import FoundText


class Masked:
    """Counts the texts and characters that are masked."""

    def __init__(self) -> None:
        self.texts = 0
        self.characters = 0

    def __call__(self, text: str) -> str:
        self.texts += 1
        self.characters += len(text)
        return text.replace("secret pear", "***")


def test_only_the_first_matches_of_the_first_plans_are_masked() -> None:
    texts = [FoundText(f"plan {n // 300}", "transcript", f"pear {n}") for n in range(1200)]
    masked = Masked()
    found = first_matches(texts, "PEAR", 2, masked)
    assert {plan: [match.text for match in matches] for plan, matches in found.items()} == {
        "plan 0": ["pear 0", "pear 1", "pear 2"],
        "plan 1": ["pear 300", "pear 301", "pear 302"],
    }
    assert masked.texts == 6


def test_texts_with_masked_matches_alone_end_the_search() -> None:
    masked = Masked()
    texts = [FoundText("plan", "transcript", "a secret pear") for _ in range(1200)]
    assert first_matches(texts, "pear", 20, masked) == {}
    assert masked.texts == 400


def test_large_texts_end_the_search() -> None:
    masked = Masked()
    texts = [FoundText(f"plan {n}", "changes", f"{'x' * 999_990} pear") for n in range(50)]
    assert len(first_matches(texts, "pear", 20, masked)) == 4
    assert masked.characters <= 4_000_000
