"""What a call that ended tells besides its end: that a sub-plan is merged, and what became of conflicts.

Told in the transaction that ends the call, whoever ends it: also one that finishes what another began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cleveragents.changes.model.merge_conflict import MergeOutcome, conflicts_ended, part_of_merge
from cleveragents.core.event import EventType
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.storage.columns import kept_text

__all__ = ["merge_facts"]


def merge_facts(call: ToolCall) -> Iterator[tuple[EventType, Mapping[str, JsonValue]]]:
    """The events of a call in its new state, in order. Of content they tell nothing but its path."""
    if call.state is not CallState.ENDED:
        return
    part = part_of_merge(call)
    if part is not None:
        yield from _merged(part, MergeOutcome.of_call(call))
    for merge, _ in conflicts_ended(call):
        result = call.result
        assert isinstance(result, Mapping)
        path, take = _shown(result.get("path")), result.get("take")
        yield EventType.CONFLICT_RESOLVED, {"number": call.number, "merge": merge, "path": path, "take": take}


def _merged(part: str, outcome: MergeOutcome) -> Iterator[tuple[EventType, Mapping[str, JsonValue]]]:
    open_ones = [conflict for conflict in outcome.conflicts if conflict.is_choice]
    whose: dict[str, JsonValue] = {"child": outcome.plan_id, "key": part}
    yield EventType.PLAN_MERGED, {**whose, "files": outcome.files, "conflicts": len(open_ones)}
    for conflict in open_ones:
        yield EventType.CONFLICT_KEPT, {**whose, "path": _shown(conflict.shown_path), "kind": conflict.kind}


def _shown(path: JsonValue) -> str:
    """As text that any store takes, and without what looks like a secret."""
    return kept_text(redact_text(str(path)))
