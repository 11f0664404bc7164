"""The tables of a shared service: users and tokens, projects, workers, shared limits of jobs, output.

Tokens are stored only as digests: reading the database does not allow using them. These tables also hold the
file contents of plans on git remotes, so that another machine can continue such a plan.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, Table, Text

from cleveragents.storage.tables import METADATA, id_type

__all__ = [
    "audit_home",
    "contents",
    "deleted_plans",
    "deliveries",
    "idempotency_keys",
    "job_lanes",
    "members",
    "plan_output",
    "projects",
    "remote_bases",
    "resources",
    "tokens",
    "users",
    "workers",
]

# The concurrency limits shared by many jobs, such as those of a project or a provider; at most
# `at_most` run in parallel.
job_lanes = Table(
    "job_lanes",
    METADATA,
    Column("job_id", id_type(), primary_key=True),
    Column("lane", id_type(), primary_key=True),
    Column("at_most", Integer, nullable=False),
)
Index("ix_job_lanes_lane_job_id", job_lanes.c.lane, job_lanes.c.job_id)

# Workers, for display only; no lease depends on it. `state`: working, draining, gone.
workers = Table(
    "workers",
    METADATA,
    Column("id", id_type(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("home", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("isolation", Text),
)

users = Table(
    "users",
    METADATA,
    Column("id", id_type(), primary_key=True),
    Column("name", id_type(), nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# `kind`: program, which sends the token; browser, which has it as a cookie. Tokens made with it expire at
# `issues_until` at the latest. `made_with`: the program's token that it was made with, and ends with.
tokens = Table(
    "tokens",
    METADATA,
    Column("digest", id_type(), primary_key=True),
    Column("id", id_type(), nullable=False, unique=True),
    Column("user_id", id_type(), nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("issues_until", BigInteger),
    Column("made_with", id_type(), index=True),
)

# The response to a request with this key. No response yet: the request is running, or its server died.
# `made`: the id of the object created for it (for a correction, of its plan), stored in the same transaction.
idempotency_keys = Table(
    "idempotency_keys",
    METADATA,
    Column("user_id", id_type(), primary_key=True),
    Column("key", id_type(), primary_key=True),
    Column("request", Text, nullable=False),
    Column("answer", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("made", id_type()),
)

projects = Table(
    "projects",
    METADATA,
    Column("name", id_type(), primary_key=True),
    Column("description", Text, nullable=False),
    Column("max_parallel", Integer),
    Column("created_at", BigInteger, nullable=False),
)

# The role of each member of a project. Server admins need no row: they may act in every project.
members = Table(
    "members",
    METADATA,
    Column("project", id_type(), primary_key=True),
    Column("user_id", id_type(), primary_key=True, index=True),
    Column("role", Text, nullable=False),
)

# The project of each deleted plan: its events in the audit log are visible to members of that project only.
deleted_plans = Table(
    "deleted_plans",
    METADATA,
    Column("id", id_type(), primary_key=True),
    Column("project", id_type(), nullable=False),
)

resources = Table(
    "resources",
    METADATA,
    Column("name", id_type(), primary_key=True),
    Column("project", id_type(), nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("branch", Text),
    Column("home", Text),
    Column("created_at", BigInteger, nullable=False),
)

# The owner of the sequencer of the audit log: the single row names the state directory that has its key.
audit_home = Table(
    "audit_home",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("home", Text, nullable=False),
)

# How far each webhook has been notified, and the process that sends to it until its lease ends.
deliveries = Table(
    "deliveries",
    METADATA,
    Column("receiver", id_type(), primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("owner", id_type(), nullable=False),
    Column("leased_until", BigInteger, nullable=False),
)

contents = Table(
    "contents",
    METADATA,
    Column("root_id", id_type(), primary_key=True),
    Column("digest", id_type(), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

# The commit of a git remote that a plan and its sub-plans started from, on any machine.
remote_bases = Table(
    "remote_bases",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("base", Text, nullable=False),
)

# The live output of a plan, for clients elsewhere; bounded, the oldest rows are deleted first.
# `ends_at`: the number of bytes printed so far, so that rows that are too old are found without counting.
plan_output = Table(
    "plan_output",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("written_at", BigInteger, nullable=False),
)
