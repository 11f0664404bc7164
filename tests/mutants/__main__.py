"""`python -m tests.mutants [WORD]`: runs every mutant (of modules whose name contains WORD).

A mutant is caught when a test of its module fails or runs out of time. At least 95 % must be caught, and
each survivor must be explained in `explained.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.explained import EXPLAINED
from tests.mutants.sites import Mutant, mutants_of, unjudged_marks

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cleveragents"
REQUIRED = 0.95
SECONDS_PER_MUTANT = 900

UNIT, RACES, CONTRACTS = "tests/unit/test_", "tests/races/test_", "tests/contracts/test_"
TOKEN = [f"{UNIT}cancellation.py", f"{RACES}cancellation.py"]
WORKER = [
    f"{UNIT}async_worker.py",
    f"{UNIT}async_worker_cancel.py",
    f"{UNIT}async_worker_lease.py",
    f"{UNIT}async_worker_recovery.py",
    f"{UNIT}async_worker_drain.py",
    f"{UNIT}async_worker_running.py",
    f"{UNIT}async_worker_turns.py",
    f"{RACES}worker.py",
]
PIPELINE = [
    f"{UNIT}circuit_breaker.py",
    f"{UNIT}strategy_executor.py",
    f"{RACES}breaker.py",
    f"{RACES}executor.py",
]
CHANGESETS = [
    f"{UNIT}plan_execution_context.py",
    f"{UNIT}domain_change.py",
    f"{CONTRACTS}changeset_store.py",
    f"{RACES}changesets.py",
]
EVENTS = [
    f"{UNIT}event_bus.py",
    f"{CONTRACTS}audit_log.py",
    f"{RACES}event_bus.py",
    f"{RACES}event_bus_ordered.py",
    f"{RACES}event_bus_totals.py",
]
BRIDGE = [
    f"{UNIT}bridge.py",
    f"{UNIT}bridge_endings.py",
    f"{UNIT}bridge_stream.py",
    f"{RACES}bridge.py",
]
STORE = [
    f"{UNIT}domain_job.py",
    f"{CONTRACTS}job_store.py",
    f"{CONTRACTS}database.py",
    f"{RACES}job_store.py",
    f"{RACES}database.py",
    f"{RACES}group_commit.py",
]

RUNNING = [
    f"{UNIT}plan_running.py",
    f"{UNIT}plan_decisions.py",
    f"{UNIT}plan_rewriting.py",
    f"{UNIT}plan_checking.py",
]
MERGING = [f"{UNIT}sub_plan_merge.py"]
PLANS = [
    *(f"{CONTRACTS}plan_{part}.py" for part in ("records", "store", "spawning")),
    f"{RACES}plan_store.py",
]
DECIDED = [f"{UNIT}sub_plans_decided.py"]
TREES = [f"{UNIT}sub_plans.py", f"{RACES}sub_plans.py", *DECIDED]

AGENTS = [f"{UNIT}acp_parts.py", f"{UNIT}agent_desk.py", f"{UNIT}acp_node.py", f"{UNIT}acp_misbehaving.py"]
ACTIONS = [f"{UNIT}action_{part}.py" for part in ("arguments", "render", "loading", "cli")]
TRUST = [f"{UNIT}trust.py", f"{CONTRACTS}action_store.py"]
APPLY = [
    *(f"{UNIT}apply_{part}.py" for part in ("changes", "conflicts", "moves", "recovery", "commit")),
    f"{UNIT}apply_submodules.py",
    f"{CONTRACTS}applier.py",
    f"{RACES}apply.py",
    "tests/crash/test_apply.py",
]
SETUPS = [f"{UNIT}setup_cache_key.py", f"{UNIT}sandbox_setup_cache.py"]
SANDBOXES = [
    *(f"{UNIT}sandbox_{part}.py" for part in ("files", "registry", "shapes", "isolation", "setup_cache")),
    f"{CONTRACTS}sandboxes.py",
    f"{RACES}sandboxes.py",
    "tests/crash/test_sandboxes.py",
]
COMMANDS = [
    *(f"{UNIT}commands_{part}.py" for part in ("environment", "guard", "isolation", "own_checkout")),
    f"{CONTRACTS}command_runner.py",
    "tests/crash/test_commands.py",
]
TOOLS = [
    *(f"{UNIT}tools_{part}.py" for part in ("editing", "files", "search", "command", "registry")),
    f"{CONTRACTS}sandbox_files.py",
    f"{CONTRACTS}tools.py",
    f"{RACES}confinement.py",
]
GUARDS = [f"{UNIT}guards_plans.py"]
HOSTILE = [f"{UNIT}sandbox_{part}.py" for part in ("hostile", "shapes", "files", "isolation")]
DURABLE = [f"{UNIT}sandbox_durability.py"]
MODELS = [
    *(f"{UNIT}model_{part}.py" for part in ("limiting", "breaking", "retrying", "tokens", "catalogue")),
    f"{CONTRACTS}models.py",
]
CHECKPOINTS = [f"{UNIT}checkpoint_saver.py", f"{CONTRACTS}checkpoint_store.py"]
ACTORS = [
    *(f"{UNIT}actor_{part}.py" for part in ("llm_node", "compiler", "runner")),
    f"{RACES}actor_runner.py",
]
MCP = [f"{UNIT}mcp_configuration.py", f"{UNIT}mcp_parts.py", f"{CONTRACTS}mcp_servers.py"]
DOCTOR = [f"{UNIT}cli_doctor_leftovers.py"]
ASIDE = [f"{UNIT}cli_doctor_leftovers_put_aside.py"]

INDEX = [
    *(f"{UNIT}index_{part}.py" for part in ("segments", "views", "faults", "crew")),
    f"{RACES}code_index.py",
    "tests/crash/test_code_index.py",
]

CONTEXT = [
    *(f"{UNIT}context_{part}.py" for part in ("opening", "checks", "fitting", "shapes", "packer", "depths")),
    *(f"{UNIT}context_{part}.py" for part in ("pipeline", "hostile", "wiring")),
]

# Quick ones first: a mutant is over at its first failure.
TESTS: dict[str, list[str]] = {
    "application/services/output_recorder.py": [f"{UNIT}output_recorder.py"],
    "domain/redaction_in_pieces.py": [f"{UNIT}redaction_in_pieces.py"],
    "infrastructure/persistence/sql_plan_output.py": [f"{CONTRACTS}plan_output.py"],
    "interfaces/server/frames.py": [f"{RACES}streams.py", f"{UNIT}tenant_streams.py"],
    "interfaces/server/hub.py": [f"{RACES}streams.py", f"{UNIT}tenant_streams.py"],
    "interfaces/server/pages.py": [f"{RACES}streams.py"],
    "interfaces/server/log_follower.py": [f"{CONTRACTS}audit_log.py", f"{RACES}streams.py"],
    "interfaces/server/stream.py": [f"{RACES}streams.py", f"{UNIT}tenant_streams.py"],
    "application/actor_parts.py": [f"{UNIT}cli_goals.py"],
    "infrastructure/jobs/temporal/connection.py": [f"{CONTRACTS}temporal_engine.py"],
    "infrastructure/jobs/temporal/worker.py": [
        f"{CONTRACTS}temporal_engine.py",
        "tests/crash/test_temporal.py",
    ],
    "infrastructure/jobs/temporal/workflow.py": [
        f"{CONTRACTS}temporal_engine.py",
        "tests/crash/test_temporal.py",
    ],
    "application/services/cancelled_jobs.py": [f"{UNIT}shared_jobs.py"],
    "application/scope.py": [f"{UNIT}container.py", f"{RACES}container.py"],
    "application/services/acms_pipeline.py": PIPELINE,
    "application/services/circuit_breaker.py": PIPELINE,
    "application/services/actor_tools.py": [f"{UNIT}guards_actors.py", f"{UNIT}actor_tools.py"],
    "application/services/async_worker.py": [*TOKEN, *WORKER],
    "application/services/attempt_run.py": WORKER,
    "application/services/attempt_table.py": WORKER,
    "application/services/cancellation.py": TOKEN,
    "application/services/change_fold.py": [f"{UNIT}change_fold.py"],
    "application/services/conditions.py": [f"{UNIT}conditions.py"],
    "application/services/context_assembly.py": CONTEXT,
    "application/services/context_bare.py": CONTEXT,
    "application/services/context_checks.py": CONTEXT,
    "application/services/context_code_view.py": CONTEXT,
    "application/services/context_components.py": CONTEXT,
    "application/services/context_deduplicator.py": CONTEXT,
    "application/services/context_depths.py": CONTEXT,
    "application/services/context_fitting.py": CONTEXT,
    "application/services/context_offers.py": CONTEXT,
    "application/services/context_opening.py": [*CONTEXT[:1], f"{RACES}context_opening.py", *CONTEXT[1:]],
    "application/services/context_packer.py": CONTEXT,
    "application/services/context_pipeline.py": CONTEXT,
    "application/services/context_reranking.py": CONTEXT,
    "application/services/context_skeleton.py": CONTEXT,
    "application/services/context_steps.py": CONTEXT,
    "application/services/context_units.py": CONTEXT,
    "domain/question.py": [f"{UNIT}question.py"],
    "infrastructure/context/import_graph.py": [f"{UNIT}context_strategies_names.py"],
    "infrastructure/context/looking.py": [f"{UNIT}context_looking.py"],
    "infrastructure/context/strategy_registry.py": CONTEXT,
    "infrastructure/context/tokenizers.py": CONTEXT,
    "application/services/job_attempt.py": WORKER,
    "application/services/job_lease.py": WORKER,
    "application/services/job_outcome.py": WORKER,
    "application/services/job_recovery.py": WORKER,
    "application/services/model_calls.py": [f"{UNIT}model_calls.py"],
    "application/services/actor_naming.py": [f"{UNIT}actor_plans.py"],
    "application/services/open_calls.py": [
        f"{RACES}open_calls.py",
        f"{UNIT}model_calls.py",
        f"{UNIT}actor_plans.py",
    ],
    "application/services/apply_obstacles.py": [f"{UNIT}plan_deciding.py", *GUARDS],
    "application/services/plan_apply.py": [
        f"{UNIT}shared_jobs.py",
        f"{UNIT}remote_trouble.py",
        f"{UNIT}remote_apply.py",
        *GUARDS,
        *TREES,
        f"{UNIT}plan_decisions.py",
        *reversed(RUNNING),
    ],
    "application/services/plan_checks.py": [f"{UNIT}plan_checking.py"],
    "application/services/plan_cleanup.py": [f"{UNIT}plan_decisions.py", *TREES],
    "application/services/plan_execution_context.py": CHANGESETS,
    "application/services/call_filing.py": [f"{UNIT}plan_cut_off.py"],
    "application/services/plan_lifecycle.py": [
        f"{UNIT}plan_cut_off.py",
        f"{UNIT}guards_actors.py",
        *GUARDS,
        f"{UNIT}plan_edits_by_hand.py",
        f"{UNIT}plan_decisions.py",
        *RUNNING,
        *DECIDED,
    ],
    "application/services/plan_queue.py": TREES,
    "application/services/plan_correction.py": [
        f"{UNIT}plan_correction.py",
        f"{UNIT}plan_correction_kept.py",
    ],
    "application/services/plan_pausing.py": [f"{RACES}plan_correction.py", f"{UNIT}plan_pausing.py"],
    "application/services/strategizing.py": [f"{UNIT}plan_correction_of_trees.py"],
    "application/services/left_out.py": DECIDED,
    "application/services/plan_rewriting.py": [
        f"{UNIT}plan_cut_off.py",
        f"{UNIT}plan_edits_by_hand.py",
        f"{UNIT}plan_rewriting.py",
    ],
    "application/services/plan_run.py": [
        f"{UNIT}plan_cut_off.py",
        *GUARDS,
        f"{UNIT}plan_checking.py",
        *RUNNING,
        *DECIDED,
    ],
    "application/services/sub_plan_words.py": DECIDED,
    "application/services/service_thread.py": WORKER,
    "application/services/strategy_execution.py": PIPELINE,
    "application/services/strategy_threads.py": PIPELINE,
    "application/services/sub_plan_merge.py": MERGING,
    "application/services/conflict_resolution.py": MERGING,
    "application/services/working_directory.py": [f"{UNIT}working_directory.py"],
    "domain/conflict_marks.py": [f"{UNIT}conflict_marks.py"],
    "domain/path_spelling.py": [f"{UNIT}conflict_marks.py"],
    "application/services/conflicts_by_hand.py": MERGING,
    "application/services/sub_plan_spawn.py": TREES,
    "application/services/sub_plans.py": TREES,
    "application/services/timed_tool.py": [f"{UNIT}timed_tool.py"],
    "application/services/tree_time.py": [f"{UNIT}tree_time.py"],
    "application/services/agent_desk.py": AGENTS,
    "application/services/agent_sessions.py": AGENTS,
    "application/services/cast_models.py": [f"{UNIT}agent_tool.py"],
    "application/services/call_commands.py": [f"{UNIT}agent_tool.py", f"{UNIT}agent_desk.py"],
    "application/services/tool_execution.py": [
        f"{UNIT}agent_tool.py",
        *(f"{UNIT}{part}.py" for part in ("guards_actors", "invariants", "actor_plans_secrets")),
        *RUNNING,
        *MERGING,
        *AGENTS,
    ],
    "domain/action.py": ACTIONS,
    "domain/action_arguments.py": ACTIONS,
    "domain/change.py": CHANGESETS,
    "domain/code_terms.py": [f"{UNIT}code_terms.py"],
    "domain/job_moves.py": STORE,
    "domain/policy.py": [f"{UNIT}policy.py"],
    "domain/cancel_reason.py": DECIDED,
    "domain/sub_plan.py": [f"{UNIT}sub_plan_view.py"],
    "infrastructure/actions/loading.py": [f"{UNIT}action_loading.py"],
    "infrastructure/actions/library.py": [*ACTIONS, *TRUST],
    "infrastructure/actions/sql_action_store.py": TRUST,
    "infrastructure/yaml/document.py": ACTIONS,
    "domain/actor_rules.py": [f"{UNIT}actor_rules.py", f"{UNIT}actor_loading.py", f"{UNIT}agent_rules.py"],
    "infrastructure/actors/library.py": [f"{UNIT}actor_library.py"],
    "infrastructure/actors/loading.py": [f"{UNIT}actor_loading.py"],
    "infrastructure/actors/prompt_files.py": [f"{UNIT}actor_loading.py"],
    "infrastructure/actors/schema_rules.py": [f"{UNIT}actor_loading.py"],
    "infrastructure/apply/commit.py": [f"{UNIT}apply_commit.py", *APPLY],
    "infrastructure/apply/exchange.py": [f"{UNIT}apply_moves.py", *APPLY],
    "infrastructure/apply/index_lock.py": [f"{UNIT}apply_commit.py", f"{UNIT}apply_recovery.py", *APPLY],
    "infrastructure/apply/journal.py": [f"{UNIT}remote_apply.py", f"{CONTRACTS}applier.py", *APPLY],
    "infrastructure/apply/lock.py": [
        f"{UNIT}guards_apply.py",
        f"{UNIT}apply_recovery.py",
        f"{RACES}apply.py",
        *APPLY,
    ],
    "infrastructure/apply/merge.py": [f"{UNIT}apply_conflicts.py", f"{UNIT}apply_changes.py", *APPLY],
    "infrastructure/apply/moves.py": [f"{UNIT}apply_moves.py", *APPLY],
    "infrastructure/apply/preparation.py": [f"{CONTRACTS}applier.py", *APPLY],
    "infrastructure/apply/prepared_merge.py": [f"{UNIT}apply_changes.py", *APPLY],
    "infrastructure/apply/presence.py": [f"{UNIT}apply_recovery.py", *APPLY],
    "infrastructure/apply/recovery.py": [
        *GUARDS,
        f"{UNIT}apply_recovery.py",
        f"{UNIT}remote_apply.py",
        *APPLY,
    ],
    "infrastructure/apply/renames.py": [f"{UNIT}apply_conflicts.py", *APPLY],
    "infrastructure/apply/user_git.py": [f"{UNIT}apply_recovery.py", f"{UNIT}apply_commit.py", *APPLY],
    "infrastructure/commands/bubblewrap.py": [f"{UNIT}guards_commands.py", *COMMANDS],
    "infrastructure/commands/environment.py": COMMANDS,
    "infrastructure/commands/guard.py": [
        f"{UNIT}commands_guard.py",
        f"{CONTRACTS}command_runner.py",
        f"{CONTRACTS}command_terms.py",
        *COMMANDS,
    ],
    "infrastructure/commands/guard_process.py": [f"{UNIT}commands_guard.py", *COMMANDS],
    "infrastructure/commands/guarded_runner.py": [
        f"{UNIT}commands_isolation.py",
        f"{UNIT}agent_secrets.py",
        *COMMANDS,
    ],
    "infrastructure/commands/seccomp.py": [f"{UNIT}commands_seccomp.py"],
    "infrastructure/commands/lent.py": [f"{UNIT}agent_tool.py", f"{CONTRACTS}command_terms.py"],
    "infrastructure/commands/output_tail.py": COMMANDS,
    "infrastructure/commands/own_checkout.py": [f"{UNIT}commands_own_checkout.py"],
    "infrastructure/commands/program_lookup.py": [
        f"{UNIT}isolation_required.py",
        f"{UNIT}commands_environment.py",
        f"{CONTRACTS}command_runner.py",
        *COMMANDS,
    ],
    "infrastructure/commands/talking_process.py": [f"{UNIT}commands_cgroup.py", *MCP],
    "infrastructure/commands/tool_directories.py": [f"{UNIT}commands_isolation.py", *COMMANDS],
    "infrastructure/context/analysis/syntax.py": [f"{UNIT}code_analysis.py"],
    "infrastructure/context/index/batch.py": INDEX,
    "infrastructure/context/index/build_lock.py": INDEX,
    "infrastructure/context/index/crew.py": [f"{UNIT}index_crew.py", *INDEX],
    "infrastructure/context/index/directory_view.py": [f"{UNIT}index_views.py"],
    "infrastructure/context/index/git_time.py": [f"{UNIT}index_git_time.py"],
    "infrastructure/context/index/git_view.py": [f"{UNIT}index_views.py"],
    "infrastructure/context/index/index_file.py": [f"{RACES}code_index.py", *INDEX],
    "infrastructure/context/index/known_files.py": [f"{UNIT}index_views.py"],
    "infrastructure/context/index/opening.py": [f"{UNIT}hostile_trees.py", f"{RACES}code_index.py", *INDEX],
    "infrastructure/context/index/sealing.py": [f"{UNIT}index_segments.py", f"{UNIT}index_faults.py"],
    "infrastructure/context/index/snapshot.py": [f"{RACES}code_index.py", *INDEX],
    "infrastructure/context/index/source_text.py": [f"{UNIT}index_views.py"],
    "infrastructure/context/index/upkeep.py": [f"{UNIT}index_faults.py"],
    "infrastructure/context/index/view.py": [f"{UNIT}index_views.py"],
    "infrastructure/context/index/worker.py": ["tests/crash/test_code_index.py"],
    "infrastructure/home.py": [f"{UNIT}home.py"],
    "infrastructure/remote/applier.py": [f"{UNIT}remote_apply.py"],
    "infrastructure/remote/bases.py": [f"{UNIT}remote_plans.py"],
    "application/remote_parts.py": [f"{UNIT}remote_plans.py"],
    "infrastructure/remote/contents.py": [f"{CONTRACTS}remote_contents.py"],
    "infrastructure/remote/furnishing.py": [f"{UNIT}remote_apply.py"],
    "infrastructure/remote/mirror.py": [f"{UNIT}remote_mirror.py", f"{UNIT}remote_trouble.py"],
    "infrastructure/remote/push.py": [f"{UNIT}remote_apply.py", f"{UNIT}remote_trouble.py"],
    "infrastructure/remote/sandboxes.py": [f"{UNIT}remote_plans.py"],
    "infrastructure/sandbox/sandbox_rows.py": [f"{UNIT}remote_plans.py"],
    "infrastructure/anchors/targets.py": [f"{UNIT}audit_anchors.py"],
    "infrastructure/events/audit_home.py": [f"{CONTRACTS}audit_home.py"],
    "infrastructure/events/sequencer.py": [f"{CONTRACTS}audit_anchor.py"],
    "infrastructure/persistence/outbox.py": [f"{CONTRACTS}audit_home.py"],
    "infrastructure/events/dispatch.py": EVENTS,
    "infrastructure/events/reactive.py": EVENTS,
    "infrastructure/events/sink.py": EVENTS,
    "infrastructure/events/subscription.py": [f"{RACES}delivery_tally.py", *EVENTS],
    "infrastructure/git/blob_reader.py": [f"{UNIT}index_views.py"],
    "infrastructure/context/actor_tools.py": [f"{UNIT}plan_context.py"],
    "infrastructure/git/exchange.py": [f"{UNIT}index_git_time.py"],
    "infrastructure/git/git_directory.py": [f"{UNIT}guards_git.py", *HOSTILE, *SANDBOXES],
    "infrastructure/git/loose_objects.py": [*DURABLE, *SANDBOXES],
    "infrastructure/git/plumbing.py": [
        f"{UNIT}guards_git.py",
        f"{UNIT}index_git_time.py",
        *HOSTILE,
        *SANDBOXES,
    ],
    "infrastructure/guidance/agents_files.py": [f"{UNIT}guidance.py"],
    "infrastructure/guidance/instructions.py": [f"{UNIT}guidance.py"],
    "infrastructure/guidance/skill_tool.py": [f"{UNIT}guidance.py"],
    "infrastructure/guidance/skills.py": [f"{UNIT}guidance.py"],
    "infrastructure/git/program.py": [f"{UNIT}hostile_trees.py", f"{UNIT}guards_git.py", *HOSTILE],
    "infrastructure/git/user_repository.py": [*HOSTILE, *SANDBOXES],
    "infrastructure/jobs/process_supervisor.py": [f"{UNIT}commands_cgroup.py"],
    "infrastructure/jobs/control_pipe.py": [*WORKER, f"{CONTRACTS}process_supervisor.py"],
    "infrastructure/jobs/environments.py": [f"{UNIT}process_environments.py"],
    "infrastructure/jobs/process_tree.py": [f"{UNIT}process_environments.py"],
    "infrastructure/models/breaking.py": MODELS,
    "infrastructure/models/catalogue.py": MODELS,
    "infrastructure/models/deadline.py": MODELS,
    "infrastructure/models/keys.py": MODELS,
    "infrastructure/models/langchain_messages.py": MODELS,
    "infrastructure/models/langchain_model.py": MODELS,
    "infrastructure/models/limiting.py": MODELS,
    "infrastructure/object_collector.py": [f"{UNIT}object_collector.py"],
    "infrastructure/models/openai_events.py": [f"{UNIT}openai_events.py"],
    "infrastructure/models/failures.py": [f"{UNIT}model_failures.py"],
    "infrastructure/models/plain_chat_openai.py": [f"{UNIT}model_providers.py"],
    "infrastructure/models/retrying.py": MODELS,
    "infrastructure/models/script.py": MODELS,
    "infrastructure/models/tokens.py": MODELS,
    "infrastructure/persistence/claimable_jobs.py": [
        f"{CONTRACTS}job_lanes.py",
        f"{CONTRACTS}job_bounds.py",
        f"{CONTRACTS}temporal_engine.py",
    ],
    "infrastructure/persistence/sql_job_store.py": [f"{CONTRACTS}job_lanes.py", f"{CONTRACTS}job_turns.py"],
    "infrastructure/persistence/job_turns.py": [f"{CONTRACTS}job_turns.py"],
    "infrastructure/persistence/job_locks.py": [f"{CONTRACTS}job_lanes.py", f"{CONTRACTS}job_bounds.py"],
    "application/services/shared_jobs.py": [
        f"{UNIT}shared_jobs.py",
        "tests/crash/test_shared_workers.py",
    ],
    "application/services/worker_reports.py": [f"{RACES}worker_reports.py", f"{UNIT}worker_parts.py"],
    "infrastructure/persistence/checkpoint_rows.py": [*reversed(CHECKPOINTS)],
    "infrastructure/persistence/database.py": STORE,
    "infrastructure/persistence/group_commit.py": STORE,
    "infrastructure/persistence/job_fence.py": [
        f"{CONTRACTS}plan_records.py",
        f"{CONTRACTS}checkpoint_store.py",
    ],
    "infrastructure/persistence/postgres_backend.py": STORE,
    "infrastructure/persistence/sql_budget_store.py": [f"{CONTRACTS}budget_store.py"],
    "infrastructure/persistence/sql_decision_store.py": [f"{CONTRACTS}decision_store.py"],
    "infrastructure/persistence/sql_project_store.py": [
        f"{CONTRACTS}project_store.py",
        f"{UNIT}server_tenants.py",
    ],
    "infrastructure/persistence/sql_worker_registry.py": [f"{CONTRACTS}worker_registry.py"],
    "domain/project.py": [f"{UNIT}domain_remote.py", f"{CONTRACTS}project_store.py"],
    "interfaces/server/routes/resources.py": [f"{UNIT}server_routes.py"],
    "infrastructure/persistence/sql_changeset_store.py": CHANGESETS,
    "infrastructure/persistence/sql_checkpoint_store.py": CHECKPOINTS,
    "infrastructure/persistence/sql_plan_records.py": [*PLANS, *MERGING],
    "infrastructure/persistence/sql_plan_store.py": [
        f"{UNIT}server_tenants.py",
        f"{CONTRACTS}answer_store.py",
        *PLANS[:2],
        *GUARDS,
        *PLANS[2:],
    ],
    "infrastructure/persistence/sql_correction_store.py": [f"{CONTRACTS}answer_store.py"],
    "infrastructure/persistence/sqlite_backend.py": STORE,
    "infrastructure/sandbox/directory_copy.py": [f"{CONTRACTS}sandbox_starts.py"],
    "infrastructure/sandbox/tree_merge.py": [f"{UNIT}merge_quality.py", *MERGING],
    "infrastructure/sandbox/facts.py": [*DURABLE, *SANDBOXES],
    "infrastructure/sandbox/git_sandbox.py": [
        f"{UNIT}sandbox_ignored.py",
        f"{UNIT}hostile_trees.py",
        *SANDBOXES,
    ],
    "infrastructure/sandbox/copying.py": [f"{UNIT}hostile_trees.py", f"{UNIT}sandbox_files.py"],
    "infrastructure/sandbox/sandbox_tree.py": [f"{UNIT}sandbox_unrecordable.py", *SANDBOXES],
    "infrastructure/git/index_file.py": [f"{UNIT}hostile_trees.py"],
    "infrastructure/sandbox/visible_git.py": [f"{UNIT}hostile_trees.py"],
    "infrastructure/sandbox/ignored.py": [f"{UNIT}sandbox_ignored.py"],
    "infrastructure/sandbox/leftovers.py": SANDBOXES,
    "infrastructure/sandbox/locking.py": [f"{UNIT}hostile_operations.py", *SANDBOXES],
    "infrastructure/sandbox/private_clone.py": [*HOSTILE, *SANDBOXES],
    "infrastructure/sandbox/registry.py": [
        f"{UNIT}hostile_operations.py",
        f"{UNIT}guards_sandbox.py",
        f"{UNIT}remote_plans.py",
        *SANDBOXES,
    ],
    "infrastructure/sandbox/resources.py": [*HOSTILE, *SANDBOXES],
    "infrastructure/sandbox/setting_aside.py": [f"{UNIT}sandbox_ignored.py", f"{UNIT}guards_sandbox.py"],
    "infrastructure/sandbox/setup_cache.py": [*SETUPS, f"{UNIT}guards_sandbox.py"],
    "infrastructure/sandbox/content_digest.py": SETUPS,
    "infrastructure/commands/command_inputs.py": SETUPS,
    "application/services/sandbox_setup.py": SETUPS,
    "infrastructure/tools/agent.py": [f"{UNIT}agent_plans.py"],
    "infrastructure/tools/descent.py": TOOLS,
    "infrastructure/tools/exact_edit.py": TOOLS,
    "infrastructure/tools/mask_guard.py": [f"{UNIT}tools_mask.py"],
    "infrastructure/tools/matchers.py": TOOLS,
    "infrastructure/tools/mcp/arguments.py": MCP,
    "infrastructure/tools/mcp/configuration.py": MCP,
    "infrastructure/tools/mcp/connection.py": MCP,
    "infrastructure/tools/mcp/content.py": MCP,
    "infrastructure/tools/mcp/editing.py": [f"{UNIT}mcp_cli.py"],
    "infrastructure/tools/mcp/filling.py": MCP,
    "infrastructure/tools/mcp/gate.py": [f"{UNIT}mcp_gate.py"],
    "infrastructure/tools/mcp/plan_gate.py": [f"{UNIT}mcp_gate.py"],
    "infrastructure/acp/answering.py": AGENTS,
    "infrastructure/acp/session.py": [f"{UNIT}agent_secrets.py", *AGENTS],
    "infrastructure/acp/terminals.py": AGENTS,
    "infrastructure/acp/transport.py": AGENTS,
    "infrastructure/acp/updates.py": AGENTS,
    "infrastructure/own_loop.py": MCP,
    "infrastructure/commands/talking_lines.py": MCP,
    "infrastructure/commands/talking_program.py": MCP,
    "infrastructure/tools/mcp/place.py": MCP,
    "infrastructure/tools/mcp/server_entry.py": MCP,
    "infrastructure/tools/mcp/servers.py": MCP,
    "infrastructure/tools/mcp/tools.py": [*MCP, f"{UNIT}mcp_actor_tools.py"],
    "infrastructure/tools/mcp/transport.py": MCP,
    "infrastructure/tools/text_files.py": TOOLS,
    "infrastructure/logging.py": [f"{UNIT}redaction.py"],
    "infrastructure/terminal.py": [f"{UNIT}terminal_output.py"],
    "infrastructure/telemetry/otlp.py": [f"{UNIT}telemetry.py"],
    "infrastructure/telemetry/spans.py": [f"{UNIT}telemetry.py"],
    "infrastructure/trust/repository_files.py": TRUST,
    "interfaces/cli/goals_file.py": [f"{UNIT}cli_run_goals.py"],
    "infrastructure/trust/sql_trust_store.py": TRUST,
    "interfaces/cli/apply_leftovers.py": ASIDE,
    "interfaces/cli/isolation.py": [f"{UNIT}isolation_required.py"],
    "interfaces/cli/background.py": [f"{UNIT}cli_run_background.py"],
    "interfaces/cli/handover.py": [f"{UNIT}client_handover.py"],
    "interfaces/cli/served_group.py": [f"{UNIT}client_commands.py"],
    "interfaces/cli/client/following.py": [f"{UNIT}client_cuts.py"],
    "interfaces/cli/client/logins.py": [f"{UNIT}client_logins.py"],
    "interfaces/cli/client/plan_following.py": [f"{UNIT}client_commands.py"],
    "interfaces/cli/client/run.py": [f"{UNIT}client_commands.py"],
    "interfaces/cli/client/run_goals.py": [f"{UNIT}client_commands.py"],
    "interfaces/cli/client/selection.py": [f"{UNIT}client_commands.py"],
    "interfaces/cli/client/server_client.py": [f"{UNIT}client_cuts.py", f"{UNIT}client_commands.py"],
    "interfaces/cli/client/twins.py": [f"{UNIT}client_commands.py"],
    "interfaces/cli/foreground.py": [f"{UNIT}cli_plans.py", f"{UNIT}cli_plans_told.py"],
    "interfaces/cli/interruption.py": [f"{UNIT}cli_interrupt.py"],
    "interfaces/cli/index_progress.py": [f"{UNIT}index_progress.py"],
    "interfaces/cli/footer.py": [f"{UNIT}rich_view.py"],
    "interfaces/cli/live_output.py": [f"{UNIT}cli_plans.py", f"{UNIT}live_view.py"],
    "interfaces/cli/live_view.py": [f"{UNIT}live_view.py"],
    "application/services/plan_deciding.py": [
        f"{UNIT}plan_deciding.py",
        f"{UNIT}remote_trouble.py",
        f"{UNIT}cli_plans.py",
        f"{UNIT}cli_plans_told.py",
        f"{UNIT}cli_left_out.py",
    ],
    "interfaces/desk/spending.py": [f"{UNIT}cli_goals.py"],
    "interfaces/cli/plan_ending.py": [f"{UNIT}guards_cli.py", f"{UNIT}cli_run_background.py"],
    "interfaces/desk/applying.py": [f"{UNIT}server_plans_deciding.py"],
    "interfaces/desk/accounts.py": [f"{UNIT}remote_trouble.py"],
    "interfaces/desk/deciding.py": [f"{UNIT}server_plans.py"],
    "interfaces/desk/diffs.py": [f"{UNIT}server_plans.py"],
    "interfaces/desk/ending.py": [f"{UNIT}server_plans_deciding.py"],
    "interfaces/desk/goal_requests.py": [f"{UNIT}server_uploads.py"],
    "interfaces/desk/sent_actor.py": [f"{UNIT}server_uploads.py"],
    "interfaces/server/routes/models.py": [f"{UNIT}server_routes.py"],
    "interfaces/desk/plan_files.py": [f"{UNIT}server_plans.py"],
    "interfaces/desk/reviewing.py": [f"{UNIT}cli_left_out.py"],
    "interfaces/cli/plan_work.py": [
        f"{UNIT}cli_plans.py",
        f"{UNIT}cli_plans_told.py",
        f"{UNIT}cli_left_out.py",
        f"{UNIT}cli_worker.py",
        f"{UNIT}cli_goals.py",
    ],
    "interfaces/desk/model_choice.py": [f"{UNIT}plan_resume_model.py"],
    "interfaces/desk/requests.py": [f"{UNIT}guards_cli.py", f"{UNIT}agent_cli.py"],
    "interfaces/cli/sandbox_leftovers.py": DOCTOR,
    "interfaces/cli/stray_leftovers.py": DOCTOR,
    "interfaces/cli/stream_view.py": [f"{UNIT}live_view.py"],
    "langgraph/actor_graph.py": [f"{UNIT}actor_cut_off.py", *reversed(ACTORS)],
    "langgraph/actor_runner.py": [*reversed(ACTORS)],
    "langgraph/admission.py": BRIDGE,
    "langgraph/answer_stream.py": BRIDGE,
    "langgraph/bridge.py": BRIDGE,
    "langgraph/checkpoint_saver.py": [f"{UNIT}checkpoint_holding.py", f"{UNIT}actor_cut_off.py"],
    "langgraph/checkpoint_values.py": CHECKPOINTS,
    "langgraph/compaction.py": ACTORS,
    "langgraph/compiler.py": [f"{UNIT}actor_compiler.py"],
    "langgraph/deadline.py": [f"{UNIT}actor_runner.py"],
    "langgraph/graph_run.py": BRIDGE,
    "langgraph/llm_node.py": ACTORS,
    "langgraph/loop_thread.py": BRIDGE,
    "langgraph/model_call.py": ACTORS,
    "langgraph/node_threads.py": BRIDGE,
    "langgraph/run_account.py": [f"{UNIT}run_account.py", *reversed(ACTORS)],
    "langgraph/run_context.py": ACTORS,
    "langgraph/spending.py": ACTORS,
    "langgraph/state.py": [f"{UNIT}actor_compiler.py"],
    "langgraph/structured.py": ACTORS,
    "langgraph/tool_loop.py": ACTORS,
    "langgraph/tool_node.py": [f"{UNIT}actor_compiler.py"],
    "infrastructure/persistence/claim_fence.py": [f"{CONTRACTS}answer_store.py"],
    "infrastructure/persistence/sql_answer_store.py": [f"{CONTRACTS}answer_store.py"],
    "infrastructure/persistence/member_rows.py": [f"{CONTRACTS}tenants.py"],
    "infrastructure/persistence/sql_user_store.py": [
        f"{CONTRACTS}answer_store.py",
        f"{CONTRACTS}user_store.py",
        f"{UNIT}server_sessions.py",
    ],
    "infrastructure/backup.py": [f"{UNIT}backup.py"],
    "interfaces/peers/a2a_answers.py": [f"{UNIT}a2a.py"],
    "interfaces/peers/a2a_handler.py": [f"{UNIT}a2a.py", f"{UNIT}tenant_streams.py"],
    "interfaces/peers/a2a_log.py": [f"{UNIT}a2a.py"],
    "interfaces/peers/a2a_routes.py": [f"{UNIT}a2a.py"],
    "interfaces/peers/handover.py": [f"{UNIT}mcp_server.py"],
    "interfaces/peers/mcp_server.py": [f"{UNIT}mcp_server.py"],
    "interfaces/desk/project_account.py": [f"{CONTRACTS}homes.py"],
    "interfaces/server/at_most.py": [f"{UNIT}server_routes.py"],
    "interfaces/desk/access.py": [f"{UNIT}server_tenants.py", f"{UNIT}server_roles.py"],
    "interfaces/server/meters.py": [f"{UNIT}server_tenants.py"],
    "interfaces/server/buckets.py": [f"{UNIT}server_gates.py"],
    "interfaces/cli/serve.py": [f"{UNIT}server_serving.py"],
    "interfaces/server/connections.py": [f"{UNIT}server_connections.py"],
    "interfaces/server/first_token.py": [f"{UNIT}server_serving.py"],
    "interfaces/server/gates/body.py": [f"{UNIT}server_gates.py"],
    "interfaces/server/gates/host.py": [f"{UNIT}server_gates.py"],
    "interfaces/server/gates/idempotency.py": [f"{UNIT}server_idempotency.py"],
    "infrastructure/models/script_document.py": [f"{UNIT}server_uploads.py", f"{UNIT}model_script.py"],
    "interfaces/server/gates/media.py": [f"{UNIT}server_security.py"],
    "infrastructure/models/providers/scripted.py": [f"{UNIT}server_uploads.py"],
    "interfaces/server/gates/identity.py": [
        f"{UNIT}server_security.py",
        f"{UNIT}server_plans_deciding.py",
        f"{UNIT}server_health.py",
    ],
    "interfaces/server/plan_models.py": [f"{UNIT}server_plans_deciding.py"],
    "interfaces/server/gates/origin.py": [f"{UNIT}server_gates.py", f"{UNIT}server_security.py"],
    "interfaces/server/routes/page.py": [f"{UNIT}server_page.py"],
    "interfaces/desk/server_requests.py": [f"{UNIT}server_idempotency.py"],
    "interfaces/server/routes/plan_changes.py": [f"{UNIT}server_plans.py"],
    "interfaces/server/routes/plan_comparing.py": [f"{UNIT}server_plans.py"],
    "interfaces/server/routes/plan_reading.py": [f"{UNIT}server_plans.py"],
    "interfaces/server/routes/trust.py": [f"{UNIT}server_routes.py"],
    "interfaces/server/routes/session.py": [f"{UNIT}server_sessions.py", f"{UNIT}server_idempotency.py"],
    "interfaces/server/routes/users.py": [f"{UNIT}server_sessions.py", f"{UNIT}server_idempotency.py"],
    "interfaces/server/problems.py": [
        f"{UNIT}server_gates.py",
        f"{UNIT}server_routes.py",
        f"{UNIT}server_idempotency.py",
    ],
    "interfaces/server/serve.py": [f"{UNIT}server_serving.py"],
    "interfaces/server/server_file.py": [f"{UNIT}server_serving.py"],
    "reactive/operators.py": [f"{UNIT}reactive_routes.py"],
}
"""What must notice when a module loses a guard. A module with guards that is not here is an error."""


def main(words: list[str]) -> int:
    _check_that_none_is_forgotten()
    modules = [name for name in TESTS if not words or any(word in name for word in words)]
    mutants = [(name, mutant) for name in modules for mutant in mutants_of(PACKAGE / name)]
    survivors: list[Mutant] = []
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        running = {pool.submit(_caught, name, mutant): mutant for name, mutant in mutants}
        for future in as_completed(running):
            mutant = running[future]
            caught, seconds = future.result()
            verdict = "caught  " if caught else "SURVIVED"
            place = f"{mutant.module.name}:{mutant.line} {mutant.where}"
            _say(f"{verdict} {seconds:5.1f} s  {place}: {mutant.guard}")
            if not caught:
                survivors.append(mutant)
    return _conclude(len(mutants), survivors)


def _check_that_none_is_forgotten() -> None:
    guarded = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if next(mutants_of(path), None) is not None
    }
    # Test doubles are judged by the contracts they pass.
    forgotten = sorted(name for name in guarded - set(TESTS) if not name.startswith("testing/"))
    if forgotten:
        raise SystemExit(f"guards without tests to judge them: {', '.join(forgotten)}")
    unjudged = [f"{path}:{line}" for path in PACKAGE.rglob("*.py") for line in unjudged_marks(path)]
    if unjudged:
        raise SystemExit(f"marks of which no mutant comes (see by_hand.py): {', '.join(unjudged)}")


def _conclude(total: int, survivors: list[Mutant]) -> int:
    caught = total - len(survivors)
    unexplained = [mutant for mutant in survivors if mutant.key not in EXPLAINED]
    for mutant in survivors:
        _say(f"survivor {mutant.key}: {EXPLAINED.get(mutant.key, 'UNEXPLAINED')}")
    _say(f"{caught} of {total} mutants caught ({caught / max(total, 1):.0%}), {len(unexplained)} unexplained")
    return 0 if total and caught / total >= REQUIRED and not unexplained else 1


def _caught(name: str, mutant: Mutant) -> tuple[bool, float]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as home:
        root = _checkout_at(Path(home))
        (root / "src" / "cleveragents" / name).write_text(mutant.source, encoding="utf-8")
        began = time.monotonic()
        return _tests_fail(TESTS[name], root), time.monotonic() - began


def _checkout_at(home: Path) -> Path:
    """A copy of what is here, the tests included: programs that they start import what is beside them."""
    for entry in ROOT.iterdir():
        if entry.is_file():
            shutil.copy2(entry, home)
        elif entry.name in ("src", "tests"):
            shutil.copytree(entry, home / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif not entry.name.startswith("."):
            (home / entry.name).symlink_to(entry)
    return home


def _tests_fail(tests: list[str], root: Path) -> bool:
    source = root / "src"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60"]
    command += ["-p", "tests.mutants.given_order"]
    command += ["-o", f"pythonpath={source} {root}", *tests]
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{root}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, timeout=SECONDS_PER_MUTANT, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    if run.returncode not in (0, 1):
        # 2 to 5: interrupted, internal error, usage, no tests. Only pytest-timeout's abort is a catch.
        if b"Timeout" in run.stderr or b"Timeout" in run.stdout or run.returncode < 0:
            return True
        raise RuntimeError(run.stdout.decode()[-2000:] + run.stderr.decode()[-2000:])
    return run.returncode == 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
