"""A fold always equals the sum of all changes, whichever process records them, and reads each once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cleveragents.changes.execution_context import ChangeFold
from cleveragents.core.change import (
    ChangeEntry,
    ChangeKind,
    Changeset,
    Difference,
    FileState,
    RecordedChange,
    differences_of,
)
from cleveragents.testing.changeset_store import InMemoryChangesetStore

paths = st.sampled_from("abc")
contents = st.none() | st.sampled_from("123")
modifications = st.builds(
    lambda path, before, after: ChangeEntry(ChangeKind.MODIFY, path, before_hash=before, after_hash=after),
    paths,
    contents,
    contents,
)
renames = st.builds(
    lambda path, old, content: ChangeEntry(
        ChangeKind.RENAME, path, before_hash=content, after_hash=content, old_path=old
    ),
    paths,
    paths,
    st.sampled_from("123"),
)
acts = st.lists(
    st.sampled_from(["start", "close", "look"])
    | st.tuples(st.integers(0, 5), st.lists(modifications | renames, min_size=1, max_size=3)),
    max_size=30,
)


class CountedReads(InMemoryChangesetStore):
    """Counts its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.handed_out = 0

    def of_plan(self, plan_id: str, *, after: str | None = None) -> Sequence[Changeset]:
        found = super().of_plan(plan_id, after=after)
        self.handed_out += len(found)
        return found

    def get(self, changeset_id: str) -> Changeset:
        self.handed_out += 1
        return super().get(changeset_id)

    def entries(self, changeset_id: str) -> Sequence[RecordedChange]:
        found = super().entries(changeset_id)
        self.handed_out += len(found)
        return found


def all_of(store: InMemoryChangesetStore) -> dict[str, Difference]:
    changes = [change for one in store.of_plan("plan") for change in store.entries(one.id)]
    return differences_of(change.entry for change in changes)


def written(number: int) -> ChangeEntry:
    before = None if number == 0 else str(number - 1)
    return ChangeEntry(ChangeKind.MODIFY, "f", before_hash=before, after_hash=str(number))


@given(acts)
def test_the_fold_always_equals_the_sum_of_all_changes(todo: list[object]) -> None:
    store, fold, still_open = InMemoryChangesetStore(), ChangeFold(), []
    store.start("another plan")
    for act in todo:
        if act == "start":
            still_open.append(store.start("plan"))
        elif act == "close" and still_open:
            store.close(still_open.pop(0))
        elif act == "look":
            assert fold.caught_up(store, "plan") == all_of(store)
        elif isinstance(act, tuple) and still_open:
            which, entries = act
            store.record_all(still_open[which % len(still_open)], entries)
    assert fold.caught_up(store, "plan") == all_of(store)


def test_folds_late_changes_in_order() -> None:
    store, fold = InMemoryChangesetStore(), ChangeFold()
    first, second = store.start("plan"), store.start("plan")
    store.record(second, written(1))
    assert fold.caught_up(store, "plan") == {
        "f": Difference(FileState(0o100644, "0"), FileState(0o100644, "1"))
    }
    store.record(first, written(0))
    assert fold.caught_up(store, "plan") == {"f": Difference(None, FileState(0o100644, "1"))}


def test_the_cost_of_a_change_does_not_grow() -> None:
    store, fold = CountedReads(), ChangeFold()
    store.start("plan")  # never closed: its process was killed
    costs = []
    for number in range(40):
        changeset = store.start("plan")
        fold.caught_up(store, "plan")
        store.record(changeset, written(number))
        store.close(changeset)
        store.handed_out = 0
        fold.caught_up(store, "plan")
        costs.append(store.handed_out)
    assert set(costs[1:]) == {costs[1]}
    assert costs[1] <= 4
