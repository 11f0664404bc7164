"""Every deliberate error of CleverAgents, in four families by what the caller can do next.

* CleverAgentsError
  * InvalidRequest: fix the request
    * PlanError: the plan cannot do this now
      * NoActiveChangeset
      * AmbiguousChangeset
      * ForeignChangeset
      * CallDenied
      * TreeTooLarge
    * ChangesetClosed
    * UnknownChangeset
    * DuplicateKey
    * UnknownEventType
    * InvalidPayload
    * UnknownJob
    * UnknownJobKind
    * UnknownGraph
    * BlockingOnLoop
    * InvalidCondition
    * IllegalJobMove
    * UnknownPlan
    * AmbiguousPlan
    * IllegalPlanMove
    * UnknownCheckpoint
    * UnknownDecision
    * UnknownFile
    * UnknownAction
    * ActionExists
    * InvalidAction
    * InvalidArguments
    * InvalidGoals
    * PolicyDenied
      * NetworkNotDenied
    * NotIsolated
    * UnknownTool
    * InvalidToolCall
    * ToolRefused
    * EditMismatch
    * OutsideSandbox
    * SandboxRefused
    * SandboxMissing
    * AuditElsewhere
    * UnknownActor
    * InvalidActor
    * UnknownModel
    * ModelRefused
    * ContextTooLong
    * PriceUnknown
    * SpendingUncounted
    * ConfigurationError
    * DatabaseUnusable
    * SourceMissing
    * QuestionRefused
    * RequestRefused
    * InvalidName
    * InvalidResource
    * UnknownUser
    * UnknownProject
    * UnknownResource
    * AlreadyThere
    * KeyReused
    * NotAuthenticated
    * NotAllowed
  * Conflict: somebody else was faster: reload and decide again
    * StaleFence
    * JobAlreadyEnded
    * StalePlan
    * PlanFailed
    * RethinkNeeded
    * NeedsHuman
      * ActorAsks
    * NotTrusted
    * ApplyConflict
    * ApplyRefused
    * CheckFailed
    * BudgetExhausted
    * ActorStopped
      * AgentFailed
    * SourceChanged
    * StillUsed
    * ChangedMeanwhile
    * RequestUnderWay
    * ServerFailed
    * RemoteMoved
      * RemoteHeld
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
    * SandboxBusy
    * ApplyBusy
    * QuotaExceeded
    * ModelUnavailable
    * ThreadBusy
    * TooManyRequests
    * PortTaken
    * ServerUnreachable
    * EngineUnavailable
    * RemoteUnreachable
    * AnchorFailed
  * Fault: report it
    * AuditLogBroken
    * HandlerFailed
    * GraphFailed
    * LoopStopped
    * DatabaseFailed
    * GitFailed

Facts are fields; the message says what happened, and why; `remedies` say what to do about it. Each error
survives pickling, because it may have to cross from a job's process to its worker.
"""

from __future__ import annotations

from cleveragents.core.errors.actions import (
    ActionExists,
    InvalidAction,
    InvalidArguments,
    InvalidGoals,
    NetworkNotDenied,
    NotIsolated,
    NotTrusted,
    PolicyDenied,
    UnknownAction,
)
from cleveragents.core.errors.applies import ApplyBusy, ApplyConflict, ApplyRefused, CheckFailed
from cleveragents.core.errors.changesets import (
    AmbiguousChangeset,
    ChangesetClosed,
    DuplicateKey,
    ForeignChangeset,
    NoActiveChangeset,
    PlanError,
    UnknownChangeset,
)
from cleveragents.core.errors.configuration import ConfigurationError
from cleveragents.core.errors.context import QuestionRefused, SourceChanged, SourceMissing
from cleveragents.core.errors.events import (
    AnchorFailed,
    AuditElsewhere,
    AuditLogBroken,
    InvalidPayload,
    UnknownEventType,
)
from cleveragents.core.errors.families import CleverAgentsError, Conflict, Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.graphs import (
    BlockingOnLoop,
    GraphFailed,
    InvalidCondition,
    LoopStopped,
    ThreadBusy,
    UnknownGraph,
)
from cleveragents.core.errors.jobs import (
    HandlerFailed,
    IllegalJobMove,
    JobAlreadyEnded,
    StaleFence,
    UnknownJob,
    UnknownJobKind,
)
from cleveragents.core.errors.models import (
    ActorStopped,
    AgentFailed,
    BudgetExhausted,
    ContextTooLong,
    InvalidActor,
    ModelRefused,
    ModelUnavailable,
    PriceUnknown,
    SpendingUncounted,
    UnknownActor,
    UnknownModel,
)
from cleveragents.core.errors.plans import (
    ActorAsks,
    AmbiguousPlan,
    CallDenied,
    IllegalPlanMove,
    NeedsHuman,
    PlanFailed,
    RethinkNeeded,
    StalePlan,
    TreeTooLarge,
    UnknownCheckpoint,
    UnknownDecision,
    UnknownFile,
    UnknownPlan,
)
from cleveragents.core.errors.requests import RequestRefused
from cleveragents.core.errors.resources import (
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
from cleveragents.core.errors.sandboxes import (
    GitFailed,
    QuotaExceeded,
    RemoteUnreachable,
    SandboxBusy,
    SandboxMissing,
    SandboxRefused,
)
from cleveragents.core.errors.service import (
    AlreadyThere,
    ChangedMeanwhile,
    EngineUnavailable,
    InvalidName,
    InvalidResource,
    KeyReused,
    NotAllowed,
    NotAuthenticated,
    PortTaken,
    RemoteHeld,
    RemoteMoved,
    RequestUnderWay,
    ServerFailed,
    ServerUnreachable,
    StillUsed,
    TooManyRequests,
    UnknownProject,
    UnknownResource,
    UnknownUser,
)
from cleveragents.core.errors.tools import (
    EditMismatch,
    InvalidToolCall,
    OutsideSandbox,
    ToolRefused,
    UnknownTool,
)

__all__ = [
    "ActionExists",
    "ActorAsks",
    "ActorStopped",
    "AgentFailed",
    "AlreadyThere",
    "AmbiguousChangeset",
    "AmbiguousPlan",
    "AnchorFailed",
    "ApplyBusy",
    "ApplyConflict",
    "ApplyRefused",
    "AuditElsewhere",
    "AuditLogBroken",
    "BlockingOnLoop",
    "BreakerOpen",
    "BudgetExhausted",
    "CallDenied",
    "Cancelled",
    "ChangedMeanwhile",
    "ChangesetClosed",
    "CheckFailed",
    "CleverAgentsError",
    "Closed",
    "ConfigurationError",
    "Conflict",
    "ContextTooLong",
    "DatabaseFailed",
    "DatabaseUnreachable",
    "DatabaseUnusable",
    "DeadlineExceeded",
    "DuplicateKey",
    "EditMismatch",
    "EngineUnavailable",
    "Fault",
    "ForeignChangeset",
    "GitFailed",
    "GraphFailed",
    "HandlerFailed",
    "IllegalJobMove",
    "IllegalPlanMove",
    "InvalidAction",
    "InvalidActor",
    "InvalidArguments",
    "InvalidCondition",
    "InvalidGoals",
    "InvalidName",
    "InvalidPayload",
    "InvalidRequest",
    "InvalidResource",
    "InvalidToolCall",
    "JobAlreadyEnded",
    "KeyReused",
    "LoopStopped",
    "ModelRefused",
    "ModelUnavailable",
    "NeedsHuman",
    "NetworkNotDenied",
    "NoActiveChangeset",
    "NotAllowed",
    "NotAuthenticated",
    "NotIsolated",
    "NotTrusted",
    "OutcomeUnknown",
    "OutsideSandbox",
    "PlanError",
    "PlanFailed",
    "PolicyDenied",
    "PortTaken",
    "PriceUnknown",
    "QuestionRefused",
    "QueueFull",
    "QuotaExceeded",
    "RemoteHeld",
    "RemoteMoved",
    "RemoteUnreachable",
    "RequestRefused",
    "RequestUnderWay",
    "RethinkNeeded",
    "SandboxBusy",
    "SandboxMissing",
    "SandboxRefused",
    "ServerFailed",
    "ServerUnreachable",
    "SourceChanged",
    "SourceMissing",
    "SpendingUncounted",
    "StaleFence",
    "StalePlan",
    "StillUsed",
    "StoreBusy",
    "StoreFull",
    "ThreadBusy",
    "TooManyRequests",
    "ToolRefused",
    "TreeTooLarge",
    "Unavailable",
    "UnknownAction",
    "UnknownActor",
    "UnknownChangeset",
    "UnknownCheckpoint",
    "UnknownDecision",
    "UnknownEventType",
    "UnknownFile",
    "UnknownGraph",
    "UnknownJob",
    "UnknownJobKind",
    "UnknownModel",
    "UnknownPlan",
    "UnknownProject",
    "UnknownResource",
    "UnknownTool",
    "UnknownUser",
]
