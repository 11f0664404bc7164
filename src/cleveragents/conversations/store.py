"""Conversations in a database: turns, the lease of the running turn, and the plans that turns started.

Every write of a running turn checks its fence in the same transaction. So a process that lost the turn, for
example because it was suspended for longer than a lease, can change nothing more.

A tool call with effects is claimed before it is made. The claim belongs to the call's permanent name. The
transaction that creates a plan stores the plan's id with the claim, and fails if another process has claimed
the call meanwhile. So a call that is repeated after a crash finds its plan and creates no second plan.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from cleveragents.access.model.user import ProjectScope
from cleveragents.access.store.sql_project_store import hold_project
from cleveragents.conversations.model import (
    MOST_CONVERSATIONS,
    MOST_STORED_BYTES,
    MOST_TURNS,
    Conversation,
    NewConversation,
    NewTurn,
    Observed,
    PlanLink,
    Turn,
    TurnAttachment,
    TurnState,
    title_of,
)
from cleveragents.core.errors import (
    ConversationBusy,
    Remedy,
    RequestRefused,
    UnknownConversation,
    remedies_from_json,
    remedies_to_json,
)
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource, TurnFence, WorkerIdentity
from cleveragents.core.json_value import JsonValue
from cleveragents.models.model.attachment import Attachment, MediaType
from cleveragents.models.model.budget import BudgetLimits, lowered_limit
from cleveragents.models.store.sql_budget_store import limits_of, open_budget, raise_budget
from cleveragents.storage.actor_tables import (
    budgets,
    graph_checkpoints,
    graph_values,
    graph_writes,
    model_calls,
)
from cleveragents.storage.columns import ensure_storable, is_storable, microseconds
from cleveragents.storage.conversation_tables import (
    conversation_attachments,
    conversation_turns,
    conversations,
    ensure_turn_held,
)
from cleveragents.storage.database import Database
from cleveragents.storage.idempotency import IdempotencyClaim
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in, row_of
from cleveragents.storage.service_tables import idempotency_keys, plan_output
from cleveragents.storage.sql_idempotency_store import claim_in, keep_made

__all__ = ["SqlConversationStore"]

_LONGEST_ID = 26
_NO_OWNER = {"owner_id": None, "owner_host": None, "owner_pid": None, "owner_started_ticks": None}


class SqlConversationStore:
    """Conversations and their turns. Every method is one transaction with its events. Stateless except for
    the database, so any thread may share it.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def create(
        self, new: NewConversation, *, now: datetime, claim: IdempotencyClaim | None = None
    ) -> Conversation:
        """Store a conversation without turns, and its budget; with a claim, as the result of that request.
        Raises `UnknownProject`; `RequestRefused` if the user has too many conversations in the project;
        `RequestUnderWay` if another request took the claim over.
        """
        made = Conversation(
            id=self._identifiers.new(),
            project=new.project,
            resource=new.resource,
            resource_name=new.resource_name,
            title="",
            model=new.model,
            forked_from=None,
            summary="",
            summary_turn=0,
            turns=0,
            created_by=new.created_by,
            created_at=now,
            updated_at=now,
            fence=0,
            beat=0,
            profile=new.profile,
        )

        def unit(connection: Connection) -> Conversation:
            keep_made(connection, claim, made.id)  # guard: a repeated request creates nothing twice
            self._add(connection, made, new.limits, now)
            return made

        return self._database.write(unit)

    def fork(
        self,
        conversation_id: str,
        *,
        turn: int | None,
        by: str | None,
        now: datetime,
        claim: IdempotencyClaim | None = None,
    ) -> Conversation:
        """Store a copy of the conversation up to a turn, or up to the last ended turn, and return it. A
        running turn is not copied, and plans stay with the source. The copy has the limits of the source.

        Raises `UnknownConversation`; `RequestRefused` if there is no such turn, or if the user has no room
        for its attachments; `RequestUnderWay`.
        """

        def unit(connection: Connection) -> Conversation:
            source = _held(connection, conversation_id)
            every = [one for one in _turns(connection, source.id) if one.state is not TurnState.RUNNING]
            if turn is not None and turn not in [one.number for one in every]:
                raise RequestRefused(f"session {source.id} has no ended turn {turn}", "turn")
            kept = [one for one in every if turn is None or one.number <= turn]
            last = kept[-1].number if kept else 0
            # A summary of later turns would reveal what the fork leaves out.
            summary = (source.summary, source.summary_turn) if source.summary_turn <= last else ("", 0)
            made = replace(
                source,
                id=self._identifiers.new(),
                forked_from=source.id,
                summary=summary[0],
                summary_turn=summary[1],
                turns=last,
                created_by=by,
                created_at=now,
                updated_at=now,
                fence=0,
                beat=0,
                owner=None,
                stop_requested=False,
            )
            keep_made(connection, claim, made.id)
            self._add(connection, made, limits_of(connection, source.id), now)
            # The remedies name the source.
            copies = [replace(one, conversation_id=made.id, first_output=0, remedies=()) for one in kept]
            if copies:
                connection.execute(insert(conversation_turns), [_turn_row(one) for one in copies])
                _copy_attachments(connection, source.id, made.id, last)
                if any(one.attachments for one in kept):
                    _ensure_stored_room(connection, made)
            return made

        return self._database.write(unit)

    def get(self, conversation_id: str) -> Conversation:
        """Return the conversation with this id. Raises `UnknownConversation`."""
        with self._database.read() as connection:
            return _read(connection, conversation_id)

    def find(self, part: str, *, scope: ProjectScope = None) -> Conversation:
        """Return the only conversation in the projects of `scope` whose id begins or ends with `part`.

        Raises `UnknownConversation`; `RequestRefused` if there are several.
        """
        if not part.isalnum() or not part.isascii() or len(part) > _LONGEST_ID:
            raise UnknownConversation(part)
        wanted, column = part.upper(), conversations.c.id
        query = select(conversations).where(or_(column.like(f"{wanted}%"), column.like(f"%{wanted}")))
        if scope is not None:  # guard: conversations of other projects are hidden
            query = query.where(conversations.c.project.in_(scope))
        with self._database.read() as connection:
            found = [_conversation(row) for row in connection.execute(query.limit(6)).mappings()]
        if not found:
            raise UnknownConversation(part)
        if len(found) > 1:
            problem = f"{part!r} stands for {len(found)} sessions; pass more of the id"
            raise RequestRefused(problem, "conversation_id")
        return found[0]

    def list(
        self,
        *,
        project: str | None = None,
        resource: str | None = None,
        scope: ProjectScope = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Conversation]:
        """Return up to `limit` conversations in the projects of `scope`, newest first, that come after the
        id `after`. `resource` is the name, the directory or the address of a repository.
        """
        ensure_storable("a list of sessions", {"after": after, "project": project, "resource": resource})
        query: Select[Any] = select(conversations).order_by(conversations.c.id.desc()).limit(limit)
        if scope is not None:  # guard: conversations of other projects are hidden
            query = query.where(conversations.c.project.in_(scope))
        if project is not None:
            query = query.where(conversations.c.project == project)
        if resource is not None:
            here = conversations.c.resource == resource, conversations.c.resource_name == resource
            query = query.where(or_(*here))
        if after is not None:
            query = query.where(conversations.c.id < after)
        with self._database.read() as connection:
            return [_conversation(row) for row in connection.execute(query).mappings()]

    def turns(self, conversation_id: str, *, after: int = 0, limit: int | None = None) -> Sequence[Turn]:
        """Return the turns with a number above `after`, in order."""
        with self._database.read() as connection:
            return _turns(connection, conversation_id, after, limit)

    def begin(
        self,
        conversation_id: str,
        new: NewTurn,
        owner: WorkerIdentity,
        *,
        now: datetime,
        abandoned: Observed | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Conversation:
        """Store a turn and take the conversation for its run. Return the conversation with its fence.

        If a turn of another owner runs, `abandoned` must be its lease, which the caller found abandoned; that
        turn is then marked as interrupted. Otherwise raises `ConversationBusy`; `RequestRefused` if the
        conversation has too many turns, or if its user has no room for the attachments.
        """

        def unit(connection: Connection) -> Conversation:
            held = self._taken(connection, conversation_id, owner, abandoned, now)
            number = held.turns + 1
            if number > MOST_TURNS:  # guard: bounded conversations
                problem = f"session {held.id} has {MOST_TURNS:,} turns, the limit; start another one"
                raise RequestRefused(problem, "conversation_id")
            keep_made(connection, claim, str(number))
            turn = Turn(
                conversation_id=held.id,
                number=number,
                question=new.question,
                answer="",
                state=TurnState.RUNNING,
                error=None,
                author=new.author,
                read_only=new.read_only,
                first_output=_last_output(connection, held.id),  # in this transaction: the fence is new
                created_at=now,
                ended_at=None,
            )
            connection.execute(insert(conversation_turns), _turn_row(turn))
            _drop_contents(connection, held.id)  # only the last turn can be continued
            _add_attachments(connection, turn, new.attachments)
            if new.attachments:
                _ensure_stored_room(connection, held)
            title = held.title or title_of(new.question)
            _change(connection, held.id, turns=number, title=title)
            self._tell(connection, EventType.TURN_STARTED, held, now, turn=number)
            return replace(held, turns=number, title=title)

        return self._database.write(unit)

    def resume(
        self,
        conversation_id: str,
        owner: WorkerIdentity,
        *,
        author: str | None,
        now: datetime,
        abandoned: Observed | None = None,
    ) -> Conversation:
        """Take the conversation to continue its last turn, which `author` sent.

        Raises `ConversationBusy` as `begin` does; `RequestRefused` if there is nothing to continue.
        """

        def unit(connection: Connection) -> Conversation:
            held = self._taken(connection, conversation_id, owner, abandoned, now)
            last = _turns(connection, held.id, held.turns - 1)
            if not last or not last[-1].state.resumable:  # guard: an answered turn is not made again
                raise RequestRefused(f"session {held.id} has no unfinished turn", "conversation_id")
            if last[-1].author != author:  # guard: a turn runs for its author only
                problem = f"turn {held.turns} of session {held.id} is new; try again"
                raise RequestRefused(problem, "conversation_id")
            _change_turn(connection, held.id, held.turns, state=TurnState.RUNNING.value, ended_at=None)
            self._tell(connection, EventType.TURN_STARTED, held, now, turn=held.turns, resumed=True)
            return held

        return self._database.write(unit)

    def take(
        self,
        conversation_id: str,
        owner: WorkerIdentity,
        *,
        now: datetime,
        abandoned: Observed | None = None,
    ) -> Conversation:
        """Take the conversation without a turn, for example to compact it. Raises `ConversationBusy`."""
        return self._database.write(
            lambda connection: self._taken(connection, conversation_id, owner, abandoned, now)
        )

    def attachments(self, conversation_id: str, turn: int) -> Sequence[Attachment]:
        """Return the files of a turn that is not answered. Raises `RequestRefused` if they are gone, because
        another turn has begun since.
        """
        table = conversation_attachments.c
        ours = table.conversation_id == conversation_id, table.turn == turn
        query = select(conversation_attachments).where(*ours).order_by(table.number)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        if any(row.content is None for row in rows):  # guard: a question is not asked without its files
            problem = f"the files of turn {turn} are deleted; send the question again with its files"
            raise RequestRefused(problem, "conversation_id")
        return [Attachment(row.name, MediaType(row.media_type), row.content) for row in rows]

    def rename(self, conversation_id: str, title: str) -> Conversation:
        """Change the title. Raises `UnknownConversation`."""

        def unit(connection: Connection) -> Conversation:
            held = _held(connection, conversation_id)
            _change(connection, held.id, title=title)
            return replace(held, title=title)

        return self._database.write(unit)

    def raise_limits(self, conversation_id: str, limits: BudgetLimits, *, now: datetime) -> Conversation:
        """Raise limits of the conversation, also while a turn runs. A limit of None stays, and the spending
        is not touched. Raises `UnknownConversation`; `RequestRefused` for a limit below the present one.
        """

        def unit(connection: Connection) -> Conversation:
            held = _held(connection, conversation_id)
            lowered = lowered_limit(limits_of(connection, held.id), limits)
            if lowered is not None:  # guard: of two raises at once, the lower one is not stored last
                name, present = lowered
                problem = f"a limit is a total and cannot be lowered: session {held.id} has {present} {name}"
                raise RequestRefused(problem, f"limits.{name}")
            raise_budget(connection, self._identifiers, held.id, limits, now)
            return held

        return self._database.write(unit)

    def beat(self, fence: TurnFence) -> bool:
        """Renew the lease, and return whether a person has requested a stop. Raises `StaleTurn`."""

        def unit(connection: Connection) -> bool:
            ensure_turn_held(connection, fence)
            held = _read(connection, fence.conversation_id)
            _change(connection, held.id, beat=held.beat + 1)
            return held.stop_requested

        return self._database.write(unit)

    def is_stop_requested(self, conversation_id: str) -> bool:
        """Return whether a person has requested a stop of the running turn."""
        query = select(conversations.c.stop_requested).where(conversations.c.id == conversation_id)
        with self._database.read() as connection:
            return bool(connection.execute(query).scalar())

    def end(
        self,
        fence: TurnFence,
        state: TurnState,
        *,
        answer: str = "",
        error: str | None = None,
        remedies: Sequence[Remedy] = (),
        now: datetime,
    ) -> None:
        """Store the end of the turn and give the conversation back. Raises `StaleTurn`."""

        def unit(connection: Connection) -> None:
            ensure_turn_held(connection, fence)
            held = _read(connection, fence.conversation_id)
            _change_turn(
                connection,
                held.id,
                fence.turn,
                state=state.value,
                answer=answer,
                error=error,
                remedies=_stored(remedies),
                ended_at=microseconds(now),
            )
            if state is TurnState.ANSWERED:
                _drop_contents(connection, held.id)
            _change(connection, held.id, **_NO_OWNER, stop_requested=False, updated_at=microseconds(now))
            self._tell(connection, EventType.TURN_ENDED, held, now, turn=fence.turn, state=state.value)

        self._database.write(unit)

    def release(self, fence: TurnFence, *, summary: tuple[str, int] | None = None) -> None:
        """Give back a conversation that was taken without a turn; with a `summary`, and the last turn that it
        covers, store it. Raises `StaleTurn`.
        """
        kept = {} if summary is None else {"summary": summary[0], "summary_turn": summary[1]}

        def unit(connection: Connection) -> None:
            ensure_turn_held(connection, fence)
            _change(connection, fence.conversation_id, **_NO_OWNER, stop_requested=False, **kept)

        self._database.write(unit)

    def summarise(self, fence: TurnFence, summary: tuple[str, int]) -> None:
        """Store a summary, and the last turn that it covers, during a turn. Raises `StaleTurn`."""

        def unit(connection: Connection) -> None:
            ensure_turn_held(connection, fence)
            _change(connection, fence.conversation_id, summary=summary[0], summary_turn=summary[1])

        self._database.write(unit)

    def request_stop(self, conversation_id: str) -> bool:
        """Ask the owner of the running turn to stop. Return False if no turn runs."""

        def unit(connection: Connection) -> bool:
            held = _held(connection, conversation_id)
            if held.owner is not None:
                _change(connection, held.id, stop_requested=True)
            return held.owner is not None

        return self._database.write(unit)

    def claim(self, fence: TurnFence, step: str, link: PlanLink, *, now: datetime) -> IdempotencyClaim:
        """Claim a tool call with effects, under its permanent name `step`. If an earlier run of the turn made
        the call, the claim names its plan.

        Raises `StaleTurn`; `KeyReused` if the call had other arguments.
        """

        def unit(connection: Connection) -> IdempotencyClaim:
            # guard: only the owner of the turn claims, so it may take over the claim of a dead owner at once
            ensure_turn_held(connection, fence)
            wanted = IdempotencyClaim(_claims_of(fence.conversation_id), step, microseconds(now))
            claim = claim_in(connection, wanted, link.request, waits_until=None)
            assert isinstance(claim, IdempotencyClaim)  # responses are stored by servers only
            return claim

        return self._database.write(unit)

    def plans_of(self, conversation_id: str) -> Sequence[PlanLink]:
        """Return the plans that the conversation started or corrected, in the order of their ids. Some may be
        deleted.
        """
        if not is_storable(conversation_id):
            return []
        rows = idempotency_keys.c
        ours = rows.user_id == _claims_of(conversation_id), rows.made.is_not(None)
        query = select(rows.made, rows.request).where(*ours).order_by(rows.made)
        with self._database.read() as connection:
            return [PlanLink.of(row.made, row.request) for row in connection.execute(query)]

    def delete(
        self,
        conversation_id: str,
        *,
        now: datetime,
        abandoned: Observed | None = None,
        only_unused: bool = False,
    ) -> None:
        """Delete the conversation with its turns and records; its plans and the audit log stay.

        Raises `UnknownConversation`; `ConversationBusy` while a turn runs; `RequestRefused` if the
        conversation has turns and `only_unused` is true.
        """

        def unit(connection: Connection) -> None:
            held = _held(connection, conversation_id)
            if only_unused and held.turns:  # guard: in this transaction, so that no turn is lost
                raise RequestRefused(f"session {held.id} has turns", "only_unused")
            _ensure_free(held, abandoned)
            for table in (plan_output, model_calls):
                connection.execute(delete(table).where(table.c.plan_id == held.id))
            connection.execute(delete(budgets).where(budgets.c.root_id == held.id))
            for table in (graph_checkpoints, graph_values, graph_writes):
                # The graphs of its turns have threads below its id; `0` is the character after `/`.
                ours = table.c.thread_id >= f"{held.id}/", table.c.thread_id < f"{held.id}0"
                connection.execute(delete(table).where(*ours))
            claims = idempotency_keys.c.user_id == _claims_of(held.id)
            connection.execute(delete(idempotency_keys).where(claims))
            for table in (conversation_attachments, conversation_turns):
                connection.execute(delete(table).where(table.c.conversation_id == held.id))
            connection.execute(delete(conversations).where(conversations.c.id == held.id))
            self._tell(connection, EventType.CONVERSATION_DELETED, held, now)

        self._database.write(unit)

    def _add(self, connection: Connection, made: Conversation, limits: BudgetLimits, now: datetime) -> None:
        hold_project(connection, made.project)
        _ensure_room(connection, made)
        row = row_of(made, **_owner_columns(made.owner))
        del row["owner"]
        connection.execute(insert(conversations), row)
        # In this transaction: a conversation without a budget would have no limits.
        open_budget(connection, self._identifiers, made.id, limits, now)
        forked = {} if made.forked_from is None else {"forked_from": made.forked_from}
        self._tell(connection, EventType.CONVERSATION_STARTED, made, now, **forked)

    def _taken(
        self,
        connection: Connection,
        conversation_id: str,
        owner: WorkerIdentity,
        abandoned: Observed | None,
        now: datetime,
    ) -> Conversation:
        """Lock the conversation and make the process its owner, under a new fence."""
        held = _held(connection, conversation_id)
        _ensure_free(held, abandoned)
        if held.owner is not None:
            _change_turn(
                connection,
                held.id,
                held.turns,
                only=TurnState.RUNNING,
                state=TurnState.INTERRUPTED.value,
                ended_at=microseconds(now),
            )
        taken = replace(held, fence=held.fence + 1, beat=0, owner=owner, stop_requested=False, updated_at=now)
        _change(
            connection,
            held.id,
            fence=taken.fence,
            beat=0,
            stop_requested=False,
            updated_at=microseconds(now),
            **_owner_columns(owner),
        )
        return taken

    def _tell(
        self, connection: Connection, kind: EventType, about: Conversation, now: datetime, **facts: JsonValue
    ) -> None:
        # Under the project, whose members may read it. The log keeps it for good, so it has no texts.
        told: dict[str, JsonValue] = {"conversation": about.id, **facts}
        append_to_outbox(connection, DomainEvent(kind, about.project, self._identifiers.new(), now, told))


def _ensure_room(connection: Connection, made: Conversation) -> None:
    """Raise `RequestRefused` if the user has too many conversations in the project."""
    count = select(func.count()).select_from(conversations).where(*_of_user(made))
    if (connection.execute(count).scalar() or 0) >= MOST_CONVERSATIONS:  # guard: bounded state
        whose = "you have" if made.created_by is None else f"{made.created_by} has"
        problem = f"{whose} {MOST_CONVERSATIONS:,} sessions in project {made.project}, the most; delete some"
        raise RequestRefused(problem, "project")


def _of_user(one: Conversation) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the conditions for the conversations of the same user in the same project."""
    table = conversations.c
    theirs = table.created_by.is_(None) if one.created_by is None else table.created_by == one.created_by
    return table.project == one.project, theirs


def _ensure_stored_room(connection: Connection, held: Conversation) -> None:
    """Raise `RequestRefused` if the attachments of the user in the project, with those just added, are too
    large.
    """
    table = conversation_attachments.c
    ours = select(conversations.c.id).where(*_of_user(held))
    stored = table.conversation_id.in_(ours), table.content.is_not(None)
    total = connection.execute(select(func.sum(table.bytes)).where(*stored)).scalar() or 0
    # guard: bounded state. The transaction is rolled back, with the added files.
    if total > MOST_STORED_BYTES:
        whose = held.created_by or "you"
        most = f"{MOST_STORED_BYTES:,} bytes of attachments in project {held.project}"
        limit = f"{whose} would store more than {most}"
        problem = f"{limit}; continue or delete sessions whose last message has no answer"
        raise RequestRefused(problem, "attachments")


def _ensure_free(held: Conversation, abandoned: Observed | None) -> None:
    if held.owner is not None and held.observed != abandoned:  # guard: one turn at a time
        raise ConversationBusy(held.id, held.turns)


def _claims_of(conversation_id: str) -> str:
    """Return the user id under which the claims of a conversation are stored. No user of a server has this
    id.
    """
    return f"conversation/{conversation_id}"


def _read(connection: Connection, conversation_id: str, *, lock: bool = False) -> Conversation:
    if not is_storable(conversation_id):
        raise UnknownConversation(conversation_id)
    query = select(conversations).where(conversations.c.id == conversation_id)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None:
        raise UnknownConversation(conversation_id)
    return _conversation(row)


def _held(connection: Connection, conversation_id: str) -> Conversation:
    """Return the conversation, locked until the end of the transaction."""
    return _read(connection, conversation_id, lock=True)


def _turns(
    connection: Connection, conversation_id: str, after: int = 0, limit: int | None = None
) -> Sequence[Turn]:
    table = conversation_turns.c
    query = select(conversation_turns).where(table.conversation_id == conversation_id, table.number > after)
    rows = connection.execute(query.order_by(table.number).limit(limit)).mappings().all()
    attached = _attached(connection, conversation_id, [row["number"] for row in rows])
    return [
        record_in(
            Turn,
            row,
            attachments=tuple(attached.get(row["number"], ())),
            remedies=remedies_from_json(json.loads(row["remedies"] or "[]")),
        )
        for row in rows
    ]


def _turn_row(turn: Turn) -> dict[str, Any]:
    row = row_of(turn, attachments=(), remedies=_stored(turn.remedies))
    del row["attachments"]
    return row


def _stored(remedies: Sequence[Remedy]) -> str | None:
    return json.dumps(remedies_to_json(remedies)) if remedies else None


def _attached(
    connection: Connection, conversation_id: str, turns: Sequence[int]
) -> dict[int, list[TurnAttachment]]:
    """Return the files of consecutive turns, by the number of the turn."""
    table, found = conversation_attachments.c, dict[int, list[TurnAttachment]]()
    if not turns:
        return found
    query = select(table.turn, table.name, table.media_type, table.bytes).where(
        table.conversation_id == conversation_id, table.turn.between(turns[0], turns[-1])
    )
    for row in connection.execute(query.order_by(table.turn, table.number)):
        one = TurnAttachment(row.name, MediaType(row.media_type), row.bytes)
        found.setdefault(row.turn, []).append(one)
    return found


def _add_attachments(connection: Connection, turn: Turn, attachments: Sequence[Attachment]) -> None:
    rows = [
        {
            "conversation_id": turn.conversation_id,
            "turn": turn.number,
            "number": number,
            "name": one.name,
            "media_type": one.media_type.value,
            "bytes": len(one.content),
            "content": one.content,
        }
        for number, one in enumerate(attachments, start=1)
    ]
    if rows:
        connection.execute(insert(conversation_attachments), rows)


def _copy_attachments(connection: Connection, source: str, made: str, last: int) -> None:
    """Copy the files of the turns up to `last` for a fork, whose last turn can be continued."""
    table = conversation_attachments.c
    others = [column for column in table if column is not table.conversation_id]
    copied = select(literal(made), *others).where(table.conversation_id == source, table.turn <= last)
    names = ["conversation_id", *(column.name for column in others)]
    connection.execute(insert(conversation_attachments).from_select(names, copied))


def _drop_contents(connection: Connection, conversation_id: str) -> None:
    """Delete the contents of all files of the conversation; their names stay."""
    table = conversation_attachments.c
    held = table.conversation_id == conversation_id, table.content.is_not(None)
    connection.execute(update(conversation_attachments).where(*held).values(content=None))


def _last_output(connection: Connection, conversation_id: str) -> int:
    """Return the number of the last piece of output; 0 if there is none."""
    query = select(func.max(plan_output.c.number)).where(plan_output.c.plan_id == conversation_id)
    return connection.execute(query).scalar() or 0


def _change(connection: Connection, conversation_id: str, **columns: object) -> None:
    connection.execute(update(conversations).where(conversations.c.id == conversation_id).values(columns))


def _change_turn(
    connection: Connection,
    conversation_id: str,
    number: int,
    *,
    only: TurnState | None = None,
    **columns: object,
) -> None:
    table = conversation_turns.c
    changed = update(conversation_turns).where(
        table.conversation_id == conversation_id, table.number == number
    )
    if only is not None:
        changed = changed.where(table.state == only.value)
    connection.execute(changed.values(columns))


def _owner_columns(owner: WorkerIdentity | None) -> dict[str, object]:
    if owner is None:
        return dict(_NO_OWNER)
    return {
        "owner_id": owner.id,
        "owner_host": owner.host,
        "owner_pid": owner.pid,
        "owner_started_ticks": owner.started_ticks,
    }


def _conversation(row: RowMapping) -> Conversation:
    owner: WorkerIdentity | None = None
    if row["owner_id"] is not None:
        owner = WorkerIdentity(
            row["owner_id"], row["owner_host"], row["owner_pid"], row["owner_started_ticks"]
        )
    return record_in(Conversation, row, owner=owner)
