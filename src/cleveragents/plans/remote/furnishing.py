"""Furnishes a copy of a sandbox that another machine has, before checks run in it.

What the plan's setup made is ignored, so it is in no record and did not come along. The setup was allowed
when it ran for the plan; it runs again, here, and nothing of it is recorded: checks begin with files that
are brought to what is to be checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cleveragents.core.actions.model import Setup
from cleveragents.core.errors import CheckFailed
from cleveragents.plans.checks import CheckGround
from cleveragents.plans.history import bring_to
from cleveragents.plans.remote.sandboxes import RemoteSandboxes
from cleveragents.processes.ports import Command, CommandRunner
from cleveragents.sandboxes.setup_ports import SetupInputs, SetupStore
from cleveragents.sandboxes.tree.carrying import place_of

__all__ = ["Furnishing"]

_BUSY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Furnishing:
    """Stateless but for its parts: any thread may share it."""

    sandboxes: RemoteSandboxes
    cache: SetupStore
    commands: Callable[[Path], CommandRunner]

    def __call__(self, setup: Setup, ground: CheckGround, project: str) -> None:
        """When it returns, the sandbox is furnished; a plan's own is already. `CheckFailed`, `Cancelled`."""
        if not self.sandboxes.is_copy(ground.plan_id):
            return
        sandbox = ground.sandbox
        furnished = place_of(sandbox).directory / "furnished"
        if furnished.exists():
            return
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            bring_to(sandbox, {})  # as it was when the setup ran for the plan
            runner, command = self.commands(ground.resource), _command(setup, ground)
            inputs = SetupInputs(project, setup.paths, runner.inputs_of(command))
            key = self.cache.key(inputs, sandbox.root)
            if key is None or not self.cache.take(key, sandbox.root, setup.paths):
                self._run(runner, command, ground)
            sandbox.count_as_set_up()  # guard: no check would see it
            bring_to(sandbox, ground.recorded)
            furnished.touch()

    def _run(self, runner: CommandRunner, command: Command, ground: CheckGround) -> None:
        result = runner.run(command, ground.stop)
        ground.stop.raise_if_cancelled()
        if result.exit_code != 0:
            last = result.output.strip().rpartition("\n")[2]
            raise CheckFailed(ground.plan_id, "setup", f"failed on this machine: {last}")


def _command(setup: Setup, ground: CheckGround) -> Command:
    return Command(
        argv=("/bin/sh", "-c", setup.command),
        root=ground.sandbox.root,
        directory=ground.sandbox.root,
        network=ground.network,
        readable=ground.sandbox.readable,
        markers=ground.markers or {},
        network_denied=ground.network_denied,
    )
