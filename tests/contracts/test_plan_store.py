"""The `SqlPlanStore` contract, over SQLite and PostgreSQL: every move is stored with its event."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from cleveragents.changes.model.review import Review, ReviewKind
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.errors import (
    AmbiguousPlan,
    CleverAgentsError,
    DatabaseFailed,
    IllegalPlanMove,
    InvalidPayload,
    StalePlan,
    UnknownChangeset,
    UnknownPlan,
)
from cleveragents.core.event import DomainEvent
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState
from cleveragents.plans.model.plan import Phase, PhaseState, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft, PlanFacts
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import LATER, NOW, PlanStand, check
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval

ODD = "ünï 😀 \0 \ud800 \udcff \\ \" ' % _"
MEGABYTE = "x✓" * (1 << 19)
SECRET = "hunter2-hunter2"

QUEUED = (Phase.STRATEGIZE, PlanState.QUEUED)
COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
CANCELLED = (Phase.EXECUTE, PlanState.CANCELLED)


@pytest.fixture
def stand(database: Database) -> PlanStand:
    return PlanStand(database)


def test_a_new_plan_is_queued_and_is_found_as_it_was_returned(stand: PlanStand) -> None:
    request = {"arguments": {"n": [1, 2.5, None, True]}, "deep": {"er": {}}}
    plan = stand.plan(goal="tidy", request=request)
    assert plan == Plan(
        id=plan.id, goal="tidy", action="a/b", resource="/r", phase=Phase.ACTION, state=PlanState.QUEUED,
        version=1, created_at=NOW, updated_at=NOW, request=FrozenObject(request),
        root_id=plan.id,
    )  # fmt: skip
    assert stand.plans.get(plan.id) == plan


def test_events_of_plans_contain_no_content(stand: PlanStand) -> None:
    plan = stand.plan(goal=SECRET, resource=SECRET, request={"a": SECRET})
    [(kind, subject, payload)] = stand.events()
    assert (kind, subject) == ("plan.created", plan.id)
    assert json.loads(payload) == {"phase": "action", "state": "queued", "action": "a/b"}


@pytest.mark.parametrize("text", [ODD, MEGABYTE, ""], ids=["odd", "long", "empty"])
def test_any_text_is_read_as_it_was_returned(stand: PlanStand, text: str) -> None:
    plan = stand.plan(goal=text, request={text: [text]}, resource=f"/home/{text[:1000]}")
    assert stand.plans.get(plan.id) == plan
    assert plan.request == {text: (text,)}
    assert plan.resource == f"/home/{text[:1000]}"
    assert plan.goal == text.replace("\0", "\\x00").replace("\ud800", "\\ud800").replace("\udcff", "\\udcff")
    facts = PlanFacts(strategy=[text], waiting_for={"what": text}, error=text)
    moved = stand.plans.move(plan, QUEUED, facts, now=LATER)
    assert stand.plans.get(plan.id) == moved
    assert (moved.strategy, moved.waiting_for) == ((text,), {"what": text})
    assert moved.error == plan.goal
    assert stand.plans.list(resource=plan.resource) == [moved]


BAD: list[dict[str, object]] = [
    {"request": {"a": float("nan")}},
    {"request": {"a": {1, 2}}},
    {"request": {"a": [FrozenObject({}), object()]}},
    {"action": "a\0b"},
    {"action": "half \ud800"},
]


def test_refuses_values_that_could_not_be_read_again(stand: PlanStand) -> None:
    for bad in BAD:
        with pytest.raises(InvalidPayload):
            stand.plan(**bad)
    assert not any(stand.rows().values())


def test_unstorable_facts_move_nothing(stand: PlanStand) -> None:
    plan = stand.plan()
    before = stand.rows()
    for facts in (
        PlanFacts(strategy=float("inf")),
        PlanFacts(job_id="\0"),
        PlanFacts(waiting_for={"a": object()}),
    ):
        with pytest.raises(InvalidPayload):
            stand.plans.move(plan, QUEUED, facts, now=LATER)
    assert stand.rows() == before


def test_a_list_in_a_request_may_hold_frozen_values(stand: PlanStand) -> None:
    plan = stand.plan(request={"steps": [FrozenObject({"tool": "edit"})]})
    assert stand.plans.get(plan.id).request == {"steps": (FrozenObject({"tool": "edit"}),)}


def test_plans_are_counted_by_phase_and_state(stand: PlanStand) -> None:
    assert stand.plans.counts() == {}
    stand.plan()
    stand.plan()
    stand.plans.move(stand.plan(), QUEUED, now=LATER)
    assert stand.plans.counts() == {(Phase.ACTION, PlanState.QUEUED): 2, QUEUED: 1}
    assert stand.plans.counts(scope=frozenset({"another"})) == {}


def test_a_plan_that_continued_after_a_wait_has_waited(stand: PlanStand) -> None:
    plan, other = stand.plan(), stand.plan()
    for phase_state in (
        QUEUED,
        *((Phase.STRATEGIZE, state) for state in (PlanState.PROCESSING, PlanState.WAITING)),
    ):
        plan = stand.plans.move(plan, phase_state, now=LATER)
        assert not stand.plans.has_waited(plan.id)
    stand.plans.move(plan, QUEUED, now=LATER)
    assert stand.plans.has_waited(plan.id)
    assert not stand.plans.has_waited(other.id)


def test_a_move_stores_its_facts_and_clears_error_and_request(stand: PlanStand) -> None:
    plan = stand.plan()
    facts = PlanFacts(strategy={"steps": [1]}, waiting_for="leave", error="no", job_id="j1")
    first = stand.plans.move(plan, QUEUED, facts, now=LATER)
    assert first == replace(
        plan, phase=Phase.STRATEGIZE, version=2, strategy=FrozenObject({"steps": (1,)}), waiting_for="leave",
        error="no", job_id="j1", updated_at=LATER,
    )  # fmt: skip
    assert stand.plans.get(plan.id) == first
    second = stand.plans.move(first, (Phase.STRATEGIZE, PlanState.PROCESSING), now=LATER)
    assert second == replace(first, state=PlanState.PROCESSING, version=3, waiting_for=None, error=None)
    assert stand.plans.get(plan.id) == second


def test_the_event_of_a_move_names_the_earlier_standing(stand: PlanStand) -> None:
    plan = stand.plan()
    events = stand.told(lambda: stand.plans.move(plan, QUEUED, PlanFacts(error=SECRET), now=LATER))
    [(kind, subject, payload)] = events
    assert (kind, subject) == ("plan.moved", plan.id)
    assert json.loads(payload) == {"phase": "strategize", "state": "queued", "was": "action/queued"}


def test_stores_a_whole_life_move_by_move(stand: PlanStand) -> None:
    plan = stand.processing()
    way: list[PhaseState] = [
        (Phase.EXECUTE, PlanState.WAITING),
        (Phase.EXECUTE, PlanState.QUEUED),
        (Phase.EXECUTE, PlanState.PROCESSING),
        (Phase.EXECUTE, PlanState.COMPLETE),
        (Phase.APPLY, PlanState.QUEUED),
        (Phase.APPLY, PlanState.PROCESSING),
        (Phase.APPLY, PlanState.CONSTRAINED),
        (Phase.APPLY, PlanState.QUEUED),
        (Phase.APPLY, PlanState.PROCESSING),
        (Phase.APPLY, PlanState.APPLIED),
        (Phase.APPLY, PlanState.UNDONE),
    ]
    for phase_state, version in zip(way, count(plan.version + 1), strict=False):
        plan = stand.plans.move(plan, phase_state, now=LATER)
        assert (plan.phase_state, plan.version) == (phase_state, version)
        assert stand.plans.get(plan.id) == plan
    told = [json.loads(payload) for kind, _, payload in stand.events() if kind == "plan.moved"]
    assert len(told) == plan.version - 1
    assert [move["was"] for move in told[1:]] == [f"{m['phase']}/{m['state']}" for m in told[:-1]]


def test_an_illegal_move_changes_nothing_and_has_no_event(stand: PlanStand) -> None:
    plan = stand.plan()
    before = stand.rows()
    with pytest.raises(IllegalPlanMove, match=f"plan {plan.id} is action/queued and cannot become"):
        stand.plans.move(plan, (Phase.APPLY, PlanState.APPLIED), now=LATER)
    assert stand.rows() == before


def test_a_queue_is_assigned_to_the_version_that_was_read(stand: PlanStand) -> None:
    plan = stand.plan(request={"profile": "manual"})
    shared = stand.plans.assign_queue(plan, "plans@here", now=LATER)
    assert stand.plans.get(plan.id) == shared
    assert shared.request == FrozenObject({"profile": "manual", "queue": "plans@here"})
    with pytest.raises(StalePlan):
        stand.plans.assign_queue(plan, "plans@there", now=LATER)
    with pytest.raises(StalePlan):
        stand.plans.move(plan, QUEUED, now=LATER)
    assert stand.plans.assign_queue(shared, None, now=LATER).request == FrozenObject({"profile": "manual"})


def test_refuses_a_stale_version(stand: PlanStand) -> None:
    plan = stand.plan()
    stand.plans.move(plan, QUEUED, now=NOW)
    before = stand.rows()
    # Once legal from the earlier standing, once not: stale comes first.
    for wanted in (QUEUED, (Phase.APPLY, PlanState.APPLIED)):
        with pytest.raises(StalePlan, match="version 1"):
            stand.plans.move(plan, wanted, now=LATER)
    with pytest.raises(StalePlan):
        stand.plans.delete(plan, now=LATER)
    with pytest.raises(StalePlan):
        stand.plans.move(replace(plan, version=99), QUEUED, now=LATER)
    assert stand.rows() == before


def test_every_call_refuses_an_unknown_plan(stand: PlanStand) -> None:
    ghost = replace(stand.plan(), id="0GHOST")
    before = stand.rows()
    for call in (
        lambda: stand.plans.get("0GHOST"),
        lambda: stand.plans.get(ODD),
        lambda: stand.plans.find("0GHOST"),
        lambda: stand.plans.move(ghost, QUEUED, now=NOW),
        lambda: stand.plans.delete(ghost, now=NOW),
    ):
        with pytest.raises(UnknownPlan):
            call()
    assert stand.rows() == before


def test_stores_no_secret_of_an_error(stand: PlanStand) -> None:
    error = f"cannot reach postgresql://bob:{SECRET}@db with PGPASSWORD={SECRET}"
    moved = stand.plans.move(stand.plan(), QUEUED, PlanFacts(error=error), now=NOW)
    assert moved.error == "cannot reach postgresql://bob:***@db with PGPASSWORD=***"
    assert SECRET not in repr(stand.rows())


IDS = ["01J0AAAA11", "01J0AAAB22", "01J0BBBB01J", "02K0CCCC33"]


def test_finds_a_plan_by_either_end_of_its_id(stand: PlanStand) -> None:
    for plan_id in IDS:
        stand.identifiers.given = [plan_id]
        stand.plan()
    for said, found in {
        "01J0AAAA11": 0, "01J0AAAA": 0, "01j0aaab": 1, "22": 1, "c33": 3, "BB01J": 2, "02": 3,
    }.items():  # fmt: skip
        assert stand.plans.find(said).id == IDS[found]
    for said, fit in {"01J0AAA": IDS[:2], "01J0": IDS[:3], "01J": IDS[:3]}.items():
        with pytest.raises(AmbiguousPlan) as refused:
            stand.plans.find(said)
        assert refused.value.matches == tuple(fit)
    for said in ("", "%", "_", "01J0AAA_11", "J0AAA", "é", "\0", "\ud800", "0" * 65, "0 "):
        with pytest.raises(UnknownPlan):
            stand.plans.find(said)


def test_lists_plans_by_id_state_resource_and_cursor(stand: PlanStand) -> None:
    made = sorted((stand.plan(resource=f"/{n % 2}") for n in range(5)), key=lambda plan: plan.id)
    assert stand.plans.list() == made
    assert stand.plans.list(resource="/0") == [plan for plan in made if plan.resource == "/0"]
    assert stand.plans.list(resource="/") == []
    moved = stand.plans.move(made[2], (Phase.ACTION, PlanState.CANCELLED), now=LATER)
    assert stand.plans.list(states=[PlanState.CANCELLED]) == [moved]
    assert stand.plans.list(states=[PlanState.CANCELLED], resource="/none") == []
    assert len(stand.plans.list(states=[PlanState.CANCELLED, PlanState.QUEUED])) == 5
    assert stand.plans.list(states={PlanState.APPLIED}) == []
    seen: list[Plan] = []
    while page := stand.plans.list(limit=2, after=seen[-1].id if seen else None):
        assert len(page) <= 2
        seen.extend(page)
    assert seen == list(stand.plans.list())
    assert stand.plans.list(limit=0) == []
    with pytest.raises(InvalidPayload):
        stand.plans.list(after="\0")


def test_deletes_all_records_of_a_plan_and_no_others(stand: PlanStand) -> None:
    kept, plan = stand.plan(), stand.plan()
    stand.fill(kept)
    wanted = stand.rows()
    del wanted["outbox"]
    plan_rows = wanted.pop("plans")
    stand.fill(plan)
    stand.keep_sandbox(plan)
    told = stand.told(lambda: stand.plans.delete(plan, now=LATER))
    assert [(kind, subject) for kind, subject, _ in told] == [("plan.deleted", plan.id)]
    rows = stand.rows()
    # The row of its sandbox stays until the sandbox is removed.
    assert [row[0] for row in rows["sandboxes"]] == [plan.id]
    assert rows["plans"] == [row for row in plan_rows if kept.id in row]
    changed = {"sandboxes": rows["sandboxes"], "deleted_plans": [(plan.id, "default")]}
    assert {name: rows[name] for name in wanted} == wanted | changed
    with pytest.raises(UnknownPlan):
        stand.plans.delete(plan, now=LATER)


def test_a_late_write_does_not_restore_a_deleted_plan(stand: PlanStand) -> None:
    """langchain-ai/langgraph#7206: late writes resurrected a deleted thread."""
    plan = stand.plan()
    asked = stand.call(plan, CallState.ASKED)
    stand.plans.delete(plan, now=LATER)
    before = stand.rows()
    for write in (
        lambda: stand.call(plan),
        lambda: stand.calls.move(asked, CallState.STARTED, now=LATER),
        lambda: stand.calls.answer(plan.id, asked.number, "granted", now=LATER),
        lambda: stand.checks.record(check(plan)),
        lambda: stand.reviews.set(Review(plan.id, ReviewKind.PATH, "f", accepted=False), now=LATER),
        lambda: stand.plans.move(plan, QUEUED, now=LATER),
    ):
        with pytest.raises(UnknownPlan):
            write()
    assert stand.rows() == before


# Each is one step of a store on a plan and its pending call; the last id it takes is the event's.
STEPS: dict[str, tuple[int, Callable[[PlanStand, Plan], object]]] = {
    "create": (1, lambda stand, plan: stand.plan()),
    "move": (0, lambda stand, plan: stand.plans.move(plan, QUEUED, now=LATER)),
    "delete": (0, lambda stand, plan: stand.plans.delete(plan, now=LATER)),
    "call": (1, lambda stand, plan: stand.call(plan)),
    "ask": (1, lambda stand, plan: stand.call(plan, CallState.ASKED)),
    "answer": (0, lambda stand, plan: stand.calls.answer(plan.id, 1, "denied", now=LATER)),
    "start": (0, lambda stand, plan: stand.calls.move(
        stand.calls.of_plan(plan.id)[0], CallState.STARTED, now=LATER)),
    "end": (0, lambda stand, plan: stand.calls.move(
        stand.calls.of_plan(plan.id)[0], CallState.FAILED, now=LATER)),
    "check": (0, lambda stand, plan: stand.checks.record(check(plan))),
    "review": (0, lambda stand, plan: stand.reviews.set(
        Review(plan.id, ReviewKind.PATH, "f", accepted=False), now=LATER)),
}  # fmt: skip


def test_a_step_without_its_event_is_not_made(stand: PlanStand) -> None:
    """The id of the event is taken, so its insert fails after the step's own rows were written."""
    stand.identifiers.given = ["0PLAN", "0EVENT"]
    plan = stand.plan()
    stand.call(plan, CallState.ASKED)
    before = stand.rows()
    for ids, step in STEPS.values():
        stand.identifiers.given = [f"0NEW{number}" for number in range(ids)] + ["0EVENT"]
        with pytest.raises(DatabaseFailed):
            step(stand, plan)
        assert stand.identifiers.given == []
        assert stand.rows() == before


def test_listeners_get_each_event_once_after_the_commit(stand: PlanStand) -> None:
    for _, step in STEPS.values():
        plan = stand.plan()
        stand.call(plan, CallState.ASKED)
        before, heard = stand.rows(), []

        def listen(events: Sequence[DomainEvent], heard: list[object] = heard) -> None:
            heard.append((len(events), stand.rows()))

        remove = stand.database.add_commit_listener(listen)
        step(stand, plan)
        remove()
        after = stand.rows()
        assert heard == [(1, after)]
        assert len(after["outbox"]) == len(before["outbox"]) + 1
        assert {name for name in after if after[name] != before[name]} > {"outbox"}


def test_a_duplicate_id_creates_no_plan_and_no_event(stand: PlanStand) -> None:
    plan = stand.plan()
    before = stand.rows()
    stand.identifiers.given = [plan.id]
    with pytest.raises(CleverAgentsError):
        stand.plans.create(PlanDraft("other", "c/d", "/elsewhere"), now=LATER)
    assert stand.rows() == before


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_exactly_one_of_many_moves_from_one_version_succeeds(stand: PlanStand, interval: float) -> None:
    plan = stand.processing()
    won: list[tuple[PhaseState, str]] = []
    lost: list[int] = []

    def work(number: int) -> None:
        wanted = (COMPLETE, CANCELLED)[number % 2]
        try:
            stand.plans.move(plan, wanted, PlanFacts(error=str(number)), now=LATER)
            won.append((wanted, str(number)))
        except StalePlan:
            lost.append(number)

    told = len(stand.events())
    with switch_interval(interval):
        hammer(work)
    end = stand.plans.get(plan.id)
    assert (len(won), len(lost)) == (1, 7)
    assert won == [(end.phase_state, end.error)]
    assert end.version == plan.version + 1
    assert len(stand.events()) == told + 1


def test_counts_every_concurrent_move(stand: PlanStand) -> None:
    """A retry after `StalePlan` is enough: no move is lost or made twice."""
    plan = stand.processing()

    def work(number: int) -> None:
        for _ in range(5):
            while True:
                try:
                    stand.plans.move(stand.plans.get(plan.id), plan.phase_state, now=LATER)
                    break
                except StalePlan:
                    continue

    told = len(stand.events())
    hammer(work, threads=4)
    assert stand.plans.get(plan.id).version == plan.version + 20
    assert len(stand.events()) == told + 20


def test_deletes_a_plan_while_changes_are_recorded(
    stand: PlanStand,
) -> None:
    for _ in range(4):
        plan = stand.plan()
        changesets = [stand.changesets.start(plan.id) for _ in range(3)]

        def work(number: int, plan: Plan = plan, changesets: list[str] = changesets) -> None:
            if number == 3:
                stand.plans.delete(plan, now=LATER)
                return
            try:
                for entry in range(20):
                    stand.changesets.record(changesets[number], ChangeEntry(ChangeKind.CREATE, f"f{entry}"))
            except UnknownChangeset:
                pass

        hammer(work, threads=4)
        rows = stand.rows()
        assert (rows["plans"], rows["changesets"], rows["change_entries"]) == ([], [], [])


def test_a_list_has_no_answers_and_a_move_of_a_listed_plan_keeps_its_answer(stand: PlanStand) -> None:
    plan = stand.processing()
    plan = stand.plans.move(
        plan, (Phase.EXECUTE, PlanState.COMPLETE), PlanFacts(answer="It returns 1."), now=NOW
    )
    (listed,) = stand.plans.list()
    assert (listed.answer, stand.plans.get(plan.id).answer) == (None, "It returns 1.")
    moved = stand.plans.move(listed, (Phase.APPLY, PlanState.REJECTED), now=NOW)
    assert moved.answer == "It returns 1."
