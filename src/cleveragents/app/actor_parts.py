"""The components of actors: models, budgets, decisions, checkpoints, tools, and the runner.

Models and the runner belong to the process, because all of its plans share limits, breakers and the loop. The
other components only hold stores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cleveragents.app.scope import Once
from cleveragents.core.policy import Capability, Verdict
from cleveragents.plans.model.plan import Phase

if TYPE_CHECKING:
    from cleveragents.actors.model.actor import Progress
    from cleveragents.actors.ports import ActorHost, ActorSource
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.context.plan_context import PlanContext
    from cleveragents.models.model.budget import BudgetLimits
    from cleveragents.models.ports import ModelSource
    from cleveragents.models.store.sql_budget_store import SqlBudgetStore
    from cleveragents.plans.actors.actor_stage import ActorPhase, OpenHost, Stage
    from cleveragents.plans.execute import ExecutePhase
    from cleveragents.plans.history import PlanHistory
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.model.strategy import Strategy
    from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore, SqlDecisionStore
    from cleveragents.plans.strategize import StrategizePhase
    from cleveragents.processes.stdio_process import ProgramEnvironment
    from cleveragents.tools.mcp.configuration import McpConfiguration
    from cleveragents.tools.ports import ToolSource

    ToolsFor = Callable[[bool], ToolSource]

__all__ = ["ActorParts"]

_FILES_TOKENS = 8_192


class ActorParts:
    """The actor components of one process. Safe in any thread."""

    def __init__(self, container: Container, plans: PlanParts) -> None:
        from cleveragents.models.calls import OpenCallsOfTrees

        self._container = container
        self._plans = plans
        self._open_calls = OpenCallsOfTrees()

    @property
    def models(self) -> ModelSource:
        return self._container.models

    @Once
    def budgets(self) -> SqlBudgetStore:
        from cleveragents.models.store.sql_budget_store import SqlBudgetStore

        return SqlBudgetStore(self._container.database, self._container.identifiers)

    @Once
    def decisions(self) -> SqlDecisionStore:
        from cleveragents.plans.store.sql_decision_store import SqlDecisionStore

        return SqlDecisionStore(self._container.database, self._container.identifiers)

    @Once
    def corrections(self) -> SqlCorrectionStore:
        from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore

        container = self._container
        return SqlCorrectionStore(container.database, container.identifiers, self._plans.plans)

    def strategize_phase(
        self,
        say: Callable[[str], None] | None,
        told: Callable[[Progress], None] | None,
        on_output: Callable[[bytes], None] | None,
    ) -> StrategizePhase:
        """Return the use case that strategizes with an actor."""
        from cleveragents.core.policy import READ_ONLY
        from cleveragents.plans.actors.actor_stage import ActorTurn
        from cleveragents.plans.ports.plans import TreeLimits
        from cleveragents.plans.strategize import StrategizePhase

        container = self._container
        return StrategizePhase(
            open_stage=lambda ground: self._stage(ground, on_output, say or _nothing),
            turn=ActorTurn(lambda: container.actor_runner, told),
            decisions=self.decisions,
            corrections=self.corrections,
            plans=self._plans.plans,
            calls_of=lambda ground: self._plans.execution(ground, READ_ONLY).history.calls(ground.plan.id),
            limits=TreeLimits(container.settings.plan.max_depth, container.settings.plan.max_fan_out),
            clock=container.clock,
            say=say or _nothing,
        )

    def execute_phase(
        self,
        say: Callable[[str], None] | None,
        told: Callable[[Progress], None] | None,
        on_output: Callable[[bytes], None] | None,
    ) -> ExecutePhase:
        """Return the use case that executes with actors."""
        from cleveragents.plans.actors.actor_stage import ActorTurn
        from cleveragents.plans.execute import ExecutePhase
        from cleveragents.plans.store.sql_plan_records import SqlCheckStore

        container = self._container
        return ExecutePhase(
            open_stage=lambda ground: self._stage(ground, on_output, say or _nothing),
            turn=ActorTurn(lambda: container.actor_runner, told),
            checks=SqlCheckStore(container.database, container.identifiers),
            record_review=self._plans.comments.record_review,
            record_answers=self._plans.comments.record_answers,
            sub_plans=self._plans.sub_plans,
            clock=container.clock,
            say=say or _nothing,
        )

    def time_left(self, plan: Plan, strategy: Strategy) -> float:
        """Return the time left for the plan's whole tree in seconds, according to its current budget or else
        the root's limit.
        """
        from cleveragents.plans.history import seconds_of_tree
        from cleveragents.plans.store.sql_plan_records import SqlTreeCalls

        container = self._container
        budgets = self.budgets if strategy.casting is None else self._opened(plan)
        limit = budgets.view(plan.root).limits.seconds or self._limit_of_root(plan, strategy)
        calls = SqlTreeCalls(container.database).of_tree(plan.root)
        return limit - seconds_of_tree(calls, container.clock.now())

    def _limit_of_root(self, plan: Plan, strategy: Strategy) -> float:
        from cleveragents.plans.model.strategy import Strategy

        if plan.parent_id is None:
            return strategy.limit_seconds
        root = self._plans.plans.get(plan.root)
        return (strategy if root.strategy is None else Strategy.from_json(root.strategy)).limit_seconds

    def ensure_priced(self, actors: ActorSource, cast: Iterable[str], model: str) -> None:
        """Raise `PriceUnknown` unless every model that may be called, including the fallback, has a price."""
        from cleveragents.core.errors import PriceUnknown
        from cleveragents.plans.actors.role_models import models_of_roles

        settings = self._container.settings.models
        asked = models_of_roles(actors, cast, model or settings.default)
        for name in filter(None, (*asked, settings.fallback)):
            if self.models.facts(name).price is None:  # guard: refused before the start
                raise PriceUnknown(name)

    def ensure_own_limits(self, actors: ActorSource, cast: Iterable[str], model: str) -> None:
        """Raise `PriceUnknown` if an actor with its own limit in dollars may call a model without a price."""
        from cleveragents.core.errors import PriceUnknown
        from cleveragents.plans.actors.role_models import models_of_roles, with_money_limit

        settings = self._container.settings.models
        for actor in with_money_limit(actors, cast):
            asked = models_of_roles(actors, (actor,), model or settings.default)
            for name in filter(None, (*asked, settings.fallback)):
                if self.models.facts(name).price is None:
                    raise PriceUnknown(name, actor)

    def raise_limits(self, plan: Plan, limits: BudgetLimits) -> None:
        """Raise the limits of the plan and of all plans that share its budget; None keeps a limit."""
        self._opened(plan).raise_limits(plan.root, limits, now=self._container.clock.now())

    def _opened(self, plan: Plan) -> SqlBudgetStore:
        """Open the plan's budget with its limits, and return the budget store."""
        from cleveragents.models.model.budget import BudgetLimits

        kept, budgets = plan.request.get("limits"), self.budgets
        limits = BudgetLimits.from_json(kept) if isinstance(kept, Mapping) else BudgetLimits()
        budgets.open(plan.root, limits, now=self._container.clock.now())
        return budgets

    @contextmanager
    def _stage(
        self, ground: ActorPhase, on_output: Callable[[bytes], None] | None, say: Callable[[str], None]
    ) -> Iterator[Stage]:
        from cleveragents.actors.guidance.instructions import instructions_for, user_instructions
        from cleveragents.actors.guidance.skill_tool import SkillTools
        from cleveragents.actors.guidance.skills import load_skills, user_skills_directory
        from cleveragents.core.policy import READ_ONLY
        from cleveragents.plans.actors.actor_stage import Stage, current_name
        from cleveragents.tools.mcp.configuration import load_mcp, user_mcp_file

        plan, resource = ground.plan, self._plans.directory_of(ground.plan)
        # Reservations of a run that died.
        self._opened(plan).forfeit(plan.id, now=self._container.clock.now())
        history = self._plans.execution(ground, READ_ONLY).history
        skills = load_skills(resource, self._plans.trust, user_skills_directory(os.environ))
        instructions = instructions_for(
            ground.sandbox.root,
            directory=ground.strategy.directory,
            own=user_instructions(os.environ),
            skills=skills.found,
        )
        configuration = load_mcp(user_mcp_file(os.environ), resource, self._plans.trust)
        if plan.phase is Phase.STRATEGIZE:  # once is enough
            for note in (*skills.notes, *configuration.notes):
                say(note)
        context = self._context(ground, history, say)
        with self._tools(ground, SkillTools(skills), context, configuration, say) as tools:
            yield Stage(
                actors=self._plans.actors_of(plan),
                host=self._hosts(ground, tools, on_output),
                instructions=instructions,
                context=context.at_the_start,
                outcome=lambda: self._plans.outcome(ground),
                named=lambda part: current_name(part, history.calls(plan.id)),
            )

    def _context(self, ground: ActorPhase, history: PlanHistory, say: Callable[[str], None]) -> PlanContext:
        from cleveragents.context.code_index import CodePlace
        from cleveragents.context.plan_context import ContextLimits, PlanContext

        plan, parts, settings = ground.plan, self._container.context_parts, self._container.settings.context
        return PlanContext(
            pipeline=parts.pipeline,
            history=parts.history,
            place=CodePlace(
                ground.sandbox.root,
                home=self._plans.directory_of(plan),
                git_dir=ground.sandbox.place.engine,
            ),
            terms=ContextLimits(
                starting_tokens=settings.starting_tokens,
                plan_tokens=settings.plan_tokens,
                deadline_seconds=settings.deadline_seconds,
                index_seconds=settings.index_seconds,
            ),
            decisions=lambda: self.decisions.of_plan(plan.id),
            calls=lambda: history.calls(plan.id),
            stop=ground.job.token,
            say=say,
        )

    @contextmanager
    def _tools(
        self,
        ground: ActorPhase,
        skills: ToolSource,
        context: PlanContext,
        configuration: McpConfiguration,
        say: Callable[[str], None],
    ) -> Iterator[ToolsFor]:
        """Yield a function that returns the tools of a plan, for a read-only run or for a run that may write.

        These are the built-in tools, the context tools, the skill reader, and the tools of MCP servers that
        the policy permits. The servers end with the block.
        """
        from cleveragents.actors.external.agent_tool import AgentTools
        from cleveragents.plans.actors.actor_tools import JoinedTools
        from cleveragents.plans.tools.block_edits import BlockEdits
        from cleveragents.plans.tools.context_tools import ContextTools
        from cleveragents.plans.tools.line_edits import LineEdits
        from cleveragents.plans.tools.mcp_gate import PlanGate
        from cleveragents.tools.mcp.tools import open_mcp
        from cleveragents.tools.ports import FixedTools

        place, execution = self._place(ground), self._plans.execution(ground, ground.strategy.policy)
        gate = PlanGate(ground.plan, execution, place)
        with open_mcp(configuration, place, gate, ground.job.token, say=say) as mcp:
            # First, so that no other tool of the same name replaces it.
            own: tuple[ToolSource, ...] = (
                AgentTools(),
                self._plans.tools,
                skills,
                ContextTools(context, files_tokens=self._files_tokens(ground)),
                FixedTools(BlockEdits(), LineEdits()),
                self._deciding(ground, context),
                self._commented(ground, context),
                *self._resolving(ground),
            )
            yield lambda reads: JoinedTools(*own, mcp.under(gate.read_only()) if reads else mcp)

    def _files_tokens(self, ground: ActorPhase) -> int:
        """Return the tokens for whole files in a prompt: a quarter of the model's window."""
        model = self._model_of(ground)
        return self.models.facts(model).context_tokens // 4 if model else _FILES_TOKENS

    def _model_of(self, ground: ActorPhase) -> str:
        """Return the default model of the plan's nodes; empty if all nodes run external agents."""
        default = self._container.settings.models.default
        return str(ground.job.payload.get("model") or ground.casting.model or default)

    def _place(self, ground: ActorPhase) -> ProgramEnvironment:
        """Return the environment of interactive programs: servers and external agents."""
        from cleveragents.processes.stdio_process import ProgramEnvironment
        from cleveragents.sandboxes.resources import working_directory

        resource, settings = self._plans.directory_of(ground.plan), self._container.settings
        names = settings.plan.pass_environment.split(",")
        network = ground.strategy.policy.verdict(Capability.NETWORK)
        return ProgramEnvironment(
            root=ground.sandbox.root,
            directory=working_directory(ground.sandbox.root, ground.strategy.directory),
            writable=ground.plan.phase is Phase.EXECUTE,
            network=network is Verdict.ALLOW,
            network_denied=network is Verdict.DENY,
            readable=ground.sandbox.readable,
            markers=ground.job.environment,
            isolation=settings.sandbox.isolation,
            hidden=(resource, self._container.state_directory),
            allowed_names=tuple(name.strip() for name in names if name.strip()),
            secrets=self._container.secrets,
        )

    def _resolving(self, ground: ActorPhase) -> tuple[ToolSource, ...]:
        """Return the conflict tools for a plan that merges others or was rebased; none for any other plan."""
        from cleveragents.changes.model.merge_conflict import last_rebase
        from cleveragents.plans.tools.conflict_tools import ConflictEnvironment, ConflictTools

        if ground.execution is None:
            return ()
        history = ground.execution.history
        merges = any(task.sub_plan for task in ground.strategy.tasks)
        if not merges and last_rebase(history.merge_calls(ground.plan.id)) is None:
            return ()
        return (ConflictTools(ConflictEnvironment(history, ground.sandbox)),)

    def _deciding(self, ground: ActorPhase, context: PlanContext) -> ToolSource:
        from cleveragents.plans.tools.conflict_tools import DecideTools, DecisionTarget

        plan, actor, now = ground.plan, ground.casting.execute, self._container.clock.now
        return DecideTools(DecisionTarget(plan.id, actor, self.decisions, context.calls, now))

    def _commented(self, ground: ActorPhase, context: PlanContext) -> ToolSource:
        from cleveragents.plans.tools.comment_tools import CommentTarget, CommentTools

        plan, actor, now = ground.plan, ground.casting.execute, self._container.clock.now
        return CommentTools(CommentTarget(plan.id, actor, self._plans.comments.store, context.calls, now))

    def _hosts(
        self, ground: ActorPhase, tools: ToolsFor, on_output: Callable[[bytes], None] | None
    ) -> OpenHost:
        from cleveragents.actors.external.acp.agents import AcpAgents
        from cleveragents.core.policy import READ_ONLY
        from cleveragents.models.calls import ModelCalls
        from cleveragents.plans.actors.actor_tools import ActorTools, PlanActorHost

        plan, settings = ground.plan, self._container.settings.models
        calls = ModelCalls(
            models=self.models,
            budgets=self.budgets,
            clock=self._container.clock,
            plan_id=plan.id,
            root_id=plan.root_id or plan.id,
            fallback=settings.fallback or None,
            retries=settings.retries,
            patience_seconds=settings.timeout_seconds,
            open_calls=self._open_calls.of(plan.root),
            seconds_left=ground.seconds_left,
        )
        model = self._model_of(ground)

        def host(part: str, *, reads: bool) -> ActorHost:
            if model:  # external agents have their own
                self.models.get(model)  # here, where it may be slow, not on the loop
            policy = READ_ONLY if reads else ground.strategy.policy
            execution = self._plans.execution(ground, policy, tools(reads), on_output)
            mine = ActorTools(execution, ground.seconds_left)
            return PlanActorHost(part, model, calls, mine, AcpAgents(self._place(ground)))

        return host


def _nothing(what: str) -> None:
    """Ignore the event."""
