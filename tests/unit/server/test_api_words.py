"""What is said to those who send requests: their words for ours, and nobody else's words changed."""

from __future__ import annotations

import pytest

from cleveragents.server.api_words import in_words_of_the_api


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("it is busy; try it later, or choose another with --model", "`model`"),
        (
            "`agents plan resume 01ABC --max-usd 0.02` goes on",
            "`resume` of plan 01ABC, with `limits.usd` goes on",
        ),
        (
            "there is no plan 'x'; `agents plan list` shows those",
            "there is no plan 'x'; the list of plans shows",
        ),
        ("the plan's model is gone, and so is the user's; say --model", "say `model`"),
    ],
)
def test_commands_and_options_are_called_as_requests_call_them(kept: str, said: str) -> None:
    assert said in in_words_of_the_api(kept)


@pytest.mark.parametrize(
    "foreign",
    [
        "the check 'pytest --timeout 5 --model x' did not pass",
        """the check "sh -c 'exit 1' --yes" did not pass""",
        "step 'paint' ended with exit code 2: unknown option --model --yes\nuse `agents plan list`",
        "step 'sh -c \\'paint --branch x\\'' took too long: still at --commit",
    ],
)
def test_what_people_typed_and_programs_printed_stays_as_it_is(foreign: str) -> None:
    assert in_words_of_the_api(foreign) == foreign
