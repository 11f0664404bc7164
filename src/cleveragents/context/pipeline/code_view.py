"""The code as the pipeline's parts see it when they write an answer: with secrets masked, and read once.

Strategies search what is there; what is shown may go to a model, so it is masked before anyone counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from cleveragents.context.code_index import CodePlace, CodeSnapshot, IndexStatus, Postings, Sought
from cleveragents.context.model.code import CodeFile, Field, FileAnalysis
from cleveragents.context.pipeline.renderings import printable
from cleveragents.context.pipeline.steps import attempted
from cleveragents.core.text.redaction import redact_content_text

__all__ = ["NoCode", "ShownCode"]

T = TypeVar("T")

_MOST_CHARACTERS: Final = 4_000_000


class ShownCode:
    """`CodeSnapshot` that masks texts and keeps them for one answer; what cannot be read is noted.

    Any thread may ask: what it keeps is only ever added to, and a text that two read at once is the same.
    """

    def __init__(self, code: CodeSnapshot, files: Sequence[CodeFile], note: Callable[[str], None]) -> None:
        self._code = code
        self._files = files
        self._note = note
        self._texts: dict[str, str] = {}

    @property
    def place(self) -> CodePlace:
        return self._code.place

    @property
    def files(self) -> Sequence[CodeFile]:
        return self._files

    @property
    def status(self) -> IndexStatus:
        return self._code.status

    @property
    def chunks(self) -> Sought:
        return self._code.chunks

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        return self._code.postings(field, terms)

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        return self._asked(lambda: self._code.analyses(documents), "what files define")

    def text(self, path: str) -> str:
        found = self._texts.get(path)
        if found is None:
            found = self._texts[path] = self._asked(lambda: self._masked(path), path)
        return found

    def _masked(self, path: str) -> str:
        text = self._code.text(path)
        if len(text) > _MOST_CHARACTERS:  # guard: masking takes time, and none of it would be shown
            raise ValueError(f"it has more than {_MOST_CHARACTERS:,} characters")
        return redact_content_text(text)  # before anyone counts it

    def _asked(self, act: Callable[[], T], what: str) -> T:
        outcome = attempted(act)
        if not outcome.given:
            self._note(f"{printable(what)} could not be read: it {outcome.problem}")
            raise LookupError(what)
        return outcome.given[0]


class NoCode:
    """`CodeSnapshot` of a place that could not be opened: it holds nothing. Immutable."""

    files: Sequence[CodeFile] = ()
    status = IndexStatus(0, 0)

    def __init__(self, place: CodePlace) -> None:
        self.place = place

    @property
    def chunks(self) -> Sought:
        raise KeyError("nothing was opened")

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        return {}

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        return {}

    def text(self, path: str) -> str:
        raise KeyError(path)
