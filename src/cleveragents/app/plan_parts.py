"""The components of the plan engine; the second half of the container.

The components hold no state except stores and directories. Each is built at first use and needs no closing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.app.scope import Once, later
from cleveragents.core.tool import TOOLS_OF_PLANS

if TYPE_CHECKING:
    from cleveragents.access.trust.sql_trust_store import SqlTrustStore
    from cleveragents.actors.library import ActorLibrary
    from cleveragents.actors.model.actor import Progress
    from cleveragents.app.actor_parts import ActorParts
    from cleveragents.app.container import Container
    from cleveragents.app.remote_parts import RemoteParts
    from cleveragents.changes.execution_context import ChangesetStore
    from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
    from cleveragents.core.actions.model import Action
    from cleveragents.core.cancellation import CancellationToken
    from cleveragents.core.policy import Isolation, Policy
    from cleveragents.jobs.ports import WorkerRegistry
    from cleveragents.jobs.worker.async_worker import AsyncJob
    from cleveragents.plans.actions.library import ActionLibrary
    from cleveragents.plans.actors.actor_stage import ActorPhase
    from cleveragents.plans.apply import PlanApply
    from cleveragents.plans.calls.tool_execution import ToolExecution
    from cleveragents.plans.checks import PlanChecks
    from cleveragents.plans.cleanup import PlanCleanup
    from cleveragents.plans.comments import PlanComments
    from cleveragents.plans.conflicts.rebase import PlanRebase
    from cleveragents.plans.conflicts.resolution import ManualResolution
    from cleveragents.plans.corrections.correct import PlanCorrection
    from cleveragents.plans.history import PlanHistory, PlanResult
    from cleveragents.plans.jobs.names import ConcurrencyLimits
    from cleveragents.plans.lifecycle import PlanLifecycle
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.model.strategy import Strategy
    from cleveragents.plans.output_recorder import WatchOf
    from cleveragents.plans.remote.applier import AnyApplier
    from cleveragents.plans.remote.sandboxes import RemoteSandboxes
    from cleveragents.plans.run import PlanRun
    from cleveragents.plans.sandbox_edits import SandboxEdits
    from cleveragents.plans.store.sql_plan_records import (
        SqlCallStore,
        SqlCheckStore,
        SqlReviewStore,
    )
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore
    from cleveragents.plans.store.sql_rule_store import SqlRuleStore
    from cleveragents.plans.sub_plans.loop import SubPlanMerge, SubPlans
    from cleveragents.processes.guarded_runner import GuardedCommandRunner
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.tools.ports import ToolSource
    from cleveragents.tools.registry import ToolRegistry

__all__ = ["PlanParts"]


class PlanParts:
    """The plan engine of one process. Safe in any thread."""

    def __init__(self, container: Container) -> None:
        self._container = container

    @property
    def default_profile(self) -> str:
        return self._container.settings.plan.profile

    @property
    def project_rules(self) -> bool:
        """Whether approval rules of a project may be added and count."""
        return self._container.settings.plan.project_rules == "allow"

    @property
    def default_model(self) -> str:
        return self._container.settings.models.default

    @Once
    def plans(self) -> SqlPlanStore:
        from cleveragents.plans.store.sql_plan_store import SqlPlanStore

        return SqlPlanStore(self._container.database, self._container.identifiers)

    @property
    def workers(self) -> WorkerRegistry:
        return self._container.worker_registry

    @Once
    def calls(self) -> SqlCallStore:
        from cleveragents.plans.store.sql_plan_records import SqlCallStore

        return SqlCallStore(self._container.database, self._container.identifiers)

    @Once
    def rules(self) -> SqlRuleStore:
        from cleveragents.plans.store.sql_rule_store import SqlRuleStore

        return SqlRuleStore(self._container.database, self._container.identifiers)

    @Once
    def check_runs(self) -> SqlCheckStore:
        from cleveragents.plans.store.sql_plan_records import SqlCheckStore

        return SqlCheckStore(self._container.database, self._container.identifiers)

    @Once
    def reviews(self) -> SqlReviewStore:
        from cleveragents.plans.store.sql_plan_records import SqlReviewStore

        return SqlReviewStore(self._container.database, self._container.identifiers)

    @property
    def changesets(self) -> SqlChangesetStore:
        return self._container.changesets

    def kept_changesets(self, plan: Plan, sandbox: Sandbox) -> ChangesetStore:
        """Return the changeset store for a run in this sandbox."""
        from cleveragents.access.model.project import remote_of

        return self.changesets if remote_of(plan.resource) is None else self.remotes.changesets(sandbox)

    @Once
    def history(self) -> PlanHistory:
        from cleveragents.plans.history import PlanHistory

        return PlanHistory(self.changesets, self.calls)

    @Once
    def remotes(self) -> RemoteParts:
        """Additional components for plans on git remotes."""
        from cleveragents.app.remote_parts import RemoteParts

        return RemoteParts(self._container, self)

    @property
    def sandboxes(self) -> RemoteSandboxes:
        return self.remotes.sandboxes

    def directory_of(self, plan: Plan) -> Path:
        """Return the directory of a plan's resource on this machine; for a remote, a checkout of the base."""
        return self.remotes.directories.of_plan(plan)

    @Once
    def tools(self) -> ToolRegistry:
        from cleveragents.tools.registry import ToolRegistry

        return ToolRegistry()

    def commands(self, resource: Path) -> GuardedCommandRunner:
        """Return a command runner whose commands see neither the directory `resource` nor the state
        directory.
        """
        from cleveragents.processes.guarded_runner import GuardedCommandRunner

        names = self._container.settings.plan.pass_environment.split(",")
        return GuardedCommandRunner(
            isolation=self._container.settings.sandbox.isolation,
            hidden=(resource, self._container.state_directory),
            allowed_names=tuple(name.strip() for name in names if name.strip()),
            secrets=self._container.secrets,
        )

    @property
    def isolation(self) -> Isolation:
        """The isolation of commands in this process."""
        from cleveragents.core.policy import Isolation

        return Isolation.of(self.commands(Path()).isolates)

    @Once
    def trust(self) -> SqlTrustStore:
        from cleveragents.access.trust.sql_trust_store import SqlTrustStore

        container = self._container
        named = self.remotes.mirrors.name_of
        return SqlTrustStore(container.database, container.identifiers, container.clock, named)

    def actions(self, resource: Path | None) -> ActionLibrary:
        """Return the actions for a directory, or, if it is None, those available outside any repository."""
        from cleveragents.plans.actions.library import ActionLibrary

        return ActionLibrary(self._container.database, resource, self.trust, tools=self.tools.names())

    def find_action(self, name: str, resource: str) -> Action:
        """Return an action by name. Raises `UnknownAction` or `NotTrusted`."""
        return self.actions(Path(resource)).get(name)

    def include_patterns(self, resource: str) -> tuple[str, ...]:
        """Return the patterns of ignored files to copy into sandboxes, as declared by the resource and
        trusted by the user.
        """
        from cleveragents.sandboxes.tree.ignored_files import WORKTREE_INCLUDE, patterns_in

        file = self.trust.look(Path(resource), WORKTREE_INCLUDE)
        return patterns_in(file.content) if file is not None and file.trusted else ()

    @Once
    def lifecycle(self) -> PlanLifecycle:
        """The actions of people on plans."""
        from cleveragents.plans.lifecycle import PlanLifecycle

        container = self._container
        return PlanLifecycle(
            self.plans,
            self.calls,
            container.jobs,
            container.processes,
            later(lambda: self.sandbox_edits),
            container.clock,
            container.settings.worker.cancel_grace_seconds,
            container.settings.plan.max_parallel,
            self._lanes(),
        )

    def _lanes(self) -> ConcurrencyLimits:
        """Return the current concurrency limits of shared queues, from settings and projects."""
        from cleveragents.core.errors import UnknownProject
        from cleveragents.plans.jobs.names import ConcurrencyLimits

        def project_limit(name: str) -> int | None:
            try:
                return self._container.projects.get(name).max_parallel
            except UnknownProject:
                return None  # the project was removed; its plans continue

        settings = self._container.settings
        return ConcurrencyLimits(
            project_limit, settings.jobs.provider_limit, settings.models.default, settings.jobs.queue_bound
        )

    @Once
    def sub_plan_merge(self) -> SubPlanMerge:
        """The merge of sub-plan results into their parents."""
        from cleveragents.plans.sub_plans.loop import SubPlanMerge

        return SubPlanMerge(self.sandboxes, self.history, self.result, self._container.faults)

    @Once
    def sub_plans(self) -> SubPlans:
        """The execution of a parent's tasks as sub-plans."""
        from cleveragents.plans.ports.plans import TreeLimits
        from cleveragents.plans.sub_plans.loop import SubPlans
        from cleveragents.plans.sub_plans.spawn import SubPlanSpawn

        settings, faults = self._container.settings.plan, self._container.faults
        limits = TreeLimits(settings.max_depth, settings.max_fan_out)
        spawning = SubPlanSpawn(self.plans, self.lifecycle, limits, self._container.clock, faults)
        return SubPlans(self.plans, self.lifecycle, spawning, self.sub_plan_merge, faults)

    @Once
    def correction(self) -> PlanCorrection:
        """The use case that corrects decisions."""
        from cleveragents.plans.corrections.correct import PlanCorrection
        from cleveragents.plans.pause import PlanPause

        container = self._container
        grace = container.settings.worker.cancel_grace_seconds
        pausing = PlanPause(
            self.plans, container.jobs, container.processes, self.lifecycle, container.clock, grace
        )
        kept = self.actor_parts.decisions, self.actor_parts.corrections
        return PlanCorrection(*kept, self.sandbox_edits, pausing, container.clock, container.faults)

    @Once
    def comments(self) -> PlanComments:
        """The comments of people and reviewers, and the revisions that they request."""
        from cleveragents.plans.comments import PlanComments
        from cleveragents.plans.store.sql_comment_store import SqlCommentStore

        container = self._container
        store = SqlCommentStore(container.database, container.identifiers)
        return PlanComments(store, self.correction, self.result, self.sandboxes, container.clock)

    @Once
    def manual_resolution(self) -> ManualResolution:
        """The manual resolution of conflicts in plans that are not running."""
        from cleveragents.core.cancellation import CancellationToken
        from cleveragents.core.policy import READ_ONLY
        from cleveragents.plans.conflicts.resolution import ManualResolution

        def execution(plan: Plan, sandbox: Sandbox) -> ToolExecution:
            # No tool is called: a person resolves the conflict.
            return self._tool_execution(plan, sandbox, READ_ONLY, CancellationToken(), self.calls)

        return ManualResolution(self.plans, self.sandboxes, self.result, execution)

    @Once
    def rebase(self) -> PlanRebase:
        """Rebases of results onto the current files of their repositories."""
        from cleveragents.plans.conflicts.rebase import PlanRebase

        return PlanRebase(
            self.sandbox_edits, self.applier, self.result, self.lifecycle, self.manual_resolution.execution
        )

    @Once
    def result(self) -> PlanResult:
        from cleveragents.plans.history import PlanResult

        return PlanResult(self.history, self.reviews, self._container.clock)

    def checks(self, resource: Path) -> PlanChecks:
        from cleveragents.plans.checks import PlanChecks
        from cleveragents.processes.own_checkout import imports_from

        return PlanChecks(self.check_runs, self.commands(resource), imports_from, self._container.clock)

    @property
    def applier(self) -> AnyApplier:
        return self.remotes.applier

    @property
    def home(self) -> str:
        """The id of this machine's state directory."""
        return self._container.home

    @Once
    def apply(self) -> PlanApply:
        from cleveragents.plans.apply import PlanApply

        return PlanApply(
            self.plans,
            self.sandboxes,
            self.applier,
            self.result,
            self.checks,
            self._container.clock,
            self.sub_plan_merge.open_conflicts,
            self.directory_of,
            self._container.home,
            self.remotes.remote_setup,
            self.remotes.has_owner,
            self.sandboxes.is_copy,
        )

    @Once
    def sandbox_edits(self) -> SandboxEdits:
        from cleveragents.plans.sandbox_edits import SandboxEdits

        changesets = self.remotes.changesets()
        return SandboxEdits(
            self.plans,
            self.calls,
            changesets,
            self.sandboxes,
            self.history,
            self._container.clock,
            self.sandboxes.is_copy,
        )

    @Once
    def cleanup(self) -> PlanCleanup:
        from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
        from cleveragents.plans.cleanup import PlanCleanup

        checkpoints = SqlCheckpointStore(self._container.database)
        return PlanCleanup(
            self.plans,
            self.sandboxes,
            self.history,
            self._container.clock,
            checkpoints,
            self.sub_plan_merge.merged_parts,
        )

    @Once
    def actor_parts(self) -> ActorParts:
        """The components of actors, for plans that use actors."""
        from cleveragents.app.actor_parts import ActorParts

        return ActorParts(self._container, self)

    @property
    def tools_of_actors(self) -> tuple[str, ...]:
        """The tools that every actor may name. Tools of skills and MCP servers depend on the plan and are not
        included.
        """
        return (*self.tools.names(), *TOOLS_OF_PLANS)

    def actors(self, resource: Path | None, sent: str | None = None) -> ActorLibrary:
        """Return the actors for a directory, or, if it is None, those available outside any repository, plus
        the actor in `sent`.
        """
        from cleveragents.actors.library import ActorLibrary

        return ActorLibrary(resource, self.trust, tools=self.tools_of_actors, sent=sent)

    def actors_of(self, plan: Plan) -> ActorLibrary:
        """Return the actors that the plan can use."""
        from cleveragents.actors.model.actor import sent_actor_of

        return self.actors(self.directory_of(plan), sent_actor_of(plan.request))

    def execution(
        self,
        ground: ActorPhase,
        policy: Policy,
        tools: ToolSource | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> ToolExecution:
        """Return the tool execution for actors of this plan under this policy."""
        made = self._execution(ground.plan, ground.strategy, ground.sandbox, ground.job, on_output)
        return replace(made, policy=policy, tools=tools or made.tools, by_agent=True)

    def outcome(self, ground: ActorPhase) -> tuple[str, str]:
        """Return the current result tree of the plan, and its changes."""
        tree = self.result.tree(ground.plan, ground.sandbox)
        return tree, self.result.diff(ground.plan, ground.sandbox).decode("utf-8", "backslashreplace")

    def run(
        self,
        *,
        progress: Callable[[str], None] | None = None,
        on_output: Callable[[bytes], None] | None = None,
        told: Callable[[Progress], None] | None = None,
        watch: WatchOf | None = None,
        one_phase: bool = False,
    ) -> PlanRun:
        """Return the handler of plan jobs.

        `watch` returns the listener for a plan; by default, all plans share one listener. With `one_phase`
        the handler returns at the end of each phase.
        """
        from functools import partial

        from cleveragents.config.error_log import record_error
        from cleveragents.plans.action_strategy import ActionStrategist
        from cleveragents.plans.checks import SandboxSetup
        from cleveragents.plans.output_recorder import PlanWatch
        from cleveragents.plans.run import PlanRun
        from cleveragents.sandboxes.setup_cache import SetupCache

        one = PlanWatch(progress, on_output, told)
        watching = watch or (lambda plan: one)
        actor_parts = self.actor_parts

        def open_execution(plan: Plan, strategy: Strategy, sandbox: Sandbox, job: AsyncJob) -> ToolExecution:
            return self._execution(plan, strategy, sandbox, job, watching(plan).on_output)

        def make_strategy(plan: Plan) -> Strategy:
            where = str(self.directory_of(plan))
            return ActionStrategist(
                lambda name, resource: self.find_action(name, where),
                lambda resource: self.include_patterns(where),
            )(plan)

        return PlanRun(
            plans=self.plans,
            jobs=self._container.jobs,
            sandboxes=self.sandboxes,
            make_strategy=make_strategy,
            open_execution=open_execution,
            setup=SandboxSetup(SetupCache(self._container.state_directory / "setups")),
            sandbox_edits=self.sandbox_edits,
            checks=self.checks,
            strategize_phase=lambda by: actor_parts.strategize_phase(by.progress, by.told, by.on_output),
            execute_phase=lambda by: actor_parts.execute_phase(by.progress, by.told, by.on_output),
            sub_plans=self.sub_plans,
            think_again=self.correction.think_again,
            lifecycle=self.lifecycle,
            time_left=actor_parts.time_left,
            clock=self._container.clock,
            watch=watching,
            record_error=partial(record_error, state_directory=self._container.state_directory),
            directory_of=self.directory_of,
            one_phase=one_phase,
            usage_limit_seconds=self._container.settings.models.usage_limit_hours * 3600,
            faults=self._container.faults,
        )

    def _execution(
        self,
        plan: Plan,
        strategy: Strategy,
        sandbox: Sandbox,
        job: AsyncJob,
        on_output: Callable[[bytes], None] | None,
    ) -> ToolExecution:
        """Return the tool execution of a job."""
        from cleveragents.core.identifiers import Fence
        from cleveragents.plans.store.sql_plan_records import SqlCallStore

        database, fence = self._container.database, Fence(job.id, job.fence)
        calls = SqlCallStore(database, self._container.identifiers, fence=fence)
        return replace(
            self._tool_execution(plan, sandbox, strategy.policy, job.token, calls),
            directory=strategy.directory,
            markers=job.environment,
            on_output=on_output,
            invariants=strategy.invariants,
        )

    def _tool_execution(
        self, plan: Plan, sandbox: Sandbox, policy: Policy, stop: CancellationToken, calls: SqlCallStore
    ) -> ToolExecution:
        from cleveragents.changes.execution_context import PlanExecutionContext
        from cleveragents.plans.calls.tool_execution import ToolExecution
        from cleveragents.tools.files.confined_files import ConfinedFiles

        return ToolExecution(
            sandbox=sandbox,
            policy=policy,
            stop=stop,
            calls=calls,
            context=PlanExecutionContext(plan.id, self.kept_changesets(plan, sandbox)),
            history=self.history,
            tools=self.tools,
            commands=self.commands(self.directory_of(plan)),
            files_in=lambda root, before: ConfinedFiles(root, before_change=before),
            clock=self._container.clock,
            faults=self._container.faults,
            project_rules=self.project_rules,
        )
