"""The components of conversations: their store, their output, and the environment of a turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.app.scope import Once

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.context.code_index import CodePlace
    from cleveragents.conversations.model import Conversation
    from cleveragents.conversations.plan_tools import ConversationPlans
    from cleveragents.conversations.running_turns import LeaseObserver, LeaseTerms
    from cleveragents.conversations.store import SqlConversationStore
    from cleveragents.conversations.turn import TurnEnvironment
    from cleveragents.core.identifiers import TurnFence, WorkerIdentity
    from cleveragents.models.calls import OpenCalls
    from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
    from cleveragents.processes.ports import StopSignal

__all__ = ["ConversationParts"]


class ConversationParts:
    """The conversation components of one process. Safe in any thread."""

    def __init__(self, container: Container) -> None:
        from cleveragents.models.calls import OpenCallsOfTrees

        self._container = container
        self._open_calls = OpenCallsOfTrees()

    @Once
    def store(self) -> SqlConversationStore:
        from cleveragents.conversations.store import SqlConversationStore

        return SqlConversationStore(self._container.database, self._container.identifiers)

    @Once
    def output(self) -> SqlPlanOutput:
        from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
        from cleveragents.storage.conversation_tables import conversations

        return SqlPlanOutput(self._container.database, owners=conversations)

    def output_of(self, fence: TurnFence) -> SqlPlanOutput:
        """Return the output of a turn, for its owner: an append raises `StaleTurn` once the turn is lost."""
        from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
        from cleveragents.storage.conversation_tables import conversations, ensure_turn_held

        return SqlPlanOutput(
            self._container.database,
            owners=conversations,
            ensure=lambda connection: ensure_turn_held(connection, fence),
        )

    @Once
    def observer(self) -> LeaseObserver:
        from cleveragents.conversations.running_turns import LeaseObserver

        return LeaseObserver(self._container.processes, self._container.clock, self.terms)

    @property
    def terms(self) -> LeaseTerms:
        """The lease of a turn, with the same times as the lease of a job."""
        from cleveragents.conversations.running_turns import LeaseTerms

        worker = self._container.settings.worker
        return LeaseTerms(worker.lease_seconds, worker.heartbeat_seconds)

    @property
    def owner(self) -> WorkerIdentity:
        """The identity of this process as the owner of turns."""
        return self._container.processes.identity(self._container.identifiers.new())

    def environment(
        self,
        conversation: Conversation,
        root: Path,
        plans: ConversationPlans,
        stop: StopSignal,
        ensure_allowed: Callable[[], object],
    ) -> TurnEnvironment:
        """Return the environment of a turn in the repository at `root`. `ensure_allowed` is called before
        each model and tool call; an error of it ends the turn.
        """
        from cleveragents.actors.guidance.instructions import instructions_for, user_instructions
        from cleveragents.context.code_index import CodePlace
        from cleveragents.context.plan_context import ContextLimits, PlanContext
        from cleveragents.conversations.turn import TurnEnvironment
        from cleveragents.models.calls import ModelCalls

        container, settings = self._container, self._container.settings
        parts, place = container.plan_parts, CodePlace(root)
        budgets = parts.actor_parts.budgets
        budgets.forfeit(conversation.id, now=container.clock.now())  # reservations of a process that died
        seconds = budgets.view(conversation.id).limits.seconds
        return TurnEnvironment(
            root=root,
            model=conversation.model or settings.models.default,
            calls=ModelCalls(
                models=container.models,
                budgets=budgets,
                clock=container.clock,
                plan_id=conversation.id,
                root_id=conversation.id,
                fallback=settings.models.fallback or None,
                retries=settings.models.retries,
                patience_seconds=settings.models.timeout_seconds,
                open_calls=self._calls(conversation.id),
            ),
            actors=parts.actors(None),
            runner=lambda: container.actor_runner,
            context=PlanContext(
                pipeline=container.context_parts.pipeline,
                history=container.context_parts.history,
                place=place,
                terms=ContextLimits(
                    starting_tokens=settings.context.starting_tokens,
                    plan_tokens=settings.context.plan_tokens,
                    deadline_seconds=settings.context.deadline_seconds,
                    index_seconds=settings.context.index_seconds,
                ),
                decisions=lambda: (),
                calls=lambda: (),
                stop=stop,
                say=lambda line: None,
            ),
            builtin=parts.tools,
            sizes=lambda: self._sizes(place, stop),
            plans=plans,
            instructions=instructions_for(root, own=user_instructions(os.environ)),
            ensure_allowed=ensure_allowed,
            seconds=seconds,
        )

    def read(self, root: Path, path: str) -> bytes:
        """Return a file of the repository at `root` that git does not ignore. Raises `ToolRefused`, for a
        large file, too, and `OutsideSandbox`.
        """
        from cleveragents.context.code_index import CodePlace
        from cleveragents.conversations.files import RepositoryFiles
        from cleveragents.jobs.worker.async_worker import CancellationToken

        return RepositoryFiles(root, self._sizes(CodePlace(root), CancellationToken())).read(path)

    def _calls(self, conversation_id: str) -> OpenCalls:
        return self._open_calls.of(conversation_id)

    def _sizes(self, place: CodePlace, stop: StopSignal) -> Mapping[str, int]:
        """Return the size of each file of the repository that git does not ignore."""
        seconds = self._container.settings.context.deadline_seconds
        with self._container.context_parts.index.open(place, seconds=seconds, cancelled=stop) as snapshot:
            return {file.path: file.size for file in snapshot.files}
