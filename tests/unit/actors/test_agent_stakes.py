"""The description of an external agent in an approval question."""

from __future__ import annotations

from cleveragents.actors.model.actor import at_stake, server_request


def test_denied_access_is_shown_in_the_approval_question() -> None:
    asked = {"argv": ("agent", "-p"), "environment": (), "home": (), "network": False}
    assert at_stake(asked) == (
        ": it runs agent with none of your variables, no files of your home and no network"
    )


def test_other_calls_have_no_description() -> None:
    assert at_stake({"argv": ["ls"]}) == ""
    assert at_stake({"path": "x"}) == ""
    assert at_stake({"argv": "ls", "environment": (), "home": ()}) == ""


def test_a_request_for_a_server_says_what_is_started_and_what_it_receives() -> None:
    near = {"server": "near", "command": "npx x", "env": ("KEY",), "variables": ("SECRET (env KEY)",)}
    assert (
        server_request(near)
        == "start MCP server near: npx x; it receives your variable SECRET (env KEY), env KEY"
    )
    assert server_request({**near, "isolated": False}).endswith("; it runs without isolation")
    far = {"server": "far", "url": "https://x.test/mcp", "headers": ("X-T",)}
    assert server_request(far) == "connect to MCP server far at https://x.test/mcp; it receives header X-T"
    bare = {"server": "bare", "command": "x" * 1000, "isolated": True}
    assert server_request(bare).endswith("xx…; it receives none of your variables")
