"""What somebody who is asked for leave is told of another agent."""

from __future__ import annotations

from cleveragents.domain.agent_stakes import at_stake


def test_what_it_does_not_get_is_said_as_well() -> None:
    asked = {"argv": ("agent", "-p"), "environment": (), "home": (), "network": False}
    assert at_stake(asked) == (
        ": it runs agent, which gets none of your variables, nothing of your home and no network"
    )


def test_other_calls_have_nothing_to_say() -> None:
    assert at_stake({"argv": ["ls"]}) == ""
    assert at_stake({"path": "x"}) == ""
    assert at_stake({"argv": "ls", "environment": (), "home": ()}) == ""
