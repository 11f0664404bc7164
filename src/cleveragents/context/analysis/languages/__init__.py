"""Languages, one module each. Every module defines `LANGUAGES`; a new file adds a language."""

from __future__ import annotations

__all__: list[str] = []
