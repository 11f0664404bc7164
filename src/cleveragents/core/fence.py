"""The fence that a worker writes under."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fence"]


@dataclass(frozen=True, slots=True)
class Fence:
    """Who may write: the worker that holds this job under this fencing token."""

    job_id: str
    token: int
