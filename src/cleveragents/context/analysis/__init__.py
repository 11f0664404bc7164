"""What the content of one file says: its definitions, imports, chunks and their terms.

`analyse` answers for any bytes whatever. Each language is one file under `languages`; what no file there
knows is plain text.
"""

from __future__ import annotations

from cleveragents.context.analysis.content import ANALYSIS_VERSION, analyse

__all__ = ["ANALYSIS_VERSION", "analyse"]
