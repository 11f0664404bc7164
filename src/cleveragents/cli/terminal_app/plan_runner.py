"""Processes for the plans that the app continues, so that they outlive the app."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from cleveragents.api.plans.available_actions import is_settled
from cleveragents.cli.run.background import start_unless_running
from cleveragents.core.errors import UnknownPlan
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.usage_wait import waiting_process

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.plans.model.plan import Plan

__all__ = ["PlanRunner"]

_LOOK_SECONDS = 0.1
_MOST_LOOKS = 300


class PlanRunner:
    """Starts a background process for each queued plan of this machine that no worker runs.

    Thread safety: the executor has its own lock; any thread may call `run`. The owner closes it.
    """

    def __init__(
        self,
        container: Container,
        overrides: Sequence[str],
        start: Callable[..., bool] = start_unless_running,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.container = container
        self._overrides = overrides
        self._start = start
        self._sleep = sleep
        self.failed: Callable[[BaseException], object] = lambda error: None
        """Called with the error if a plan cannot be started."""
        # One thread: two starts of the same plan would wait for each other's process.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="plan-runner")

    def run(self, plan: Plan) -> None:
        """Start the plan, or the tree it belongs to, soon. Returns at once."""
        self._threads.submit(self._ensure_run, plan.id).add_done_callback(self._report)

    def run_queued(self, plan_ids: Sequence[str]) -> None:
        """Start those of the plans that are still queued, for example because the app was killed before their
        processes started. Returns at once.
        """
        for plan_id in plan_ids:
            with suppress(UnknownPlan):  # deleted
                plan = self.container.plan_parts.plans.get(plan_id)
                if plan.state is PlanState.QUEUED and plan.phase is not Phase.APPLY:
                    self.run(plan)

    def close(self) -> None:
        """Wait until every plan has its process."""
        self._threads.shutdown(wait=True)

    def _report(self, ended: Future[None]) -> None:
        error = ended.exception()
        if error is not None:
            self.failed(error)

    def _ensure_run(self, plan_id: str) -> None:
        parts = self.container.plan_parts
        for _ in range(_MOST_LOOKS):
            plan = parts.plans.get(plan_id)
            waits = waiting_process(plan) is not None and not parts.lifecycle.is_abandoned(plan)
            if waits or is_settled(parts, plan) or parts.lifecycle.has_worker(plan):
                return
            root = plan if plan.parent_id is None else parts.plans.get(plan.root)
            if self._start(self.container.state_directory, root, self._overrides):
                return
            self._sleep(_LOOK_SECONDS)  # a process that is about to end does not see the plan
