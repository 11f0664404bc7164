"""For every suite: asyncio in debug mode, and a leak check around every module."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from cleveragents.core.text.redaction import known_values
from cleveragents.jobs.object_collector import COLLECTOR
from cleveragents.storage import sqlite_backend
from tests.leaks import take_baseline
from tests.short_stacks import keep_short_stacks
from tests.unisolated import ALLOW_UNISOLATED

# The time to generate data depends on the load of the machine, not on the test.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

os.environ.update(ALLOW_UNISOLATED)
# Catches ensure_future from a foreign thread, and tasks destroyed while pending. Read when a loop is made.
os.environ["PYTHONASYNCIODEBUG"] = "1"
keep_short_stacks()
# A shell starts background jobs with SIGINT ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every database has an engine, and every engine compiled the same statements again: a twentieth of all time.
_COMPILED = LRUCache[Any, Any](2_000)


def _engine_that_shares_what_is_compiled(*given: Any, **named: Any) -> Engine:
    return create_engine(*given, execution_options={"compiled_cache": _COMPILED}, **named)


_for_all = pytest.MonkeyPatch()
_for_all.setattr(sqlite_backend, "create_engine", _engine_that_shares_what_is_compiled)
_for_all.setattr(SQLiteDialect_pysqlite, "__eq__", lambda one, other: type(one) is type(other))
_for_all.setattr(SQLiteDialect_pysqlite, "__hash__", lambda one: hash(type(one)))

# Suites that drive git and other processes; the version of the interpreter does not affect them.
ENGINE = (
    "unit/test_a2a",
    "crash/test_many_machines",
    "crash/test_streams",
    "unit/test_server_stream",
    "browser/",
    "contracts/test_applier",
    "contracts/test_command_runner",
    "contracts/test_command_options",
    "contracts/test_homes",
    "contracts/test_mcp_servers",
    "contracts/test_temporal_engine",
    "contracts/test_worker_start",
    "contracts/test_sandbox_starts",
    "contracts/test_sandboxes",
    "races/test_apply",
    "races/test_code_index",
    "races/test_confinement",
    "races/test_plans",
    "races/test_sandboxes",
    "unit/test_acp_",
    "unit/test_action_render",
    "unit/test_actor_plans",
    "unit/test_actor_shutdown",
    "unit/test_actor_tools",
    "unit/test_actor_wire",
    "unit/test_agent_client",
    "unit/test_agent_plans",
    "unit/test_agent_secrets",
    "unit/test_agent_tool",
    "unit/test_apply_",
    "unit/test_cli_applied_twice",
    "unit/test_backup",
    "unit/test_cli_corrections",
    "unit/test_cli_demo",
    "unit/test_cli_doctor_orphans",
    "unit/test_cli_doctor_quarantine",
    "unit/test_cli_goals",
    "unit/test_cli_left_out",
    "unit/test_cli_narrow_terminal",
    "unit/test_cli_worker",
    "unit/test_client_commands",
    "unit/test_client_cuts",
    "unit/test_client_handover",
    "unit/test_plan_answers",
    "unit/test_plan_concurrency",
    "unit/test_shared_jobs",
    "unit/test_worker_logs",
    "unit/test_worker_parts",
    "unit/test_cli_plan_conflicts",
    "unit/test_cli_plans",
    "unit/test_cli_projects",
    "unit/test_server_plans",
    "unit/test_server_routes",
    "unit/test_server_schema",
    "unit/test_cli_run_",
    "unit/test_cli_trees",
    "unit/test_commands_",
    "unit/test_context_cli",
    "unit/test_git_history",
    "unit/test_doctor_services",
    "unit/test_guards_",
    "unit/test_index_",
    "unit/test_invariants",
    "unit/test_mcp_actor_tools",
    "unit/test_mcp_cli",
    "unit/test_mcp_plans",
    "unit/test_mcp_policy",
    "unit/test_mcp_server",
    "unit/test_merge_quality",
    "unit/test_plan_checks",
    "unit/test_plan_context",
    "unit/test_plan_correction",
    "unit/test_plan_apply_policy",
    "unit/test_plan_decisions",
    "unit/test_plan_manual_edits",
    "unit/test_plan_pause",
    "unit/test_plan_resume_model",
    "unit/test_plan_sandbox_edits",
    "unit/test_plan_run",
    "unit/test_plan_time_left",
    "unit/test_remote_",
    "unit/test_rich_view",
    "unit/test_sandbox_",
    "unit/test_sub_plan_merge",
    "unit/test_sub_plans",
    "unit/test_server_secrets",
    "unit/test_server_start",
    "unit/test_server_uploads",
    "unit/test_telemetry",
    "unit/test_tools_command",
    "unit/test_tools_search",
)


# The longest modules, longest first: one that starts last leaves a processor idle.
LONGEST = (
    "crash/test_many_machines",
    "crash/test_plans",
    "crash/test_field_reports",
    "crash/test_apply",
    "crash/test_store_processes",
    "crash/test_actor_plans",
    "crash/test_sandboxes",
    "crash/test_worker_crashes",
    "races/test_plan_store",
    "races/test_breaker",
    "races/test_changesets",
    "races/test_worker",
    "races/test_event_bus_ordered",
    "races/test_cancellation",
    "unit/test_hostile_trees",
    "contracts/test_temporal_engine",
    "contracts/test_worker_start",
    "unit/test_server_schema",
    "unit/test_client_commands",
    "unit/test_cli_",
    "unit/test_remote_",
    "unit/test_server_plans",
    "unit/test_plan_correction",
    "unit/test_sub_plan",
    "architecture/",
    "unit/test_apply_",
    "unit/test_plan_",
    "unit/test_a",
    "unit/test_sandbox_",
    "unit/test_commands_",
    "unit/test_context_cli",
    "contracts/",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze the objects made by collection, which live to the end.

    Scanning them for garbage took as long as the rest of collection, again for every test with many objects.
    Uses the same collector as workers: otherwise each worker would have to count the frozen objects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        COLLECTOR.hold()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip deselected modules before they are imported: importing takes longer than many tests."""
    unwanted = "not engine" in config.getoption("markexpr")
    return True if unwanted and _is_among(ENGINE, collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests of engines, so that `-m "not engine"` skips them, and sort the longest modules first.

    A random order, if requested, is kept.
    """
    for item in items:
        if _is_among(ENGINE, item.path):
            item.add_marker(pytest.mark.engine)
    if not config.pluginmanager.hasplugin("randomly"):
        items.sort(key=lambda item: _first_of(LONGEST, item.path))


def _is_among(names: tuple[str, ...], module: Path) -> bool:
    return _first_of(names, module) < len(names)


@cache
def _first_of(names: tuple[str, ...], module: Path) -> int:
    """Return the index of the first name that the module begins with, or the length of the list."""
    path = re.sub("tests/unit/[a-z]+/", "tests/unit/", module.as_posix())
    return next((place for place, name in enumerate(names) if f"tests/{name}" in path), len(names))


@pytest.fixture(autouse=True)
def logging_is_as_it_was() -> Iterator[None]:
    """Restore logging: a command inside this process points it at a stderr that its test closes."""
    yield
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture
def plain_faults() -> None:
    """Log faults without the values of all variables, which takes seconds."""
    import structlog

    shown = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.dev.set_exc_info, shown])


@pytest.fixture(scope="session")
def commands_are_forked() -> Iterator[None]:
    """Fork `Forked` processes from one that has imported the modules of commands and the server."""
    from tests.fork_server import COMMANDS, nursery

    with nursery([COMMANDS, "cleveragents.server.serve", "tests.contracts.store_child"]):
        yield


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that threads, children and descriptors are back at the baseline after a module's tests."""
    if known_values():
        # Their owners are unreachable by now. Until they are collected, redaction masks the values here.
        gc.collect()
    before = take_baseline()
    yield
    leaks = before.leaks()
    assert not leaks, f"{request.node.name} left behind: {'; '.join(leaks)}"
