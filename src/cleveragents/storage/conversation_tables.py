"""The tables of conversations: one row for each conversation, each of its turns, and each attached file.

The row of a conversation holds the lease of its running turn: `fence`, `beat` and the owner, as in `jobs`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    select,
)

from cleveragents.core.errors import StaleTurn
from cleveragents.core.identifiers import TurnFence
from cleveragents.storage.tables import METADATA, id_type

__all__ = ["conversation_attachments", "conversation_turns", "conversations", "ensure_turn_held"]

# `turns`: the number of turns so far. `summary` replaces the turns up to `summary_turn` in prompts.
# `profile`: that of its plans; NULL for the default. Without a running turn the owner is NULL. `fence` grows
# with every owner, so a late owner can write nothing.
conversations = Table(
    "conversations",
    METADATA,
    Column("id", id_type(), primary_key=True),
    Column("project", id_type(), nullable=False),
    Column("resource", Text, nullable=False),
    Column("resource_name", id_type()),
    Column("title", Text, nullable=False),
    Column("model", Text),
    Column("forked_from", id_type()),
    Column("summary", Text, nullable=False),
    Column("summary_turn", Integer, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("created_by", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("owner_id", Text),
    Column("owner_host", Text),
    Column("owner_pid", BigInteger),
    Column("owner_started_ticks", BigInteger),
    Column("stop_requested", Boolean, nullable=False),
    Column("profile", Text),
)

Index("ix_conversations_project", conversations.c.project)

# `author`: the user of a server who sent it; NULL for the owner of the machine. `first_output`: the number of
# the last piece of output before the turn. `remedies`: those of the error, as JSON; NULL without an error.
conversation_turns = Table(
    "conversation_turns",
    METADATA,
    Column("conversation_id", id_type(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("author", Text),
    Column("read_only", Boolean, nullable=False),
    Column("first_output", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("remedies", Text),
)


# `content` is NULL once the turn is answered or another one has begun: no call needs it any more.
conversation_attachments = Table(
    "conversation_attachments",
    METADATA,
    Column("conversation_id", id_type(), primary_key=True),
    Column("turn", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("content", LargeBinary),
)


def ensure_turn_held(connection: Connection, fence: TurnFence) -> None:
    """Raise `StaleTurn` unless the turn runs under this fence. The conversation stays locked until the end of
    the transaction, so that no other process can take over the turn meanwhile.
    """
    held = select(conversations.c.id).where(
        conversations.c.id == fence.conversation_id,
        conversations.c.fence == fence.token,
        conversations.c.owner_id.is_not(None),
    )
    if connection.execute(held.with_for_update()).first() is None:  # guard: a late process writes nothing
        raise StaleTurn(fence.conversation_id, fence.turn)
