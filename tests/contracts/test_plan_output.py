"""Output of plans: numbered without a gap, bounded, masked, deleted with its plan."""

from __future__ import annotations

import threading

import pytest

from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import OutputPiece, PlanOutput
from cleveragents.plans.store.sql_plan_output import OUTPUT_BYTES, SqlPlanOutput
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import LATER, NOW, PlanStand


@pytest.fixture
def stand(database: Database) -> PlanStand:
    return PlanStand(database)


@pytest.fixture
def output(database: Database) -> PlanOutput:
    return SqlPlanOutput(database)


def texts(output: PlanOutput, plan_id: str, after: int = 0) -> list[tuple[int, str]]:
    return [(piece.number, piece.text) for piece in output.read(plan_id, after=after)]


def test_pieces_are_numbered_from_1_for_each_plan(stand: PlanStand, output: PlanOutput) -> None:
    one, other = stand.plan(), stand.plan()
    output.append(one.id, [("progress", "a\n"), ("output", "b")], now=NOW)
    output.append(other.id, [("output", "z")], now=NOW)
    output.append(one.id, [("model", "c")], now=LATER)
    assert output.read(one.id) == [
        OutputPiece(one.id, 1, "progress", "a\n", NOW),
        OutputPiece(one.id, 2, "output", "b", NOW),
        OutputPiece(one.id, 3, "model", "c", LATER),
    ]
    assert texts(output, other.id) == [(1, "z")]


def test_a_reader_continues_after_a_number(stand: PlanStand, output: PlanOutput) -> None:
    plan = stand.plan()
    output.append(plan.id, [("output", text) for text in "abcde"], now=NOW)
    assert texts(output, plan.id, after=3) == [(4, "d"), (5, "e")]
    assert [piece.number for piece in output.read(plan.id, after=1, limit=2)] == [2, 3]
    assert texts(output, plan.id, after=5) == []


def test_numbers_concurrent_appends_without_a_gap(stand: PlanStand, output: PlanOutput) -> None:
    plan = stand.plan()
    start = threading.Barrier(4)

    def add(name: str) -> None:
        start.wait(30)
        for number in range(5):
            output.append(plan.id, [("output", f"{name}{number}"), ("output", "|")], now=NOW)

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    kept = texts(output, plan.id)
    assert [number for number, _ in kept] == list(range(1, 41))
    # One call is atomic, and the pieces of each thread stay in order.
    assert [text for _, text in kept][1::2] == ["|"] * 20
    for name in "abcd":
        assert [text for _, text in kept if text.startswith(name)] == [f"{name}{n}" for n in range(5)]


def test_drops_the_oldest_pieces_beyond_the_bound(stand: PlanStand, database: Database) -> None:
    output = SqlPlanOutput(database, bound_bytes=10)
    plan = stand.plan()
    for text in ("1234", "5678", "90"):
        output.append(plan.id, [("output", text)], now=NOW)
    assert texts(output, plan.id) == [(1, "1234"), (2, "5678"), (3, "90")]
    output.append(plan.id, [("output", "a")], now=NOW)
    assert texts(output, plan.id) == [(1, "1234"), (2, "5678"), (3, "90"), (4, "a")]
    output.append(plan.id, [("output", "bcd")], now=NOW)
    assert texts(output, plan.id) == [(2, "5678"), (3, "90"), (4, "a"), (5, "bcd")]
    output.append(plan.id, [("output", "é" * 5), ("output", "x" * 30)], now=NOW)
    assert texts(output, plan.id) == [(7, "x" * 30)]
    output.append(plan.id, [("output", "y")], now=NOW)
    # A piece stays as long as any of it is within the bound.
    assert texts(output, plan.id) == [(7, "x" * 30), (8, "y")]


def test_a_text_larger_than_the_bound_keeps_its_end(stand: PlanStand, output: PlanOutput) -> None:
    plan = stand.plan()
    output.append(plan.id, [("output", "a" * OUTPUT_BYTES + "b" * 20_000 + "end")], now=NOW)
    kept = texts(output, plan.id)
    whole = "".join(text for _, text in kept)
    assert whole.endswith("b" * 20_000 + "end")
    assert OUTPUT_BYTES - 16 * 1024 <= len(whole) <= OUTPUT_BYTES + 16 * 1024
    assert [number for number, _ in kept] == list(range(kept[0][0], kept[-1][0] + 1))
    assert kept[0][0] > 1


def test_masks_secrets_before_storing(stand: PlanStand, output: PlanOutput) -> None:
    plan = stand.plan()
    # Across the border at which a long text is cut.
    planted = "x" * 16_374 + " password=hunter2-hunter2 "
    output.append(plan.id, [("output", planted), ("model", "token: abcdefgh12345678")], now=NOW)
    whole = "".join(text for _, text in texts(output, plan.id))
    assert "hunter2" not in whole
    assert "abcdefgh" not in whole
    assert "password=***" in whole


def test_replaces_characters_that_no_database_stores(stand: PlanStand, output: PlanOutput) -> None:
    plan = stand.plan()
    output.append(plan.id, [("output", "a\0b\ud800c")], now=NOW)
    assert texts(output, plan.id) == [(1, "a\ufffdb?c")]


def test_empty_text_adds_no_piece(stand: PlanStand, output: PlanOutput) -> None:
    plan = stand.plan()
    output.append(plan.id, [], now=NOW)
    output.append(plan.id, [("output", "")], now=NOW)
    assert texts(output, plan.id) == []
    assert texts(output, "no\0plan") == []


def test_output_is_deleted_with_its_plan(stand: PlanStand, output: PlanOutput) -> None:
    plan, other = stand.plan(), stand.plan()
    plan = stand.plans.move(plan, (Phase.STRATEGIZE, PlanState.QUEUED), now=NOW)
    output.append(plan.id, [("output", "a")], now=NOW)
    output.append(other.id, [("output", "stays")], now=NOW)
    stand.plans.delete(plan, now=NOW)
    assert texts(output, plan.id) == []
    output.append(plan.id, [("output", "too late")], now=NOW)
    assert texts(output, plan.id) == []
    assert texts(output, other.id) == [(1, "stays")]
