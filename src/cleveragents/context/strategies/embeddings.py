"""Search by meaning, with word vectors from the package `wordllama`.

An optional extra (`cleveragents[embeddings]`). Vectors of single words cannot pick one file out of thousands,
but they can rank a few relevant files. So only the best chunks of the files that the keyword search ranks
best are compared.

The vectors are read directly from the package's two files, which takes a tenth of a second; importing the
package takes half a second. Nothing is ever downloaded: without the files, the strategy is not offered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.search.question_search import FoundPlaces, QuestionSearch, in_order, shared_search
from cleveragents.context.strategy import CancelSignal, ContextStrategy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "EmbeddingsStrategy",
    "WordVectors",
    "make",
    "offered",
    "read_matrix",
    "vector_files",
    "word_vectors",
]


_MOST_FILES = 20
_MOST_PIECES = 6
_MOST_CHARACTERS = 1_000
_Piece = tuple[str, LineSpan, str]

_PACKAGE = "wordllama"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_LONGEST_HEADER = 1 << 20


def offered() -> bool:
    """Return whether the vectors are installed."""
    return vector_files() is not None


class EmbeddingsStrategy:
    """Finds code by word vectors. Any thread may use it: it holds only the snapshot, which any thread may
    read, and the vectors are read-only.
    """

    name = "embeddings"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = shared_search(self._code, request.question)
        pieces = self._pieces(look, cancelled)
        if not pieces or cancelled.is_cancelled:
            return ()
        vectors = word_vectors()
        asked = vectors.embed([f"{look.question.title}\n{look.question.prose}"[:_MOST_CHARACTERS]])[0]
        nearness = (vectors.embed([text for _, _, text in pieces]) @ asked).tolist()
        # All pieces are similar, so the distance to the least similar one counts.
        farthest = min(nearness)
        by_path: dict[str, float] = {}
        fragments: list[ContextFragment] = []
        for (path, span, _), near in zip(pieces, nearness, strict=True):
            by_path[path] = max(by_path.get(path, 0.0), near - farthest)
            fragments.append(ContextFragment(path, "", near - farthest, self.name, span, "piece"))
        fragments.sort(key=lambda fragment: (-fragment.score, fragment.path))
        return in_order([*FoundPlaces(look, self.name).files("file", by_path), *fragments[:_MOST_FILES]])

    def _pieces(self, look: QuestionSearch, cancelled: CancelSignal) -> list[_Piece]:
        """Return the best chunks of the most relevant files, with their text."""
        sought = self._code.chunks
        scores = look.chunk_scores("weighed")
        documents = look.contenders[:_MOST_FILES]
        analyses = self._code.analyses(documents)
        pieces: list[_Piece] = []
        for document in documents:
            if document not in analyses or cancelled.is_cancelled:
                continue
            path = look.paths[document][0]
            lines = look.text(path).split("\n")
            first = int(sought.first_chunk[document])
            chunks = range(first, int(sought.first_chunk[document + 1]))
            for chunk in sorted(chunks, key=lambda one: -float(scores[one]))[:_MOST_PIECES]:
                span = analyses[document].chunks[chunk - first].span
                text = "\n".join(lines[span.first - 1 : span.last])[:_MOST_CHARACTERS]
                pieces.append((path, span, text))
        return pieces


def make(ground: StrategyGround) -> ContextStrategy:
    return EmbeddingsStrategy(ground)


class _Encoding(Protocol):
    @property
    def ids(self) -> list[int]: ...


class _Tokenizer(Protocol):
    def encode(self, text: str, *, add_special_tokens: bool) -> _Encoding: ...


def vector_files() -> tuple[Path, Path] | None:
    """Return the tokenizer and weights files, if both exist and their reader is installed."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None or find_spec("tokenizers") is None:
        return None
    home = Path(spec.origin).parent
    files = (home / _TOKENIZER, home / _WEIGHTS)
    return files if all(file.is_file() for file in files) else None


class WordVectors:
    """Embeds texts as the normalised mean of their word vectors. Immutable; any thread may use it."""

    def __init__(self, tokenizer: _Tokenizer, matrix: NDArray[np.float16]) -> None:
        self._tokenizer = tokenizer
        self._matrix = matrix

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np

        vectors = np.zeros((len(texts), self._matrix.shape[1]), dtype=np.float32)
        for row, text in enumerate(texts):
            # one by one: a batch would start threads, which must not exist when a process forks
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            if ids:
                vectors[row] = self._matrix[ids].astype(np.float32).mean(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        normal: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-9))
        return normal


@lru_cache(maxsize=1)
def word_vectors() -> WordVectors:
    """Load the vectors, once per process.

    Raises `FileNotFoundError` if they are missing, `ValueError` if they are invalid.
    """
    files = vector_files()
    if files is None:
        raise FileNotFoundError(f"{_PACKAGE} is not installed, or keeps its files elsewhere")
    tokenizer: _Tokenizer = import_module("tokenizers").Tokenizer.from_file(str(files[0]))
    return WordVectors(tokenizer, read_matrix(files[1]))


def read_matrix(file: Path) -> NDArray[np.float16]:
    """Read the single matrix of a `safetensors` file.

    The first eight bytes are the length of the header, and the header contains the offset of the matrix.
    """
    import numpy as np

    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > _LONGEST_HEADER:
            raise ValueError(f"{file.name} has no header")
        header = json.loads(stream.read(size))
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    if len(tensors) != 1 or tensors[0].get("dtype") != "F16" or len(tensors[0].get("shape", ())) != 2:
        raise ValueError(f"{file.name} is not one matrix")
    (rows, columns), (start, _) = tensors[0]["shape"], tensors[0]["data_offsets"]
    flat = np.fromfile(file, dtype=np.float16, count=rows * columns, offset=8 + size + start)
    return flat.reshape(rows, columns)
