"""The contract of `Applier`, with its journal on every database."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from cleveragents.apply.applier import TreeApplier
from cleveragents.apply.journal import JournalEntry
from cleveragents.apply.ports import ApplyOptions, CommitRequest
from cleveragents.core.errors import ApplyBusy, ApplyConflict, ApplyRefused, Cancelled
from cleveragents.core.identifiers import UlidSource
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.storage.database import Database
from cleveragents.storage.tables import applies, changesets, outbox
from cleveragents.testing.clock import RaiseAt
from tests.apply_bench import World, world_at

LINES = b"1\n2\n3\n4\n5\n"


@pytest.fixture
def world(tmp_path: Path, database: Database) -> Iterator[World]:
    with world_at(tmp_path / "home", {"a": LINES, "b": b"x\n"}) as made:
        yield World(made.home, made.resource, database, TreeApplier(database, UlidSource()))


def rows(database: Database) -> list[tuple[str, str, str]]:
    with database.read() as connection:
        query = select(applies.c.plan_id, applies.c.kind, applies.c.state).order_by(applies.c.number)
        return [tuple(row) for row in connection.execute(query)]


def events(database: Database) -> list[tuple[str, str, dict[str, Any]]]:
    with database.read() as connection:
        found = connection.execute(select(outbox).order_by(outbox.c.number)).all()
    kept = [(row.event_type, row.subject, json.loads(row.payload)) for row in found]
    return [row for row in kept if row[0].startswith("apply.")]


def test_an_apply_and_its_undo_are_recorded_with_events(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:], "b": None})
    applied = world.apply("p")
    undone = world.undo("p")
    assert rows(world.database) == [("p", "apply", "done"), ("p", "undo", "done")]
    told = [
        (kind, subject, facts["apply_id"], facts["kind"]) for kind, subject, facts in events(world.database)
    ]
    assert told == [
        ("apply.started", "p", applied.id, "apply"),
        ("apply.ended", "p", applied.id, "apply"),
        ("apply.started", "p", undone.id, "undo"),
        ("apply.ended", "p", undone.id, "undo"),
    ]
    assert all(facts["files"] == 2 for _, _, facts in events(world.database))


def test_a_preparation_shows_changes_without_making_them(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:], "new": b"n\n"})
    before = world.files()
    with world.prepare("p") as preparation:
        assert preparation.conflicts == ()
        assert preparation.merged == world.trees["p"]
        assert preparation.changes.keys() == {"a", "new"}
        change = preparation.changes["new"]
        assert change.before is None
        assert change.after is not None
        assert world.sandboxes["p"].content(change.after.content) == b"n\n"
    assert world.files() == before
    assert rows(world.database) == []


def test_an_apply_without_changes_is_recorded(world: World) -> None:
    world.plan("p", {})
    assert dict(world.apply("p").changes) == {}
    assert rows(world.database) == [("p", "apply", "done")]
    assert [kind for kind, _, _ in events(world.database)] == ["apply.started", "apply.ended"]
    assert dict(world.undo("p").changes) == {}


def test_refuses_a_conflict_without_a_trace(world: World) -> None:
    world.plan("p", {"a": b"plan\n" + LINES[2:]})
    world.write({"a": b"mine\n" + LINES[2:]})
    before = world.files()
    with pytest.raises(ApplyConflict):
        world.apply("p")
    assert world.files() == before
    assert rows(world.database) == []


def test_a_failed_apply_is_recorded_as_undone(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:], "b": None})
    before = world.files()
    with pytest.raises(ApplyRefused):
        world.with_faults(RaiseAt("apply.move.after", lambda: OSError("no"))).apply("p")
    assert world.files() == before
    assert rows(world.database) == [("p", "apply", "undone")]
    assert [facts.get("done") for _, _, facts in events(world.database)] == [None, False]
    with pytest.raises(ApplyRefused, match="the plan has no apply to undo"):
        world.undo("p")


def test_a_file_of_an_earlier_apply_is_attributed_to_its_plan(world: World) -> None:
    for plan in ("first", "second", "third"):
        world.plan(plan, {"a": plan.encode() + b"\n" + LINES[2:]})
    world.apply("first")
    with world.prepare("second") as preparation:
        assert [conflict.cause for conflict in preparation.conflicts] == ["plan first"]
    world.undo("first")
    world.apply("third")
    with world.prepare("second") as preparation:
        assert [conflict.cause for conflict in preparation.conflicts] == ["plan third"]


def test_a_running_apply_is_awaited_reported_once_and_times_out(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:]})
    world.plan("q", {"b": b"y\n"})
    told: list[str] = []
    with world.prepare("p"):
        assert world.applier.is_busy(str(world.resource))
        again = world.applier.prepare(
            "q", world.sandboxes["q"], world.trees["q"], ApplyOptions(told.append, timeout_seconds=0.05)
        )
        with pytest.raises(ApplyBusy), again:
            pass
        assert len(told) == 1
        undo = world.applier.prepare_undo("q", world.sandboxes["q"], ApplyOptions(timeout_seconds=0.0))
        with pytest.raises(ApplyBusy), undo:
            pass
    assert not world.applier.is_busy(str(world.resource))
    assert not world.applier.is_busy(str(world.home / "nowhere"))
    world.apply("q")


def test_a_cancellation_ends_the_wait_for_another_apply(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:]})
    world.plan("q", {"b": b"y\n"})
    token = CancellationToken()
    waiting = ApplyOptions(lambda _: token.cancel("no more"), timeout_seconds=30, stop=token)
    with world.prepare("p"):
        again = world.applier.prepare("q", world.sandboxes["q"], world.trees["q"], waiting)
        with pytest.raises(Cancelled), again:
            pass
    world.apply("q")


def test_a_waiting_apply_continues_after_the_other(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:]})
    world.plan("q", {"b": b"y\n"})
    waits = threading.Event()
    done: list[str] = []

    def second() -> None:
        prepared = world.applier.prepare(
            "q", world.sandboxes["q"], world.trees["q"], ApplyOptions(lambda _: waits.set())
        )
        with prepared as preparation:
            preparation.apply()
            done.append("q")

    thread = threading.Thread(target=second)
    with world.prepare("p") as preparation:
        thread.start()
        assert waits.wait(20)
        preparation.apply()
        assert done == []
    thread.join(20)
    assert done == ["q"]
    assert (world.resource / "a").read_bytes() == b"one\n" + LINES[2:]
    assert (world.resource / "b").read_bytes() == b"y\n"


def test_the_conclusion_is_stored_with_the_end_or_not_at_all(world: World) -> None:
    seen: list[tuple[str, str, bool]] = []
    fails = [True]

    def conclude(connection: Connection, entry: JournalEntry, done: bool) -> None:
        connection.execute(insert(changesets), {"id": entry.id, "plan_id": entry.plan_id, "closed": done})
        if fails[0]:
            raise RuntimeError("cannot be kept")
        seen.append((entry.plan_id, entry.kind, done))

    world.plan("p", {"a": b"one\n" + LINES[2:]})
    world.applier = TreeApplier(world.database, UlidSource(), conclusion=conclude)
    with pytest.raises(RuntimeError, match="cannot be kept"):
        world.apply("p")
    assert rows(world.database) == [("p", "apply", "prepared")], (
        "the files are all new, and the next start sees it"
    )
    fails[0] = False
    (recovered,) = world.applier.recover()
    assert (recovered.plan_id, recovered.kind, recovered.completed) == ("p", "apply", True)
    assert seen == [("p", "apply", True)]
    world.undo("p")
    assert seen[1:] == [("p", "undo", True)]
    with pytest.raises(ApplyRefused):
        world.applier = TreeApplier(
            world.database,
            UlidSource(),
            conclusion=conclude,
            faults=RaiseAt("apply.move.after", lambda: OSError("no")),
        )
        world.apply("p")
    assert seen[2:] == [("p", "apply", False)]
    with world.database.read() as connection:
        assert len(connection.execute(select(changesets.c.id)).all()) == 3


def test_the_next_apply_recovers_an_interrupted_one(world: World) -> None:
    def never(connection: Connection, entry: JournalEntry, done: bool) -> None:
        raise RuntimeError("dies")

    world.plan("p", {"a": b"one\n" + LINES[2:]})
    world.plan("q", {"b": b"y\n"})
    dying = TreeApplier(world.database, UlidSource(), conclusion=never)
    prepared = dying.prepare("p", world.sandboxes["p"], world.trees["p"])
    with pytest.raises(RuntimeError), prepared as preparation:
        preparation.apply()
    world.apply("q")
    assert rows(world.database) == [("p", "apply", "done"), ("q", "apply", "done")]
    assert world.applier.recover() == []


def test_an_interrupted_apply_of_a_resource_that_is_gone_stays_open_until_given_up(
    world: World,
) -> None:
    def never(connection: Connection, entry: JournalEntry, done: bool) -> None:
        raise RuntimeError("dies")

    world.plan("p", {"a": b"one\n" + LINES[2:]})
    dying = TreeApplier(world.database, UlidSource(), conclusion=never)
    prepared = dying.prepare("p", world.sandboxes["p"], world.trees["p"])
    with pytest.raises(RuntimeError), prepared as preparation:
        preparation.apply()
    shutil.rmtree(world.resource)
    assert world.applier.recover() == []
    assert (rows(world.database), world.applier.undecided()) == ([("p", "apply", "prepared")], {"p"})
    assert world.applier.give_up("p") == [str(world.resource)]
    assert (rows(world.database), world.applier.undecided()) == ([("p", "apply", "undone")], frozenset())


def test_a_running_apply_is_not_recovered(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:], "b": b"y\n"})
    found: list[object] = []

    class Recovers:
        def reach(self, name: str) -> None:
            if name == "apply.move.after":
                found.extend(TreeApplier(world.database, UlidSource()).recover())

    world.with_faults(Recovers()).apply("p")
    assert found == []
    assert (world.resource / "b").read_bytes() == b"y\n"


def test_a_commit_is_reported(world: World) -> None:
    world.plan("p", {"a": b"one\n" + LINES[2:]})
    applied = world.apply("p", CommitRequest("words"))
    assert applied.commit == world.git("rev-parse", "HEAD")
    assert [facts["commit"] for _, _, facts in events(world.database)] == [applied.commit] * 2
