"""What happens to the sample repository: plans that run at once, and a user who edits meanwhile.

Two are applied to the same files, one is refused, one undone, one cancelled, one killed and resumed. Like
`story`, this only acts and watches; `plan_promises` judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from cleveragents.application.services.job_attempt import marker_of
from cleveragents.domain.json_value import freeze, thaw
from cleveragents.domain.plan import Phase, Plan, PlanState
from cleveragents.errors import ApplyConflict, SandboxMissing
from cleveragents.interfaces.cli.output import counted
from cleveragents.interfaces.demo.patience import Say, until
from cleveragents.interfaces.demo.sample import FILES, SampleRepository

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.application.services.async_worker import AsyncWorker
    from cleveragents.interfaces.demo.worker_process import WorkerProcess

__all__ = ["COUNTED", "LICENCE", "STEPS", "WISHES", "PlanStory", "PlanTroupe", "Wish", "sample_of"]

LICENCE = "# SPDX-License-Identifier: MIT"
COUNTED = "counted.txt"
STEPS = 12
RESUMER = "resumed"

_KILL_AFTER_STEPS = 4
_END_SECONDS = 30.0
_FEWEST_PROCESSES = 4
_SHOWN_LINES = 8


@dataclass(frozen=True, slots=True)
class Wish:
    """A plan that the user asks for, as on the command line of `agents run`."""

    action: str
    pairs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


# Nobody heeds a SIGTERM; the inner shell has left the session, and whoever started it is gone.
_ENDLESS = (
    "trap '' TERM INT HUP; "
    "(setsid sh -c \"trap '' TERM INT HUP; while :; do sleep 1; done\" &); "
    "while :; do sleep 1; done"
)


def _shell(script: str) -> Wish:
    return Wish("builtin/command", words=("/bin/sh", "-c", script))


def _replace(pattern: str, replacement: str, glob: str) -> Wish:
    pairs = (f"pattern={pattern}", f"replacement={replacement}", f"glob={glob}")
    return Wish("builtin/replace", pairs)


WISHES: Mapping[str, Wish] = {
    "spelling": _replace("colour", "color", "src/*.py"),
    "licence": _shell(
        f"for f in src/*.py; do printf '%s\\n' '{LICENCE}' | cat - $f > new && cat new > $f; done; rm new"
    ),
    "release": _replace("1.0", "2.0", "**/*"),
    "changelog": _shell("git log --format='* %s' > CHANGELOG.md"),
    "endless": _shell(_ENDLESS),
    # What is done twice shows: each step adds a line.
    "counting": _shell(f"for n in $(seq {STEPS}); do echo $n >> {COUNTED}; sleep 0.1; done"),
}
_TO_REVIEW = ("spelling", "licence", "release", "changelog")


@dataclass
class PlanStory:
    """What happened, for `plan_promises` to judge. Plans are known by their labels."""

    ids: dict[str, str] = field(default_factory=dict)
    before: str = ""
    when_ready: str = ""
    refs_before: str = ""
    diffs: dict[str, str] = field(default_factory=dict)
    refusal: str = ""
    endless_pids: tuple[int, ...] = ()
    endless_marker: str = ""
    second_cancel: str = ""
    killed_worker: str = ""
    steps_before_kill: int = 0
    freed: int = 0


def sample_of(container: Container) -> SampleRepository:
    """The repository of the story."""
    return SampleRepository(container.state_directory / "paint-shop")


class PlanTroupe:
    """Plays the plans' part of the demo. Not thread-safe: the thread that tells the story uses it."""

    def __init__(self, container: Container, story: PlanStory, say: Say) -> None:
        self._container = container
        self._story = story
        self._say = say
        self._sample = sample_of(container)

    @property
    def _parts(self) -> PlanParts:
        return self._container.plan_parts

    def play(self, crew: WorkerProcess, doomed: WorkerProcess) -> None:
        """All of it. `crew` runs the plans but one, and is left running; `doomed` is killed."""
        self._begin(crew, doomed)
        resumed = self._kill_and_resume(doomed)
        self._review()
        self._apply("spelling")
        self._apply("licence")
        self._conflict()
        self._undo()
        self._cancel()
        resumed.run_until_idle(_END_SECONDS)
        resumed.close()
        self._apply("counting")
        freed = self._parts.cleanup.collect(timedelta(0))
        self._story.freed = len(freed)
        self._say(f"all plans have ended; {counted(len(freed), 'sandbox', 'sandboxes')} removed")

    def _begin(self, crew: WorkerProcess, doomed: WorkerProcess) -> None:
        self._sample.make()
        self._story.before = self._sample.fingerprint()
        self._story.refs_before = self._sample.refs()
        self._say(f"a sample repository: {len(FILES)} files are committed, 1 is not")
        for label, wish in WISHES.items():
            self._story.ids[label] = self._created(label, wish).id
        ids = dict(self._story.ids)
        doomed.wait_ready()
        doomed.assign([ids.pop("counting")])
        crew.wait_ready()
        crew.assign(list(ids.values()))
        self._say(f"{len(WISHES)} plans run on it at once, each in its own sandbox")

    def _created(self, label: str, wish: Wish) -> Plan:
        from cleveragents.application.ports.plans import NewPlan

        root = str(self._sample.root)
        action = self._parts.action_named(wish.action, root)
        arguments = thaw(action.parse(wish.pairs, wish.words))
        request = freeze({"arguments": arguments, "profile": self._parts.default_profile})
        assert isinstance(request, Mapping)
        return self._parts.lifecycle.create(NewPlan(label, action.name, root, request))

    def _plan(self, label: str) -> Plan:
        return self._parts.plans.get(self._story.ids[label])

    def _kill_and_resume(self, doomed: WorkerProcess) -> AsyncWorker:
        """The worker of a plan dies in the middle of a command; the plan goes on in this process."""
        from cleveragents.application.services.job_handlers import JobHandler
        from cleveragents.application.services.plan_run import kind_of_plan

        until("some steps of the counting plan", lambda: self._steps() >= _KILL_AFTER_STEPS)
        doomed.kill()
        self._story.killed_worker = doomed.name
        self._story.steps_before_kill = self._steps()
        steps = f"{self._story.steps_before_kill}/{STEPS} steps"
        self._say(f"kill -9 {doomed.pid}: {doomed.name} dies in the counting plan, after {steps}")
        plan = self._parts.lifecycle.resume(self._plan("counting"))
        handler = JobHandler(run=self._parts.run())
        worker = self._container.worker({kind_of_plan(plan.id): handler}, name=RESUMER)
        worker.start()
        self._say("it is resumed: half a command is taken back, and run again")
        return worker

    def _steps(self) -> int:
        with suppress(SandboxMissing, FileNotFoundError):
            sandbox = self._parts.sandboxes.open(self._story.ids["counting"])
            return len((sandbox.root / COUNTED).read_text(encoding="ascii").splitlines())
        return 0

    def _review(self) -> None:
        def ready() -> bool:
            plans = [self._plan(label) for label in _TO_REVIEW]
            return all(plan.standing == (Phase.EXECUTE, PlanState.COMPLETE) for plan in plans)

        until("the results of the plans", ready)
        self._story.when_ready = self._sample.fingerprint()
        touched = "untouched" if self._story.when_ready == self._story.before else "CHANGED"
        self._say(f"{len(_TO_REVIEW)} results can be reviewed; your files are {touched}")
        for label in _TO_REVIEW:
            plan = self._plan(label)
            sandbox = self._parts.sandboxes.open(plan.id)
            diff = self._parts.result.diff(plan, sandbox, options=("--unified=0",))
            self._story.diffs[label] = diff.decode("utf-8", "backslashreplace")
        self._say("`agents plan diff` of the spelling plan:", *_changed_lines(self._story.diffs["spelling"]))

    def _apply(self, label: str) -> None:
        from cleveragents.application.services.async_worker import CancellationToken

        _, applied = self._parts.apply.apply(self._plan(label), CancellationToken())
        self._say(f"the {label} plan is applied: {counted(len(applied.changes), 'file')}")

    def _conflict(self) -> None:
        """The user edits a line that a plan has changed, too; then that plan is to be applied."""
        text = self._sample.text("src/version.py") or ""
        self._sample.write("src/version.py", text.replace("1.0", "1.1"))
        self._say("you edit src/version.py: VERSION is 1.1 now")
        try:
            self._apply("release")
        except ApplyConflict as conflict:
            self._story.refusal = conflict.details
            # A line each for where and whose, so that it fits a narrow terminal.
            lines = conflict.details.replace("; the other", ";\nthe other", 1).splitlines()[:_SHOWN_LINES]
            self._say("the release plan is refused; nothing of it is written:", *lines)
        self._parts.lifecycle.reject(self._plan("release"))
        self._say("you keep your line: the release plan is rejected")

    def _undo(self) -> None:
        self._apply("changelog")
        _, undone = self._parts.apply.undo(self._plan("changelog"))
        self._say(f"the changelog plan is undone: {counted(len(undone.changes), 'file')}")

    def _cancel(self) -> None:
        """A plan whose processes ignore SIGTERM and hide from their parent is cancelled, twice."""
        processes = self._container.processes
        job = self._container.jobs.get(str(self._plan("endless").job_id))
        marker = marker_of(job.id, job.fence)
        until("the endless command", lambda: len(processes.alive(marker)) >= _FEWEST_PROCESSES)
        self._story.endless_marker = marker
        self._story.endless_pids = tuple(processes.alive(marker))
        running = counted(len(self._story.endless_pids), "process", "processes")
        self._say(f"the endless plan, {running} that ignore SIGTERM, is cancelled")
        self._parts.lifecycle.cancel(self._plan("endless"), "shown in the demo")
        until("the end of the endless plan", lambda: self._plan("endless").state.ended)
        until("the end of its job", lambda: self._container.jobs.get(job.id).state.ended)
        plan = self._plan("endless")
        self._say(f"it is {plan.state.value}; {len(processes.alive(marker))} of its processes are alive")
        self._story.second_cancel = self._parts.lifecycle.cancel(plan, "once more").state.value


def _changed_lines(diff: str) -> Sequence[str]:
    """What was taken out and put in, without git's headings."""
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return lines[:_SHOWN_LINES]
