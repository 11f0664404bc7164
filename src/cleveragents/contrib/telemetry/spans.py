"""Conversion of events into spans.

Spans come only from the events that stores commit, which contain the beginning and end of each operation. So
no code of plans knows about traces, and a span contains nothing that is not in the audit log.

A tree of plans is one trace, across all processes and machines: the trace id is derived from the root plan,
and the span id of a plan from the plan's id. So no context has to be propagated. Spans contain ids, states,
sums and the names of tools and models; never goals, prompts, answers, arguments, commands or error messages.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text

__all__ = ["Attribute", "Span", "SpanBook", "SpanKind", "number_of", "tellable"]

Attribute = str | int | float | bool
SpanKind = Literal["internal", "client", "server"]

_MOST_OPEN = 10_000
_MOST_ROOTS = 10_000
_LONGEST_TEXT = 200
_PROCESSING = "processing"
_WORD = re.compile(r"[\w./:@+-]+")
# Names of the semantic conventions that differ from ours.
_PROVIDERS = {"google": "gcp.gemini"}
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cache_read.input_tokens",
}
_JOB_ENDS = {
    EventType.JOB_SUCCEEDED: None,
    EventType.JOB_CANCELLED: None,
    EventType.JOB_HANDED_ON: None,
    EventType.JOB_FAILED: "failed",
    EventType.JOB_RETRIED: "retried",
    EventType.JOB_RECLAIMED: "reclaimed",
}


@dataclass(frozen=True, slots=True)
class Span:
    """An operation with a duration. `failed` is the kind of failure, if it failed."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    started_at: datetime
    ended_at: datetime
    attributes: Mapping[str, Attribute]
    kind: SpanKind = "internal"
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class _Begun:
    """A span without an end, and the plan that it belongs to."""

    plan_id: str | None
    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    started_at: datetime
    attributes: Mapping[str, Attribute]
    kind: SpanKind = "internal"

    def ended(
        self, at: datetime, failed: str | None = None, more: Mapping[str, Attribute] | None = None
    ) -> Span:
        attributes = {**self.attributes, **(more or {})}
        if failed is not None:
            attributes["error.type"] = failed
        # The clocks of two machines may differ, and a span that ends before it begins is rejected.
        end = max(at, self.started_at)
        return Span(
            self.name,
            self.trace_id,
            self.span_id,
            self.parent_id,
            self.started_at,
            end,
            attributes,
            self.kind,
            failed,
        )


_Key = tuple[str, ...]


class SpanBook:
    """Open spans until they end. Not thread-safe: it belongs to the one thread that feeds it.

    `root_of` returns the root of a plan's tree, `plan_of_job` the plan of a job, if any; both may query the
    database. Spans whose end is never reported are dropped after ten thousand newer ones.
    """

    def __init__(self, root_of: Callable[[str], str], plan_of_job: Callable[[str], str | None]) -> None:
        self._root_of = root_of
        self._plan_of_job = plan_of_job
        self._roots: dict[str, str] = {}
        self._open: OrderedDict[_Key, _Begun] = OrderedDict()
        self._job_of: dict[str, _Key] = {}
        self._hear: Mapping[EventType, Callable[[DomainEvent], list[Span]]] = {
            EventType.PLAN_CREATED: self._plan_created,
            EventType.PLAN_MOVED: self._plan_moved,
            EventType.JOB_CLAIMED: self._job_claimed,
            **dict.fromkeys(_JOB_ENDS, self._job_ended),
            EventType.MODEL_CALL_STARTED: self._model_asked,
            EventType.MODEL_CALL_ENDED: self._model_answered,
            EventType.TOOL_CALL_STARTED: self._tool_called,
            EventType.TOOL_CALL_ENDED: self._tool_returned,
            EventType.CHECK_ENDED: self._checked,
            EventType.APPLY_STARTED: self._apply_started,
            EventType.APPLY_ENDED: self._apply_ended,
        }

    def heard(self, event: DomainEvent) -> list[Span]:
        """Return the spans that the event ends."""
        hear = self._hear.get(event.event_type)
        return [] if hear is None else hear(event)

    def left(self, now: datetime) -> list[Span]:
        """End all open spans as interrupted and return them. Called when the exporter closes."""
        spans = [begun.ended(now, "interrupted") for begun in self._open.values()]
        self._open.clear()
        self._job_of.clear()
        return spans

    # ── Plans and their phases ────────────────────────────────────────────────────────────────────

    def _plan_created(self, event: DomainEvent) -> list[Span]:
        parent = event.payload.get("parent")
        above = parent if isinstance(parent, str) else None
        root = event.subject if above is None else self._root(above)
        self._remember(event.subject, root)
        begun = _Begun(
            event.subject,
            "plan",
            number_of(root, 16),
            _plan_span(event.subject),
            None if above is None else _plan_span(above),
            event.occurred_at,
            {"cleveragents.plan.id": event.subject, **_texts(action=event.payload.get("action"))},
        )
        return [begun.ended(event.occurred_at)]

    def _plan_moved(self, event: DomainEvent) -> list[Span]:
        phase, state = str(event.payload["phase"]), str(event.payload["state"])
        key = ("phase", event.subject)
        if state != _PROCESSING:
            failed = "errored" if state == "errored" else None
            return self._end(key, event, failed, {"cleveragents.plan.state": state})
        # Its previous phase is over: its process died, or it started again.
        over = self._end(key, event, "interrupted")
        self._begin(key, event, f"plan {phase}", {"cleveragents.plan.phase": phase})
        return over

    # ── Jobs ──────────────────────────────────────────────────────────────────────────────────────

    def _job_claimed(self, event: DomainEvent) -> list[Span]:
        facts, plan_id = event.payload, self._plan_of_job(event.subject)
        kind = str(facts["kind"]).partition(":")[0]
        attributes = {
            "cleveragents.job.id": event.subject,
            "cleveragents.job.attempt": _number(facts.get("attempt")),
            **_texts(worker=facts.get("worker")),
        }
        self._begin(_job_key(event), event, f"job {kind}", attributes, plan_id=plan_id)
        if plan_id is not None:
            self._job_of[plan_id] = _job_key(event)
        return []

    def _job_ended(self, event: DomainEvent) -> list[Span]:
        begun = self._open.pop(_job_key(event), None)
        if begun is None:
            return []
        spans = []
        if begun.plan_id is not None:
            self._job_of.pop(begun.plan_id, None)
            # Before the job, because its open operations end with it.
            inside = [key for key, other in self._open.items() if other.plan_id == begun.plan_id]
            spans = [self._open.pop(key).ended(event.occurred_at, "interrupted") for key in inside]
        state = {"cleveragents.job.state": event.event_type.value.partition(".")[2]}
        return [*spans, begun.ended(event.occurred_at, _JOB_ENDS[event.event_type], state)]

    # ── Operations of a plan ──────────────────────────────────────────────────────────────────────

    def _model_asked(self, event: DomainEvent) -> list[Span]:
        facts = event.payload
        provider, _, model = tellable(str(facts["model"])).partition("/")
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
            "gen_ai.request.model": model,
        }
        if agent := tellable(str(facts.get("node", "")).rpartition(":")[0]):
            attributes["gen_ai.agent.name"] = agent
        self._begin(("model", str(facts["call"])), event, f"chat {model}", attributes, kind="client")
        return []

    def _model_answered(self, event: DomainEvent) -> list[Span]:
        facts = event.payload
        used = {
            f"gen_ai.usage.{attribute}": _number(facts[name])
            for name, attribute in _USAGE.items()
            if facts.get(name) is not None
        }
        # A call without an answer counts no tokens.
        return self._end(("model", str(facts["call"])), event, None if used else "_OTHER", used)

    def _tool_called(self, event: DomainEvent) -> list[Span]:
        tool = _word(event.payload.get("tool"))
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
            "cleveragents.tool_call.number": _number(event.payload.get("number")),
        }
        self._begin(_call_key(event), event, f"execute_tool {tool}", attributes)
        return []

    def _tool_returned(self, event: DomainEvent) -> list[Span]:
        if _call_key(event) not in self._open:
            # Started by a process that died, and resumed here: its start time is unknown.
            self._tool_called(event)
        state = str(event.payload["state"])
        failed = state if state != "ended" else None
        return self._end(_call_key(event), event, failed, {"cleveragents.tool_call.state": state})

    def _checked(self, event: DomainEvent) -> list[Span]:
        seconds, verdict = event.payload.get("seconds"), str(event.payload["verdict"])
        if not isinstance(seconds, int | float):
            return []  # a repeated verdict, or a reviewer's, whose calls have their own spans
        key = ("check", event.event_id)
        attributes = {"cleveragents.check.verdict": verdict}
        self._begin(key, event, "check", attributes, since=event.occurred_at - timedelta(seconds=seconds))
        return self._end(key, event, None if verdict == "passed" else verdict)

    def _apply_started(self, event: DomainEvent) -> list[Span]:
        attributes = {"cleveragents.apply.files": _number(event.payload.get("files"))}
        self._begin(_apply_key(event), event, _word(event.payload.get("kind")), attributes)
        return []

    def _apply_ended(self, event: DomainEvent) -> list[Span]:
        done = event.payload.get("done") is True
        return self._end(_apply_key(event), event, None if done else "undone")

    # ── The parent of a span ──────────────────────────────────────────────────────────────────────

    def _begin(
        self,
        key: _Key,
        event: DomainEvent,
        name: str,
        attributes: Mapping[str, Attribute],
        *,
        kind: SpanKind = "internal",
        plan_id: str | None = "",
        since: datetime | None = None,
    ) -> None:
        """Open a span. `plan_id` defaults to the subject of the event."""
        whose = event.subject if plan_id == "" else plan_id
        trace, parent = number_of(event.subject, 16), None
        told: dict[str, Attribute] = dict(attributes)
        if whose is not None:
            trace, parent = number_of(self._root(whose), 16), self._parent(whose, key)
            told["cleveragents.plan.id"] = whose
        self._open[key] = _Begun(
            whose,
            name,
            trace,
            number_of(f"span {event.event_id}", 8),
            parent,
            since or event.occurred_at,
            told,
            kind,
        )
        if len(self._open) > _MOST_OPEN:  # guard: spans that never end here do not accumulate
            self._forget(self._open.popitem(last=False)[1].plan_id)

    def _forget(self, plan_id: str | None) -> None:
        if plan_id is not None and self._job_of.get(plan_id) not in self._open:
            self._job_of.pop(plan_id, None)

    def _end(
        self,
        key: _Key,
        event: DomainEvent,
        failed: str | None = None,
        more: Mapping[str, Attribute] | None = None,
    ) -> list[Span]:
        begun = self._open.pop(key, None)
        return [] if begun is None else [begun.ended(event.occurred_at, failed, more)]

    def _parent(self, plan_id: str, key: _Key) -> int:
        """Return the id of the innermost open span of the plan, or else the id of the plan's own span."""
        around: list[_Key] = [("phase", plan_id), self._job_of.get(plan_id, ())]
        inner = {"job": 2, "phase": 1}.get(key[0], 0)
        for outer in around[inner:]:
            if outer in self._open:
                return self._open[outer].span_id
        return _plan_span(plan_id)

    def _root(self, plan_id: str) -> str:
        known = self._roots.get(plan_id)
        return known if known is not None else self._remember(plan_id, self._root_of(plan_id))

    def _remember(self, plan_id: str, root: str) -> str:
        if len(self._roots) >= _MOST_ROOTS:
            self._roots.clear()
        self._roots[plan_id] = root
        return root


def number_of(text: str, size: int) -> int:
    """Return a number of `size` bytes derived from the text, the same in every process; for a plan id and 16
    bytes, the id itself as a number.
    """
    from ulid import ULID

    if size == 16:
        try:
            return int(ULID.from_str(text))
        except ValueError:
            pass
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()[:size], "big")


def tellable(text: str) -> str:
    """Return the text without secrets, shortened."""
    return redact_text(text)[:_LONGEST_TEXT]


def _plan_span(plan_id: str) -> int:
    return number_of(f"plan {plan_id}", 8)


def _job_key(event: DomainEvent) -> _Key:
    return "job", event.subject, str(event.payload.get("fence"))


def _call_key(event: DomainEvent) -> _Key:
    return "call", event.subject, str(event.payload.get("number"))


def _apply_key(event: DomainEvent) -> _Key:
    return "apply", str(event.payload.get("apply_id"))


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


def _word(value: JsonValue) -> str:
    """Return the value if it is a single word, else `unnamed`: a longer text may be a command, which traces
    must not contain.
    """
    text = str(value)
    return tellable(text) if _WORD.fullmatch(text) else "unnamed"


def _texts(**facts: JsonValue) -> dict[str, Attribute]:
    return {f"cleveragents.{name}": _word(value) for name, value in facts.items() if isinstance(value, str)}
