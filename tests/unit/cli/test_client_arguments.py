"""What is sent to a server of what somebody typed for an action."""

from __future__ import annotations

import pytest

from cleveragents.api.actions import ArgumentView
from cleveragents.cli.run.server_run import given_arguments
from cleveragents.core.errors import InvalidArguments


def described(name: str, kind: str, default: object) -> ArgumentView:
    """An argument as the API tells of it."""
    needed = default is None
    return ArgumentView(name=name, type=kind, required=needed, default=default, description="", rest=False)


def test_a_default_is_left_to_the_server_which_shows_it_masked() -> None:
    known = [
        described("to", "string", None),
        described("with", "string", "--token ***"),
        described("also", "list", ["a"]),
    ]
    assert given_arguments("team/publish", known, ["to=shop"], []) == {"to": "shop"}
    pairs = ["to=shop", "with=mine", "also=b"]
    assert given_arguments("team/publish", known, pairs, []) == {"to": "shop", "with": "mine", "also": ["b"]}
    with pytest.raises(InvalidArguments, match="is missing"):
        given_arguments("team/publish", known, [], [])
