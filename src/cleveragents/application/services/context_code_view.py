"""The code as the pipeline's parts see it when they write an answer: with secrets masked, and read once.

Strategies search what is there; what is shown may go to a model, so it is masked before anyone counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cleveragents.application.ports.code_index import CodePlace, CodeSnapshot, IndexStatus, Postings, Sought
from cleveragents.domain.code import CodeFile, Field, FileAnalysis
from cleveragents.domain.redaction import redact_content_text

__all__ = ["NoCode", "ShownCode"]


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
        try:
            return self._code.analyses(documents)
        except Exception as error:
            self._note(f"the index does not say what files define ({_said(error)})")
            raise

    def text(self, path: str) -> str:
        found = self._texts.get(path)
        if found is None:
            try:
                found = redact_content_text(self._code.text(path))  # guard: no secret is shown
            except Exception as error:
                self._note(f"{path} could not be read ({_said(error)})")
                raise
            self._texts[path] = found
        return found


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


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
