"""Comments on plans and their answers in a database. Both are only added, and deleted with their plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlalchemy import Connection, Table, func, select

from cleveragents.core.errors import UnknownComment
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.records import facts_of, record_of
from cleveragents.plans.model.comment import (
    Comment,
    CommentAnchor,
    CommentAnswer,
    CommentState,
    NewAnswer,
    NewComment,
)
from cleveragents.plans.model.correction import taken_back_of
from cleveragents.plans.store.plan_rows import encoded
from cleveragents.plans.store.sql_decision_store import hold_plan
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.storage.actor_tables import comment_answers, comments
from cleveragents.storage.columns import kept_text, microseconds
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in, row_of
from cleveragents.storage.sql_idempotency_store import keep_made

if TYPE_CHECKING:
    from cleveragents.core.identifiers import IdentifierSource
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.model.strategy import ReadyResult
    from cleveragents.storage.database import Database
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["SqlCommentStore"]

_EVENTS = {
    CommentState.OPEN: EventType.PLAN_COMMENT_REOPENED,
    CommentState.RESOLVED: EventType.PLAN_COMMENT_RESOLVED,
    CommentState.DECLINED: EventType.PLAN_COMMENT_DECLINED,
}


class SqlCommentStore:
    """Comments of plans, numbered from 1 without a gap, with their answers. Every method is atomic, with its
    events. Its only state is the database, so any thread may share it.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def add(
        self,
        plan_id: str,
        made: Sequence[NewComment],
        *,
        now: datetime,
        claim: IdempotencyClaim | None = None,
        ensure: Callable[[Plan], None] = lambda plan: None,
    ) -> Sequence[Comment]:
        """Add comments and return them. If a comment with the same key exists, the existing comment is
        returned instead.
        `ensure` gets the plan, which no transaction can move before the comments are stored, and may raise to
        refuse them.

        With a claim, the first comment is stored as the result of that request. Raises `UnknownPlan`;
        `RequestUnderWay` if another request took over the claim.
        """

        def unit(connection: Connection) -> Sequence[Comment]:
            ensure(hold_plan(connection, plan_id))
            known = {one.made.key: one for one in _of_plan(connection, plan_id) if one.made.key is not None}
            number = _last(connection, comments, plan_id)
            kept: list[Comment] = []
            for new in made:
                if new.key in known:  # guard: a repeated run adds nothing twice
                    kept.append(known[new.key])
                    continue
                number += 1
                row = _row(Comment(plan_id, number, new, now))
                connection.execute(comments.insert(), row)
                kept.append(_comment(row))
                self._tell(connection, EventType.PLAN_COMMENT_ADDED, kept[-1], new.author, new.by_actor, now)
            if kept:
                keep_made(connection, claim, str(kept[0].number))
            return kept

        return self._database.write(unit)

    def of_plan(self, plan_id: str) -> Sequence[Comment]:
        """Return all comments by number, each with its answers. Answers whose call was rolled back do not
        count.
        """
        with self._database.read() as connection:
            found = _of_plan(connection, plan_id)
        return found if not _calls_in(found) else self._without(found, self._taken_back(plan_id, found))

    def answer(
        self,
        plan_id: str,
        number: int,
        made: NewAnswer,
        *,
        now: datetime,
        ensure: Callable[[Comment], None] = lambda comment: None,
    ) -> Comment:
        """Add an answer and return the comment. `ensure` gets the comment before the answer, and may raise to
        refuse the answer. A second answer of the same call, or an answer that does not change the state of
        the comment, is not added.

        Raises `UnknownPlan`, `UnknownComment`.
        """
        gone = self._taken_back(plan_id, self.of_plan(plan_id))

        def unit(connection: Connection) -> Comment:
            hold_plan(connection, plan_id)
            every = self._without(_of_plan(connection, plan_id), gone)
            held = next((one for one in every if one.number == number), None)
            if held is None:
                raise UnknownComment(plan_id, number, len(every))
            by_call = made.by_call
            if by_call is not None and any(one.made.by_call == by_call for one in held.answers):
                return held  # A repeated call answers nothing twice
            ensure(held)
            if held.state is made.state:
                return held
            self._insert(connection, held, made, now)
            return next(
                one for one in self._without(_of_plan(connection, plan_id), gone) if one.number == number
            )

        return self._database.write(unit)

    def reopening(
        self, plan_id: str, ready: ReadyResult, made: NewAnswer, *, now: datetime
    ) -> Callable[[Connection], None]:
        """Return a function that adds this answer to all comments that actors settled after the result
        `ready`, in a transaction that holds the plan and reverts all later calls.
        """
        gone = self._taken_back(plan_id, self.of_plan(plan_id))

        def unit(connection: Connection) -> None:
            found = _of_plan(connection, plan_id)
            # The rollback takes back the answers of calls, but not those of reports and reviews.
            later = {number for number in _calls_in(found) if number > ready.call}
            for one in self._without(found, gone | later):
                settled = not one.is_open and one.answers[-1].made.by_actor
                if settled and (one.batch or 0) > ready.correction:
                    self._insert(connection, one, made, now)

        return unit

    def _insert(self, connection: Connection, held: Comment, made: NewAnswer, now: datetime) -> None:
        at = _last(connection, comment_answers, held.plan_id) + 1
        answer = CommentAnswer(at, held.number, made, now)
        connection.execute(comment_answers.insert(), _answer_row(held.plan_id, answer))
        self._tell(connection, _EVENTS[made.state], held, made.author, made.by_actor, now)

    def _taken_back(self, plan_id: str, found: Sequence[Comment]) -> frozenset[int]:
        numbers = _calls_in(found)
        if not numbers:
            return frozenset()
        rewrites = SqlCallStore(self._database, self._identifiers).of_step(plan_id, None)
        # Computed instead of stored: it takes effect with the rollback, and ends if that is undone.
        return taken_back_of(numbers, rewrites)

    @staticmethod
    def _without(found: Sequence[Comment], gone: frozenset[int]) -> Sequence[Comment]:
        return [
            replace(one, answers=tuple(each for each in one.answers if each.made.by_call not in gone))
            for one in found
        ]

    def _tell(
        self,
        connection: Connection,
        kind: EventType,
        comment: Comment,
        author: str,
        by_actor: bool,
        now: datetime,
    ) -> None:
        facts: dict[str, JsonValue] = {"comment": comment.number}
        if by_actor:
            facts["actor"] = author
        append_to_outbox(connection, DomainEvent(kind, comment.plan_id, self._identifiers.new(), now, facts))


def _calls_in(found: Sequence[Comment]) -> list[int]:
    """Return the calls that answered comments."""
    return [each.made.by_call for one in found for each in one.answers if each.made.by_call is not None]


def _last(connection: Connection, table: Table, plan_id: str) -> int:
    last = select(func.coalesce(func.max(table.c.number), 0)).where(table.c.plan_id == plan_id)
    return int(connection.execute(last).scalar_one())


def _of_plan(connection: Connection, plan_id: str) -> list[Comment]:
    given: dict[int, list[CommentAnswer]] = {}
    wanted = select(comment_answers).where(comment_answers.c.plan_id == plan_id)
    for row in connection.execute(wanted.order_by(comment_answers.c.number)).mappings():
        made = record_in(NewAnswer, row, by_actor=bool(row["by_actor"]))
        given.setdefault(row["comment"], []).append(record_in(CommentAnswer, row, made=made))
    of_plan = select(comments).where(comments.c.plan_id == plan_id).order_by(comments.c.number)
    return [
        _comment(row, tuple(given.get(row["number"], ()))) for row in connection.execute(of_plan).mappings()
    ]


def _row(comment: Comment) -> dict[str, Any]:
    made = comment.made
    return row_of(
        made,
        plan_id=comment.plan_id,
        number=comment.number,
        text=kept_text(made.text),
        author=kept_text(made.author),
        anchor=None if made.anchor is None else encoded(facts_of(made.anchor)),
        batch=comment.batch,
        created_at=microseconds(comment.created_at),
    )


def _comment(row: Mapping[Any, Any], answers: tuple[CommentAnswer, ...] = ()) -> Comment:
    anchor = None if row["anchor"] is None else record_of(CommentAnchor, json.loads(row["anchor"]))
    made = record_in(NewComment, row, anchor=anchor, by_actor=bool(row["by_actor"]))
    return record_in(Comment, row, made=made, answers=answers)


def _answer_row(plan_id: str, answer: CommentAnswer) -> dict[str, Any]:
    return row_of(
        answer.made,
        plan_id=plan_id,
        number=answer.number,
        comment=answer.comment,
        reason=kept_text(answer.made.reason),
        author=kept_text(answer.made.author),
        created_at=microseconds(answer.created_at),
    )
