"""Conversations and turns: their states, and the transcript of earlier turns in a prompt.

The author of a text is stored, and never derived from the text: a text that claims another author has no
effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from cleveragents.core.errors import Remedy
from cleveragents.core.identifiers import TurnFence, WorkerIdentity
from cleveragents.models.model.attachment import Attachment, MediaType
from cleveragents.models.model.budget import BudgetLimits

__all__ = [
    "LONGEST_ANSWER",
    "LONGEST_QUESTION",
    "MOST_CONVERSATIONS",
    "MOST_STORED_BYTES",
    "MOST_TURNS",
    "PLAN_COMMAND",
    "Conversation",
    "NewConversation",
    "NewTurn",
    "Observed",
    "PlanLink",
    "Turn",
    "TurnAttachment",
    "TurnState",
    "bounded_answer",
    "goal_of",
    "kept_turns",
    "title_of",
    "transcript_of",
]

PLAN_COMMAND = "/plan"
"""A question that begins with this word starts a plan with the rest as its goal, without a model call."""
LONGEST_QUESTION = 100_000
LONGEST_ANSWER = 200_000
"""The most characters of a stored answer; the rest is cut off."""
MOST_TURNS = 1_000
"""The most turns of a conversation."""
MOST_CONVERSATIONS = 10_000
"""The most conversations of a user in a project."""
MOST_STORED_BYTES = 500_000_000
"""The most bytes of the attachments of a user in a project, for questions that are not answered yet."""
_TITLE_CHARACTERS = 80
_RECENT_TURNS = 4


class TurnState(str, Enum):
    """The state of a turn. `interrupted` and `stopped` turns can be continued."""

    RUNNING = "running"
    ANSWERED = "answered"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def resumable(self) -> bool:
        """Whether the turn can be continued where it stopped."""
        return self in (TurnState.STOPPED, TurnState.INTERRUPTED, TurnState.FAILED)


@dataclass(frozen=True, slots=True)
class NewConversation:
    """A conversation to start. `resource` is the directory or the address of the repository, `profile` the
    profile of its plans.
    """

    project: str
    resource: str
    resource_name: str | None = None
    model: str | None = None
    created_by: str | None = None
    profile: str | None = None
    limits: BudgetLimits = field(default_factory=BudgetLimits)


@dataclass(frozen=True, slots=True)
class Observed:
    """The lease of a conversation as it was read. It stays the same if the owner sends no more heartbeats."""

    fence: int
    beat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation. `owner` is the process that runs its turn; None if no turn runs."""

    id: str
    project: str
    resource: str
    resource_name: str | None
    title: str
    model: str | None
    forked_from: str | None
    summary: str
    summary_turn: int
    turns: int
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    fence: int
    beat: int
    owner: WorkerIdentity | None = None
    stop_requested: bool = False
    profile: str | None = None

    @property
    def observed(self) -> Observed:
        return Observed(self.fence, self.beat)

    @property
    def held(self) -> TurnFence:
        """The fence under which the process that took the conversation writes."""
        return TurnFence(self.id, self.turns, self.fence)


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A question to store. `author` is the user of a server; None for the owner of this machine."""

    question: str
    author: str | None = None
    read_only: bool = False
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnAttachment:
    """A file of a turn, without its content."""

    name: str
    media_type: MediaType
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A question and its answer. `answer` is empty until the turn ends. `remedies` are those of its error."""

    conversation_id: str
    number: int
    question: str
    answer: str
    state: TurnState
    error: str | None
    author: str | None
    read_only: bool
    first_output: int
    created_at: datetime
    ended_at: datetime | None
    remedies: tuple[Remedy, ...] = ()
    attachments: tuple[TurnAttachment, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanLink:
    """A tool call of a turn that started or corrected a plan. `plan_id` is empty before the call is made.

    `digest` identifies the arguments of the call.
    """

    plan_id: str
    tool: str
    turn: int
    digest: str = ""

    @property
    def request(self) -> str:
        """The call as the claim stores it."""
        return f"{self.tool} {self.turn} {self.digest}"

    @classmethod
    def of(cls, plan_id: str, request: str) -> PlanLink:
        """Restore a link from the plan and the request of its claim."""
        tool, turn, digest = request.split(" ", 2)
        return cls(plan_id, tool, int(turn), digest)


def goal_of(question: str) -> str | None:
    """Return the goal of a question that begins with `/plan`; None for any other question."""
    goal = question.removeprefix(PLAN_COMMAND)
    begins = goal != question and not goal[:1].strip()  # `/plans` is another word
    return goal.strip() if begins else None


def title_of(question: str) -> str:
    """Return the title of a conversation that starts with this question: its first words, on one line."""
    words = " ".join(question.split())
    return words if len(words) <= _TITLE_CHARACTERS else f"{words[: _TITLE_CHARACTERS - 1]}…"


def bounded_answer(answer: str) -> str:
    """Return the answer. A very long answer is cut, with a note."""
    if len(answer) <= LONGEST_ANSWER:
        return answer
    return f"{answer[:LONGEST_ANSWER]}\n\n… cut off after {LONGEST_ANSWER:,} characters"


def kept_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Return the recent turns, which a compaction leaves as they are."""
    return turns[-_RECENT_TURNS:]


def transcript_of(turns: Iterable[Turn], characters: int) -> str:
    """Return earlier turns for a prompt, one JSON object per line, oldest first, in at most `characters`.

    JSON quoting keeps each text inside its field, so an answer cannot imitate a question of the user. The
    oldest turns are left out first.
    """
    lines: list[str] = []
    room = characters
    for turn in reversed(list(turns)):
        told: dict[str, object] = {"turn": turn.number, "user": turn.question, "assistant": turn.answer}
        if turn.attachments:
            told["attached"] = [one.name for one in turn.attachments]
        if turn.state is not TurnState.ANSWERED:
            told["state"] = turn.state.value
        line = json.dumps(told, ensure_ascii=False)
        if len(line) > room:
            lines.append(json.dumps({"note": f"turns up to {turn.number} are left out"}))
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join(reversed(lines))
