"""Checks of a result, and the setup of a sandbox.

A verdict belongs to one tree: a check that passed on a tree need not run on that tree again. The changes of a
check in the sandbox are reverted, so they cannot become part of the result. Checks run without the ignored
files that steps made, because these are not part of the result.

The setup command runs once per sandbox, or its output comes from the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from cleveragents.core.actions.model import Check, CheckRun, CheckVerdict, Setup
from cleveragents.core.errors import CleverAgentsError, PlanFailed
from cleveragents.core.policy import Capability, Verdict
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.history import restore_states
from cleveragents.plans.model.strategy import SETUP, StrategyStep
from cleveragents.processes.ports import Command, CommandResult, CommandRunner, StopSignal
from cleveragents.sandboxes.ports import SetupInputs
from cleveragents.tools.tool_results import cut

if TYPE_CHECKING:
    from cleveragents.core.change import FileState
    from cleveragents.core.clock import Clock
    from cleveragents.plans.calls.tool_execution import ToolExecution
    from cleveragents.plans.store.sql_plan_records import SqlCheckStore
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.setup_cache import SetupCache

__all__ = ["CheckEnvironment", "ChecksFor", "FindsOwnCheckout", "PlanChecks", "SandboxSetup"]


_MOST_PASSED, _MOST_FAILED = 2_000, 6_000


class FindsOwnCheckout(Protocol):
    """Returns a warning if a check would test the user's own checkout instead of the sandbox, else None."""

    def __call__(
        self, resource: Path, runner: CommandRunner, command: Command, stop: StopSignal
    ) -> str | None: ...


class CheckEnvironment(Struct, frozen=True, kw_only=True):
    """The sandbox that checks run in, the file states to check, and the signal that stops the checks.

    After each check the sandbox is restored to `recorded`, the file states according to the plan's records.
    """

    plan_id: str
    resource: Path
    sandbox: Sandbox
    states: Mapping[str, FileState | None]
    recorded: Mapping[str, FileState | None]
    stop: StopSignal
    network: bool = False
    markers: Mapping[str, str] | None = None
    on_output: Callable[[bytes], None] | None = None
    network_denied: bool = False


class PlanChecks(Struct, frozen=True):
    """Runs checks and records their verdicts. Stateless."""

    store: SqlCheckStore
    commands: CommandRunner
    own_checkout: FindsOwnCheckout
    clock: Clock

    def run(
        self,
        checks: Sequence[Check],
        ground: CheckEnvironment,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> Sequence[CheckRun]:
        """Run each check on the tree of `ground.states` and return the runs. Raises `Cancelled`.

        The files in the sandbox are set to `ground.states` before each check and to `ground.recorded`
        afterwards. Ignored files that steps made are hidden during the checks.
        """
        if not checks:
            return []
        tree = ground.sandbox.tree(ground.states)
        passed = self._passed(ground.plan_id, tree)
        if all(check.command in passed for check in checks):
            return [passed[check.command] for check in checks]
        recorded = [path for path, state in ground.recorded.items() if state is not None]
        sandbox, runs = ground.sandbox, []
        # One block for all checks: finding ignored files reads the whole tree.
        with sandbox.writing(timeout_seconds=30.0), sandbox.without_ignored(recorded):
            for check in checks:
                if check.command not in passed:
                    _tell(progress, check)
                    run = self._one(check, ground, tree)
                    self.store.record(run)
                else:
                    run = passed[check.command]
                runs.append(run)
        return runs

    def have_passed(self, checks: Sequence[Check], plan_id: str, tree: str) -> bool:
        """Return whether all these checks have passed on this tree."""
        passed = self._passed(plan_id, tree) if checks else {}
        return all(check.command in passed for check in checks)

    def _passed(self, plan_id: str, tree: str) -> dict[str, CheckRun]:
        """Return the checks that passed on this tree, by command; they need not run again.

        If the latest run of a check was on another tree, the earlier pass on this tree is recorded again:
        people see the latest run, and the latest run decides.
        """
        last: dict[str, CheckRun] = {}
        on_tree: dict[str, CheckRun] = {}
        for run in self.store.of_plan(plan_id):
            if not run.is_review:
                last[run.command] = run
            if run.is_check_of(tree):
                on_tree[run.command] = run
        passed = {command: run for command, run in on_tree.items() if run.verdict is CheckVerdict.PASSED}
        for command, run in passed.items():
            if last[command].tree != tree:
                passed[command] = replace(run, ended_at=self.clock.now())
                self.store.record(passed[command])
        return passed

    def _one(self, check: Check, ground: CheckEnvironment, tree: str) -> CheckRun:
        sandbox = ground.sandbox
        restore_states(sandbox, ground.states)
        began = self.clock.monotonic()
        try:
            verdict, details = self._judged(check, ground)
            took = round(self.clock.monotonic() - began, 3)
        finally:
            restore_states(sandbox, ground.recorded)
        ground.stop.raise_if_cancelled()
        return CheckRun(
            ground.plan_id,
            check.name,
            check.command,
            check.required,
            verdict,
            redact_text(details),
            tree,
            self.clock.now(),
            took,
        )

    def _judged(self, check: Check, ground: CheckEnvironment) -> tuple[CheckVerdict, str]:
        command = Command(
            argv=("/bin/sh", "-c", check.command),
            root=ground.sandbox.root,
            directory=ground.sandbox.root,
            timeout_seconds=check.timeout_seconds,
            network=ground.network,
            readable=ground.sandbox.readable,
            markers=ground.markers or {},
            network_denied=ground.network_denied,
        )
        try:
            elsewhere = self.own_checkout(ground.resource, self.commands, command, ground.stop)
            if elsewhere is not None:  # guard: a check of other files says nothing about these
                return CheckVerdict.VOID, elsewhere
            result = self.commands.run(command, ground.stop, on_output=ground.on_output)
        except CleverAgentsError as error:
            return CheckVerdict.NOT_RUN, str(error)
        return _verdict(check, result)


def _tell(progress: Callable[[str], None] | None, check: Check) -> None:
    if progress is not None:
        named = "" if check.name == check.command else f"{check.name}: "
        progress(f"check {named}{check.command}")


def _verdict(check: Check, result: CommandResult) -> tuple[CheckVerdict, str]:
    output = redact_text(result.output)  # guard: half a secret would not be recognized after the cut
    if result.exit_code == 0:
        return CheckVerdict.PASSED, output[-_MOST_PASSED:]
    # The first failure and the summary of a test run matter most.
    shown = cut(output, _MOST_FAILED, advice="")
    if result.timed_out:
        return CheckVerdict.FAILED, f"took longer than {check.timeout_seconds:g} s\n{shown}"
    if result.exit_code in (126, 127):  # the shell reports: not executable, not found
        return CheckVerdict.NOT_RUN, f"could not be run (exit code {result.exit_code})\n{shown}"
    return CheckVerdict.FAILED, f"exit code {result.exit_code}\n{shown}"


class ChecksFor(Protocol):
    """Returns checks that can see the sandbox but not the given resource."""

    def __call__(self, resource: Path) -> PlanChecks: ...


class SandboxSetup(Struct, frozen=True):
    """Runs the setup of a strategy once per sandbox. Its only state is the cache."""

    cache: SetupCache

    def prepare(
        self, setup: Setup | None, sandbox: Sandbox, execution: ToolExecution, *, project: str
    ) -> None:
        """Set up the sandbox. Raises `PlanFailed`, `NeedsHuman`, `PolicyDenied`."""
        if setup is None:
            return
        call = execution.earlier(SETUP)
        if call is None or not call.is_over:
            call = self._made(setup, sandbox, execution, project, call)
        problem = StrategyStep(SETUP, call.tool, call.arguments).problem_with(call)
        if problem is not None:
            raise PlanFailed(sandbox.plan_id, problem)

    def _made(
        self,
        setup: Setup,
        sandbox: Sandbox,
        execution: ToolExecution,
        project: str,
        earlier: ToolCall | None,
    ) -> ToolCall:
        from cleveragents.plans.calls.tool_execution import CallRequest

        argv = ("/bin/sh", "-c", setup.command)
        key = None
        # An interrupted setup left files behind, so its output is not cached.
        if earlier is None or earlier.state is CallState.ASKED:
            # Only here, before the first step: later steps change the files that the key is made from.
            inputs = SetupInputs(project, setup.paths, execution.command_inputs(argv))
            key = self.cache.key(inputs, sandbox.root)
        usable = key if earlier is None else None
        if execution.verdict(Capability.INSTALL) is Verdict.DENY:  # guard: also if nothing has to run
            usable = None
        if usable is not None and self.cache.take(usable, sandbox.root, setup.paths):
            return execution.note(SETUP, "setup", {"command": setup.command, "kept_as": usable})
        arguments = {"argv": list(argv)}
        call = execution.call(CallRequest(SETUP, "command", arguments, capability=Capability.INSTALL))
        if key is not None and StrategyStep(SETUP, call.tool, arguments).problem_with(call) is None:
            self.cache.keep(key, sandbox.root, setup.paths)
        return call
