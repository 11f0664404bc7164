"""Naive implementations that our tests must catch: the predecessor's classes, and the suggested fixes.

They are rebuilt from the reports, one file per component, statement for statement where the reports quote
code. The race tests run the same scenarios on these and must fail on them; a test that passes here proves
nothing about ours. `docs/explanation/concurrency.md` lists which test catches which, and after how many
schedules.
"""

from __future__ import annotations

from tests.races.naive_apply import AppliesPatch, ChecksOut, WritesFilesOneByOne
from tests.races.naive_breaker import LockedBreaker, NaiveBreaker
from tests.races.naive_bridge import (
    LockOnlyBridge,
    LockOnlyLedger,
    PredecessorBridge,
    PredecessorLedger,
    SemaphoreThreads,
)
from tests.races.naive_budget import LookThenReserveBudgetStore, OwnBudgetStore, SettledLaterBudgetStore
from tests.races.naive_cancellation import EventToken, LockedEventToken
from tests.races.naive_changesets import (
    LockOnlyContext,
    NaiveChangesetStore,
    NaiveContext,
    OneBigLockContext,
)
from tests.races.naive_code_index import LookThenBuildIndex
from tests.races.naive_container import NaivePart, NaiveScope
from tests.races.naive_event_bus import LockAroundHandlersBus, LockAroundSnapshotBus, PredecessorBus
from tests.races.naive_job_store import (
    CountInEachProcessJobStore,
    CountLanesThenClaimJobStore,
    CountThenClaimJobStore,
    LockedStepsJobStore,
    NaiveJobStore,
    SelectThenUpdateJobStore,
)
from tests.races.naive_pause import TellsFirst, TellsInAnyCase
from tests.races.naive_plan_store import (
    LookThenMovePlanStore,
    LookThenWriteCallStore,
    UnheldCheckStore,
    UnversionedPlanStore,
)
from tests.races.naive_rebase import AnyVersionCallStore, RemembersResult
from tests.races.naive_revision import PausesAnyVersion
from tests.races.naive_streams import LiveOnlyStream, ReadThenSubscribeStream, SubscribeThenReadStream
from tests.races.naive_tree import LookThenSpawnPlanStore
from tests.races.naive_usage_wait import ForgetfulRun, RereadingRun
from tests.races.naive_wake_up import LookThenWaitQueue, MovedLaterQueue
from tests.races.naive_worker import (
    LockOnlyAttempt,
    SlotGivenAwayTable,
    UncountedTable,
    UnfencedStore,
    WallClockRecovery,
)

__all__ = ["NAIVE", "REPORTED"]

REPORTED: dict[str, tuple[type, ...]] = {
    "7166": (EventToken, LockedEventToken),
    "7088": (NaiveBreaker, LockedBreaker),
    "7120": (NaiveContext, LockOnlyContext, OneBigLockContext),
    "7052": (PredecessorBus, LockAroundHandlersBus, LockAroundSnapshotBus),
    "7105": (PredecessorBridge, PredecessorLedger, LockOnlyBridge, LockOnlyLedger),
}
"""By report: the original class, then the fixes that leave the race open."""

NAIVE: tuple[type, ...] = (
    *(cls for classes in REPORTED.values() for cls in classes),
    SemaphoreThreads,
    NaiveChangesetStore,
    NaiveJobStore,
    LockedStepsJobStore,
    SelectThenUpdateJobStore,
    CountThenClaimJobStore,
    CountLanesThenClaimJobStore,
    CountInEachProcessJobStore,
    UnfencedStore,
    WallClockRecovery,
    LockOnlyAttempt,
    SlotGivenAwayTable,
    UncountedTable,
    LookThenReserveBudgetStore,
    SettledLaterBudgetStore,
    OwnBudgetStore,
    UnversionedPlanStore,
    LookThenMovePlanStore,
    LookThenWriteCallStore,
    UnheldCheckStore,
    LookThenSpawnPlanStore,
    LookThenWaitQueue,
    MovedLaterQueue,
    TellsFirst,
    TellsInAnyCase,
    RereadingRun,
    ForgetfulRun,
    PausesAnyVersion,
    RemembersResult,
    AnyVersionCallStore,
    WritesFilesOneByOne,
    ChecksOut,
    AppliesPatch,
    NaivePart,
    NaiveScope,
    LookThenBuildIndex,
    LiveOnlyStream,
    ReadThenSubscribeStream,
    SubscribeThenReadStream,
)
"""All of them, including our own."""
