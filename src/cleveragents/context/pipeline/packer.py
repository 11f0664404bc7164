"""Selection of renderings: the highest total value within the tokens.

This is a knapsack problem with at most one item from each group. An exact solution takes time proportional to
the budget. A greedy solution over each group's *frontier* (the renderings whose value per additional token
decreases) is at most one rendering away from the optimum and takes milliseconds for a thousand places. Places
are upgraded step by step, from path to full, in the order of value per token; the remaining room goes to any
rendering that still fits.

Finally, the answer is masked, made legible and fitted: whatever the parts reported, the whole text is counted
once more and loses fragments from its end until it fits its budget.
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
"""The line break before each fragment."""


class GreedyPacker:
    """A greedy `Packer`. Immutable."""

    def pack(self, choices: Sequence[Choice], tokens: int) -> Sequence[PackedFragment]:
        chosen = _upgraded(choices, tokens)
        single = _best_single(choices, tokens)
        if single and _worth(single) > _worth(chosen):  # guard: one large one may be worth more
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
            continue  # the later ones cost even more
        if at + 1 < len(frontier):
            heappush(steps, (-_gain(before, frontier[at + 1]), number, at + 1))
    return chosen


def _frontier(renderings: Sequence[Rendering], tokens: int) -> list[Rendering]:
    """Return the renderings that fit, ascending, with decreasing value per additional token."""
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
    """Return the value gained per additional token by showing `after` instead of `before`."""
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
    """Use the remaining room for any rendering that still fits, in the order of the choices."""
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
    """Return an upper bound of the tokens for any tokenizer: no token is shorter than a byte."""
    return len(text.encode("utf-8", "replace"))


def safe_count(count: CountTokens, note: Callable[[str], None]) -> CountTokens:
    """Return a tokenizer that falls back to the number of bytes, an upper bound, if `count` fails or returns
    an invalid number.
    """

    def counted(text: str) -> int:
        if not text:
            return 0
        tokens: object = None
        with suppress(Exception):  # a failing tokenizer costs room, not the answer
            tokens = count(text)
        if type(tokens) is int and tokens >= 0:  # guard: only a valid number is used
            return tokens
        note("the tokenizer failed; bytes were counted instead")
        return byte_bound(text)

    return counted


@dataclass(frozen=True, slots=True)
class AnswerFitter:
    """Fits an answer into `budget` tokens, as `count` counts them."""

    budget: int
    count: CountTokens

    def fitted(self, answer: ContextAnswer) -> ContextAnswer:
        """Return the answer within the budget.

        As far as necessary, the last fragments are dropped, then the skeleton, then the preamble.
        """
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
    """Drop fragments from the end until at least `over` tokens are dropped."""
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
    """Mask secrets and replace characters that cannot be encoded."""
    masked = redact_content_text(text)
    return masked if masked.isascii() else masked.encode("utf-8", "replace").decode("utf-8")
