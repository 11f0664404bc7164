"""The packer: never over the room, one rendering of each place, and close to the optimum."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.context.model.context import Choice, Depth, PackedFragment, RankedPlace, Rendering
from cleveragents.context.pipeline.packer import GreedyPacker

DEPTHS = list(Depth)


def choice(name: str, *renderings: tuple[int, float]) -> Choice:
    """Return a choice with renderings of these tokens and values."""
    place = RankedPlace(name, None, 1.0)
    shown = [
        Rendering(depth, f"{name}{tokens}", tokens, value)
        for depth, (tokens, value) in zip(DEPTHS, renderings, strict=False)
    ]
    return Choice(place, tuple(shown))


def cost(packed: Sequence[PackedFragment]) -> int:
    """Return the cost with the joining line break."""
    return sum(one.rendering.tokens + 1 for one in packed)


def worth(packed: Sequence[PackedFragment]) -> float:
    return sum(one.rendering.value for one in packed)


def best_possible(choices: Sequence[Choice], tokens: int) -> float:
    """Return the optimum by trying every sum of tokens: exact, and too slow for a real budget."""
    best = [0.0] * (tokens + 1)
    for one in choices:
        before = best[:]
        for rendering in one.renderings:
            price = rendering.tokens + 1
            for room in range(price, tokens + 1):
                best[room] = max(best[room], before[room - price] + rendering.value)
    return best[tokens]


RENDERINGS = st.lists(
    st.tuples(st.integers(0, 40), st.floats(0, 1, allow_subnormal=False)), min_size=1, max_size=5
)
CHOICES = st.lists(RENDERINGS, max_size=8).map(
    lambda many: [choice(f"f{number}.py", *renderings) for number, renderings in enumerate(many)]
)


@given(CHOICES, st.integers(0, 150))
@settings(max_examples=150, deadline=None)
def test_the_packing_fits_and_shows_each_place_once(choices: list[Choice], tokens: int) -> None:
    packed = GreedyPacker().pack(choices, tokens)
    assert cost(packed) <= tokens
    places = [one.place for one in packed]
    assert len(set(places)) == len(places)
    offered = {one.place: one.renderings for one in choices}
    assert all(one.rendering in offered[one.place] for one in packed)


@given(CHOICES, st.integers(0, 150))
@settings(max_examples=150, deadline=None)
def test_the_packing_is_worth_at_least_half_of_the_optimum(choices: list[Choice], tokens: int) -> None:
    assert worth(GreedyPacker().pack(choices, tokens)) >= best_possible(choices, tokens) / 2 - 1e-9


def test_small_renderings_pack_close_to_the_optimum() -> None:
    """As in real answers: many places, none of which takes most of the room."""
    choices = [
        choice(
            f"f{n}.py", (2, 0.1 + n % 7 / 10), (5 + n % 5, 0.5 + n % 3 / 10), (11 + n % 17, 1.0 + n % 5 / 10)
        )
        for n in range(60)
    ]
    best = best_possible(choices, 300)
    assert best * 0.98 <= worth(GreedyPacker().pack(choices, 300)) <= best


def test_one_large_piece_that_is_worth_all_the_small_ones_is_taken() -> None:
    choices = [choice("small.py", (1, 0.1)), choice("large.py", (98, 1.0))]
    packed = GreedyPacker().pack(choices, 99)
    assert [one.place.path for one in packed] == ["large.py"]


def test_room_that_is_left_goes_to_a_deeper_rendering() -> None:
    """The second step is worth less per token than other places would be, but there are no other places."""
    packed = GreedyPacker().pack([choice("a.py", (1, 0.5), (50, 0.6))], 60)
    assert [one.rendering.tokens for one in packed] == [50]


def test_a_step_that_does_not_fit_does_not_exclude_a_cheaper_place() -> None:
    packed = GreedyPacker().pack([choice("a.py", (4, 0.9), (90, 90.0)), choice("b.py", (4, 0.1))], 20)
    assert {one.place.path: one.rendering.tokens for one in packed} == {"a.py": 4, "b.py": 4}


def test_nothing_is_shown_that_is_worth_nothing() -> None:
    assert GreedyPacker().pack([choice("a.py", (1, 0.0))], 100) == []


def test_a_place_whose_best_rendering_does_not_fit_any_more_is_shown_by_a_smaller_one() -> None:
    """Beside the first place, only renderings of the second that are off its frontier fit."""
    choices = [choice("a.py", (60, 50.0)), choice("b.py", (1, 0.1), (10, 0.2), (100, 10.0))]
    packed = GreedyPacker().pack(choices, 110)
    assert {one.place.path: one.rendering.tokens for one in packed} == {"a.py": 60, "b.py": 10}
