"""Lets `agents serve` and `agents worker` start in tests, whether or not bubblewrap is installed.

What they do without isolation and without this is the matter of `unit/test_isolation_required.py`.
"""

from __future__ import annotations

__all__ = ["ALLOW_UNISOLATED"]

ALLOW_UNISOLATED = {"CLEVERAGENTS_SANDBOX_ALLOW_UNISOLATED": "true"}
