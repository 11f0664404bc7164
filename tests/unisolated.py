"""Lets `agents serve` and `agents worker` start in tests, whether or not bubblewrap is installed.

`unit/test_isolation_required.py` tests their behaviour without isolation and without this.
"""

from __future__ import annotations

__all__ = ["ALLOW_UNISOLATED"]

ALLOW_UNISOLATED = {"CLEVERAGENTS_SANDBOX_ALLOW_UNISOLATED": "true"}
