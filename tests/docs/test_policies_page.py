"""The table of profiles on the page matches the code."""

from __future__ import annotations

from pathlib import Path

from cleveragents.core.policy import DEFAULT_PROFILE, PROFILES, Capability

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")


def table() -> str:
    """Return the table of profiles for the page."""
    lines = [
        "| " + " | ".join(["profile", *(capability.value for capability in Capability)]) + " |",
        "|" + "---|" * (len(Capability) + 1),
    ]
    for name, policy in PROFILES.items():
        verdicts = [policy.verdict(capability).value for capability in Capability]
        lines.append("| " + " | ".join([f"`{name}`", *verdicts]) + " |")
    return "\n".join(lines)


def test_the_page_shows_every_profile_as_it_is() -> None:
    assert f"\n{table()}\n" in PAGE, f"put this into docs/reference/policies.md:\n\n{table()}"


def test_the_page_names_the_default_and_explains_every_capability() -> None:
    assert f"`{DEFAULT_PROFILE}` is the default" in PAGE
    assert [capability for capability in Capability if f"\n| {capability.value} |" not in PAGE] == []
