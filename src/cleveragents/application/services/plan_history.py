"""What a plan has done so far, read from its records: the states its changes led to, call by call.

The records are the truth and the sandbox follows them: after an interruption it is brought back to what they
say. Nothing is ever taken out of them; a rollback is one more entry that leads back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleveragents.application.ports.changesets import ChangesetStore
from cleveragents.application.ports.plans import CallStore
from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.domain.change import RecordedChange
from cleveragents.domain.file_state import Difference, FileState, differences_of
from cleveragents.domain.tool import ToolCall
from cleveragents.errors import UnknownCheckpoint

__all__ = ["PlanHistory", "bring_to"]


class PlanHistory:
    """Reads a plan's records. Stateless but for its stores, so any thread may share it."""

    def __init__(self, changesets: ChangesetStore, calls: CallStore) -> None:
        self._changesets = changesets
        self._calls = calls

    def changes(self, plan_id: str) -> Sequence[RecordedChange]:
        """Every recorded change of the plan, in the order in which its changesets were begun."""
        return [
            change
            for changeset in self._changesets.of_plan(plan_id)
            for change in self._changesets.entries(changeset.id)
        ]

    def differences(self, plan_id: str) -> Mapping[str, Difference]:
        """What all of it comes to."""
        return differences_of(change.entry for change in self.changes(plan_id))

    def states(self, plan_id: str) -> dict[str, FileState | None]:
        """What the sandbox should hold where it differs from its base."""
        return {path: step.after for path, step in self.differences(plan_id).items()}

    def unrecorded(self, plan_id: str, sandbox: Sandbox) -> dict[str, Difference]:
        """Where the sandbox's files are not what the records add up to: the doing of whoever holds it."""
        recorded = self.differences(plan_id)
        found = sandbox.scan()
        differences: dict[str, Difference] = {}
        for path in sorted({*recorded, *found}):
            base = found[path].before if path in found else recorded[path].before
            before = recorded[path].after if path in recorded else base
            after = found[path].after if path in found else base
            if before != after:
                differences[path] = Difference(before, after)
        return differences

    def states_before(self, plan_id: str, checkpoint: int) -> dict[str, FileState | None]:
        """The same at a checkpoint: before the call of that number. `UnknownCheckpoint`."""
        later = self.calls_from(plan_id, checkpoint)
        changesets = {call.changeset_id for call in later}
        kept = [change for change in self.changes(plan_id) if change.changeset_id not in changesets]
        return {path: step.after for path, step in differences_of(c.entry for c in kept).items()}

    def calls(self, plan_id: str) -> Sequence[ToolCall]:
        return self._calls.of_plan(plan_id)

    def calls_from(self, plan_id: str, checkpoint: int) -> Sequence[ToolCall]:
        """The calls that a rollback to that checkpoint takes back. `UnknownCheckpoint`."""
        calls = self._calls.of_plan(plan_id)
        if not any(call.number == checkpoint for call in calls):
            raise UnknownCheckpoint(plan_id, str(checkpoint))
        return [call for call in calls if call.number >= checkpoint]


def bring_to(sandbox: Sandbox, states: Mapping[str, FileState | None]) -> None:
    """Makes the sandbox differ from its base exactly so. The caller holds `sandbox.writing()`.

    Ignored files stay as they are.
    """
    found = sandbox.scan()
    wanted: dict[str, FileState | None] = {path: step.before for path, step in found.items()}
    wanted |= states
    sandbox.restore(
        {path: state for path, state in wanted.items() if path not in found or found[path].after != state}
    )
