"""The tables of actors: checkpoints of their graphs, decisions, comments, budgets and model calls.

The value of a graph's channel is stored once per version, and a checkpoint refers to versions. A long
conversation is therefore not rewritten by every step that does not change it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, Table, Text

from cleveragents.storage.tables import METADATA, id_type, number_type

__all__ = [
    "budgets",
    "comment_answers",
    "comments",
    "corrections",
    "decisions",
    "graph_checkpoints",
    "graph_values",
    "graph_writes",
    "model_calls",
]

graph_checkpoints = Table(
    "graph_checkpoints",
    METADATA,
    Column("thread_id", id_type(), primary_key=True),
    Column("namespace", id_type(), primary_key=True),
    Column("checkpoint_id", id_type(), primary_key=True),
    Column("parent_id", id_type()),
    Column("kind", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
    Column("versions", Text, nullable=False),
    sqlite_with_rowid=False,
)

graph_values = Table(
    "graph_values",
    METADATA,
    Column("thread_id", id_type(), primary_key=True),
    Column("namespace", id_type(), primary_key=True),
    Column("channel", id_type(), primary_key=True),
    Column("version", id_type(), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
)

graph_writes = Table(
    "graph_writes",
    METADATA,
    Column("thread_id", id_type(), primary_key=True),
    Column("namespace", id_type(), primary_key=True),
    Column("checkpoint_id", id_type(), primary_key=True),
    Column("task_id", id_type(), primary_key=True),
    Column("index", Integer, primary_key=True, autoincrement=False),
    Column("channel", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("task_path", Text, nullable=False),
)

decisions = Table(
    "decisions",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False),
    Column("parent", Integer),
    Column("question", Text, nullable=False),
    Column("choice", Text, nullable=False),
    Column("rationale", Text, nullable=False),
    Column("alternatives", Text, nullable=False),
    Column("confidence", Float),
    Column("made_by", Text, nullable=False),
    Column("checkpoint", Integer),
    Column("context", Text),
    Column("state", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# One row for a tree of plans. The spent and reserved amounts are sums over its model calls, kept here so
# that one statement decides whether the next call fits.
budgets = Table(
    "budgets",
    METADATA,
    Column("root_id", id_type(), primary_key=True),
    Column("limit_picodollars", BigInteger),
    Column("limit_tokens", BigInteger),
    Column("limit_steps", BigInteger),
    Column("limit_seconds", Float),
    Column("spent_picodollars", BigInteger, nullable=False),
    Column("spent_tokens", BigInteger, nullable=False),
    Column("spent_steps", BigInteger, nullable=False),
    Column("reserved_picodollars", BigInteger, nullable=False),
    Column("reserved_tokens", BigInteger, nullable=False),
    Column("reserved_steps", BigInteger, nullable=False),
    Column("warned", Text, nullable=False),
)

# `state`: reserved, settled, released, forfeited.
model_calls = Table(
    "model_calls",
    METADATA,
    Column("number", number_type(), primary_key=True, autoincrement=True),
    Column("id", id_type(), nullable=False, unique=True),
    Column("root_id", id_type(), nullable=False),
    Column("plan_id", id_type(), nullable=False),
    Column("key", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("worst_picodollars", BigInteger, nullable=False),
    Column("worst_tokens", BigInteger, nullable=False),
    Column("worst_steps", BigInteger, nullable=False),
    Column("picodollars", BigInteger),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    sqlite_autoincrement=True,
)

Index("ix_model_calls_plan_id_key", model_calls.c.plan_id, model_calls.c.key)

# How often a plan returned to its strategy or got additional guidance; `outcome` is the tree it had produced.
corrections = Table(
    "corrections",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("decision", Integer),
    Column("guidance", Text, nullable=False),
    Column("superseded", Text, nullable=False),
    Column("checkpoint", Integer),
    Column("outcome", Text),
    Column("by_itself", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# Comments on a plan or on lines of its result (`anchor`). `batch` is the last correction that sent one to the
# executor; `author` is an actor if `by_actor`.
comments = Table(
    "comments",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("by_actor", Boolean, nullable=False),
    Column("anchor", Text),
    Column("key", Text),
    Column("batch", Integer),
    Column("created_at", BigInteger, nullable=False),
)

# Answers are only added: the last one decides the state of its comment.
comment_answers = Table(
    "comment_answers",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("comment", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("by_actor", Boolean, nullable=False),
    Column("call", Integer),
    Column("by_call", Integer),
    Column("created_at", BigInteger, nullable=False),
)
