"""A plan's result: what its recorded changes, less what the reviewer left out, come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleveragents.changes.model.review import Review, ReviewKind, accepted_states
from cleveragents.core.clock import Clock
from cleveragents.core.errors import PlanError
from cleveragents.core.errors.remedy import Remedy
from cleveragents.core.file_state import FileState
from cleveragents.plans.history import PlanHistory
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import ReviewStore
from cleveragents.sandboxes.ports import Sandbox

__all__ = ["PlanResult"]


@dataclass(frozen=True, slots=True)
class PlanResult:
    """Computes results from records; reads the sandbox's content, not its files. Stateless."""

    history: PlanHistory
    reviews: ReviewStore
    clock: Clock

    def states(self, plan: Plan, sandbox: Sandbox) -> dict[str, FileState | None]:
        """What the accepted changes lead to, where it differs from the base. `PlanError`."""
        return accepted_states(
            plan.id, self.history.changes(plan.id), self.reviews.of_plan(plan.id), sandbox.merge_content
        )

    def tree(self, plan: Plan, sandbox: Sandbox) -> str:
        """The name of the tree that would be applied."""
        return sandbox.tree(self.states(plan, sandbox))

    def diff(
        self, plan: Plan, sandbox: Sandbox, *, options: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> bytes:
        """git's own difference between the base and that tree."""
        return sandbox.diff(self.tree(plan, sandbox), options=options, paths=paths)

    def review(self, plan: Plan, kind: ReviewKind, subject: str, *, accepted: bool) -> None:
        """Accepts or leaves out a file or a changeset. `PlanError` if the plan has no such change."""
        known = {
            subject_of
            for change in self.history.changes(plan.id)
            for subject_of in (
                (change.changeset_id,)
                if kind is ReviewKind.CHANGESET
                else (change.entry.path, change.entry.old_path)
            )
        }
        if subject not in known:
            what = "changeset" if kind is ReviewKind.CHANGESET else "file"
            diff = Remedy("plan.diff", plan.id, text="Show its changes")
            raise PlanError(plan.id, f"it changed no {what} {subject!r}", (diff,))
        self.reviews.set(Review(plan.id, kind, subject, accepted), now=self.clock.now())
