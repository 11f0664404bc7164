"""Strategize and Execute by actors: one thinks and decides, one works task by task, one reviews.

Every run of an actor has a name for good, below its plan's id. So a plan that was killed anywhere is simply
run again: what ended answers at once with what it said, what was cut off goes on at its last finished call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cleveragents.application.ports.actors import ActorHost, ActorRequest, ActorRunner, Actors, Answer
from cleveragents.application.ports.checkpoints import Fence
from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.decisions import DecisionStore
from cleveragents.application.ports.models import ModelRequest
from cleveragents.application.ports.plans import CheckStore
from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.application.services.async_worker import AsyncJob
from cleveragents.application.services.starting_context import StartingContext, context_for
from cleveragents.application.services.tool_answers import cut
from cleveragents.domain.actor import Actor, LlmNode
from cleveragents.domain.check import CheckRun, CheckVerdict
from cleveragents.domain.conversation import Message, Role
from cleveragents.domain.decision import Alternative, NewDecision
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.plan import Plan
from cleveragents.domain.progress import Progress
from cleveragents.domain.redaction import redact_content, redact_content_text, redact_text
from cleveragents.domain.strategy import Casting, Strategy, Task
from cleveragents.errors import ActorAsks, ActorStopped, BudgetExhausted, DeadlineExceeded

__all__ = ["REVIEW", "ActorGround", "ActorPhases", "OpenHost", "OpenStage", "Stage"]

REVIEW = "review"
"""The name under which the reviewer's verdict is kept among the checks."""

_ROUNDS = 3
_TOLD = 6_000
_SHARE_OF_DIFF = 0.4
_CHARACTERS_A_TOKEN = 4
_SHELL = "/bin/sh: "
_LIMIT = "its limit"  # in the words of an actor that went as far as it may, which no model changes


class OpenHost(Protocol):
    """What a run of an actor may use; `part` names the run within its plan, `reads` forbids changes."""

    def __call__(self, part: str, *, reads: bool) -> ActorHost: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What actors of a plan find: each other, their means, the repository's own instructions, and what of it
    matters for a question."""

    actors: Actors
    host: OpenHost
    instructions: str
    context: StartingContext
    diff: Callable[[], str]
    named: Callable[[str], str]
    """What a run is called by now: after a rollback took its calls back, it is run anew, under a new name."""


@dataclass(frozen=True, slots=True)
class ActorGround:
    """What a phase of one plan stands on, while one job runs it."""

    plan: Plan
    strategy: Strategy
    sandbox: Sandbox
    job: AsyncJob
    seconds_left: Callable[[], float]
    run_checks: Callable[[], Sequence[CheckRun]]

    @property
    def casting(self) -> Casting:
        assert self.strategy.casting is not None  # without actors nobody asks for them
        return self.strategy.casting


class OpenStage(Protocol):
    """Sets the stage for a plan's actors; leaving it ends what they had started."""

    def __call__(self, ground: ActorGround) -> AbstractContextManager[Stage]: ...


@dataclass(frozen=True, slots=True)
class ActorPhases:
    """Both phases. Stateless but for its parts: any number of plans may be at it at once."""

    open_stage: OpenStage
    runner: Callable[[], ActorRunner]
    decisions: DecisionStore
    checks: CheckStore
    clock: Clock
    say: Callable[[str], None]
    told: Callable[[Progress], None] | None = None

    def strategize(self, ground: ActorGround) -> Strategy:
        """The strategy with its tasks; the decisions that led to them are kept. Changes nothing."""
        plan, actor = ground.plan, ground.casting.strategize
        whole = (Task(plan.goal, plan.goal),)
        if actor is None:
            return replace(ground.strategy, tasks=whole)
        with self.open_stage(ground) as stage:
            values = self._run(ground, stage, actor, "strategize", reads=True)
        made = _decisions(values.get("decisions"), actor)
        if made:
            self.decisions.add(plan.id, made, key="strategize", now=self.clock.now())
        tasks = _tasks(values.get("steps")) or whole
        self._show(made, tasks)
        return replace(ground.strategy, tasks=tasks)

    def execute(self, ground: ActorGround) -> Mapping[str, JsonValue]:
        """Does the tasks, then mends what checks and the reviewer find, at most three times. What the actor
        left in its state at the end."""
        actor, tasks = ground.casting.execute, ground.strategy.ordered_tasks
        left: Mapping[str, JsonValue] = {}
        with self.open_stage(ground) as stage:
            for place, (number, task) in enumerate(tasks, start=1):
                self.say(redact_text(f"step {place} of {len(tasks)}: {task.name}"))
                words = _task_words(ground.strategy, number, task)
                left = self._run(ground, stage, actor, str(number), task=words)
            for number in range(1, _ROUNDS + 1):
                findings = self._findings(ground, stage)
                if not findings:
                    return left
                self.say(f"mending, round {number} of {_ROUNDS}")
                left = self._run(ground, stage, actor, f"mend-{number}", task=findings)
            self._findings(ground, stage)
        return left

    def _show(self, made: Sequence[NewDecision], tasks: Sequence[Task]) -> None:
        for decision in made:
            self.say(redact_text(f"decided: {decision.question} {decision.choice}"))
        for number, task in enumerate(tasks, start=1):
            self.say(redact_text(f"planned: {number}. {task.name}"))

    def _findings(self, ground: ActorGround, stage: Stage) -> str:
        """What is wrong with the result, in words for who mends it; nothing, if nothing is."""
        required = [run for run in ground.run_checks() if run.required]
        for run in required:
            if _only_a_person_mends(run):
                self.say(
                    redact_text(f"the check `{run.command}` does not count: {_first_words(run.details)}")
                )
                self.say("that is left to you: nothing can be applied until it has run")
        failed = [
            run
            for run in required
            if run.verdict is not CheckVerdict.PASSED and not _only_a_person_mends(run)
        ]
        if failed:
            return "\n\n".join(
                f"The check `{run.command}` does not pass:\n{cut(run.details, _TOLD)}" for run in failed
            )
        return self._objections(ground, stage)

    def _objections(self, ground: ActorGround, stage: Stage) -> str:
        actor, diff = ground.casting.review, stage.diff()
        if actor is None or not diff:
            return ""
        self.say(f"{actor.rpartition('/')[2]} reads the changes")
        # Named by what is read: other changes get another verdict, and the same ones none that costs again.
        part = f"review-{hashlib.sha256(diff.encode()).hexdigest()[:16]}"
        shown = _legible(redact_content_text(diff), stage.actors.get(actor), stage.host(part, reads=True))
        values = self._run(ground, stage, actor, part, task=shown, reads=True)
        findings = redact_content_text(
            "\n".join(f"- {finding}" for finding in _texts(values.get("findings")))
        )
        accepted = values.get("verdict") == "accept"
        verdict = CheckVerdict.PASSED if accepted else CheckVerdict.FAILED
        summary = redact_content_text(str(values.get("summary") or ""))
        details = "\n".join(filter(None, [summary, findings]))
        run = CheckRun(ground.plan.id, REVIEW, actor, False, verdict, details, "", self.clock.now())
        self.checks.record(run)
        return "" if accepted else f"The reviewer sends it back:\n{findings or details}"

    def _run(
        self, ground: ActorGround, stage: Stage, actor: str, part: str, *, task: str = "", reads: bool = False
    ) -> Mapping[str, JsonValue]:
        """What the actor left in its state. `NeedsHuman` where it asks a person, `BudgetExhausted`."""
        plan, strategy, job = ground.plan, ground.strategy, ground.job
        who, part = stage.actors.get(actor), stage.named(part)
        left = ground.seconds_left()
        if left <= 0:
            raise _out_of_time(plan)
        host = stage.host(part, reads=reads or who.read_only)
        request = ActorRequest(
            actor=who,
            thread_id=f"{plan.id}/{part}",
            inputs={
                "goal": plan.goal,
                "task": task,
                "definition_of_done": strategy.definition_of_done,
                "instructions": redact_content_text(
                    _with_invariants(stage.instructions, strategy.invariants)
                ),
                "context": context_for(who, stage, host, f"{plan.goal}\n\n{task}"),
            },
            host=host,
            stop=job.token,
            fence=Fence(job.id, job.fence),
            answer=_answer(job.payload.get("answer")),
            seconds=left,
            told=self.told,
            actors=stage.actors,
        )
        try:
            outcome = self.runner().run(request)
        except DeadlineExceeded as late:
            if late.seconds < left:  # a limit of the actor's own, which no budget of the plan's raises
                raise ActorStopped(actor, str(late)) from None
            raise _out_of_time(plan) from None
        except ActorStopped as stopped:
            if _LIMIT in stopped.reason:
                raise
            advice = f"a stronger model may do better: `agents plan resume {plan.id} --model …`"
            raise ActorStopped(stopped.actor, f"{stopped.reason}; {advice}") from stopped
        asked = outcome.question
        if asked is not None:
            choices = f" ({', '.join(asked.choices)})" if asked.choices else ""
            remedy = f"`agents plan answer {plan.id} TEXT`"
            raise ActorAsks(
                plan.id, redact_content_text(f"{asked.text}{choices}"), remedy, asked.id, asked.choices
            )
        return outcome.values


def _only_a_person_mends(run: CheckRun) -> bool:
    """Whether no change of files lets the check run: its program is not installed, or it looks elsewhere."""
    if run.verdict is not CheckVerdict.NOT_RUN or not run.details.startswith("could not be run (exit code"):
        return run.verdict in (CheckVerdict.NOT_RUN, CheckVerdict.VOID)
    # `/bin/sh: 1: PROGRAM: not found`; one with a slash may be the plan's own to make.
    said = [line.split(": ") for line in run.details.splitlines() if line.startswith(_SHELL)]
    return any(len(words) > 2 and "/" not in words[-2] for words in said)


def _first_words(details: str) -> str:
    return " ".join(line.strip() for line in details.strip().splitlines()[:2])


def _answer(kept: JsonValue) -> Answer | None:
    return Answer(str(kept["question"]), str(kept["text"])) if isinstance(kept, Mapping) else None


def _out_of_time(plan: Plan) -> BudgetExhausted:
    return BudgetExhausted(plan.id, "the time it may take is over", "--timeout TIME")


def _legible(diff: str, actor: Actor, host: ActorHost) -> str:
    """As much of it as the actor's models can read beside all else; the files themselves can be read, too."""
    models = [node.model or actor.model for node in actor.nodes if isinstance(node, LlmNode)]
    for model in models:
        window = host.facts(model).context_tokens
        most = window * _CHARACTERS_A_TOKEN
        while host.count_tokens(model, _only(cut(diff, most))) > window * _SHARE_OF_DIFF and most > 1:
            most = most * 2 // 3
        diff = cut(diff, most)
    return diff


def _only(text: str) -> ModelRequest:
    return ModelRequest(messages=(Message(Role.USER, text),), max_output_tokens=1)


def _with_invariants(instructions: str, invariants: Sequence[str]) -> str:
    rules = "\n".join(f"- {text}" for text in invariants)
    parts = [instructions, f"These must hold whatever you do:\n{rules}" if rules else ""]
    return "\n\n".join(part for part in parts if part)


def _task_words(strategy: Strategy, number: int, task: Task) -> str:
    """The task, and for orientation the others around it."""
    if len(strategy.tasks) == 1:
        return task.instructions or task.name
    overview = "\n".join(
        f"{n}. {other.name}{'  <- this one' if n == number else ''}"
        for n, other in enumerate(strategy.tasks, start=1)
    )
    return f"{task.name}\n\n{task.instructions}\n\nAll steps of the plan:\n{overview}"


def _decisions(kept: JsonValue, actor: str) -> list[NewDecision]:
    """The first is what was decided about the goal; the others follow from it, unless they say otherwise."""
    made = []
    for number, entry in enumerate(_objects(kept), start=1):
        parent = entry.get("parent")
        sound = isinstance(parent, int) and 0 < parent < number
        confidence = entry.get("confidence")
        made.append(
            NewDecision(
                question=str(entry.get("question") or ""),
                choice=str(entry.get("choice") or ""),
                rationale=str(entry.get("rationale") or ""),
                alternatives=tuple(
                    Alternative(str(other.get("choice") or ""), str(other.get("reason") or ""))
                    for other in _objects(entry.get("alternatives"))
                ),
                confidence=min(1.0, max(0.0, float(confidence)))
                if isinstance(confidence, int | float)
                else None,
                parent=parent if sound else (1 if number > 1 else None),
                made_by=actor,
            )
        )
    return made


def _tasks(kept: JsonValue) -> tuple[Task, ...]:
    entries = _objects(kept)
    return tuple(
        Task(
            name=str(entry.get("title") or f"step {number}"),
            instructions=str(entry.get("instructions") or ""),
            needs=tuple(
                need
                for need in entry.get("needs") or ()
                if isinstance(need, int) and 0 < need <= len(entries) and need != number
            ),
        )
        for number, entry in enumerate(entries, start=1)
    )


def _objects(kept: JsonValue) -> list[Mapping[str, Any]]:
    """What a model said, without keys; its words may be about code, which stays as it is."""
    shown = redact_content(kept)
    many = shown if isinstance(shown, Sequence) and not isinstance(shown, str) else ()
    return [entry for entry in many if isinstance(entry, Mapping)]


def _texts(kept: JsonValue) -> list[str]:
    many = kept if isinstance(kept, Sequence) and not isinstance(kept, str) else ()
    return [str(entry) for entry in many]
