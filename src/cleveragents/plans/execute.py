"""The Execute phase: an executor does the tasks, a reviewer reads the result, the executor fixes findings.

Every run of an actor has a permanent name below the id of its plan. After a crash the plan runs again: a
finished run of an actor returns its recorded answer at once, and an interrupted run continues after its last
finished call.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from cleveragents.actors.model.actor import Actor, LlmNode, can_use, report_in
from cleveragents.actors.ports import ActorHost
from cleveragents.changes.model.merge_conflict import MergeConflict
from cleveragents.core.actions.model import REVIEW, CheckRun, CheckVerdict
from cleveragents.core.change import FileState
from cleveragents.core.clock import Clock
from cleveragents.core.errors import ActorStopped, AgentFailed, RethinkNeeded
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_content_text, redact_text
from cleveragents.core.tool import ToolCall
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import ModelRequest
from cleveragents.plans.actors.actor_stage import (
    ActorPhase,
    ActorTurn,
    OpenStage,
    Stage,
    current_name,
    rollback_count,
)
from cleveragents.plans.conflicts.resolution import conflict_task, settle_edited
from cleveragents.plans.history import PlanHistory
from cleveragents.plans.model.comment import WITHOUT_TOOL, Comment
from cleveragents.plans.model.correction import MOST_RETURNS
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.store.sql_plan_records import SqlCheckStore
from cleveragents.plans.sub_plans.loop import TASK, SubPlans
from cleveragents.plans.tools.comment_tools import ANSWER_COMMENT
from cleveragents.plans.tools.line_edits import TRIED
from cleveragents.tools.tool_results import cut, first_failure, passed_tests

__all__ = ["ExecutePhase"]

_TOLD = 8_000
_SHARE_OF_DIFF = 0.4
_CHARACTERS_A_TOKEN = 4
_SHELL = "/bin/sh: "
_RETHINK = "rethink"
_TRIES = 2
_FIX = "mend"
_NOT_BY_PEOPLE = ("undo-", "review-", f"{TASK}-")


class RecordReview(Protocol):
    """Stores the findings of a reviewer as comments and returns the open comments, one for each finding."""

    def __call__(
        self, plan: Plan, actor: str, findings: Sequence[str], *, key: str, accepted: bool
    ) -> Sequence[Comment]: ...


class RecordAnswers(Protocol):
    """Stores the answers to comments in the report of an actor; with `by_change`, also those that its changes
    give.
    """

    def __call__(self, plan: Plan, actor: str, report: str, *, by_change: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class ExecutePhase:
    """The second phase of a plan. Stateless: any number of plans may run at the same time."""

    open_stage: OpenStage
    turn: ActorTurn
    checks: SqlCheckStore
    record_review: RecordReview
    record_answers: RecordAnswers
    sub_plans: SubPlans
    clock: Clock
    say: Callable[[str], None]

    def __call__(
        self, ground: ActorPhase, *, rethinks: bool = True
    ) -> tuple[Mapping[str, JsonValue], JsonValue | None]:
        """Do the tasks, then fix the findings of checks and the reviewer, up to the actor's number of fix
        attempts.

        Returns the final state of the actor, and the pending request if the plan has to wait. Raises
        `RethinkNeeded` if the verdict of the reviewer is `rethink` and `rethinks` is set.
        """
        with ExitStack() as stack:
            executor = _TaskExecutor(self, ground, stack)
            waiting = self.sub_plans.advance(ground, executor, self.say)
            if waiting is not None:
                return executor.left, waiting
            most = executor.actor.fix_attempts
            for number in range(1, most + 1):
                findings = self._findings(ground, executor, rethinks, number)
                if not findings:
                    return executor.left, None
                attempt = f"fix attempt {number} of {most}"
                self.say(attempt)
                # The number comes last: a model server keeps what it computed for the text before it.
                task = f"{findings}\n\nThis is {attempt}."
                executor.fix(f"{_FIX}-{number}{_series(ground)}", task)
            left = self._findings(ground, executor, rethinks, most + 1)
            if left and executor.actor.undo_failed_fixes:
                ground.run_checks()  # the last fix may be undone, and the latest run of a check counts
        return executor.left, None

    def _findings(self, ground: ActorPhase, executor: _TaskExecutor, rethinks: bool, attempt: int) -> str:
        """Return the findings as a task for fix attempt `attempt`; empty if there are none."""
        required = [run for run in ground.run_checks() if run.required]
        for run in required:
            if _only_a_person_fixes(run):
                self.say(redact_text(f"the check `{run.command}` has no result: {_first_words(run.details)}"))
                self.say("fix the check: the result cannot be applied until it runs")
        failures = executor.keep_best(_failed(required), attempt)
        return failures or self._objections(ground, executor.stage, rethinks)

    def _objections(self, ground: ActorPhase, stage: Stage, rethinks: bool) -> str:
        actor = ground.casting.review
        if actor is None:
            return ""
        tree, diff = stage.outcome()
        if not diff:
            return ""
        # Named by the diff: other changes get another verdict, and the same diff is not reviewed twice.
        part = f"review-{hashlib.sha256(diff.encode()).hexdigest()[:16]}"
        shown = _legible(redact_content_text(diff), stage.actors.get(actor), stage.host(part, reads=True))
        reading = partial(self.say, f"{actor.rpartition('/')[2]} reads the changes")
        values = self.turn.run(ground, stage, actor, part, task=shown, reads=True, begins=reading)
        found = _texts(values.get("findings"))
        findings = redact_content_text("\n".join(f"- {finding}" for finding in found))
        accepted = values.get("verdict") == "accept"
        verdict = CheckVerdict.PASSED if accepted else CheckVerdict.FAILED
        summary = redact_content_text(str(values.get("summary") or ""))
        details = "\n".join(filter(None, [summary, findings]))
        run = CheckRun(ground.plan.id, REVIEW, actor, False, verdict, details, tree, self.clock.now())
        self.checks.record(run)
        kept = self.record_review(ground.plan, actor, found, key=part, accepted=accepted)
        if values.get("verdict") == _RETHINK and rethinks and _may_go_back(ground.strategy):
            raise RethinkNeeded(ground.plan.id, findings or details)
        return "" if accepted else f"The reviewer sends it back:\n{_numbered(kept) or details}"


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of the sandbox at one moment, and the results of their checks. `tests` is the number of
    passing tests in the failed checks; None if unknown.
    """

    failed: int
    tests: int | None
    states: Mapping[str, FileState | None]
    failures: str

    def may_be_better_than(self, other: _Version) -> bool:
        """Return whether fewer checks fail or more tests pass, or the number of tests is unknown."""
        if self.tests is None or other.tests is None:
            return True
        return (-self.failed, self.tests) > (-other.failed, other.tests)


class _TaskExecutor:
    """The executor of one plan. Not thread-safe: used by its job only.

    The stage opens on first use, so a plan that only waits for sub-plans starts no servers or agents.
    """

    def __init__(self, execute_phase: ExecutePhase, ground: ActorPhase, stack: ExitStack) -> None:
        self._executing = execute_phase
        self._ground = ground
        self._stack = stack
        self._stage: Stage | None = None
        self._best: _Version | None = None
        self._begun: int | None = None
        self._tried: Counter[str] = Counter()
        self.left: Mapping[str, JsonValue] = {}

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            self._stage = self._stack.enter_context(self._executing.open_stage(self._ground))
        return self._stage

    @property
    def actor(self) -> Actor:
        return self.stage.actors.get(self._ground.casting.execute)

    def do(self, number: int, task: Task) -> None:
        strategy = self._ground.strategy
        place = next(at for at, (one, _) in enumerate(strategy.ordered_tasks, start=1) if one == number)
        self._executing.say(redact_text(f"step {place} of {len(strategy.tasks)}: {task.name}"))
        words = _task_words(strategy, number, task)
        if self.actor.checks_first:
            failed = _failed(self._ground.run_checks())
            # Of several steps, one alone need not make a test pass.
            alone = len(strategy.tasks) == 1
            failures = self.keep_best(failed, 0) if alone else self._failures(failed)
            # A prompt of this actor has the goal already, and a small model pays for every word.
            own = "" if words == self._ground.plan.goal and failures else words
            words = "\n\n".join(filter(None, [own, failures]))
        self.run(task.part(number), words)

    def keep_best(self, failed: Sequence[CheckRun], attempt: int) -> str:
        """Return the failures as a task for fix attempt `attempt`, where 0 is the task itself; empty if there
        are none.

        For an actor with `undo_failed_fixes`, changes that do not raise the number of passing tests are
        undone, and the failures of the restored files are returned. The task then names the lines that were
        corrected several times without success.
        """
        failures = self._failures(failed)
        execution = self._ground.execution
        if not (failures and self.actor.undo_failed_fixes) or execution is None:
            self._best = None  # work that passes the checks is never undone later
            return failures
        if self._begun is None:
            self._begun, self._best = self._earlier(execution.history)
        states = execution.history.states(self._ground.plan.id)
        best, version = self._best, self._version(failed, states)
        if attempt <= self._begun:  # guard: an interrupted attempt is judged when it has ended
            return version.failures if best is None else best.failures
        if best is None or version.may_be_better_than(best):
            self._best = version
            self._tried.clear()
            return version.failures
        if states != best.states:
            execution.undo(f"undo-{attempt}", best.states, "no more tests pass than before")
        self._tried[str(self.left.get("wrong_line") or "")] += 1
        often = [line for line, times in self._tried.items() if line and times >= _TRIES]
        return "\n".join([best.failures, *(f"{TRIED}{line}" for line in often)])

    def _version(self, failed: Sequence[CheckRun], states: Mapping[str, FileState | None]) -> _Version:
        failures, tests = self._failures(failed), _passed_tests(failed)
        return _Version(len(failed), tests, states, failures + ("\n\nSome tests pass." if tests else ""))

    def _failures(self, failed: Sequence[CheckRun]) -> str:
        """Return the failed checks as a task for the executor; empty if there are none.

        An actor with `checks_first` gets only the first failure of each test run. Files of the sandbox have
        the paths that tools take.
        """
        root = self._ground.sandbox.root
        told = []
        for run in failed:
            text = first_failure(run.details) if self.actor.checks_first else run.details
            for place in (root, root.resolve()):
                text = text.replace(f"{place}/", "")
            told.append(f"The check `{run.command}` does not pass:\n{cut(text, _TOLD)}")
        return "\n\n".join(told)

    def _earlier(self, history: PlanHistory) -> tuple[int, _Version | None]:
        """Return the number of the last attempt that an earlier run of the plan began (-1 if none), and the
        files before this attempt. These are the best files so far, because every attempt starts from the best
        files.

        The files are None if their checks did not fail or are unknown, or if a person changed files later.
        """
        ground, calls = self._ground, history.calls(self._ground.plan.id)
        tasks, series = ground.strategy.tasks, _series(ground)
        parts = {f"{_FIX}-{number}{series}": number for number in range(1, self.actor.fix_attempts + 1)}
        parts |= {tasks[0].part(1): 0} if len(tasks) == 1 else {}
        begun = {attempt: _first_call(part, calls) for part, attempt in parts.items()}
        attempt, first = max(
            ((number, call) for number, call in begun.items() if call is not None),
            key=lambda one: one[0],
            default=(-1, None),
        )
        if first is None:
            return attempt, None
        own = (f"{str(first.step).partition('.')[0]}.", *_NOT_BY_PEOPLE)
        # guard: the edits of a person are not undone
        if any(not str(call.step).startswith(own) for call in calls if call.number > first.number):
            return attempt, None
        states = history.states_before(ground.plan.id, first.number)
        tree = ground.sandbox.tree(states)
        runs = {
            run.command: run
            for run in self._executing.checks.of_plan(ground.plan.id)
            if run.is_check_of(tree)
        }
        commands = [check.command for check in ground.strategy.checks]
        failed = _failed([runs[command] for command in commands if command in runs])
        known = bool(failed) and all(command in runs for command in commands)
        return attempt, self._version(failed, states) if known else None

    def resolve(self, conflicts: Sequence[MergeConflict]) -> None:
        """Run the actor once for each merge with conflicts. A finished run that left conflicts open is not
        repeated.
        """
        for merge in dict.fromkeys(conflict.merge for conflict in conflicts):
            of_merge = [conflict for conflict in conflicts if conflict.merge == merge]
            self._executing.say(redact_text(f"resolving the conflicts with {of_merge[0].title}"))
            part = f"resolve-{merge}"
            self.run(part, conflict_task(of_merge, self._ground.sandbox.content))
            if self._ground.execution is not None:
                settle_edited(self._ground.execution, merge, part)

    def fix(self, part: str, words: str) -> None:
        """Run the actor once more. For an actor with `undo_failed_fixes`, an attempt without a valid answer
        counts as a failed fix, and the next attempt follows.
        """
        try:
            self.run(part, words)
        except AgentFailed:
            raise
        except ActorStopped as stopped:
            if not self.actor.undo_failed_fixes:
                raise
            self._executing.say(redact_text(f"this attempt failed: {stopped.reason}"))

    def run(self, part: str, words: str) -> None:
        """Run the actor with this task, and store the answers to comments in its report and its changes."""
        actor, plan, record = self._ground.casting.execute, self._ground.plan, self._executing.record_answers
        self.left = self._executing.turn.run(self._ground, self.stage, actor, part, task=words)
        record(plan, actor, report_in(self.left) or "", by_change=not can_use(self.actor, ANSWER_COMMENT))


def _first_call(part: str, calls: Sequence[ToolCall]) -> ToolCall | None:
    """Return the first call of the run `part`; None if it made none."""
    begins = f"{current_name(part, calls)}."
    return next((call for call in calls if str(call.step).startswith(begins)), None)


def _series(ground: ActorPhase) -> str:
    """Return the suffix in the names of the current fix attempts.

    A return to Strategize, added guidance and reverted work each start a new series of names, because a run
    under the name of a finished run would return its old answer. The number of a series never decreases, also
    if guidance is withdrawn.
    """
    assert ground.execution is not None  # Execute always has one
    back = rollback_count(ground.execution.history.calls(ground.plan.id))
    strategy = ground.strategy
    times = strategy.round + len(strategy.guidance) + len(strategy.withdrawn) + back
    return f"~{times}" if times else ""


def _may_go_back(strategy: Strategy) -> bool:
    casting = strategy.casting
    return strategy.returns < MOST_RETURNS and casting is not None and casting.strategize is not None


def _failed(runs: Sequence[CheckRun]) -> list[CheckRun]:
    """Return the required checks that did not pass and that a change of files can fix."""
    return [
        run
        for run in runs
        if run.required and run.verdict is not CheckVerdict.PASSED and not _only_a_person_fixes(run)
    ]


def _passed_tests(failed: Sequence[CheckRun]) -> int | None:
    """Return the number of passing tests in these checks; None if the output of one check does not state
    it.
    """
    counts = [passed_tests(run.details) for run in failed]
    return None if None in counts else sum(count or 0 for count in counts)


def _only_a_person_fixes(run: CheckRun) -> bool:
    """Return whether the check fails for a reason that no change of files can remove: its program is missing,
    or it does not test the files in the sandbox.
    """
    if run.verdict is not CheckVerdict.NOT_RUN or not run.details.startswith("could not be run (exit code"):
        return run.verdict in (CheckVerdict.NOT_RUN, CheckVerdict.VOID)
    # `/bin/sh: 1: PROGRAM: not found`; the plan may create a program whose name has a slash.
    said = [line.split(": ") for line in run.details.splitlines() if line.startswith(_SHELL)]
    return any(len(words) > 2 and "/" not in words[-2] for words in said)


def _first_words(details: str) -> str:
    return " ".join(line.strip() for line in details.strip().splitlines()[:2])


def _legible(diff: str, actor: Actor, host: ActorHost) -> str:
    """Truncate the diff so that it and the rest of the prompt fit the actor's models. The actor can still
    read the files themselves.
    """
    models = [node.model or actor.model for node in actor.nodes if isinstance(node, LlmNode)]
    for model in models:
        window = host.facts(model).context_tokens
        most = window * _CHARACTERS_A_TOKEN
        while host.count_tokens(model, _only(cut(diff, most))) > window * _SHARE_OF_DIFF and most > 1:
            most = most * 2 // 3
        diff = cut(diff, most)
    return diff


def _numbered(findings: Sequence[Comment]) -> str:
    """Return the findings with the numbers of their comments; empty if there are none."""
    lines = [f"- {finding.made.text} (comment {finding.number})" for finding in findings]
    answer = f"Answer each comment by its number with `answer_comment`. {WITHOUT_TOOL}"
    return "\n".join([*lines, "", answer]) if lines else ""


def _only(text: str) -> ModelRequest:
    return ModelRequest(messages=(Message(MessageRole.USER, text),), max_output_tokens=1)


def _task_words(strategy: Strategy, number: int, task: Task) -> str:
    """Return the instructions of the task, with an overview of all steps."""
    if len(strategy.tasks) == 1:
        return task.instructions or task.name
    overview = "\n".join(
        f"{n}. {other.name}{'  <- this one' if n == number else ''}"
        for n, other in enumerate(strategy.tasks, start=1)
    )
    return f"{task.name}\n\n{task.instructions}\n\nAll steps of the plan:\n{overview}"


def _texts(kept: JsonValue) -> list[str]:
    many = kept if isinstance(kept, Sequence) and not isinstance(kept, str) else ()
    return [str(entry) for entry in many]
