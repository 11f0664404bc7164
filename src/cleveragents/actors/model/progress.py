"""What a running actor lets be seen meanwhile; what came of it is in the records, not here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Progress", "ProgressKind"]


class ProgressKind(str, Enum):
    """What there is to see."""

    NODE = "node"
    THINKING = "thinking"
    PIECE = "piece"
    THOUGHT = "thought"
    TOOL = "tool"
    TOOL_DONE = "tool_done"


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing seen. `text` is a piece of the answer (PIECE), or what is done to what (TOOL), or what came
    of it (TOOL_DONE, THOUGHT); `node` is the path through subgraphs, `a.b`."""

    kind: ProgressKind
    actor: str
    node: str
    text: str = ""
    failed: bool = False
