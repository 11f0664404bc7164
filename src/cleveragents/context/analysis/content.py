"""Analyses the content of one file. It answers for any bytes, in bounded time."""

from __future__ import annotations

from cleveragents.context.analysis.chunk_terms import chunks_of
from cleveragents.context.analysis.chunking import cut
from cleveragents.context.analysis.language import language_of
from cleveragents.context.analysis.lines import Lines
from cleveragents.context.analysis.opacity import decode, opaque_because
from cleveragents.context.analysis.plain_text import read_text
from cleveragents.context.analysis.syntax import read_syntax
from cleveragents.context.model.code import FileAnalysis

__all__ = ["ANALYSIS_VERSION", "analyse"]

ANALYSIS_VERSION = 1
"""Goes up when the same content gets another analysis, so that an index knows what to work out again."""

_LARGEST_PARSED = 500_000  # what is larger is a table or a collection, and as text it costs a tenth


def analyse(path: str, data: bytes) -> FileAnalysis:
    """What `data` says if it stands in a file called `path`, of which only the name's form matters."""
    because = opaque_because(path, data)
    language = language_of(path, data[:256])
    name = language.name if language is not None else "text"
    if because is not None:
        return FileAnalysis(name, data.count(b"\n") + (not data.endswith(b"\n")), opaque=because)
    lines = Lines(decode(data))
    syntax = read_syntax(language, lines) if language is not None and len(data) <= _LARGEST_PARSED else None
    keywords = language.keywords if language is not None else frozenset[str]()
    if syntax is not None:
        pieces = cut(syntax.definitions, lines)
    else:
        syntax, pieces = read_text(path, lines)
        name, keywords = "text", frozenset()
    chunks = chunks_of(pieces, syntax, lines, keywords)
    return FileAnalysis(name, lines.count, tuple(syntax.definitions), tuple(syntax.imports), tuple(chunks))
