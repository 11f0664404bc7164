"""The variable by which the processes of an attempt are known."""

from __future__ import annotations

__all__ = ["MARKER_VARIABLE"]

MARKER_VARIABLE = "CLEVERAGENTS_JOB"
