"""The last word on an answer: masked, legible, and within its budget as all of it together is counted.

Whatever parts said of their tokens, the text that a model will be shown is counted once more, whole, and
loses fragments from its end until it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cleveragents.context.context_parts import CountTokens
from cleveragents.context.model.context_answer import ContextAnswer, PackedFragment
from cleveragents.core.text.redaction import redact_content_text

__all__ = ["Fitting", "byte_bound", "safe_count"]


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
class Fitting:
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
