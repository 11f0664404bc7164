"""Messages that the app posts to its screens."""

from __future__ import annotations

from textual.message import Message

__all__ = ["PlanChanged"]


class PlanChanged(Message):
    """One or more events of a plan arrived since the last message about it. The screen reads the plan again;
    the message contains no state.
    """

    def __init__(self, plan_id: str) -> None:
        super().__init__()
        self.plan_id = plan_id
