"""The contracts of `SqlCallStore`, `SqlCheckStore` and `SqlReviewStore`, on both databases."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from msgspec.structs import replace

from cleveragents.changes.model.review import Review, ReviewKind
from cleveragents.core.actions.model import CheckVerdict
from cleveragents.core.errors import InvalidPayload, PlanError, StaleFence, StalePlan, UnknownPlan
from cleveragents.core.identifiers import Fence, IdentifierSource, WorkerIdentity
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.model.job import NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import LATER, NOW, PlanStand, check
from tests.races.hammer import hammer

ODD = "ünï 😀 \0 \ud800 \udcff \\ \" ' % _"
MEGABYTE = "x✓" * (1 << 19)
SECRET = "hunter2-hunter2"


@pytest.fixture
def stand(database: Database) -> PlanStand:
    return PlanStand(database)


def spelt_out(text: str) -> str:
    return text.replace("\0", "\\x00").replace("\ud800", "\\ud800").replace("\udcff", "\\udcff")


def test_calls_are_numbered_from_one_within_their_plan(stand: PlanStand) -> None:
    one, other = stand.plan(), stand.plan()
    calls = [stand.call(one), stand.call(other), stand.call(one), stand.call(one)]
    assert [call.number for call in calls] == [1, 1, 2, 3]
    assert stand.calls.of_plan(one.id) == [calls[0], calls[2], calls[3]]
    assert stand.calls.of_plan(other.id) == [calls[1]]
    assert len({call.call_id for call in calls}) == 4


def test_finds_the_calls_of_a_step(stand: PlanStand) -> None:
    plan, other = stand.plan(), stand.plan()

    def added(plan_id: str, step: str | None) -> ToolCall:
        return stand.calls.add(plan_id, "write", {}, step=step, state=CallState.ENDED, now=NOW)

    steps = ["1", "2.call_a", None, "1", "2.call_b", "2", None]
    calls = [added(plan.id, step) for step in steps]
    for step in steps:
        added(other.id, step)
        assert stand.calls.of_step(plan.id, step) == [call for call in calls if call.step == step]
    for step in ("", "3", "2.", "no\0step", "no\udcffstep"):
        assert stand.calls.of_step(plan.id, step) == []
    assert stand.calls.of_step("no\0plan", "1") == []


def test_limits_the_length_of_a_step_name(stand: PlanStand) -> None:
    plan = stand.plan()
    # Characters that do not compress well.
    step = "2." + "".join(chr(0x1F300 + 7919 * n % 1000) for n in range(498))
    call = stand.calls.add(plan.id, "write", {}, step=step, state=CallState.ENDED, now=NOW)
    assert stand.calls.of_step(plan.id, step) == [call]
    with pytest.raises(InvalidPayload, match="500 characters"):
        stand.calls.add(plan.id, "write", {}, step=f"{step}!", state=CallState.ENDED, now=NOW)
    assert stand.calls.of_plan(plan.id) == [call]


def test_adds_a_call_only_to_the_version_that_was_seen(stand: PlanStand) -> None:
    plan = stand.plan()
    facts = {"step": None, "state": CallState.STARTED, "now": NOW}
    call = stand.calls.add(plan.id, "rebase", {}, version=plan.version, **facts)
    moved = stand.plans.move(plan, (Phase.ACTION, PlanState.CANCELLED), now=NOW)
    with pytest.raises(StalePlan):
        stand.calls.add(plan.id, "rebase", {}, version=plan.version, **facts)
    assert stand.calls.of_plan(plan.id) == [call]
    assert stand.calls.add(plan.id, "rebase", {}, version=moved.version, **facts).number == 2


def test_a_call_is_read_as_it_was_returned(stand: PlanStand) -> None:
    plan = stand.plan()
    for text in (ODD, MEGABYTE, ""):
        arguments = {text: [text, {"n": 2**70}]}
        call = stand.calls.add(plan.id, "write", arguments, step=None, state=CallState.STARTED, now=NOW)
        assert call == ToolCall(
            plan.id, call.number, call.call_id, "write", FrozenObject(arguments), CallState.STARTED, NOW
        )
        assert stand.calls.of_plan(plan.id)[-1] == call
        moved = stand.calls.move(call, CallState.FAILED, now=LATER, result=[text], error=text)
        assert stand.calls.of_plan(plan.id)[-1] == moved
        assert (moved.result, moved.error) == ((text,), spelt_out(text))


def test_stores_no_secret_of_an_error_of_a_call(stand: PlanStand) -> None:
    error = f"curl: PGPASSWORD={SECRET} was refused by https://bob:{SECRET}@host"
    moved = stand.calls.move(stand.call(stand.plan()), CallState.FAILED, now=NOW, error=error)
    assert moved.error == "curl: PGPASSWORD=*** was refused by https://bob:***@host"
    assert SECRET not in repr(stand.rows())


def test_refuses_values_that_json_cannot_store(stand: PlanStand) -> None:
    plan = stand.plan()
    call = stand.call(plan, CallState.ASKED)
    before = stand.rows()
    started = CallState.STARTED
    for write in (
        lambda: stand.calls.add(plan.id, "w", {"a": float("nan")}, step=None, state=started, now=NOW),
        lambda: stand.calls.add(plan.id, "w\0", {}, step=None, state=started, now=NOW),
        lambda: stand.calls.add(plan.id, "w", {}, step="\ud800", state=started, now=NOW),
        lambda: stand.calls.move(call, started, now=NOW, result={1, 2}),
        lambda: stand.calls.move(call, started, now=NOW, changeset_id="\0"),
        lambda: stand.calls.answer(plan.id, 1, "perhaps", now=NOW),
        lambda: stand.checks.record(check(plan, name="\0")),
        lambda: stand.checks.record(check(plan, tree="\ud800")),
    ):
        with pytest.raises(InvalidPayload):
            write()
    assert stand.rows() == before
    assert stand.call(plan).number == 2


def test_refuses_records_of_an_unknown_plan(stand: PlanStand) -> None:
    for plan_id in ("0GHOST", ODD):
        ghost = replace(stand.plan(), id=plan_id)
        call = replace(stand.call(stand.plan()), plan_id=plan_id)
        before = stand.rows()
        for write in (
            lambda ghost=ghost: stand.call(ghost),
            lambda call=call: stand.calls.move(call, CallState.ENDED, now=NOW),
            lambda ghost=ghost: stand.calls.answer(ghost.id, 1, "granted", now=NOW),
            lambda ghost=ghost: stand.checks.record(check(ghost)),
            lambda ghost=ghost: stand.reviews.set(Review(ghost.id, ReviewKind.PATH, "f", True), now=NOW),
        ):
            with pytest.raises(UnknownPlan):
                write()
        assert stand.rows() == before
        assert stand.calls.of_plan(plan_id) == []
        assert stand.checks.of_plan(plan_id) == []
        assert stand.reviews.of_plan(plan_id) == []


def test_a_move_keeps_unnamed_facts(stand: PlanStand) -> None:
    call = stand.call(stand.plan())
    changeset = stand.changesets.start(call.plan_id)
    started = stand.calls.move(call, CallState.STARTED, now=LATER, changeset_id=changeset)
    assert started == replace(call, changeset_id=changeset, started_at=LATER)  # it starts again
    ending = stand.calls.move(started, CallState.ENDING, now=LATER, result={"n": 1}, error="half")
    assert ending == replace(started, state=CallState.ENDING, result=FrozenObject({"n": 1}), error="half")
    ended = stand.calls.move(ending, CallState.ENDED, now=LATER)
    assert ended == replace(ending, state=CallState.ENDED, ended_at=LATER)
    reverted = stand.calls.move(ended, CallState.REVERTED, now=LATER.replace(year=2030))
    assert reverted == replace(ended, state=CallState.REVERTED)
    assert stand.calls.of_plan(call.plan_id) == [reverted]


def test_refuses_a_move_of_a_stale_call(stand: PlanStand) -> None:
    call = stand.call(stand.plan())
    stand.calls.move(call, CallState.ENDING, now=NOW)
    before = stand.rows()
    with pytest.raises(StalePlan):
        stand.calls.move(call, CallState.FAILED, now=LATER)
    with pytest.raises(PlanError, match="no call 9"):
        stand.calls.move(replace(call, number=9), CallState.FAILED, now=LATER)
    assert stand.rows() == before


def test_events_of_calls_contain_no_content(stand: PlanStand) -> None:
    plan = stand.plan()
    asked = stand.calls.add(plan.id, "run", {"x": SECRET}, step=SECRET, state=CallState.ASKED, now=NOW)
    answered = stand.calls.answer(plan.id, asked.number, "granted", now=NOW)
    started = stand.calls.move(answered, CallState.STARTED, now=NOW)
    ending = stand.calls.move(started, CallState.ENDING, now=NOW, result=SECRET, error=SECRET)
    stand.calls.move(ending, CallState.FAILED, now=NOW)
    stand.call(plan)
    events = stand.events()
    assert [kind for kind, _, _ in events] == [
        "plan.created", "approval.requested", "approval.given", "tool_call.started", "tool_call.ended",
        "tool_call.started",
    ]  # fmt: skip
    assert {subject for _, subject, _ in events} == {plan.id}
    assert SECRET not in repr(events)
    told = {"number": 1, "tool": "run", "approval": "granted"}
    assert [json.loads(payload) for _, _, payload in events[2:5]] == [
        {**told, "state": "asked"},
        {**told, "state": "started"},
        {**told, "state": "failed"},
    ]


def test_the_first_answer_stays(stand: PlanStand) -> None:
    plan = stand.plan()
    asked = stand.call(plan, CallState.ASKED)
    assert stand.calls.answer(plan.id, 1, "denied", now=LATER) == replace(asked, approval="denied")
    before = stand.rows()
    for again in ("granted", "denied"):
        with pytest.raises(PlanError, match="call 1 is not pending"):
            stand.calls.answer(plan.id, 1, again, now=LATER)
    assert stand.rows() == before
    assert stand.calls.of_plan(plan.id) == [replace(asked, approval="denied")]


def test_only_a_pending_call_can_be_answered(stand: PlanStand) -> None:
    plan = stand.plan()
    stand.call(plan)
    before = stand.rows()
    with pytest.raises(PlanError, match="call 1 is not pending"):
        stand.calls.answer(plan.id, 1, "granted", now=NOW)
    with pytest.raises(PlanError, match="no call 2"):
        stand.calls.answer(plan.id, 2, "granted", now=NOW)
    assert stand.rows() == before


def test_an_answer_survives_a_concurrent_move(stand: PlanStand) -> None:
    plan = stand.plan()
    asked = stand.call(plan, CallState.ASKED)
    stand.calls.answer(plan.id, 1, "denied", now=NOW)
    failed = stand.calls.move(asked, CallState.FAILED, now=LATER)
    assert failed.approval == "denied"
    assert stand.calls.of_plan(plan.id) == [failed]


def test_stores_checks_in_order_with_their_trees(stand: PlanStand) -> None:
    plan, other = stand.plan(), stand.plan()
    runs = [
        check(plan, command=MEGABYTE, details=MEGABYTE),
        check(plan, verdict=CheckVerdict.VOID, required=False, ended_at=LATER),
        check(plan, tree="t2", verdict=CheckVerdict.NOT_RUN),
        check(plan, tree="t2", verdict=CheckVerdict.FAILED),
    ]
    for run in runs:
        stand.checks.record(run)
    stand.checks.record(check(other, command=ODD, details=ODD))
    assert stand.checks.of_plan(plan.id) == runs
    assert stand.checks.of_plan(other.id) == [check(other, command=spelt_out(ODD), details=spelt_out(ODD))]


def test_the_event_of_a_check_has_name_and_verdict(stand: PlanStand) -> None:
    plan = stand.plan()
    run = check(plan, command=SECRET, details=SECRET, verdict=CheckVerdict.FAILED)
    [(kind, subject, payload)] = stand.told(lambda: stand.checks.record(run))
    assert (kind, subject) == ("check.ended", plan.id)
    assert json.loads(payload) == {"check": "tests", "verdict": "failed"}


def test_the_last_verdict_on_a_subject_counts(stand: PlanStand) -> None:
    plan, other = stand.plan(), stand.plan()
    long_path = "/".join(["dir" * 20] * 10)
    for subject in ("b", "a", ODD, long_path, '"b"', "B", "ü"):
        stand.reviews.set(Review(plan.id, ReviewKind.PATH, subject, accepted=False), now=NOW)
    stand.reviews.set(Review(plan.id, ReviewKind.CHANGESET, "a", accepted=False), now=NOW)
    stand.reviews.set(Review(other.id, ReviewKind.PATH, "a", accepted=False), now=NOW)
    stand.reviews.set(Review(plan.id, ReviewKind.PATH, "a", accepted=True), now=LATER)
    found = stand.reviews.of_plan(plan.id)
    assert [(review.subject, review.kind.value, review.accepted) for review in found] == [
        ('"b"', "path", False),
        ("B", "path", False),
        ("a", "changeset", False),
        ("a", "path", True),
        ("b", "path", False),
        (long_path, "path", False),
        ("ü", "path", False),
        (ODD, "path", False),
    ]
    assert stand.reviews.of_plan(other.id) == [Review(other.id, ReviewKind.PATH, "a", accepted=False)]


def test_the_event_of_a_review_names_no_file(stand: PlanStand) -> None:
    plan = stand.plan()
    review = Review(plan.id, ReviewKind.PATH, SECRET, accepted=False)
    [(kind, subject, payload)] = stand.told(lambda: stand.reviews.set(review, now=NOW))
    assert (kind, subject) == ("review.changed", plan.id)
    assert json.loads(payload) == {"kind": "path", "verdict": "rejected"}


def test_concurrent_calls_have_unique_numbers_without_gaps(stand: PlanStand) -> None:
    plans = [stand.plan(), stand.plan()]
    got: list[tuple[str, int]] = []

    def work(number: int) -> None:
        for _ in range(5):
            call = stand.call(plans[number % 2])
            got.append((call.plan_id, call.number))

    hammer(work)
    for plan in plans:
        assert sorted(number for owner, number in got if owner == plan.id) == list(range(1, 21))
        assert [call.number for call in stand.calls.of_plan(plan.id)] == list(range(1, 21))


def test_exactly_one_of_many_answers_and_moves_counts(stand: PlanStand) -> None:
    plan = stand.plan()
    call = stand.call(plan, CallState.ASKED)
    answers: list[str] = []
    moves: list[str] = []

    def answer(number: int) -> None:
        approval = ("granted", "denied")[number % 2]
        with suppress(PlanError):
            answers.append(str(stand.calls.answer(plan.id, 1, approval, now=LATER).approval))

    def move(number: int) -> None:
        state = (CallState.STARTED, CallState.FAILED)[number % 2]
        with suppress(StalePlan):
            moves.append(stand.calls.move(call, state, now=LATER, error=str(number)).error or "")

    hammer(answer)
    [approval] = answers
    hammer(move)
    [kept] = stand.calls.of_plan(plan.id)
    assert (kept.approval, [kept.error]) == (approval, moves)


def test_concurrent_verdicts_on_a_file_leave_one(stand: PlanStand) -> None:
    plan = stand.plan()
    hammer(
        lambda number: stand.reviews.set(
            Review(plan.id, ReviewKind.PATH, "f", accepted=bool(number % 2)), now=NOW
        )
    )
    [review] = stand.reviews.of_plan(plan.id)
    verdicts = [json.loads(payload)["verdict"] for kind, _, payload in stand.events() if kind[:2] == "re"]
    assert len(verdicts) == 8
    assert ("rejected", "accepted")[review.accepted] == verdicts[-1]


def test_a_check_of_a_deleted_plan_is_refused_or_deleted(stand: PlanStand) -> None:
    for _ in range(4):
        plan = stand.plan()

        def work(number: int, plan=plan) -> None:
            if number == 0:
                stand.plans.delete(plan, now=LATER)
                return
            try:
                stand.checks.record(check(plan))
                stand.call(plan)
            except UnknownPlan:
                pass

        hammer(work, threads=4)
        rows = stand.rows()
        assert (rows["plans"], rows["check_runs"], rows["tool_calls"]) == ([], [], [])


# ── The fence ─────────────────────────────────────────────────────────────────────────────────────


class UnfencedCallStore(SqlCallStore):
    """Calls without a check of the fence."""

    def __init__(self, database: Database, identifiers: IdentifierSource, *, fence: Fence) -> None:
        super().__init__(database, identifiers)


def check_that_a_stale_worker_changes_nothing(stand: PlanStand, calls: type[SqlCallStore]) -> None:
    plan = stand.processing()
    jobs = SqlJobStore(stand.database, stand.identifiers)
    job = jobs.submit(NewJob("plan", {"plan_id": plan.id}), now=NOW)
    claimed = jobs.claim(WorkerIdentity("ann", "host", 1, 1), ["plan"], now=NOW)
    assert claimed is not None
    fence = Fence(job.id, claimed.fence)
    store = calls(stand.database, stand.identifiers, fence=fence)
    call = store.add(plan.id, "write", {}, step="1", state=CallState.STARTED, now=NOW)
    jobs.reclaim(job.id, claimed.fence, claimed.beat, error="silent", now=NOW)
    before = stand.rows()
    with pytest.raises(StaleFence):
        store.add(plan.id, "write", {}, step="2", state=CallState.STARTED, now=NOW)
    with pytest.raises(StaleFence):
        store.move(call, CallState.ENDING, now=NOW)
    with pytest.raises(StaleFence):
        stand.plans.move(plan, (Phase.EXECUTE, PlanState.ERRORED), now=NOW, fence=fence)
    assert stand.rows() == before


def test_a_stale_worker_adds_and_moves_nothing(stand: PlanStand) -> None:
    check_that_a_stale_worker_changes_nothing(stand, SqlCallStore)


def test_calls_without_a_fence_are_caught(stand: PlanStand) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_that_a_stale_worker_changes_nothing(stand, UnfencedCallStore)
