"""Every deliberate error of CleverAgents, in four families by what the caller can do next.

* CleverAgentsError
  * InvalidRequest: fix the request
    * PlanError: the plan cannot do this now
      * NoActiveChangeset
      * AmbiguousChangeset
      * ForeignChangeset
    * ChangesetClosed
    * UnknownChangeset
    * DuplicateKey
    * UnknownEventType
    * InvalidPayload
    * UnknownJob
    * UnknownJobKind
    * UnknownGraph
    * BlockingOnLoop
    * IllegalJobMove
    * ConfigurationError
    * DatabaseUnusable
  * Conflict: somebody else was faster: reload and decide again
    * StaleFence
    * JobAlreadyEnded
  * Unavailable: wait, then try again
    * StoreBusy
    * StoreFull
    * DatabaseUnreachable
    * OutcomeUnknown
    * QueueFull
    * BreakerOpen
    * Closed
    * DeadlineExceeded
    * Cancelled
  * Fault: report it
    * AuditLogBroken
    * HandlerFailed
    * GraphFailed
    * LoopStopped
    * DatabaseFailed

Facts are fields; the message says what happened, to what, and what to do about it. Each error
survives pickling, because it may have to cross from a job's process to its worker.
"""

from __future__ import annotations

from cleveragents.errors.changesets import (
    AmbiguousChangeset,
    ChangesetClosed,
    DuplicateKey,
    ForeignChangeset,
    NoActiveChangeset,
    PlanError,
    UnknownChangeset,
)
from cleveragents.errors.configuration import ConfigurationError
from cleveragents.errors.events import AuditLogBroken, InvalidPayload, UnknownEventType
from cleveragents.errors.families import CleverAgentsError, Conflict, Fault, InvalidRequest, Unavailable
from cleveragents.errors.graphs import BlockingOnLoop, GraphFailed, LoopStopped, UnknownGraph
from cleveragents.errors.jobs import (
    HandlerFailed,
    IllegalJobMove,
    JobAlreadyEnded,
    StaleFence,
    UnknownJob,
    UnknownJobKind,
)
from cleveragents.errors.resources import (
    BreakerOpen,
    Cancelled,
    Closed,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    DeadlineExceeded,
    OutcomeUnknown,
    QueueFull,
    StoreBusy,
    StoreFull,
)

__all__ = [
    "AmbiguousChangeset",
    "AuditLogBroken",
    "BlockingOnLoop",
    "BreakerOpen",
    "Cancelled",
    "ChangesetClosed",
    "CleverAgentsError",
    "Closed",
    "ConfigurationError",
    "Conflict",
    "DatabaseFailed",
    "DatabaseUnreachable",
    "DatabaseUnusable",
    "DeadlineExceeded",
    "DuplicateKey",
    "Fault",
    "ForeignChangeset",
    "GraphFailed",
    "HandlerFailed",
    "IllegalJobMove",
    "InvalidPayload",
    "InvalidRequest",
    "JobAlreadyEnded",
    "LoopStopped",
    "NoActiveChangeset",
    "OutcomeUnknown",
    "PlanError",
    "QueueFull",
    "StaleFence",
    "StoreBusy",
    "StoreFull",
    "Unavailable",
    "UnknownChangeset",
    "UnknownEventType",
    "UnknownGraph",
    "UnknownJob",
    "UnknownJobKind",
]
