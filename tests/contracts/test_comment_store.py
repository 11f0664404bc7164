"""Comments: numbered without a gap, only added, and sent in the transaction that continues their plan."""

from __future__ import annotations

import json
import threading

import pytest

from cleveragents.core.errors import StalePlan, UnknownComment, UnknownPlan
from cleveragents.core.tool import CallState
from cleveragents.plans.model.comment import CommentAnchor, CommentState, NewAnswer, NewComment
from cleveragents.plans.model.correction import NewCorrection
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.store.sql_comment_store import SqlCommentStore
from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore
from cleveragents.storage.database import Database
from tests.contracts.plan_stand import LATER, NOW, PlanStand

ON_LINES = NewComment(
    "why? \ud800\0", "ada", anchor=CommentAnchor("src/a.py", "blob", 3, 4, ("one", "two"), ("d1", "d2"), 0)
)
RESOLVED = NewAnswer(CommentState.RESOLVED, "builtin/executor", "done", by_actor=True, call=3, by_call=4)
WAITS = ((Phase.EXECUTE, PlanState.WAITING),)


@pytest.fixture
def stand(database: Database) -> PlanStand:
    return PlanStand(database)


@pytest.fixture
def store(database: Database, stand: PlanStand) -> SqlCommentStore:
    return SqlCommentStore(database, stand.identifiers)


@pytest.fixture
def plan(stand: PlanStand) -> Plan:
    return stand.processing()


def test_comments_are_kept_in_order_with_their_lines(
    store: SqlCommentStore, stand: PlanStand, plan: Plan
) -> None:
    first, second = store.add(plan.id, [ON_LINES, NewComment("fine", "builtin/reviewer", True)], now=NOW)
    assert store.of_plan(plan.id) == [first, second]
    assert (first.number, first.made.anchor, first.created_at) == (1, ON_LINES.anchor, NOW)
    assert first.made.text.startswith("why? ")
    assert (second.number, second.made.by_actor, second.state) == (2, True, CommentState.OPEN)
    added = [json.loads(facts) for kind, _, facts in stand.events() if kind == "plan.comment_added"]
    assert added == [{"comment": 1}, {"actor": "builtin/reviewer", "comment": 2}]


def test_a_repeated_key_adds_nothing(store: SqlCommentStore, plan: Plan) -> None:
    finding = NewComment("no test", "builtin/reviewer", True, key="review-1.0")
    (once,) = store.add(plan.id, [finding], now=NOW)
    (again,) = store.add(plan.id, [finding], now=LATER)
    assert once == again
    assert len(store.of_plan(plan.id)) == 1


def test_the_last_answer_decides_and_none_is_lost(
    store: SqlCommentStore, stand: PlanStand, plan: Plan
) -> None:
    store.add(plan.id, [ON_LINES], now=NOW)
    store.answer(plan.id, 1, RESOLVED, now=NOW)
    store.answer(plan.id, 1, RESOLVED, now=LATER)  # a repeated call
    kept = store.answer(plan.id, 1, NewAnswer(CommentState.OPEN, "ada", "still wrong"), now=LATER)
    assert kept == store.of_plan(plan.id)[0]
    assert [answer.made.state.value for answer in kept.answers] == ["resolved", "open"]
    assert kept.is_open
    told = [kind for kind, _, _ in stand.events()]
    assert (told.count("plan.comment_resolved"), told.count("plan.comment_reopened")) == (1, 1)


def test_an_answer_of_a_reverted_call_does_not_count(
    store: SqlCommentStore, stand: PlanStand, plan: Plan
) -> None:
    store.add(plan.id, [ON_LINES], now=NOW)
    for _ in range(4):
        stand.call(plan, CallState.ENDED)
    store.answer(plan.id, 1, RESOLVED, now=NOW)
    assert store.of_plan(plan.id)[0].state is CommentState.RESOLVED
    back = stand.calls.add(
        plan.id, "rollback", {"checkpoint": 4}, step=None, state=CallState.STARTED, now=LATER
    )
    stand.calls.move(back, CallState.ENDED, now=LATER)
    assert store.of_plan(plan.id)[0].is_open
    declined = NewAnswer(CommentState.DECLINED, "ada", "not needed")
    assert store.answer(plan.id, 1, declined, now=LATER).state is CommentState.DECLINED


def test_unknown_comments_and_plans_are_refused(store: SqlCommentStore, plan: Plan) -> None:
    with pytest.raises(UnknownComment):
        store.answer(plan.id, 1, RESOLVED, now=NOW)
    with pytest.raises(UnknownPlan):
        store.add("none", [ON_LINES], now=NOW)


def test_comments_are_sent_with_the_correction_or_not_at_all(
    database: Database, store: SqlCommentStore, stand: PlanStand, plan: Plan
) -> None:
    corrections = SqlCorrectionStore(database, stand.identifiers)
    store.add(plan.id, [ON_LINES, ON_LINES], now=NOW)
    kept, _ = corrections.add(plan, NewCorrection("revise"), WAITS, now=NOW, sent=[1])
    assert [one.batch for one in store.of_plan(plan.id)] == [kept.number, None]
    # Another person requests changes to the version that was sent already.
    with pytest.raises(StalePlan):
        corrections.add(plan, NewCorrection("revise"), WAITS, now=NOW, sent=[1, 2])
    assert [one.batch for one in store.of_plan(plan.id)] == [kept.number, None]
    told = [json.loads(facts) for kind, _, facts in stand.events() if kind == "plan.corrected"]
    assert [facts["comments"] for facts in told] == [[1]]


def test_concurrent_comments_get_different_numbers(store: SqlCommentStore, plan: Plan) -> None:
    start = threading.Barrier(4)

    def add(who: str) -> None:
        start.wait()
        for n in range(5):
            store.add(plan.id, [NewComment(f"{n}", who)], now=NOW)

    threads = [threading.Thread(target=add, args=(f"user {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = store.of_plan(plan.id)
    assert [one.number for one in found] == list(range(1, 21))
    assert sorted((one.made.author, one.made.text) for one in found) == sorted(
        (f"user {n}", f"{k}") for n in range(4) for k in range(5)
    )


def test_comments_are_deleted_with_their_plan(store: SqlCommentStore, stand: PlanStand, plan: Plan) -> None:
    store.add(plan.id, [ON_LINES], now=NOW)
    store.answer(plan.id, 1, RESOLVED, now=NOW)
    done = stand.plans.move(plan, (Phase.EXECUTE, PlanState.ERRORED), now=NOW)
    stand.plans.delete(done, now=NOW)
    assert store.of_plan(plan.id) == []
