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
    * UnknownComment
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
    * UnknownRule
    * UnknownConversation
    * AlreadyThere
    * KeyReused
    * NotAuthenticated
    * NotAllowed
  * Conflict: the state changed: reload and decide again
    * StaleFence
    * StaleFile
    * JobAlreadyEnded
    * ResultChanged
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
      * ConversationBudgetExhausted
    * ActorStopped
      * AgentFailed
    * SourceChanged
    * StillUsed
    * ChangedMeanwhile
    * RequestUnderWay
    * ConversationBusy
    * StaleTurn
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
      * UsageLimited
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

Fields hold the facts, the message states what failed and why, and `remedies` lists ways to fix it. Every
error can be pickled, because a job's process may send it to its worker.
"""

from __future__ import annotations

from cleveragents.core.errors.families import CleverAgentsError, Conflict, Fault, InvalidRequest, Unavailable
from cleveragents.core.errors.models import (
    ActorStopped,
    AgentFailed,
    BlockingOnLoop,
    BudgetExhausted,
    ContextTooLong,
    ConversationBudgetExhausted,
    GraphFailed,
    InvalidActor,
    InvalidCondition,
    LoopStopped,
    ModelRefused,
    ModelUnavailable,
    PriceUnknown,
    QuestionRefused,
    SourceChanged,
    SourceMissing,
    SpendingUncounted,
    ThreadBusy,
    UnknownActor,
    UnknownGraph,
    UnknownModel,
    UsageLimited,
)
from cleveragents.core.errors.plans import (
    ActionExists,
    ActorAsks,
    AmbiguousChangeset,
    AmbiguousPlan,
    CallDenied,
    ChangesetClosed,
    DuplicateKey,
    ForeignChangeset,
    HandlerFailed,
    IllegalJobMove,
    IllegalPlanMove,
    InvalidAction,
    InvalidArguments,
    InvalidGoals,
    JobAlreadyEnded,
    NeedsHuman,
    NetworkNotDenied,
    NoActiveChangeset,
    NotIsolated,
    NotTrusted,
    PlanError,
    PlanFailed,
    PolicyDenied,
    ResultChanged,
    RethinkNeeded,
    StaleFence,
    StaleFile,
    StalePlan,
    TreeTooLarge,
    UnknownAction,
    UnknownChangeset,
    UnknownCheckpoint,
    UnknownComment,
    UnknownDecision,
    UnknownFile,
    UnknownJob,
    UnknownJobKind,
    UnknownPlan,
)
from cleveragents.core.errors.remedy import (
    OptionValue,
    Remedy,
    remedies_from_json,
    remedies_record,
    remedies_to_json,
)
from cleveragents.core.errors.resources import (
    AnchorFailed,
    AuditElsewhere,
    AuditLogBroken,
    BreakerOpen,
    Cancelled,
    Closed,
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    DeadlineExceeded,
    InvalidPayload,
    OutcomeUnknown,
    QueueFull,
    StoreBusy,
    StoreFull,
    UnknownEventType,
)
from cleveragents.core.errors.sandboxes import (
    ApplyBusy,
    ApplyConflict,
    ApplyRefused,
    CheckFailed,
    EditMismatch,
    GitFailed,
    InvalidToolCall,
    OutsideSandbox,
    QuotaExceeded,
    RemoteUnreachable,
    SandboxBusy,
    SandboxMissing,
    SandboxRefused,
    ToolRefused,
    UnknownTool,
)
from cleveragents.core.errors.service import (
    AlreadyThere,
    ChangedMeanwhile,
    ConfigurationError,
    ConversationBusy,
    EngineUnavailable,
    InvalidName,
    InvalidResource,
    KeyReused,
    NotAllowed,
    NotAuthenticated,
    PortTaken,
    RemoteHeld,
    RemoteMoved,
    RequestRefused,
    RequestUnderWay,
    ServerFailed,
    ServerUnreachable,
    StaleTurn,
    StillUsed,
    TooManyRequests,
    UnknownConversation,
    UnknownProject,
    UnknownResource,
    UnknownRule,
    UnknownUser,
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
    "ConversationBudgetExhausted",
    "ConversationBusy",
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
    "OptionValue",
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
    "Remedy",
    "RemoteHeld",
    "RemoteMoved",
    "RemoteUnreachable",
    "RequestRefused",
    "RequestUnderWay",
    "ResultChanged",
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
    "StaleFile",
    "StalePlan",
    "StaleTurn",
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
    "UnknownComment",
    "UnknownConversation",
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
    "UnknownRule",
    "UnknownTool",
    "UnknownUser",
    "UsageLimited",
    "remedies_from_json",
    "remedies_record",
    "remedies_to_json",
]
