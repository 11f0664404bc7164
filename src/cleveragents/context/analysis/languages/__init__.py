"""The languages, one file each. Every module here has `LANGUAGES`; a new file is a new language."""

from __future__ import annotations

__all__: list[str] = []
