"""Which rendering of which place is shown: as much worth as possible within the tokens.

That is a knapsack with a choice of one from each group. Exact answers take time that grows with the budget;
a greedy one over each group's *frontier* (the renderings that are worth more for every further token) is at
most one rendering away from the best that could be had, and takes milliseconds for a thousand places. A
place can be upgraded step by step, path to full; the steps are taken in the order of what a token of them
is worth, and what room is left at the end goes to whichever rendering still fits.

The last word on an answer: masked, legible, and within its budget as all of it together is counted.

Whatever parts said of their tokens, the text that a model will be shown is counted once more, whole, and
loses fragments from its end until it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from cleveragents.context.context_parts import CountTokens
from cleveragents.context.model.context import Choice, ContextAnswer, PackedFragment, Rendering
from cleveragents.core.text.redaction import redact_content_text

__all__ = ["AnswerFitter", "GreedyPacker", "byte_bound", "safe_count"]


_JOINT = 1
"""The line break that joins a fragment to the one before."""


class GreedyPacker:
    """`Packer`. Immutable."""

    def pack(self, choices: Sequence[Choice], tokens: int) -> Sequence[PackedFragment]:
        chosen = _upgraded(choices, tokens)
        single = _best_single(choices, tokens)
        if single and _worth(single) > _worth(chosen):  # guard: one large piece may be worth all the small
            chosen = single
        _fill(choices, chosen, tokens)
        return [PackedFragment(choices[number].place, chosen[number]) for number in sorted(chosen)]


_Chosen = dict[int, Rendering]


def _cost(rendering: Rendering) -> int:
    return rendering.tokens + _JOINT


def _spent(chosen: _Chosen) -> int:
    return sum(_cost(rendering) for rendering in chosen.values())


def _worth(chosen: _Chosen) -> float:
    return sum(rendering.value for rendering in chosen.values())


def _upgraded(choices: Sequence[Choice], tokens: int) -> _Chosen:
    frontiers = [_frontier(choice.renderings, tokens) for choice in choices]
    steps: list[tuple[float, int, int]] = []
    for number, frontier in enumerate(frontiers):
        if frontier:
            steps.append((-_gain(None, frontier[0]), number, 0))
    heapify(steps)
    chosen: _Chosen = {}
    left = tokens
    while steps:
        _, number, at = heappop(steps)
        frontier = frontiers[number]
        before = chosen.get(number)
        price = _cost(frontier[at]) - (_cost(before) if before else 0)
        if price <= left:  # guard: never over the budget
            chosen[number] = frontier[at]
            left -= price
            before = frontier[at]
        elif before is None:
            continue  # the later ones cost more still
        if at + 1 < len(frontier):
            heappush(steps, (-_gain(before, frontier[at + 1]), number, at + 1))
    return chosen


def _frontier(renderings: Sequence[Rendering], tokens: int) -> list[Rendering]:
    """Those that fit, ascending, with every further token worth less than the ones before."""
    fitting = sorted(
        (one for one in renderings if _cost(one) <= tokens and one.value > 0),
        key=lambda one: (one.tokens, -one.value),
    )
    hull: list[Rendering] = []
    for rendering in fitting:
        if hull and rendering.value <= hull[-1].value:
            continue
        while hull and _gain(hull[-1], rendering) >= _gain(hull[-2] if len(hull) > 1 else None, hull[-1]):
            hull.pop()
        hull.append(rendering)
    return hull


def _gain(before: Rendering | None, after: Rendering) -> float:
    """What a token of the step is worth."""
    if before is None:
        return after.value / _cost(after)
    return (after.value - before.value) / max(1, after.tokens - before.tokens)


def _best_single(choices: Sequence[Choice], tokens: int) -> _Chosen:
    best: tuple[float, int, Rendering] | None = None
    for number, choice in enumerate(choices):
        for rendering in choice.renderings:
            if _cost(rendering) <= tokens and (best is None or rendering.value > best[0]):
                best = (rendering.value, number, rendering)
    return {best[1]: best[2]} if best and best[0] > 0 else {}


def _fill(choices: Sequence[Choice], chosen: _Chosen, tokens: int) -> None:
    """Gives the room that is left to whatever still fits, in the order of the choices."""
    left = tokens - _spent(chosen)
    for number, choice in enumerate(choices):
        now = chosen.get(number)
        for rendering in sorted(choice.renderings, key=lambda one: -one.value):
            price = _cost(rendering) - (_cost(now) if now else 0)
            if rendering.value <= (now.value if now else 0.0):
                break
            if price <= left:  # guard: never over the budget
                chosen[number] = rendering
                left -= price
                break


def byte_bound(text: str) -> int:
    """Tokens that no tokenizer exceeds: no token is shorter than a byte."""
    return len(text.encode("utf-8", "replace"))


def safe_count(count: CountTokens, note: Callable[[str], None]) -> CountTokens:
    """The tokenizer; where it fails or says nonsense, the bytes of a text, which are never too few."""

    def counted(text: str) -> int:
        if not text:
            return 0
        tokens: object = None
        with suppress(Exception):  # a tokenizer that fails costs room, not the answer
            tokens = count(text)
        if type(tokens) is int and tokens >= 0:  # guard: what it says is believed if it is a number
            return tokens
        note("the tokenizer failed; bytes were counted instead")
        return byte_bound(text)

    return counted


@dataclass(frozen=True, slots=True)
class AnswerFitter:
    """Makes an answer fit `budget` tokens, as `count` counts them."""

    budget: int
    count: CountTokens

    def fitted(self, answer: ContextAnswer) -> ContextAnswer:
        """The answer within the budget: without its last fragments, its skeleton, its preamble, in this
        order, as far as that is needed."""
        clean = replace(
            answer,
            preamble=_clean(answer.preamble),
            skeleton=_clean(answer.skeleton),
            fragments=tuple(_clean_fragment(fragment) for fragment in answer.fragments),
        )
        while True:
            tokens = self.count(clean.text)
            if tokens <= self.budget:  # guard: the budget is never exceeded
                return replace(clean, tokens=tokens, budget=self.budget)
            clean = self._smaller(clean, tokens - self.budget)

    def _smaller(self, answer: ContextAnswer, over: int) -> ContextAnswer:
        if answer.fragments:
            return replace(answer, fragments=_shortened(answer.fragments, over))
        if answer.skeleton:
            return replace(answer, skeleton="")
        return replace(answer, preamble="")


def _shortened(fragments: Sequence[PackedFragment], over: int) -> tuple[PackedFragment, ...]:
    """Without the last one, and without as many more as surely have to go."""
    kept = list(fragments)
    gone = 0
    while kept and gone < over:
        gone += max(1, kept.pop().rendering.tokens)
    return tuple(kept)


def _clean_fragment(fragment: PackedFragment) -> PackedFragment:
    text = _clean(fragment.rendering.text)
    if text == fragment.rendering.text:
        return fragment
    return replace(fragment, rendering=replace(fragment.rendering, text=text))


def _clean(text: str) -> str:
    """Masked, and without what no encoder takes."""
    masked = redact_content_text(text)
    return masked if masked.isascii() else masked.encode("utf-8", "replace").decode("utf-8")
