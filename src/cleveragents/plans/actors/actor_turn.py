"""One run of one actor for a plan: named for good, so that it is taken up where it was cut off.

What the runs of a plan's actors are called: for good, unless a person took back what one of them did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from cleveragents.actors.model.actor import Progress
from cleveragents.actors.ports import ActorRequest, ActorRunner, Answer
from cleveragents.core.errors import ActorAsks, ActorStopped, AgentFailed, DeadlineExceeded
from cleveragents.core.errors.remedy import Remedy
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.models.calls import out_of_time
from cleveragents.plans.actors.actor_stage import ActorGround, Stage, context_for
from cleveragents.plans.model.correction import ROLLBACK, checkpoint_of

__all__ = ["ActorTurn", "current_name", "times_back"]


_LIMIT = "its limit"  # in the words of an actor that went as far as it may, which no model changes


@dataclass(frozen=True, slots=True)
class ActorTurn:
    """Has actors run. Stateless but for its parts: any number of plans may be at it at once."""

    runner: Callable[[], ActorRunner]
    told: Callable[[Progress], None] | None = None

    def run(
        self,
        ground: ActorGround,
        stage: Stage,
        actor: str,
        part: str,
        *,
        task: str = "",
        reads: bool = False,
        about: str | None = None,
        begins: Callable[[], None] | None = None,
    ) -> Mapping[str, JsonValue]:
        """What the actor left in its state. It is shown what matters for its goal and task, or for what it is
        `about`. `begins` is called once it is at work; never, if it ended before and answers with what it
        said then. `NeedsHuman` where it asks a person, `BudgetExhausted`."""
        plan, strategy, job = ground.plan, ground.strategy, ground.job
        who, part = stage.actors.get(actor), stage.named(part)
        if ground.seconds_left() <= 0:
            raise out_of_time(plan.id)
        host = stage.host(part, reads=reads or who.read_only)
        context = context_for(who, stage, host, about or f"{plan.goal}\n\n{task}")
        left = ground.seconds_left()  # what it is shown took its time, too
        request = ActorRequest(
            actor=who,
            thread_id=f"{plan.id}/{part}",
            inputs={
                "goal": plan.goal,
                "task": task,
                "definition_of_done": strategy.definition_of_done,
                "instructions": redact_content_text(
                    _with_rules(stage.instructions, strategy.invariants, strategy.guidance)
                ),
                "context": context,
            },
            host=host,
            stop=job.token,
            fence=Fence(job.id, job.fence),
            answer=_answer(job.payload.get("answer")),
            seconds=left,
            told=self.told if begins is None else _after(begins, self.told),
            actors=stage.actors,
        )
        try:
            outcome = self.runner().run(request)
        except DeadlineExceeded as late:
            if late.seconds < left:  # a limit of the actor's own, which no budget of the plan's raises
                raise ActorStopped(actor, str(late)) from None
            raise out_of_time(plan.id) from None
        except ActorStopped as stopped:
            if isinstance(stopped, AgentFailed) or _LIMIT in stopped.reason:
                raise
            advice = "a stronger model may do better"
            raise ActorStopped(stopped.actor, f"{stopped.reason}; {advice}") from stopped
        asked = outcome.question
        if asked is not None:
            choices = f" ({', '.join(asked.choices)})" if asked.choices else ""
            answer = Remedy("plan.answer", plan.id, {"text": None}, "Answer")
            what = redact_content_text(f"{asked.text}{choices}")
            raise ActorAsks(plan.id, what, (answer,), asked.id, asked.choices)
        return outcome.values


def _after(begins: Callable[[], None], told: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
    """Tells what is seen, and before the first of it that there is something."""
    unsaid = [begins]

    def seen(progress: Progress) -> None:
        if unsaid:
            unsaid.pop()()
        if told is not None:
            told(progress)

    return seen


def _answer(kept: JsonValue) -> Answer | None:
    return Answer(str(kept["question"]), str(kept["text"])) if isinstance(kept, Mapping) else None


def _with_rules(instructions: str, invariants: Sequence[str], guidance: Sequence[str]) -> str:
    """The later counts more, and says so."""
    told = {
        "These must hold whatever you do": invariants,
        "A person has added this since; it counts more than the plan": guidance,
    }
    parts = [instructions]
    for heading, texts in told.items():
        listed = "\n".join(f"- {text}" for text in texts)
        parts.append(f"{heading}:\n{listed}" if listed else "")
    return "\n\n".join(part for part in parts if part)


def current_name(part: str, calls: Sequence[ToolCall]) -> str:
    """The name of the run by now. One whose calls a rollback took back has ended as far as its checkpoints
    know, and would never make them again; so it is begun anew, as `part+1`, `part+2` and so on. One that was
    stopped by the only call that was taken back makes it again where it stands."""
    gone = [str(call.step) for call in calls if call.state is CallState.REVERTED and not call.stopped_its_run]
    for time in count():
        name = f"{part}+{time}" if time else part
        if not any(step.startswith(f"{name}.") for step in gone):  # guard: nothing of it was taken back
            break
    return name


def times_back(calls: Sequence[ToolCall]) -> int:
    """How often work was taken back; not where only a call that had stopped its run is made again."""
    work = [call.number for call in calls if call.step is not None and not call.stopped_its_run]
    return sum(
        any(checkpoint_of(back) <= number < back.number for number in work)
        for back in calls
        if back.tool == ROLLBACK
    )
