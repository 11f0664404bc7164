"""The story of the demo, with real processes, a real repository and its own database.

Six goals run in parallel. One worker is killed in the middle of its plan, one plan is cancelled, a check
fails one plan and a reviewer rejects another, and of two plans that change the same lines one is refused. The
story only acts and waits; `promises` judges the evidence at its end.

The story waits by polling, with a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from cleveragents.cli.output import counted
from cleveragents.config.settings import Settings
from cleveragents.core.actions.model import CheckRun, CheckVerdict
from cleveragents.core.errors import ApplyConflict, DeadlineExceeded, SandboxMissing
from cleveragents.core.tool import CallState
from cleveragents.demo.sample import CATALOGUE, FILES, GOALS, LINES, SampleRepository, plan_for, write_script
from cleveragents.demo.worker_process import WorkerProcess
from cleveragents.jobs.model.job import marker_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["READY", "DemoDriver", "Say", "Story", "demo_settings", "sample_of", "tell", "until"]


READY = tuple(label for label in GOALS if label != "simulation")
"""The plans with a result."""
_CREW, _DOOMED = "worker-1", "worker-2"
_KILL_AFTER_LINES = 3
_FEWEST_PROCESSES = 4
_SHOWN_LINES = 6

_STEP_SECONDS = 180.0
_LOOK_SECONDS = 0.02


class Say(Protocol):
    """Prints progress: the phase, a message, and details on lines below it."""

    def __call__(self, phase: str, what: str, *details: str) -> None: ...


@dataclass
class Story:
    """The facts of the story for `promises`. Plans are known by their labels."""

    ids: dict[str, str] = field(default_factory=dict)
    before: str = ""
    when_ready: str = ""
    refs_before: str = ""
    refusal: str = ""
    pids: tuple[int, ...] = ()
    marker: str = ""
    second_cancel: str = ""
    lines_before_kill: int = 0
    calls_before_kill: tuple[int, ...] = ()
    merged: str = ""
    exit_codes: dict[str, int] = field(default_factory=dict)
    killed_worker: str = _DOOMED
    keeps_sandboxes: bool = False


def demo_settings(directory: Path) -> Settings:
    """Return settings with all state in `directory`, short intervals and short time limits."""
    return msgspec.convert(
        {
            "state": {"directory": str(directory)},
            "database": {"url": f"sqlite:///{directory}/state.db"},
            "worker": {
                # The dead worker is noticed at once; living ones may be slow.
                "lease_seconds": 60.0,
                "heartbeat_seconds": 0.5,
                "poll_seconds": 0.1,
                "cancel_grace_seconds": 1.0,
                "concurrency": len(GOALS),
            },
        },
        Settings,
    )


def sample_of(container: Container) -> SampleRepository:
    """Return the repository of the story."""
    return SampleRepository(container.state_directory / "paint-shop")


def tell(container: Container, say: Say, *, keeps_sandboxes: bool = False) -> Story:
    """Play the whole story. Raises `DeadlineExceeded` if a step does not happen."""
    story = Story(keeps_sandboxes=keeps_sandboxes)
    with ExitStack() as cleanup:
        crew, doomed = _started(container, (_CREW, _DOOMED), cleanup)
        DemoDriver(container, story, say).play(crew, doomed)
        story.exit_codes = {worker.name: worker.finish() for worker in (crew, doomed)}
    return story


def _started(container: Container, names: Sequence[str], cleanup: ExitStack) -> Sequence[WorkerProcess]:
    """Start a process for each name; `cleanup` ends all of them."""
    workers: list[WorkerProcess] = []
    cleanup.callback(_stop_all, workers)
    for name in names:
        log = container.state_directory / f"{name}.log"
        workers += [WorkerProcess(name, container.settings, log)]
    return workers


def _stop_all(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.finish()


class DemoDriver:
    """The player of the story. Not thread-safe: use it in the thread that made it."""

    def __init__(self, container: Container, story: Story, say: Say) -> None:
        self._container = container
        self._story = story
        self._say = say
        self._sample = sample_of(container)

    @property
    def _parts(self) -> PlanParts:
        return self._container.plan_parts

    def play(self, crew: WorkerProcess, doomed: WorkerProcess) -> None:
        """Play the whole story. `crew` keeps running, `doomed` is killed."""
        self._begin(crew, doomed)
        self._kill(doomed)
        self._tell_strategies()
        self._tell_kill(crew, doomed)
        self._cancel()
        self._tell_results()
        self._apply_all()
        if not self._story.keeps_sandboxes:
            self._parts.cleanup.collect(timedelta(0))

    def _begin(self, crew: WorkerProcess, doomed: WorkerProcess) -> None:
        self._sample.make()
        self._story.before = self._sample.fingerprint()
        self._story.refs_before = self._sample.refs()
        script = write_script(self._container.state_directory)
        for label, goal in GOALS.items():
            new = plan_for(self._container, goal, self._sample.root, script)
            self._story.ids[label] = self._parts.lifecycle.create(new).id
        self._say("Goals", f"a repository of {len(FILES)} files; a scripted model, everything else is real")
        for worker in (crew, doomed):
            worker.wait_ready()
        doomed.assign([self._story.ids["catalogue"]])
        # Only then may the other worker run this plan: it takes over from the killed one.
        until("the catalogue plan to run", lambda: self._owner("catalogue") == doomed.name)
        crew.assign(list(self._story.ids.values()))
        self._say("", f"{len(GOALS)} goals in parallel, in 2 processes, each in its own sandbox")

    def _plan(self, label: str) -> Plan:
        return self._parts.plans.get(self._story.ids[label])

    def _owner(self, label: str) -> str | None:
        owner = self._container.jobs.get(str(self._plan(label).job_id)).owner
        return None if owner is None else owner.id

    def _kill(self, doomed: WorkerProcess) -> None:
        """Kill the worker of a plan in the middle of a command."""
        until("some lines of the catalogue", lambda: self._lines() >= _KILL_AFTER_LINES)
        doomed.kill()
        self._story.lines_before_kill = self._lines()
        calls = self._parts.history.calls(self._story.ids["catalogue"])
        self._story.calls_before_kill = tuple(call.number for call in calls if call.state is CallState.ENDED)

    def _lines(self) -> int:
        with suppress(SandboxMissing, FileNotFoundError):
            sandbox = self._parts.sandboxes.open(self._story.ids["catalogue"])
            return (sandbox.root / CATALOGUE).read_text(encoding="ascii").count("colour ")
        return 0

    def _tell_strategies(self) -> None:
        until("the strategies", lambda: all(self._is_past_strategize(label) for label in GOALS))
        decisions = self._parts.actor_parts.decisions
        made = {label: decisions.of_plan(plan_id) for label, plan_id in self._story.ids.items()}
        count = counted(sum(map(len, made.values())), "decision")
        shown = []
        for decision in made["discount"]:
            instead = f", not {decision.made.alternatives[0].choice}" if decision.made.alternatives else ""
            shown.append(f"{decision.made.question} → {decision.made.choice}{instead}")
        self._say("Strategize", f"{count}, based on reading; the decisions of the discount plan:", *shown)

    def _is_past_strategize(self, label: str) -> bool:
        return self._plan(label).phase not in (Phase.ACTION, Phase.STRATEGIZE)

    def _tell_kill(self, crew: WorkerProcess, doomed: WorkerProcess) -> None:
        until("the catalogue plan to go on", lambda: self._owner("catalogue") != doomed.name)
        line = f"line {self._story.lines_before_kill} of {LINES}"
        killed = f"kill -9 {doomed.pid}: {doomed.name} dies at {line} of the catalogue"
        self._say("Execute", f"{killed}; {crew.name} takes over")

    def _cancel(self) -> None:
        """Cancel, twice, a plan whose processes ignore SIGTERM and hide from their parent."""
        processes = self._container.processes
        until("the simulation's job", lambda: self._owner("simulation") is not None)
        job = self._container.jobs.get(str(self._plan("simulation").job_id))
        marker = marker_of(job.id, job.fence)
        until("the simulation's command", lambda: len(processes.alive(marker)) >= _FEWEST_PROCESSES)
        self._story.marker = marker
        self._story.pids = tuple(processes.alive(marker))
        self._parts.lifecycle.cancel(self._plan("simulation"), "shown in the demo")
        # As for any cancelled plan: its run may take longer to stop than its worker waits.
        reconciled = self._parts.lifecycle.reconciled
        until("the end of the simulation", lambda: reconciled(self._plan("simulation")).state.ended)
        until("the end of its job", lambda: self._container.jobs.get(job.id).state.ended)
        left = len(processes.alive(marker))
        alive = f"{left} of {len(self._story.pids)} processes are alive"
        self._say("", f"simulation ignores SIGTERM and is cancelled; {alive}")
        self._story.second_cancel = self._parts.lifecycle.cancel(
            self._plan("simulation"), "again"
        ).state.value

    def _tell_results(self) -> None:
        def ready() -> bool:
            plans = [self._plan(label) for label in READY]
            return all(plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE) for plan in plans)

        until("the results of the plans", ready)
        self._story.when_ready = self._sample.fingerprint()
        failed = _objection(self._parts.check_runs.of_plan(self._story.ids["receipt"]))
        self._say("Check", f"receipt failed its check and was fixed: {failed}")
        found = _objection(self._parts.check_runs.of_plan(self._story.ids["welcome"]))
        self._say("Review", f"welcome was rejected and fixed: {found}")

    def _apply_all(self) -> None:
        files = self._applied("discount")
        touched = "unchanged" if self._story.when_ready == self._story.before else "CHANGED"
        self._say("Apply", f"your files are {touched} so far; discount applied: {files}")
        try:
            self._applied("tax")
        except ApplyConflict as conflict:
            self._story.refusal = conflict.details
            told = conflict.details.replace(self._story.ids["discount"], "discount")
            lines = told.splitlines()[:_SHOWN_LINES]
            self._say("", "tax is refused, and none of its changes is written:", *lines)
        title, _, rest = (self._sample.text("README.md") or "").partition("\n")
        self._sample.write("README.md", f"{title} in Main Street\n{rest}")
        applied = [f"{label} ({self._applied(label)})" for label in ("receipt", "catalogue", "welcome")]
        self._say("", f"{', '.join(applied)} applied")
        self._story.merged = self._sample.text("README.md") or ""
        self._parts.apply.undo(self._plan("welcome"))
        self._say("", "welcome undone; your edit of the same file stays")

    def _applied(self, label: str) -> str:
        from cleveragents.core.cancellation import CancellationToken

        _, applied = self._parts.apply.apply(self._plan(label), CancellationToken())
        return counted(len(applied.changes), "file")


def _objection(runs: Sequence[CheckRun]) -> str:
    """Return the last line of the first failed run."""
    details = next((run.details for run in runs if run.verdict is CheckVerdict.FAILED), "")
    lines = [line.strip("- ") for line in details.splitlines() if line.strip()]
    return lines[-1] if lines else "NOT found"


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until the condition holds. Raises `DeadlineExceeded`."""
    give_up = time.monotonic() + _STEP_SECONDS
    while not holds():
        if time.monotonic() >= give_up:
            raise DeadlineExceeded(what, _STEP_SECONDS)
        time.sleep(_LOOK_SECONDS)
