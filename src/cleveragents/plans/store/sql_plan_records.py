"""Records of plans in a database: tool calls, checks, reviews, and the times of calls.

The end of a merge or a resolution emits further events, in the transaction that ends the call, whichever
process ends it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from sqlalchemy import (
    ClauseElement,
    Connection,
    RowMapping,
    Select,
    Update,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)

from cleveragents.changes.model.merge_conflict import (
    REBASE,
    MergeOutcome,
    conflicts_ended,
    part_of_merge,
)
from cleveragents.core.errors import InvalidPayload, PlanError, Remedy, StalePlan, UnknownPlan
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.store.rows import ensure_owned
from cleveragents.plans.ports.plans import CallTimes, PlanJobRun
from cleveragents.plans.store.plan_rows import (
    call_of,
    call_row,
    check_of,
    check_row,
    review_of,
    review_row,
)
from cleveragents.storage.actor_tables import model_calls
from cleveragents.storage.columns import is_storable, kept_text, moment
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.prepared_statement import StatementRows, prepared
from cleveragents.storage.tables import check_runs, jobs, plans, reviews, tool_calls

if TYPE_CHECKING:
    from cleveragents.changes.model.review import Review
    from cleveragents.core.actions.model import CheckRun
    from cleveragents.core.identifiers import Fence, IdentifierSource
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.store.sql_rule_store import NewRule
    from cleveragents.storage.database import Database

__all__ = ["SqlCallStore", "SqlCheckStore", "SqlReviewStore", "SqlTreeCalls", "merge_facts"]


_THIS = (tool_calls.c.plan_id == bindparam("plan"), tool_calls.c.number == bindparam("which"))
_COLUMNS: dict[str, Any] = {column.name: bindparam(column.name) for column in tool_calls.columns}
_HELD = select(plans.c.version).where(plans.c.id == bindparam("plan")).with_for_update()
_LAST = select(func.max(tool_calls.c.number)).where(tool_calls.c.plan_id == bindparam("plan"))
_ADD = tool_calls.insert().values(_COLUMNS)
_ONE = select(tool_calls).where(*_THIS)
_MOVE = update(tool_calls).where(*_THIS).values(_COLUMNS)
_OF_PLAN = select(tool_calls).where(tool_calls.c.plan_id == bindparam("plan")).order_by(tool_calls.c.number)
_OF_TOOLS = _OF_PLAN.where(tool_calls.c.tool.in_(bindparam("tools", expanding=True)))
_CHECKS = select(check_runs).where(check_runs.c.plan_id == bindparam("plan")).order_by(check_runs.c.number)
_OF_STEP = (
    select(tool_calls)
    .where(tool_calls.c.plan_id == bindparam("plan"), tool_calls.c.step == bindparam("name"))
    .order_by(tool_calls.c.number)
)
_ENDS = (CallState.ENDED, CallState.FAILED)
_ANSWERS = ("granted", "denied")
# An index of PostgreSQL holds at most 2,704 bytes, and a character may take four.
_STEP_CHARACTERS = 500

_TREE = select(plans.c.id, plans.c.job_id).where(plans.c.id == bindparam("root")).cte("tree", recursive=True)


_TREE = _TREE.union_all(select(plans.c.id, plans.c.job_id).where(plans.c.parent_id == _TREE.c.id))
_RUN = (jobs.c.not_before.label("since"), jobs.c.updated_at.label("seen"))
# Results may be large, and only calls with an approval store their duration there.
_ASKED_RESULT = case((tool_calls.c.approval.is_not(None), tool_calls.c.result))
_TOOLS = (
    select(
        tool_calls.c.started_at,
        tool_calls.c.ended_at,
        tool_calls.c.approval,
        _ASKED_RESULT.label("result"),
        *_RUN,
    )
    .join(_TREE, tool_calls.c.plan_id == _TREE.c.id)
    .outerjoin(jobs, (jobs.c.id == _TREE.c.job_id) & (jobs.c.state == "running"))
    .where(tool_calls.c.state.in_(("started", "ending", "ended", "failed")))
)
_MODELS = (
    select(model_calls.c.started_at, model_calls.c.ended_at, *_RUN)
    .join(_TREE, model_calls.c.plan_id == _TREE.c.id)
    .outerjoin(jobs, (jobs.c.id == _TREE.c.job_id) & (jobs.c.state == "running"))
    # A forfeited call ended when it was noticed; until then it did not run.
    .where(model_calls.c.state != "forfeited")
)


class SqlCallStore:
    """Tool calls of plans, numbered from 1 without a gap. Every method is atomic. Its only state is the
    database, so any thread may share it.

    With a `fence`, calls are added and moved only while the job runs under this fence; otherwise `StaleFence`
    is raised.
    """

    def __init__(
        self, database: Database, identifiers: IdentifierSource, *, fence: Fence | None = None
    ) -> None:
        self._database = database
        self._identifiers = identifiers
        self._fence = fence

    def add(
        self,
        plan_id: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str | None,
        state: CallState,
        now: datetime,
        digest: str | None = None,
        version: int | None = None,
    ) -> ToolCall:
        """Add the next call; `digest` identifies the exact arguments that a person is asked to approve. With
        a `version`, the call is added only while the plan is at this version; otherwise `StalePlan` is
        raised.
        """
        if step is not None and len(step) > _STEP_CHARACTERS:
            raise InvalidPayload("a tool call", f"the step name exceeds {_STEP_CHARACTERS} characters")
        call_id = self._identifiers.new()

        def unit(connection: Connection) -> ToolCall:
            ensure_owned(connection, self._fence)
            held = _hold(connection, plan_id)
            if version is not None and held != version:  # guard: a plan that ended gets no more calls
                raise StalePlan(plan_id, version)
            number = int(_run(connection, _LAST, {"plan": plan_id}).value() or 0) + 1
            added = ToolCall(plan_id, number, call_id, tool, arguments, state, now, step=step, digest=digest)
            row = call_row(added)
            call = call_of(row)
            _run(connection, _ADD, row)
            kind = EventType.APPROVAL_REQUESTED if state is CallState.ASKED else EventType.TOOL_CALL_STARTED
            append_to_outbox(connection, self._event(kind, call, now))
            return call

        return self._database.write(unit)

    def start_by_rule(
        self,
        plan_id: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
        argv: Sequence[str],
        *,
        step: str,
        now: datetime,
        project_rules: bool = True,
    ) -> ToolCall | None:
        """Add the next call as started, if an approval rule covers the command line; otherwise return None.

        The rule is read and the call is added in one transaction, with events that name the rule. Without
        `project_rules`, only rules of the plan's own tree count.
        """
        from cleveragents.plans.store.sql_rule_store import rule_for

        call_id = self._identifiers.new()

        def unit(connection: Connection) -> ToolCall | None:
            ensure_owned(connection, self._fence)
            _hold(connection, plan_id)
            rule = rule_for(connection, plan_id, argv, project_rules=project_rules)
            if rule is None:
                return None
            number = int(_run(connection, _LAST, {"plan": plan_id}).value() or 0) + 1
            state = CallState.STARTED
            row = call_row(
                ToolCall(plan_id, number, call_id, tool, arguments, state, now, step=step, rule=rule.id)
            )
            call = call_of(row)
            _run(connection, _ADD, row)
            facts: dict[str, JsonValue] = {"approval": "granted", "rule": rule.id}
            for kind, more in ((EventType.APPROVAL_GIVEN, facts), (EventType.TOOL_CALL_STARTED, {})):
                append_to_outbox(connection, self._event(kind, call, now, more))
            return call

        return self._database.write(unit)

    def move(
        self,
        call: ToolCall,
        state: CallState,
        *,
        now: datetime,
        changeset_id: str | None = None,
        result: JsonValue = None,
        error: str | None = None,
    ) -> ToolCall:
        """Move the call and return it. Raises `StalePlan` if its state changed since it was read."""

        def unit(connection: Connection) -> ToolCall:
            ensure_owned(connection, self._fence)
            _hold(connection, call.plan_id)
            held = _one(connection, call.plan_id, call.number)
            if held.state is not call.state:  # guard: another process moved the call since it was read
                raise StalePlan(call.plan_id, call.number)
            # From the stored call, not the one that was read: an answer may have come meanwhile.
            wanted = replace(
                held,
                state=state,
                # A repeated call begins anew: nothing ran since its worker died.
                started_at=now if held.state is state is CallState.STARTED else held.started_at,
                changeset_id=changeset_id or held.changeset_id,
                result=held.result if result is None else result,
                error=held.error if error is None else error,
                ended_at=now if state in _ENDS else held.ended_at,
            )
            row = call_row(wanted)
            moved = call_of(row)
            _run(connection, _MOVE, {**row, "plan": call.plan_id, "which": call.number})
            kind = _told(held.state, state)
            if kind is not None:
                append_to_outbox(connection, self._event(kind, moved, now))
            for told, facts in merge_facts(
                moved
            ):  # guard: events exist if, and only if, their facts are stored
                event = DomainEvent(told, moved.plan_id, self._identifiers.new(), now, facts)
                append_to_outbox(connection, event)
            return moved

        return self._database.write(unit)

    def answer(
        self,
        plan_id: str,
        number: int,
        approval: str,
        *,
        now: datetime,
        by: str | None = None,
        reason: str | None = None,
        rule: NewRule | None = None,
    ) -> ToolCall:
        """Record the answer, `granted` or `denied`, of a call that needs approval, and why it was denied; the
        first answer stays. With `rule`, also add that rule for later calls, in the same transaction. The
        events name the user, if known.
        """
        from cleveragents.plans.store.sql_rule_store import keep_rule

        if approval not in _ANSWERS:
            raise InvalidPayload("an approval", f"{approval!r} is neither granted nor denied")

        def unit(connection: Connection) -> ToolCall:
            _hold(connection, plan_id)
            call = _one(connection, plan_id, number)
            if (
                call.state is not CallState.ASKED or call.approval is not None
            ):  # guard: the first answer stays
                raise PlanError(plan_id, f"call {number} is not pending; nothing was changed")
            row = call_row(replace(call, approval=approval, reason=reason))
            answer = {name: row[name] for name in ("approval", "reason")}
            connection.execute(_of_number(plan_id, number).values(answer))
            answered = call_of(row)
            who: dict[str, JsonValue] = {} if by is None else {"by": by}
            append_to_outbox(connection, self._event(EventType.APPROVAL_GIVEN, answered, now, who))
            if rule is not None:
                keep_rule(connection, self._identifiers, rule, now=now, by=by)
            return answered

        return self._database.write(unit)

    def of_plan(self, plan_id: str) -> Sequence[ToolCall]:
        """Return all calls, in order."""
        if not is_storable(plan_id):
            return []
        return self._database.read_shared(
            ("calls", plan_id), lambda connection: _calls(connection, _OF_PLAN, {"plan": plan_id})
        )

    def of_tools(self, plan_id: str, tools: Collection[str]) -> Sequence[ToolCall]:
        """Return the calls of these tools, in order; arguments and results of other calls are not read."""
        if not is_storable(plan_id):
            return []
        wanted = sorted(tools)
        return self._database.read_shared(
            ("calls", plan_id, *wanted),
            lambda connection: _calls(connection, _OF_TOOLS, {"plan": plan_id, "tools": wanted}),
        )

    def of_step(self, plan_id: str, step: str | None) -> Sequence[ToolCall]:
        """Return the calls of the step, in order; the cost does not depend on other calls."""
        if step is None:
            return [call for call in self.of_plan(plan_id) if call.step is None]
        if not is_storable(plan_id) or not is_storable(step):
            return []
        with self._database.read() as connection:
            found = _run(connection, _OF_STEP, {"plan": plan_id, "name": step})
            return [call_of(row) for row in found.every()]

    def _event(
        self, kind: EventType, call: ToolCall, now: datetime, more: Mapping[str, JsonValue] | None = None
    ) -> DomainEvent:
        # Without arguments and results: they may hold anything, and the audit log keeps it forever.
        facts: dict[str, JsonValue] = {"number": call.number, "tool": call.tool, "state": call.state.value}
        if call.approval is not None:
            facts["approval"] = call.approval
        return DomainEvent(kind, call.plan_id, self._identifiers.new(), now, {**facts, **(more or {})})


def _calls(connection: Connection, query: Select[Any], wanted: Mapping[str, object]) -> Sequence[ToolCall]:
    return [call_of(row) for row in connection.execute(query, wanted).mappings()]


class SqlCheckStore:
    """Runs of checks. Any thread may share it."""

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def record(self, run: CheckRun) -> None:
        facts: dict[str, JsonValue] = {"check": redact_text(run.name), "verdict": run.verdict.value}
        if run.seconds is not None:
            facts["seconds"] = run.seconds
        event = DomainEvent(EventType.CHECK_ENDED, run.plan_id, self._identifiers.new(), run.ended_at, facts)
        row = check_row(run)

        def unit(connection: Connection) -> None:
            _hold(connection, run.plan_id)
            connection.execute(check_runs.insert(), row)
            append_to_outbox(connection, event)

        self._database.write(unit)

    def of_plan(self, plan_id: str) -> Sequence[CheckRun]:
        """Return the runs, oldest first."""
        if not is_storable(plan_id):
            return []

        def load(connection: Connection) -> Sequence[CheckRun]:
            return [check_of(row) for row in connection.execute(_CHECKS, {"plan": plan_id}).mappings()]

        return self._database.read_shared(("checks", plan_id), load)


class SqlReviewStore:
    """Reviews: the files and changesets that are left out of a plan's result. Any thread may share it."""

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def set(self, review: Review, *, now: datetime) -> None:
        """Store the review; it replaces an earlier one of the same subject."""
        row = review_row(review)
        facts: dict[str, JsonValue] = {"kind": row["kind"], "verdict": row["verdict"]}
        event = DomainEvent(EventType.REVIEW_CHANGED, review.plan_id, self._identifiers.new(), now, facts)

        def unit(connection: Connection) -> None:
            _hold(connection, review.plan_id)
            connection.execute(
                delete(reviews).where(
                    reviews.c.plan_id == row["plan_id"],
                    reviews.c.kind == row["kind"],
                    reviews.c.subject == row["subject"],
                )
            )
            connection.execute(reviews.insert(), row)
            append_to_outbox(connection, event)

        self._database.write(unit)

    def of_plan(self, plan_id: str) -> Sequence[Review]:
        if not is_storable(plan_id):
            return []
        query = select(reviews).where(reviews.c.plan_id == plan_id)
        with self._database.read() as connection:
            found = [review_of(row) for row in connection.execute(query).mappings()]
        # Sorted here: databases order text differently.
        return sorted(found, key=lambda review: (review.subject, review.kind.value))


def _run(connection: Connection, statement: ClauseElement, parameters: Mapping[str, object]) -> StatementRows:
    return prepared(statement, connection.dialect.name).run(connection, parameters)


def _hold(connection: Connection, plan_id: str) -> int:
    """Lock the plan until the end of the transaction, so that no other process moves it, adds to it, moves
    its calls or deletes it. Return its version. Raises `UnknownPlan`.
    """
    row = None
    if is_storable(plan_id):
        row = _run(connection, _HELD, {"plan": plan_id}).first()
    if row is None:  # guard: a late write does not restore deleted records
        raise UnknownPlan(plan_id)
    return int(row["version"])


def _told(was: CallState, state: CallState) -> EventType | None:
    """Return the event of the move, if any."""
    if state in _ENDS:
        return EventType.TOOL_CALL_ENDED
    if was is CallState.ASKED and state is CallState.STARTED:
        return EventType.TOOL_CALL_STARTED
    return None


def _of_number(plan_id: str, number: int) -> Update:
    return update(tool_calls).where(tool_calls.c.plan_id == plan_id, tool_calls.c.number == number)


def _one(connection: Connection, plan_id: str, number: int) -> ToolCall:
    row = _run(connection, _ONE, {"plan": plan_id, "which": number}).first()
    if row is None:
        log = Remedy("plan.log", plan_id, text="List the calls")
        raise PlanError(plan_id, f"no call {number}", (log,))
    return call_of(row)


def merge_facts(call: ToolCall) -> Iterator[tuple[EventType, Mapping[str, JsonValue]]]:
    """Yield the events that report a merge or a resolution when its call ends, in order.

    They contain the paths of files, not their contents.
    """
    if call.state is not CallState.ENDED:
        return
    part = part_of_merge(call)
    if part is not None:
        outcome = MergeOutcome.of_call(call)
        whose: dict[str, JsonValue] = {"child": outcome.plan_id, "key": part}
        yield from _merged(EventType.PLAN_MERGED, whose, outcome)
    elif call.tool == REBASE:
        yield from _merged(EventType.PLAN_REBASED, {"number": call.number}, MergeOutcome.of_call(call))
    for merge, _ in conflicts_ended(call):
        result = call.result
        assert isinstance(result, Mapping)
        path, take = _shown(result.get("path")), result.get("take")
        yield EventType.CONFLICT_RESOLVED, {"number": call.number, "merge": merge, "path": path, "take": take}


def _merged(
    kind: EventType, about: Mapping[str, JsonValue], outcome: MergeOutcome
) -> Iterator[tuple[EventType, Mapping[str, JsonValue]]]:
    open_ones = [conflict for conflict in outcome.conflicts if conflict.is_choice]
    yield kind, {**about, "files": outcome.files, "conflicts": len(open_ones)}
    for conflict in open_ones:
        yield EventType.CONFLICT_KEPT, {**about, "path": _shown(conflict.shown_path), "kind": conflict.kind}


def _shown(path: JsonValue) -> str:
    """Return the path as text that every database stores, with secrets masked."""
    return kept_text(redact_text(str(path)))


class SqlTreeCalls:
    """Reads the calls of all plans of a tree at one moment. Its only state is the database, so any thread may
    share it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_tree(self, root_id: str) -> Sequence[CallTimes]:
        """Return the times of all calls in the tree, in no particular order.

        Calls that were lost with their worker have no known end and are left out.
        """
        return list(self._read(root_id))

    def _read(self, root_id: str) -> Iterator[CallTimes]:
        statements: tuple[Select[Any], ...] = (_TOOLS, _MODELS)
        with self._database.read() as connection:
            for statement in statements:
                for row in connection.execute(statement, {"root": root_id}).mappings():
                    yield _times(row)


def _times(row: RowMapping) -> CallTimes:
    run = None if row["since"] is None else PlanJobRun(moment(row["since"]), moment(row["seen"]))
    return CallTimes(
        began=moment(row["started_at"]),
        ended=None if row["ended_at"] is None else moment(row["ended_at"]),
        asked=row.get("approval") is not None,
        ran_seconds=_ran_seconds(row.get("result")),
        run=run,
    )


def _ran_seconds(result: str | None) -> float:
    kept = None if result is None else json.loads(result)
    seconds = kept.get("seconds") if isinstance(kept, dict) else None
    return seconds if isinstance(seconds, float) else 0.0
