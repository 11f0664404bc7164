"""Analysis of a file's content: its definitions, imports, chunks and their terms.

`analyse` accepts any bytes. Each language is one file under `languages`; everything else is plain text.
"""

from __future__ import annotations

from cleveragents.context.analysis.content import ANALYSIS_VERSION, analyse

__all__ = ["ANALYSIS_VERSION", "analyse"]
