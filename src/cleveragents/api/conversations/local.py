"""Conversations in the database of this process, whose turns this process runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from cleveragents.access.model.project import DEFAULT_PROJECT, resource_of
from cleveragents.access.model.user import Role
from cleveragents.api.access import OWNER
from cleveragents.api.conversations.client import (
    AttachmentView,
    ConversationRequest,
    ConversationView,
    FileLinesView,
    TurnOutputView,
    TurnView,
    followed,
)
from cleveragents.api.plans.client import until
from cleveragents.api.plans.details import shown_resource
from cleveragents.api.plans.views import LimitsView
from cleveragents.api.views import Page
from cleveragents.conversations.model import (
    LONGEST_QUESTION,
    PLAN_COMMAND,
    Conversation,
    NewConversation,
    NewTurn,
    Observed,
    PlanLink,
    Turn,
    TurnState,
    goal_of,
    title_of,
)
from cleveragents.core.errors import (
    ConfigurationError,
    ConversationBusy,
    OutsideSandbox,
    PriceUnknown,
    Remedy,
    RequestRefused,
    ToolRefused,
    UnknownResource,
)
from cleveragents.core.policy import profile
from cleveragents.core.text.redaction import redact_content_text, redact_text
from cleveragents.models.model.attachment import Attachment, ensure_attachable
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits
from cleveragents.models.ports import ToolCallMode
from cleveragents.storage.columns import kept_text

if TYPE_CHECKING:
    from cleveragents.access.model.project import Resource
    from cleveragents.actors.model.actor import Progress
    from cleveragents.api.access import Access
    from cleveragents.api.plans.local import LocalPlans
    from cleveragents.api.plans.request import Limits
    from cleveragents.app.conversation_parts import ConversationParts
    from cleveragents.conversations.running_turns import TurnWork
    from cleveragents.conversations.turn import TurnEnvironment
    from cleveragents.jobs.worker.async_worker import CancellationToken
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["LocalConversations"]

_MODEL = "model"
_MOST_PIECES = 1000
_LONGEST_NUMBER = 9
_LINES_AROUND = 30
_LONGEST_LINE = 1000


class LocalConversations:
    """Conversations in the database of this process. Any thread may use it.

    `plans` acts for the same user. `sleep` raises `Closed` when the client is closed.
    """

    def __init__(
        self, access: Access, plans: LocalPlans, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._access = access
        self._container = access.container
        self._plans = plans
        self._sleep = sleep

    @property
    def _parts(self) -> ConversationParts:
        return self._container.conversations

    @property
    def _by(self) -> str | None:
        """The acting user of a server; None without a server."""
        name = self._access.user.name
        return None if name == OWNER and self._access.is_owner else name

    def create(
        self, request: ConversationRequest, *, claim: IdempotencyClaim | None = None
    ) -> ConversationView:
        self._access.ensure_anywhere(Role.OPERATOR)
        if claim is not None and claim.made is not None:  # guard: created once
            return self.get(claim.made)
        model = request.model or self._container.settings.models.default
        if not model:
            raise _no_model()
        limits = request.limits.counted()
        self._ensure_priced(model, limits)
        if request.profile is not None:
            profile(request.profile)
        chosen = replace(self._place(request), model=request.model, profile=request.profile)
        new = replace(chosen, created_by=self._by, limits=limits)
        return self._view(self._parts.store.create(new, now=self._container.clock.now(), claim=claim))

    def list(
        self,
        *,
        project: str | None = None,
        resource: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ConversationView]:
        found = self._parts.store.list(
            project=project, resource=resource, scope=self._access.scope, limit=limit + 1, after=after
        )
        items = tuple(self._view(one) for one in found[:limit])
        return Page(items=items, next=items[-1].id if len(found) > limit else None)

    def get(self, conversation_id: str) -> ConversationView:
        return self._view(self._read(conversation_id))

    def turns(self, conversation_id: str, *, limit: int = 100, after: str | None = None) -> Page[TurnView]:
        found = self._read(conversation_id)
        # guard: `²` is a digit without a value, and no database stores a number of any length
        if after and not (after.isdecimal() and len(after) <= _LONGEST_NUMBER):
            raise RequestRefused("`after` is the number of a turn", "after")
        turns = self._parts.store.turns(found.id, after=int(after or 0), limit=limit + 1)
        links = self._parts.store.plans_of(found.id)
        items = tuple(self._turn_view(found, turn, links) for turn in turns[:limit])
        return Page(items=items, next=str(items[-1].number) if len(turns) > limit else None)

    def send(
        self,
        conversation_id: str,
        text: str,
        *,
        read_only: bool = False,
        attachments: Sequence[Attachment] = (),
        claim: IdempotencyClaim | None = None,
    ) -> TurnView:
        found = self._operated(conversation_id)
        if claim is not None and claim.made is not None:  # guard: sent once
            return self._turn(found.id, int(claim.made))
        question = kept_text(redact_text(text)).strip()
        if not question or len(question) > LONGEST_QUESTION:
            raise RequestRefused(f"a question has 1 to {LONGEST_QUESTION:,} characters", "text")
        goal = goal_of(question)
        if goal == "" or (goal and read_only):
            problem = "a read-only turn starts no plan" if goal else f"missing goal: {PLAN_COMMAND} GOAL"
            raise RequestRefused(problem, "text")
        self._ensure_taken(found, attachments, goal)
        root = self._ready(found)
        new = NewTurn(question, self._by, read_only, tuple(attachments))
        begin = partial(self._parts.store.begin, found.id, new, self._parts.owner, claim=claim)
        held = self._take(found.id, begin)
        return self._started(held, root)

    def _ensure_taken(
        self, conversation: Conversation, attachments: Sequence[Attachment], goal: str | None
    ) -> None:
        """Raise `RequestRefused` for attachments that the model of the conversation does not take."""
        ensure_attachable(attachments)
        model = conversation.model or self._container.settings.models.default
        if attachments and goal is not None:
            raise RequestRefused(
                "a plan takes no attachments; ask a question about them first", "attachments"
            )
        if attachments and model:
            self._container.models.facts(model).attachment_tokens(attachments)

    def resume(self, conversation_id: str) -> TurnView:
        found = self._operated(conversation_id)
        last = self._parts.store.turns(found.id, after=max(0, found.turns - 1))
        author = last[-1].author if last else self._by
        acting = self._acting_as(author, f"turn {found.turns} of session {found.id}")
        root = acting._ready(acting._operated(found.id))
        resume = partial(self._parts.store.resume, found.id, self._parts.owner, author=author)
        return acting._started(self._take(found.id, resume), root)

    def stop(self, conversation_id: str) -> ConversationView:
        found = self._operated(conversation_id)
        if self._parts.store.request_stop(found.id):
            self._container.running_turns.stop(found.id)
        return self.get(found.id)

    def watch(self, conversation_id: str, *, after: int | None = None) -> Iterator[TurnOutputView]:
        found = self._read(conversation_id)
        yield from followed(
            lambda: self._state(self._read(found.id)) is not TurnState.RUNNING,
            lambda after: self.output(found.id, after=after),
            self._sleep,
            after=self.begins(found.id) if after is None else after,
        )

    def begins(self, conversation_id: str) -> int:
        """Return the number of the last piece of output before the last turn."""
        found = self._read(conversation_id)
        last = self._parts.store.turns(found.id, after=max(0, found.turns - 1))
        return last[-1].first_output if last else 0

    def wait(self, conversation_id: str, *, timeout: float | None = None) -> TurnView:
        found = self._read(conversation_id)
        if not found.turns:
            raise RequestRefused(f"session {found.id} has no turns", "conversation_id")
        for _ in until(timeout, f"waiting for session {found.id}", self._sleep):
            found = self._read(found.id)
            if self._state(found) is not TurnState.RUNNING:
                break
        return self._turn(found.id, found.turns)

    def output(self, conversation_id: str, *, after: int = 0, limit: int = 500) -> tuple[TurnOutputView, ...]:
        found = self._read(conversation_id)
        pieces = self._parts.output.read(found.id, after=after, limit=limit)
        return tuple(
            TurnOutputView(
                conversation_id=found.id,
                number=piece.number,
                kind=piece.kind,
                text=piece.text,
                time=piece.written_at.replace(microsecond=0),
            )
            for piece in pieces
        )

    def file(self, conversation_id: str, path: str, *, line: int = 1) -> FileLinesView:
        found = self._operated(conversation_id)
        try:
            text = redact_content_text(self._parts.read(self._root(found), path).decode())
        except (ToolRefused, OutsideSandbox, UnicodeDecodeError):
            # One message: whether an ignored file exists stays unknown.
            problem = f"{path!r} is no text file of the repository, is too large, or git ignores it"
            raise RequestRefused(problem, "path") from None
        lines = text.splitlines()
        first = max(1, min(line, len(lines)) - _LINES_AROUND)
        shown = lines[first - 1 : first + 2 * _LINES_AROUND]
        return FileLinesView(
            conversation_id=found.id,
            path=path,
            first=first,
            lines=tuple(one[:_LONGEST_LINE] for one in shown),
            total=len(lines),
        )

    def fork(
        self, conversation_id: str, *, turn: int | None = None, claim: IdempotencyClaim | None = None
    ) -> ConversationView:
        found = self._operated(conversation_id)
        if claim is not None and claim.made is not None:  # guard: forked once
            return self.get(claim.made)
        now = self._container.clock.now()
        return self._view(self._parts.store.fork(found.id, turn=turn, by=self._by, now=now, claim=claim))

    def rename(self, conversation_id: str, title: str) -> ConversationView:
        found = self._operated(conversation_id)
        shown = title_of(kept_text(redact_text(title)))
        if not shown:
            raise RequestRefused("the title is empty", "title")
        return self._view(self._parts.store.rename(found.id, shown))

    def raise_budget(self, conversation_id: str, limits: Limits) -> ConversationView:
        found, counted = self._operated(conversation_id), limits.counted()
        if counted == BudgetLimits():
            raise RequestRefused("missing limit: pass usd, tokens, steps or seconds")
        self._ensure_priced(found.model or self._container.settings.models.default, counted)
        now = self._container.clock.now()
        return self._view(self._parts.store.raise_limits(found.id, counted, now=now))

    def compact(self, conversation_id: str) -> ConversationView:
        found = self._operated(conversation_id)
        root = self._ready(found)
        running = self._container.running_turns
        held = self._take(found.id, partial(self._parts.store.take, found.id, self._parts.owner))

        def work(stop: CancellationToken) -> None:
            from cleveragents.conversations.turn import compacted

            summary: tuple[str, int] | None = None
            try:
                environment = self._environment(held, root, stop)
                summary = compacted(environment, held, self._parts.store.turns(held.id), stop)
            finally:
                self._parts.store.release(held.held, summary=summary)

        running.run(held, work)
        return self.get(found.id)

    def delete(self, conversation_id: str, *, only_unused: bool = False) -> None:
        found = self._operated(conversation_id)
        abandoned = self._parts.observer.abandoned(found)
        now = self._container.clock.now()
        self._parts.store.delete(found.id, now=now, abandoned=abandoned, only_unused=only_unused)

    def _place(self, request: ConversationRequest) -> NewConversation:
        """Return the repository of a new conversation. Raises `NotAllowed`, `UnknownResource`."""
        if request.resource is not None:
            resource = self._access.resource(request.resource, Role.OPERATOR)
            return NewConversation(resource.project, resource_of(resource), resource.name)
        self._access.ensure_server_admin()  # guard: users of a server name no directory of its machine
        directory = Path(request.repository).absolute()
        if not directory.is_dir():
            raise RequestRefused(f"{directory} is not a directory", "repository")
        from cleveragents.sandboxes.resources import find_resource

        return NewConversation(DEFAULT_PROJECT, str(find_resource(directory)[0]))

    def _ensure_priced(self, model: str, limits: BudgetLimits) -> None:
        """Raise `UnknownModel`; `PriceUnknown` if money is limited and the price of the model is unknown."""
        priced = not model or self._container.models.facts(model).price is not None
        if limits.picodollars is not None and not priced:  # guard: refused before the start
            raise PriceUnknown(model)

    def _ready(self, conversation: Conversation) -> Path:
        """Return the directory of the repository after checking that a turn could run."""
        if not (conversation.model or self._container.settings.models.default):
            raise _no_model()
        root = self._root(conversation)
        self._container.running_turns.ensure_room()
        return root

    def _root(self, conversation: Conversation) -> Path:
        """Return the directory of this machine with the files of the conversation's repository.

        Raises `UnknownResource` if the resource was removed, even if another project now uses its name;
        `SandboxRefused`, `RemoteUnreachable`.
        """
        resource = self._resource(conversation)
        if resource is not None:
            from cleveragents.api.resources import place_of

            return place_of(self._container, resource)
        directory = Path(conversation.resource)
        if not directory.is_dir():
            raise RequestRefused(f"{directory} is not a directory any more", "repository")
        return directory

    def _resource(self, conversation: Conversation) -> Resource | None:
        """Return the resource of the conversation after checking the user's access to it; None for a
        directory of this machine. Raises `UnknownResource`, `NotAllowed`.
        """
        if conversation.resource_name is None:
            self._access.ensure_server_admin()  # guard: only the owner reads directories of the machine
            return None
        resource = self._access.resource(conversation.resource_name, Role.OPERATOR)
        if resource.project != conversation.project:  # guard: the name now belongs to another project
            raise UnknownResource(conversation.resource_name)
        return resource

    def _take(self, conversation_id: str, take: Callable[..., Conversation]) -> Conversation:
        """Take the lease of the conversation, also from an owner that died. If the owner is on another
        machine, wait for its next heartbeat, at most for the length of a lease. Raises `ConversationBusy`.
        """
        first: Observed | None = None
        observer, processes = self._parts.observer, self._container.processes
        while True:
            seen = self._parts.store.get(conversation_id)
            abandoned = observer.abandoned(seen)
            try:
                return take(now=self._container.clock.now(), abandoned=abandoned)
            except ConversationBusy:
                first = first or seen.observed
                elsewhere = seen.owner is not None and processes.is_alive(seen.owner) is None
                if not elsewhere or seen.observed != first:  # guard: a living owner keeps the conversation
                    raise
            self._sleep(0.5)

    def _started(self, held: Conversation, root: Path) -> TurnView:
        self._container.running_turns.start(held, self._work(held, root), by=self._by)
        return self._turn(held.id, held.turns)

    def _work(self, held: Conversation, root: Path) -> TurnWork:
        def work(stop: CancellationToken, told: Callable[[Progress], None]) -> str:
            from cleveragents.conversations.turn import needed_summary, run_turn

            conversation, environment = held, self._environment(held, root, stop, told)
            *earlier, turn = [self._with_partial(one) for one in self._parts.store.turns(held.id)]
            summary = needed_summary(environment, held, turn, earlier, stop, told)
            if summary is not None:
                self._parts.store.summarise(held.held, summary)
                conversation = replace(held, summary=summary[0], summary_turn=summary[1])
            attachments = self._parts.store.attachments(held.id, turn.number)
            return run_turn(environment, conversation, turn, earlier, stop, told, attachments)

        return work

    def _environment(
        self,
        held: Conversation,
        root: Path,
        stop: CancellationToken,
        told: Callable[[Progress], None] = lambda seen: None,
    ) -> TurnEnvironment:
        """Return the environment of a turn. The rights of its author are read again for each call, because
        they may change during the turn. `told` receives the plans that the turn starts or corrects.
        """
        from cleveragents.api.conversations.plans import LocalConversationPlans

        def plans_now() -> LocalPlans:
            return self._plans.acting_for(self._access.now())

        def ensure_allowed() -> None:
            access = self._access.now()
            access.ensure(Role.OPERATOR, held.project)  # guard: a removed member's turn ends
            LocalConversations(access, self._plans)._resource(held)

        plans = LocalConversationPlans(self._container, plans_now, held, told)
        return self._parts.environment(held, root, plans, stop, ensure_allowed)

    def _acting_as(self, author: str | None, turn: str) -> LocalConversations:
        """Return the conversations with the rights of a turn's author, who need not be the caller. Only the
        author and the owner of this machine may continue a turn. Raises `RequestRefused`, `UnknownUser`.
        """
        if author == self._by:
            return self
        if author is None or not self._access.is_owner:  # guard: a turn runs for its author only
            sent = f"{turn} was sent by {author or 'the owner of the machine'}, who alone can continue it"
            raise RequestRefused(f"{sent}; send a message of your own instead", "conversation_id")
        access = structs.replace(self._access, user=self._container.users.get(author))
        return LocalConversations(access, self._plans.acting_for(access), self._sleep)

    def _read(self, conversation_id: str) -> Conversation:
        return self._access.conversation(conversation_id, Role.VIEWER)

    def _operated(self, conversation_id: str) -> Conversation:
        return self._access.conversation(conversation_id, Role.OPERATOR)

    def _state(self, conversation: Conversation) -> TurnState | None:
        """Return the state of the last turn: `interrupted` if the process that ran it has died."""
        last = self._parts.store.turns(conversation.id, after=max(0, conversation.turns - 1))
        return self._state_of(conversation, last[-1]) if last else None

    def _state_of(self, conversation: Conversation, turn: Turn) -> TurnState:
        if turn.state is not TurnState.RUNNING or turn.number != conversation.turns:
            return turn.state
        lost = conversation.owner is None or self._parts.observer.abandoned(conversation) is not None
        return TurnState.INTERRUPTED if lost else TurnState.RUNNING

    def _with_partial(self, turn: Turn) -> Turn:
        """Return the turn. If it has no answer yet, its answer is the model's output so far."""
        if turn.answer or turn.state is TurnState.ANSWERED:
            return turn
        following = self._parts.store.turns(turn.conversation_id, after=turn.number, limit=1)
        last = following[0].first_output if following else None
        pieces = self._parts.output.read(turn.conversation_id, after=turn.first_output, limit=_MOST_PIECES)
        said = [one.text for one in pieces if one.kind == _MODEL and (last is None or one.number <= last)]
        return replace(turn, answer="".join(said).strip())

    def _turn(self, conversation_id: str, number: int) -> TurnView:
        found = self._read(conversation_id)
        turns = self._parts.store.turns(found.id, after=number - 1, limit=1)
        return self._turn_view(found, turns[0], self._parts.store.plans_of(found.id))

    def _turn_view(self, conversation: Conversation, turn: Turn, links: Sequence[PlanLink]) -> TurnView:
        shown = self._with_partial(turn)
        return TurnView(
            conversation_id=conversation.id,
            number=turn.number,
            question=turn.question,
            answer=shown.answer,
            state=self._state_of(conversation, turn),
            error=turn.error,
            by=turn.author,
            read_only=turn.read_only,
            plans=tuple(dict.fromkeys(link.plan_id for link in links if link.turn == turn.number)),
            output_after=turn.first_output,
            created=turn.created_at.replace(microsecond=0),
            ended=None if turn.ended_at is None else turn.ended_at.replace(microsecond=0),
            attachments=tuple(
                AttachmentView(name=one.name, media_type=one.media_type, bytes=one.bytes)
                for one in turn.attachments
            ),
            remedies=turn.remedies,
        )

    def _view(self, conversation: Conversation) -> ConversationView:
        budget = self._container.plan_parts.actor_parts.budgets.view(conversation.id)
        limits, spent = budget.limits, budget.spent
        links = self._parts.store.plans_of(conversation.id)
        model = conversation.model or self._container.settings.models.default
        facts = self._container.models.facts(model) if model else None
        priced = facts is not None and facts.price is not None
        return ConversationView(
            id=conversation.id,
            title=conversation.title,
            state=self._state(conversation),
            turns=conversation.turns,
            project=conversation.project,
            resource=shown_resource(conversation.resource),
            resource_name=conversation.resource_name,
            model=conversation.model,
            by=conversation.created_by,
            created=conversation.created_at.replace(microsecond=0),
            updated=conversation.updated_at.replace(microsecond=0),
            forked_from=conversation.forked_from,
            compacted=conversation.summary_turn,
            plans=tuple(dict.fromkeys(link.plan_id for link in links if link.tool == "start_plan")),
            model_calls=spent.steps,
            tokens=spent.tokens,
            usd=spent.picodollars / PICODOLLARS if priced else None,
            limits=LimitsView(
                usd=None if limits.picodollars is None else limits.picodollars / PICODOLLARS,
                tokens=limits.tokens,
                steps=limits.steps,
                seconds=limits.seconds,
            ),
            profile=conversation.profile,
            calls_tools=facts is not None and facts.tool_calls in (None, ToolCallMode.NATIVE),
        )


def _no_model() -> ConfigurationError:
    default = {"key": "models.default", "value": None}
    remedies = (
        Remedy("init", text="Set up a provider and a model"),
        Remedy("config.set", options=default, text="Set the default model"),
        Remedy("model.list", text="List the models"),
    )
    return ConfigurationError("models.default", "no default model; name a model", remedies)
