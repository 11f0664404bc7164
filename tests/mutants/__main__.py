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
CLIENT = "tests/contracts/client/test_"
TOKEN = [f"{UNIT}cancellation.py", f"{RACES}cancellation.py"]
WORKER = [
    f"{UNIT}async_worker.py",
    f"{UNIT}async_worker_cancel.py",
    f"{UNIT}async_worker_lease.py",
    f"{UNIT}async_worker_recovery.py",
    f"{UNIT}async_worker_drain.py",
    f"{UNIT}async_worker_threads.py",
    f"{UNIT}async_worker_handoffs.py",
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
    f"{UNIT}bridge_shutdown.py",
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
    f"{UNIT}plan_run.py",
    f"{UNIT}plan_decisions.py",
    f"{UNIT}plan_sandbox_edits.py",
    f"{UNIT}plan_checks.py",
]
MERGING = [f"{UNIT}sub_plan_merge.py"]
PLANS = [
    *(f"{CONTRACTS}plan_{part}.py" for part in ("records", "store")),
    f"{CONTRACTS}sub_plan_spawn.py",
    f"{RACES}plan_store.py",
]
DECIDED = [f"{UNIT}sub_plans_decided.py"]
TREES = [f"{UNIT}sub_plans.py", f"{RACES}sub_plans.py", *DECIDED]

AGENTS = [f"{UNIT}acp_parts.py", f"{UNIT}agent_client.py", f"{UNIT}acp_node.py", f"{UNIT}acp_faults.py"]
ACTIONS = [f"{UNIT}action_{part}.py" for part in ("arguments", "render", "loader", "cli")]
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
    *(f"{UNIT}tools_{part}.py" for part in ("edit", "files", "search", "command", "registry")),
    f"{CONTRACTS}sandbox_files.py",
    f"{CONTRACTS}tools.py",
    f"{RACES}confinement.py",
]
GUARDS = [f"{UNIT}guards_plans.py"]
HOSTILE = [f"{UNIT}sandbox_{part}.py" for part in ("hostile", "shapes", "files", "isolation")]
DURABLE = [f"{UNIT}sandbox_durability.py"]
MODELS = [
    *(f"{UNIT}model_{part}.py" for part in ("wrappers", "breaker", "retry", "tokens", "catalogue")),
    f"{CONTRACTS}models.py",
]
CHECKPOINTS = [f"{UNIT}checkpoint_saver.py", f"{CONTRACTS}checkpoint_store.py"]
ACTORS = [
    *(f"{UNIT}actor_{part}.py" for part in ("llm_node", "compiler", "runner")),
    f"{RACES}actor_runner.py",
]
MCP = [f"{UNIT}mcp_configuration.py", f"{UNIT}mcp_parts.py", f"{CONTRACTS}mcp_servers.py"]
DOCTOR = [f"{UNIT}cli_doctor_orphans.py"]
ASIDE = [f"{UNIT}cli_doctor_quarantine.py"]

INDEX = [
    *(f"{UNIT}index_{part}.py" for part in ("segments", "views", "faults", "worker_pool")),
    f"{RACES}code_index.py",
    "tests/crash/test_code_index.py",
]

CONTEXT = [
    *(f"{UNIT}{part}.py" for part in ("snapshot_opener", "answer_fitter")),
    *(f"{UNIT}context_{part}.py" for part in ("checks", "shapes", "packer", "depths")),
    *(f"{UNIT}context_{part}.py" for part in ("pipeline", "hostile", "wiring")),
]

# Quick ones first: a mutant is over at its first failure.
TESTS: dict[str, list[str]] = {
    "plans/output_recorder.py": [f"{UNIT}output_recorder.py"],
    "core/text/redaction.py": [f"{UNIT}redaction_in_pieces.py"],
    "plans/store/sql_plan_output.py": [f"{CONTRACTS}plan_output.py"],
    "server/streams/frames.py": [f"{RACES}streams.py", f"{UNIT}tenant_streams.py"],
    "server/streams/hub.py": [f"{RACES}streams.py", f"{UNIT}tenant_streams.py"],
    "server/streams/log_follower.py": [f"{CONTRACTS}audit_log.py", f"{RACES}streams.py"],
    "server/streams/stream.py": [f"{RACES}streams.py", f"{UNIT}tenant_streams.py"],
    "app/actor_parts.py": [f"{UNIT}cli_goals.py"],
    "contrib/temporal/connection.py": [f"{CONTRACTS}temporal_engine.py"],
    "contrib/temporal/worker.py": [
        f"{CONTRACTS}temporal_engine.py",
        "tests/crash/test_temporal.py",
    ],
    "contrib/temporal/workflow.py": [
        f"{CONTRACTS}temporal_engine.py",
        "tests/crash/test_temporal.py",
    ],
    "plans/jobs/shared_jobs.py": [
        f"{UNIT}shared_jobs.py",
        f"{UNIT}plan_usage_limits.py",
        "tests/crash/test_shared_workers.py",
    ],
    "app/scope.py": [f"{UNIT}container.py", f"{RACES}container.py"],
    "context/executor.py": PIPELINE,
    "core/circuit_breaker.py": PIPELINE,
    "plans/actors/actor_tools.py": [f"{UNIT}guards_actors.py", f"{UNIT}actor_tools.py"],
    "jobs/worker/async_worker.py": [*TOKEN, *WORKER],
    "jobs/worker/attempt_run.py": WORKER,
    "jobs/worker/attempt.py": WORKER,
    "core/cancellation.py": [*TOKEN, *DECIDED],
    "changes/execution_context.py": [f"{UNIT}change_fold.py", *CHANGESETS],
    "actors/conditions.py": [f"{UNIT}conditions.py"],
    "context/pipeline/assembly.py": CONTEXT,
    "context/pipeline/pipeline.py": CONTEXT,
    "context/pipeline/checks.py": CONTEXT,
    "context/pipeline/renderings.py": CONTEXT,
    "context/pipeline/ranking.py": CONTEXT,
    "context/pipeline/depths.py": CONTEXT,
    "context/pipeline/packer.py": CONTEXT,
    "context/pipeline/snapshot_opener.py": [*CONTEXT[:1], f"{RACES}snapshot_opener.py", *CONTEXT[1:]],
    "context/pipeline/skeleton.py": CONTEXT,
    "context/pipeline/steps.py": CONTEXT,
    "context/model/question.py": [f"{UNIT}question.py"],
    "context/search/import_graph.py": [f"{UNIT}context_strategies_names.py"],
    "context/search/question_search.py": [f"{UNIT}question_search.py"],
    "context/strategy_registry.py": CONTEXT,
    "context/search/tokenizers.py": CONTEXT,
    "jobs/worker/lease.py": WORKER,
    "models/usage_limits.py": [f"{UNIT}model_usage_limits.py"],
    "models/text_calls.py": [f"{UNIT}text_calls.py"],
    "models/calls.py": [f"{UNIT}model_calls.py", f"{RACES}open_calls.py", f"{UNIT}actor_plans.py"],
    "plans/actors/actor_stage.py": [f"{UNIT}actor_plans.py"],
    "plans/apply_policy.py": [
        f"{UNIT}plan_apply_policy.py",
        *GUARDS,
        f"{UNIT}remote_trouble.py",
        f"{UNIT}cli_plans.py",
        f"{UNIT}cli_plan_messages.py",
        f"{UNIT}cli_left_out.py",
    ],
    "plans/apply.py": [
        f"{UNIT}shared_jobs.py",
        f"{UNIT}plan_rebase.py",
        f"{UNIT}plan_publish.py",
        f"{UNIT}remote_trouble.py",
        f"{UNIT}remote_apply.py",
        *GUARDS,
        *TREES,
        f"{UNIT}plan_decisions.py",
        *reversed(RUNNING),
    ],
    "plans/checks.py": [f"{UNIT}plan_checks.py", *SETUPS],
    "plans/cleanup.py": [f"{UNIT}plan_decisions.py", *TREES],
    "api/plans/hints.py": [f"{UNIT}cli_plan_messages.py"],
    "cli/conversation/attachments.py": [f"{UNIT}session_cli.py"],
    "cli/init.py": [f"{UNIT}init.py"],
    "cli/plan/choose.py": [f"{UNIT}plan_choose.py"],
    "cli/terminal_app/action_screen.py": ["tests/unit/cli/terminal_app/test_plan_screens.py"],
    "cli/terminal_app/plan_actions.py": ["tests/unit/cli/terminal_app/test_plan_screens.py"],
    "cli/terminal_app/review_screen.py": ["tests/unit/cli/terminal_app/test_plan_screens.py"],
    "cli/prompts.py": [f"{UNIT}plan_choose.py"],
    "cli/terminal_app/app.py": ["tests/unit/cli/terminal_app/test_terminal_app.py"],
    "core/errors/families.py": [f"{UNIT}errors.py"],
    "config/error_log.py": [f"{UNIT}log_stream.py"],
    "plans/calls/call_log.py": [
        f"{UNIT}plan_interruption.py",
        f"{UNIT}agent_tool.py",
        f"{UNIT}agent_client.py",
    ],
    "plans/lifecycle.py": [
        f"{UNIT}plan_usage_limits.py",
        f"{UNIT}plan_interruption.py",
        f"{UNIT}guards_actors.py",
        *GUARDS,
        f"{UNIT}plan_manual_edits.py",
        f"{UNIT}plan_decisions.py",
        *RUNNING,
        *DECIDED,
    ],
    "plans/queue.py": TREES,
    "plans/corrections/correct.py": [
        f"{UNIT}plan_correction.py",
        f"{UNIT}plan_correction_kept.py",
    ],
    "plans/comments.py": [f"{UNIT}plan_comments.py"],
    "plans/model/comment.py": [f"{UNIT}comment_anchors.py"],
    "plans/store/sql_comment_store.py": [f"{UNIT}plan_comments.py"],
    "plans/tools/comment_tools.py": [f"{UNIT}plan_comments.py"],
    "plans/conflicts/rebase.py": [f"{UNIT}plan_rebase.py"],
    "plans/store/sql_rule_store.py": [f"{RACES}approval_rules.py", f"{UNIT}approval_rules.py"],
    "conversations/store.py": [
        f"{RACES}conversations.py",
        f"{CLIENT}conversations.py",
        f"{UNIT}conversation_reach.py",
        f"{UNIT}conversation_bounds.py",
    ],
    "conversations/turn.py": [f"{UNIT}conversation_reach.py"],
    "conversations/files.py": [f"{UNIT}repository_files.py"],
    "conversations/running_turns.py": ["tests/unit/conversations/test_running_turns.py"],
    "storage/conversation_tables.py": [f"{RACES}conversations.py"],
    "api/conversations/local.py": [f"{CLIENT}conversations.py", f"{UNIT}conversation_reach.py"],
    "api/conversations/http.py": [f"{CLIENT}conversations.py"],
    "api/conversations/plans.py": [
        f"{UNIT}conversation_bounds.py",
        f"{UNIT}conversation_reach.py",
        f"{CLIENT}conversations.py",
    ],
    "plans/tools/block_edits.py": [f"{UNIT}block_edits.py"],
    "plans/tools/definition_merge.py": [f"{UNIT}definition_merge.py"],
    "plans/execute.py": [f"{UNIT}solo.py"],
    "plans/tools/line_edits.py": [f"{UNIT}line_edits.py"],
    "core/command_rule.py": [f"{UNIT}command_rule.py"],
    "changes/model/review.py": [f"{UNIT}plan_rebase.py", f"{CLIENT}plans.py"],
    "api/publish.py": [f"{UNIT}plan_publish.py"],
    "api/rules.py": [f"{UNIT}approval_rules.py"],
    "api/search.py": ["tests/contracts/test_plan_reports.py", f"{UNIT}search.py"],
    "cli/plan/changes.py": [f"{UNIT}cli_comments.py"],
    "api/plans/streams.py": [f"{UNIT}plan_streams.py"],
    "cli/plan/respond.py": [f"{UNIT}client_commands.py"],
    "config/loader.py": [f"{UNIT}configuration.py"],
    "plans/pause.py": [f"{RACES}plan_correction.py", f"{UNIT}plan_pause.py", f"{UNIT}plan_comments.py"],
    "plans/strategize.py": [f"{UNIT}plan_correction_of_trees.py"],
    "plans/sub_plans/messages.py": DECIDED,
    "plans/sandbox_edits.py": [
        f"{UNIT}plan_interruption.py",
        f"{UNIT}plan_manual_edits.py",
        f"{UNIT}plan_sandbox_edits.py",
    ],
    "plans/run.py": [
        f"{UNIT}plan_usage_limits.py",
        f"{UNIT}plan_interruption.py",
        *GUARDS,
        f"{UNIT}plan_checks.py",
        *RUNNING,
        *DECIDED,
    ],
    "jobs/service_thread.py": WORKER,
    "context/strategy_threads.py": PIPELINE,
    "plans/sub_plans/loop.py": [*MERGING, *TREES],
    "plans/conflicts/resolution.py": [*MERGING, f"{UNIT}plan_rebase.py"],
    "sandboxes/resources.py": [f"{UNIT}working_directory.py", *HOSTILE, *SANDBOXES],
    "changes/model/merge_conflict.py": [f"{UNIT}conflict_marks.py"],
    "core/text/control_characters.py": [f"{UNIT}conflict_marks.py"],
    "plans/sub_plans/spawn.py": TREES,
    "tools/timed_tool.py": [f"{UNIT}timed_tool.py"],
    "plans/history.py": [f"{UNIT}tree_time.py"],
    "plans/agents/client.py": AGENTS,
    "plans/agents/sessions.py": AGENTS,
    "plans/actors/role_models.py": [f"{UNIT}agent_tool.py"],
    "plans/calls/tool_execution.py": [
        f"{UNIT}agent_tool.py",
        *(f"{UNIT}{part}.py" for part in ("guards_actors", "invariants", "actor_plans_secrets")),
        *RUNNING,
        *MERGING,
        *AGENTS,
    ],
    "core/actions/model.py": ACTIONS,
    "core/actions/arguments.py": ACTIONS,
    "core/change.py": CHANGESETS,
    "context/model/code_terms.py": [f"{UNIT}code_terms.py"],
    "jobs/model/job.py": STORE,
    "core/policy.py": [f"{UNIT}policy.py"],
    "plans/model/sub_plan.py": [f"{UNIT}sub_plan_view.py"],
    "plans/actions/loader.py": [f"{UNIT}action_loader.py"],
    "plans/actions/library.py": [*ACTIONS, *TRUST],
    "config/yaml/document.py": ACTIONS,
    "actors/model/rules.py": [f"{UNIT}actor_rules.py", f"{UNIT}actor_loader.py", f"{UNIT}agent_rules.py"],
    "actors/library.py": [f"{UNIT}actor_library.py"],
    "actors/loader.py": [f"{UNIT}actor_loader.py"],
    "actors/prompt_files.py": [f"{UNIT}actor_loader.py"],
    "apply/commit.py": [f"{UNIT}apply_commit.py", *APPLY],
    "apply/exchange.py": [f"{UNIT}apply_moves.py", *APPLY],
    "apply/lock.py": [
        f"{UNIT}apply_commit.py",
        f"{UNIT}apply_recovery.py",
        *APPLY,
        f"{UNIT}guards_apply.py",
        f"{RACES}apply.py",
    ],
    "apply/journal.py": [f"{UNIT}remote_apply.py", f"{CONTRACTS}applier.py", *APPLY],
    "apply/merge.py": [f"{UNIT}apply_conflicts.py", f"{UNIT}apply_changes.py", *APPLY],
    "apply/moves.py": [f"{UNIT}apply_moves.py", *APPLY],
    "apply/preparation.py": [f"{CONTRACTS}applier.py", *APPLY, f"{UNIT}apply_changes.py"],
    "apply/target.py": [f"{UNIT}apply_recovery.py", *APPLY, f"{UNIT}apply_conflicts.py"],
    "apply/recovery.py": [
        *GUARDS,
        f"{UNIT}apply_recovery.py",
        f"{UNIT}remote_apply.py",
        *APPLY,
    ],
    "apply/user_git.py": [f"{UNIT}apply_recovery.py", f"{UNIT}apply_commit.py", *APPLY],
    "processes/bubblewrap.py": [f"{UNIT}guards_commands.py", *COMMANDS, f"{UNIT}commands_seccomp.py"],
    "processes/environment.py": COMMANDS,
    "processes/guard.py": [
        f"{UNIT}commands_guard.py",
        f"{CONTRACTS}command_runner.py",
        f"{CONTRACTS}command_options.py",
        *COMMANDS,
    ],
    "processes/guard_process.py": [f"{UNIT}commands_guard.py", *COMMANDS],
    "processes/guarded_runner.py": [
        f"{UNIT}commands_isolation.py",
        f"{UNIT}agent_secrets.py",
        *COMMANDS,
        *SETUPS,
    ],
    "processes/passthrough.py": [f"{UNIT}agent_tool.py", f"{CONTRACTS}command_options.py"],
    "processes/own_checkout.py": [f"{UNIT}commands_own_checkout.py"],
    "processes/program_lookup.py": [
        f"{UNIT}isolation_required.py",
        f"{UNIT}commands_environment.py",
        f"{CONTRACTS}command_runner.py",
        *COMMANDS,
        f"{UNIT}commands_isolation.py",
    ],
    "processes/stdio_process.py": [f"{UNIT}commands_cgroup.py", *MCP],
    "context/analysis/syntax.py": [f"{UNIT}code_analysis.py"],
    "context/index/build/batch.py": INDEX,
    "context/index/build/builder.py": INDEX,
    "context/index/build/worker_pool.py": [f"{UNIT}index_worker_pool.py", *INDEX],
    "context/index/view.py": [f"{UNIT}index_views.py"],
    "context/index/place.py": [f"{UNIT}index_git_time.py"],
    "context/index/git_view.py": [f"{UNIT}index_views.py"],
    "context/index/index_file.py": [f"{RACES}code_index.py", *INDEX],
    "context/index/sqlite_code_index.py": [
        f"{UNIT}hostile_trees.py",
        f"{RACES}code_index.py",
        *INDEX,
        f"{UNIT}index_faults.py",
    ],
    "context/index/build/segment.py": [f"{UNIT}index_segments.py", f"{UNIT}index_faults.py"],
    "context/index/snapshot.py": [f"{RACES}code_index.py", *INDEX, f"{UNIT}index_views.py"],
    "context/index/build/worker.py": ["tests/crash/test_code_index.py"],
    "storage/home.py": [f"{UNIT}home.py"],
    "plans/remote/applier.py": [f"{UNIT}remote_apply.py"],
    "plans/remote/sandboxes.py": [f"{UNIT}remote_plans.py", f"{UNIT}remote_apply.py"],
    "app/remote_parts.py": [f"{UNIT}remote_plans.py"],
    "plans/remote/contents.py": [f"{CONTRACTS}remote_contents.py"],
    "sandboxes/mirror.py": [f"{UNIT}remote_mirror.py", f"{UNIT}remote_trouble.py"],
    "apply/push.py": [f"{UNIT}remote_apply.py", f"{UNIT}remote_trouble.py"],
    "sandboxes/rows.py": [f"{UNIT}remote_plans.py"],
    "events/anchors/targets.py": [f"{UNIT}audit_anchors.py"],
    "events/sequencer.py": [f"{CONTRACTS}audit_home.py", f"{CONTRACTS}audit_anchor.py"],
    "storage/outbox.py": [f"{CONTRACTS}audit_home.py"],
    "events/subscription.py": [*EVENTS, f"{RACES}delivery_tally.py"],
    "events/reactive.py": EVENTS,
    "events/sink.py": EVENTS,
    "git/blob_reader.py": [f"{UNIT}index_views.py"],
    "plans/tools/context_tools.py": [f"{UNIT}plan_context.py"],
    "git/plumbing.py": [
        f"{UNIT}index_git_time.py",
        f"{UNIT}guards_git.py",
        *HOSTILE,
        *SANDBOXES,
        f"{UNIT}hostile_trees.py",
    ],
    "git/git_directory.py": [f"{UNIT}guards_git.py", *HOSTILE, *SANDBOXES, *DURABLE],
    "actors/guidance/instructions.py": [f"{UNIT}guidance.py"],
    "actors/guidance/skill_tool.py": [f"{UNIT}guidance.py"],
    "actors/guidance/skills.py": [f"{UNIT}guidance.py"],
    "git/user_repository.py": [*HOSTILE, *SANDBOXES],
    "jobs/process/supervisor.py": [f"{UNIT}commands_cgroup.py", *WORKER, f"{CONTRACTS}process_supervisor.py"],
    "processes/process_tree.py": [f"{UNIT}process_environments.py"],
    "models/model_wrappers.py": [*MODELS, f"{UNIT}model_usage_limits.py"],
    "models/catalogue.py": MODELS,
    "models/model/budget.py": [f"{UNIT}model_prices.py"],
    "models/provider.py": MODELS,
    "models/langchain_model.py": MODELS,
    "jobs/object_collector.py": [f"{UNIT}object_collector.py"],
    "models/plain_chat_openai.py": [f"{UNIT}openai_events.py", f"{UNIT}model_providers.py"],
    "models/failures.py": [f"{UNIT}model_failures.py"],
    "models/script.py": MODELS,
    "models/tokens.py": MODELS,
    "jobs/store/claimable.py": [
        f"{CONTRACTS}job_concurrency.py",
        f"{CONTRACTS}job_bounds.py",
        f"{CONTRACTS}temporal_engine.py",
        f"{CONTRACTS}job_handoffs.py",
    ],
    "jobs/store/sql_job_store.py": [
        f"{CONTRACTS}job_concurrency.py",
        f"{CONTRACTS}job_handoffs.py",
        f"{CONTRACTS}worker_registry.py",
    ],
    "jobs/store/rows.py": [
        f"{CONTRACTS}job_concurrency.py",
        f"{CONTRACTS}job_bounds.py",
        f"{CONTRACTS}plan_records.py",
        f"{CONTRACTS}checkpoint_store.py",
    ],
    "jobs/worker/reports.py": [f"{RACES}worker_reports.py", f"{UNIT}worker_parts.py"],
    "actors/store/checkpoint_rows.py": [*reversed(CHECKPOINTS)],
    "storage/database.py": STORE,
    "storage/group_commit.py": STORE,
    "storage/postgres_backend.py": STORE,
    "models/store/sql_budget_store.py": [f"{CONTRACTS}budget_store.py"],
    "plans/store/sql_decision_store.py": [
        f"{CONTRACTS}decision_store.py",
        f"{CONTRACTS}idempotency_store.py",
    ],
    "access/store/sql_project_store.py": [
        f"{CONTRACTS}project_store.py",
        f"{UNIT}server_tenants.py",
        f"{CONTRACTS}tenants.py",
    ],
    "access/model/project.py": [f"{UNIT}domain_remote.py", f"{CONTRACTS}project_store.py"],
    "changes/store/sql_changeset_store.py": CHANGESETS,
    "actors/store/sql_checkpoint_store.py": CHECKPOINTS,
    "plans/store/sql_plan_records.py": [*PLANS, *MERGING],
    "plans/store/sql_plan_store.py": [
        f"{UNIT}server_tenants.py",
        f"{CONTRACTS}idempotency_store.py",
        *PLANS[:2],
        *GUARDS,
        *PLANS[2:],
    ],
    "storage/sqlite_backend.py": STORE,
    "sandboxes/directory_copy.py": [f"{CONTRACTS}sandbox_starts.py"],
    "sandboxes/tree/merge.py": [f"{UNIT}merge_quality.py", *MERGING],
    "sandboxes/facts.py": [*DURABLE, *SANDBOXES],
    "sandboxes/git_sandbox.py": [
        f"{UNIT}ignored_files.py",
        f"{UNIT}hostile_trees.py",
        *SANDBOXES,
    ],
    "storage/files/file_copy.py": [f"{UNIT}hostile_trees.py", f"{UNIT}sandbox_files.py"],
    "sandboxes/tree/index.py": [f"{UNIT}sandbox_unrecordable.py", *SANDBOXES],
    "git/index_file.py": [f"{UNIT}hostile_trees.py"],
    "sandboxes/tree/visible_git.py": [f"{UNIT}hostile_trees.py"],
    "sandboxes/tree/ignored_files.py": [f"{UNIT}ignored_files.py"],
    "sandboxes/orphans.py": SANDBOXES,
    "sandboxes/lock.py": [f"{UNIT}hostile_operations.py", *SANDBOXES],
    "sandboxes/private_clone.py": [*HOSTILE, *SANDBOXES],
    "sandboxes/registry.py": [
        f"{UNIT}hostile_operations.py",
        f"{UNIT}guards_sandbox.py",
        f"{UNIT}remote_plans.py",
        *SANDBOXES,
    ],
    "sandboxes/tree/restore.py": [f"{UNIT}ignored_files.py", f"{UNIT}guards_sandbox.py"],
    "sandboxes/setup_cache.py": [*SETUPS, f"{UNIT}guards_sandbox.py"],
    "actors/external/agent_tool.py": [f"{UNIT}agent_plans.py"],
    "tools/files/descent.py": TOOLS,
    "tools/files/exact_edit.py": TOOLS,
    "tools/files/text_files.py": [f"{UNIT}tools_mask.py", *TOOLS],
    "tools/files/matchers.py": TOOLS,
    "tools/mcp/tools.py": [*MCP, f"{UNIT}mcp_actor_tools.py"],
    "tools/mcp/configuration.py": [*MCP, f"{UNIT}mcp_cli.py"],
    "tools/mcp/connection.py": MCP,
    "tools/mcp/tool_list.py": MCP,
    "tools/mcp/gate.py": [f"{UNIT}mcp_gate.py"],
    "plans/tools/mcp_gate.py": [f"{UNIT}mcp_gate.py"],
    "actors/external/acp/handler.py": AGENTS,
    "actors/external/acp/session.py": [f"{UNIT}agent_secrets.py", *AGENTS],
    "actors/external/acp/updates.py": AGENTS,
    "processes/event_loop_thread.py": MCP,
    "tools/mcp/launch.py": MCP,
    "tools/mcp/server_entry.py": MCP,
    "tools/mcp/servers.py": MCP,
    "config/logging.py": [f"{UNIT}redaction.py", f"{UNIT}terminal_output.py"],
    "contrib/telemetry/otlp.py": [f"{UNIT}telemetry.py"],
    "contrib/telemetry/spans.py": [f"{UNIT}telemetry.py"],
    "access/trust/repository_files.py": TRUST,
    "cli/run/goals_file.py": [f"{UNIT}cli_run_goals.py"],
    "access/trust/sql_trust_store.py": TRUST,
    "cli/doctor/apply_orphans.py": ASIDE,
    "cli/isolation.py": [f"{UNIT}isolation_required.py"],
    "cli/run/background.py": [f"{UNIT}cli_run_background.py"],
    "cli/run/handover.py": [f"{UNIT}client_handover.py"],
    "cli/commands.py": [f"{UNIT}client_commands.py"],
    "api/actions.py": ["tests/contracts/client/test_actions.py"],
    "api/actors.py": ["tests/contracts/client/test_actors.py"],
    "api/context.py": ["tests/contracts/client/test_context.py"],
    "api/models.py": ["tests/contracts/client/test_models.py"],
    "api/event_stream.py": [f"{UNIT}client_cuts.py"],
    "api/client.py": [f"{UNIT}connect.py"],
    "api/events.py": [f"{CLIENT}events.py"],
    "api/plans/http.py": [f"{UNIT}http_plans.py", f"{CLIENT}plans.py"],
    "api/plans/local.py": [f"{UNIT}connect.py", f"{UNIT}server_plans.py", f"{CLIENT}plans.py"],
    "apply/applier.py": [f"{UNIT}git_directories.py", f"{UNIT}apply_changes.py"],
    "cli/render/remedies.py": [f"{UNIT}remedy_lines.py"],
    "sandboxes/tree/walk.py": [f"{UNIT}hostile_trees.py"],
    "server/access.py": [f"{UNIT}server_tenants.py", f"{UNIT}server_roles.py"],
    "storage/files/paths.py": [f"{UNIT}hostile_trees.py"],
    "cli/servers.py": [f"{UNIT}client_logins.py", f"{UNIT}client_commands.py"],
    "cli/plan/follow.py": [f"{UNIT}client_commands.py"],
    "cli/run/server_run.py": [f"{UNIT}client_commands.py"],
    "api/transport.py": [f"{UNIT}client_cuts.py", f"{UNIT}client_commands.py"],
    "cli/run/foreground.py": [f"{UNIT}cli_plans.py", f"{UNIT}cli_plan_messages.py"],
    "cli/run/interruption.py": [f"{UNIT}cli_interrupt.py"],
    "cli/render/index_progress.py": [f"{UNIT}index_progress.py"],
    "cli/render/footer.py": [f"{UNIT}rich_view.py"],
    "cli/render/live_output.py": [f"{UNIT}cli_plans.py", f"{UNIT}live_view.py"],
    "cli/render/live_view.py": [f"{UNIT}live_view.py"],
    "api/plans/budget.py": [f"{UNIT}cli_goals.py", f"{UNIT}plan_resume_model.py"],
    "cli/plan/publish.py": [f"{UNIT}plan_publish.py"],
    "cli/plan/cancel.py": [f"{UNIT}plan_cancel.py"],
    "plans/background_logs.py": [f"{UNIT}cli_run_background.py"],
    "api/plans/apply_jobs.py": [f"{UNIT}server_plan_responses.py", f"{CLIENT}plans.py"],
    "api/plans/details.py": [f"{UNIT}remote_trouble.py"],
    "api/plans/responses.py": [
        f"{UNIT}server_plans.py",
        f"{UNIT}server_plan_responses.py",
        f"{CLIENT}plans.py",
        *ASIDE,
    ],
    "api/plans/diffs.py": [f"{UNIT}server_plans.py", f"{UNIT}diff_hunks.py"],
    "api/plans/goal_requests.py": [f"{UNIT}server_uploads.py"],
    "api/server_requests.py": [f"{UNIT}server_uploads.py", f"{UNIT}server_idempotency.py"],
    "server/routes/library.py": [f"{UNIT}server_routes.py"],
    "api/plans/review.py": [f"{UNIT}cli_left_out.py"],
    "cli/plan/work.py": [
        f"{UNIT}cli_plans.py",
        f"{UNIT}cli_plan_messages.py",
        f"{UNIT}cli_left_out.py",
        f"{UNIT}cli_worker.py",
        f"{UNIT}cli_goals.py",
    ],
    "api/plans/create.py": [f"{UNIT}connect.py", f"{UNIT}guards_cli.py", f"{UNIT}agent_cli.py"],
    "cli/doctor/sandbox_orphans.py": DOCTOR,
    "cli/doctor/stray_orphans.py": DOCTOR,
    "cli/render/stream_view.py": [f"{UNIT}live_view.py"],
    "actors/runner.py": [f"{UNIT}actor_interruption.py", *reversed(ACTORS)],
    "actors/bridge/bridge.py": BRIDGE,
    "actors/bridge/answer_stream.py": BRIDGE,
    "actors/graph/checkpoint_saver.py": [
        f"{UNIT}checkpoint_retention.py",
        f"{UNIT}actor_interruption.py",
        *CHECKPOINTS,
    ],
    "actors/graph/model_call.py": ACTORS,
    "actors/graph/compiler.py": [f"{UNIT}actor_compiler.py"],
    "actors/graph/run_context.py": [
        f"{UNIT}actor_runner.py",
        *ACTORS,
        f"{UNIT}run_spending.py",
        *reversed(ACTORS),
    ],
    "actors/bridge/graph_run.py": BRIDGE,
    "actors/graph/llm_node.py": ACTORS,
    "actors/bridge/loop_thread.py": BRIDGE,
    "actors/graph/state.py": [f"{UNIT}actor_compiler.py"],
    "actors/graph/nodes.py": [f"{UNIT}actor_compiler.py"],
    "server/webhook.py": [f"{UNIT}webhook.py"],
    "storage/sql_idempotency_store.py": [f"{CONTRACTS}idempotency_store.py"],
    "access/store/sql_user_store.py": [
        f"{CONTRACTS}idempotency_store.py",
        f"{CONTRACTS}user_store.py",
        f"{UNIT}server_sessions.py",
    ],
    "storage/backup.py": [f"{UNIT}backup.py"],
    "protocols/a2a_handler.py": [f"{UNIT}a2a.py", f"{UNIT}tenant_streams.py"],
    "protocols/a2a_routes.py": [f"{UNIT}a2a.py"],
    "protocols/acp_agent.py": [f"{UNIT}acp_agent.py"],
    "protocols/acp_stdio.py": [f"{UNIT}acp_agent.py"],
    "protocols/acp_updates.py": [f"{UNIT}acp_agent.py"],
    "protocols/agent_requests.py": [f"{UNIT}a2a.py"],
    "protocols/mcp_routes.py": [f"{UNIT}mcp_http.py"],
    "protocols/mcp_server.py": [f"{UNIT}mcp_http.py", f"{UNIT}mcp_server.py"],
    "cli/admin/mcp.py": [f"{UNIT}client_commands.py"],
    "server/routes/plan_actions.py": [f"{UNIT}server_plan_responses.py"],
    "api/trust.py": [f"{CLIENT}trust.py"],
    "api/users.py": [f"{CLIENT}users.py"],
    "cli/admin/user.py": [f"{UNIT}cli_user.py"],
    "api/projects.py": [f"{CLIENT}projects.py"],
    "api/resources.py": [f"{CLIENT}resources.py", f"{CONTRACTS}homes.py"],
    "server/service.py": [f"{UNIT}server_routes.py"],
    "api/access.py": [
        f"{UNIT}server_tenants.py",
        f"{UNIT}server_roles.py",
        f"{UNIT}conversation_reach.py",
    ],
    "server/metrics.py": [f"{UNIT}server_tenants.py"],
    "server/middleware/identity.py": [
        f"{UNIT}server_middleware.py",
        f"{UNIT}server_security.py",
        f"{UNIT}server_plan_responses.py",
        f"{UNIT}server_health.py",
    ],
    "cli/admin/serve.py": [f"{UNIT}server_start.py"],
    "server/connections.py": [f"{UNIT}server_connections.py"],
    "server/first_token.py": [f"{UNIT}server_start.py"],
    "server/middleware/body.py": [f"{UNIT}server_middleware.py"],
    "server/middleware/origin.py": [f"{UNIT}server_middleware.py", f"{UNIT}server_security.py"],
    "server/middleware/idempotency.py": [f"{UNIT}server_idempotency.py"],
    "models/script_document.py": [f"{UNIT}server_uploads.py", f"{UNIT}model_script.py"],
    "models/providers/scripted.py": [f"{UNIT}server_uploads.py"],
    "server/parameters.py": [f"{UNIT}server_plan_responses.py"],
    "server/routes/page.py": [f"{UNIT}server_page.py"],
    "server/routes/session.py": [f"{UNIT}server_sessions.py", f"{UNIT}server_idempotency.py"],
    "server/routes/users.py": [f"{UNIT}server_sessions.py", f"{UNIT}server_idempotency.py"],
    "server/problems.py": [
        f"{UNIT}server_middleware.py",
        f"{UNIT}server_routes.py",
        f"{UNIT}server_idempotency.py",
    ],
    "server/serve.py": [f"{UNIT}server_start.py"],
    "server/server_file.py": [f"{UNIT}server_start.py"],
    "actors/streams/message.py": [f"{UNIT}reactive_routes.py"],
}
"""What must notice when a module loses a guard. A module with guards that is not here is an error."""


def main(words: list[str]) -> int:
    problems = problems_of_map()
    if problems:
        raise SystemExit("\n".join(problems))
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


def problems_of_map() -> list[str]:
    """Return the guards that no mutant or no test covers, and the tests that do not exist."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        # Test doubles are judged by the contracts they pass.
        if name not in TESTS and not name.startswith("testing/") and next(mutants_of(path), None) is not None:
            found.append(f"{name}: guards without tests to judge them")
        found += [
            f"{name}:{line}: a mark of which no mutant comes (see by_hand.py)"
            for line in unjudged_marks(path)
        ]
    named = {test.partition("::")[0] for tests in TESTS.values() for test in tests}
    found += [f"{test}: no such test" for test in sorted(named) if not (ROOT / _located(test, ROOT)).exists()]
    return found


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
    command += ["-o", f"pythonpath={source} {root}", *(_located(test, root) for test in tests)]
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


def _located(test: str, root: Path) -> str:
    """The path of a unit test in the folder of its feature; any other path as it is."""
    found = sorted(root.glob(test.replace("tests/unit/", "tests/unit/*/")))
    return str(found[0].relative_to(root)) if found else test


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
