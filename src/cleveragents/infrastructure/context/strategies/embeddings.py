"""Meaning rather than words: static word vectors that come inside a package, for what keywords find likely.

An optional extra (`cleveragents[embeddings]`); nothing is ever downloaded. Vectors of single words cannot
tell one file of thousands, but they can tell which of the likeliest is meant. So only those are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from cleveragents.application.ports.context import CancelSignal, ContextStrategy
from cleveragents.application.ports.context_parts import StrategyGround
from cleveragents.domain.code import Span
from cleveragents.domain.context import ContextFragment, ContextRequest
from cleveragents.infrastructure.context.looking import Looking, looking
from cleveragents.infrastructure.context.places import Places, in_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EmbeddingsStrategy", "make", "offered"]

_LIBRARY = "wordllama"
_MOST_FILES = 20
_MOST_PIECES = 60
_MOST_CHARACTERS = 1_500


class _Embedder(Protocol):
    def embed(self, texts: list[str], *, norm: bool) -> NDArray[np.float32]: ...


def offered() -> bool:
    """Whether the library is there."""
    return find_spec(_LIBRARY) is not None


@lru_cache(maxsize=1)
def _embedder() -> _Embedder:
    """Loaded once per process, from the package itself."""
    import wordllama

    home = Path(str(wordllama.__file__)).parent
    return cast("_Embedder", wordllama.WordLlama.load(cache_dir=home, disable_download=True))


class EmbeddingsStrategy:
    """It holds nothing but the snapshot, which any thread may ask; the vectors are only read."""

    name = "embeddings"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = looking(self._code, request.question)
        question = look.question
        places = Places(look, self.name)
        pieces = self._pieces(look, cancelled)
        if not pieces or cancelled.is_cancelled:
            return ()
        embedder = _embedder()
        asked = embedder.embed([f"{question.title}\n{question.prose}"[:_MOST_CHARACTERS]], norm=True)
        vectors = embedder.embed([text for _, _, text in pieces], norm=True)
        nearness = vectors @ asked[0]
        fragments: list[ContextFragment] = []
        by_path: dict[str, float] = {}
        for (path, span, _), near in zip(pieces, nearness, strict=True):
            score = max(float(near), 0.0)
            by_path[path] = max(by_path.get(path, 0.0), score)
            fragments.append(ContextFragment(path, "", score, self.name, span, "piece"))
        fragments.sort(key=lambda fragment: -fragment.score)
        return in_order([*places.files("file", by_path), *fragments[:_MOST_FILES]])

    def _pieces(self, look: Looking, cancelled: CancelSignal) -> list[tuple[str, Span, str]]:
        """The chunks of the likeliest files, with their text."""
        documents = look.contenders[:_MOST_FILES]
        analyses = self._code.analyses(documents)
        pieces: list[tuple[str, Span, str]] = []
        for document in documents:
            if document not in analyses or cancelled.is_cancelled:
                continue
            path = look.paths[document][0]
            lines = look.text(path).split("\n")
            for chunk in analyses[document].chunks[:_MOST_PIECES]:
                text = "\n".join(lines[chunk.span.first - 1 : chunk.span.last])[:_MOST_CHARACTERS]
                pieces.append((path, chunk.span, text))
        return pieces


def make(ground: StrategyGround) -> ContextStrategy:
    return EmbeddingsStrategy(ground)
