"""Traces of plans: one for each tree, with the right parents, the usual names, and no contents."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import (
    GenAiOperationNameValues,
    GenAiProviderNameValues,
)
from opentelemetry.semconv.attributes import error_attributes, http_attributes
from ulid import ULID

from cleveragents.app.container import Container
from cleveragents.config.service_settings import TelemetrySettings
from cleveragents.config.settings import Settings
from cleveragents.contrib.telemetry import spans as spans_module
from cleveragents.contrib.telemetry.otlp import OtlpTelemetry, ensure_installed, traces_url
from cleveragents.contrib.telemetry.spans import _PROVIDERS, Span, SpanBook
from cleveragents.core.actions.model import Check
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.events.request_telemetry import AnsweredRequest
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.server.app import create_app
from cleveragents.server.service import Service
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)
from tests.collector import Collected, Collector, collector
from tests.plan_bench import PlanBench, write

SECRET = "sk-proj-planted0SECRET0planted0SECRET0planted"
CONTENTS = (SECRET, "hunter2", "tell nobody", "made.txt", "echo", "a goal")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 60.0
CLIENT, SERVER = 3, 2


def traced(settings: Settings, endpoint: str) -> Settings:
    facts = msgspec.to_builtins(settings)
    return msgspec.convert({**facts, "telemetry": {"endpoint": endpoint}}, Settings)


def run_plan(bench: ActorPlanBench) -> Plan:
    """Run a plan with the usual three turns that writes a file, fails at another, is checked and applied."""
    model = bench.script(
        strategizes(steps({"title": "tell nobody", "instructions": f"hunter2 {SECRET}"})),
        executes(
            answer(
                call("write", path="made.txt", content=f"hunter2 {SECRET}\n"),
                call("edit", path="b.txt", old=f"hunter2 {SECRET}", new="hunter2"),
            ),
            says(f"hunter2 {SECRET}"),
        ),
        reviews(accept()),
    )
    check = f"echo {SECRET}; test -e made.txt"
    plan = bench.work(bench.goal(model, checks=[Check(check, check)]))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
    return bench.apply(plan)


class Traced:
    """A traced plan, and the spans in its collector."""

    def __init__(self, home: Path, collecting: Collector) -> None:
        bench = ActorPlanBench(home)
        bench.settings = bench.container.settings = traced(bench.settings, collecting.url)
        with bench.container:
            self.plan = run_plan(bench)
            app = create_app(Service(bench.container))
            self.requested(app)
            self.events = [record.event for record in bench.container.audit.read(after=0)]
        self.bodies = b"".join(collecting.bodies)
        self.paths = set(collecting.paths)
        self.spans = collecting.spans

    def requested(self, app: Any) -> None:
        from starlette.testclient import TestClient

        with TestClient(app, base_url="http://127.0.0.1") as client:
            client.get("/healthz")
            client.get(f"/api/plans/{self.plan.id}")

    def one(self, name: str) -> Collected:
        [found] = [span for span in self.spans if span.name == name]
        return found

    def all(self, name: str) -> list[Collected]:
        return [span for span in self.spans if span.name.startswith(f"{name} ")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with collector() as collecting:
        yield Traced(tmp_path_factory.mktemp("traced"), collecting)


def test_a_plan_is_one_trace_whose_spans_have_the_right_parents(run: Traced) -> None:
    assert run.paths == {"/v1/traces"}
    mine = [span for span in run.spans if span.kind != SERVER]
    assert {span.trace for span in mine} == {f"{int(ULID.from_str(run.plan.id)):032x}"}
    plan, job = run.one("plan"), run.one("job plan")
    strategize, execute, apply = (run.one(f"plan {phase}") for phase in ("strategize", "execute", "apply"))
    assert plan.parent == ""
    assert {job.parent, apply.parent} == {plan.id}
    assert {strategize.parent, execute.parent} == {job.id}
    assert run.one("apply").parent == apply.id
    chats = run.all("chat")
    assert [chat.parent for chat in chats] == [strategize.id, execute.id, execute.id, execute.id]
    inside = [*run.all("execute_tool"), run.one("check")]
    assert {span.parent for span in inside} == {execute.id}
    assert len({span.id for span in run.spans}) == len(run.spans)
    assert {span.resource["service.name"] for span in run.spans} == {"cleveragents"}
    assert {span.facts["cleveragents.plan.id"] for span in mine} == {run.plan.id}


def test_spans_last_as_long_as_the_events_say(run: Traced) -> None:
    moments = {
        (event.event_type, event.payload.get("fence")): event.occurred_at
        for event in run.events
        if event.event_type in (EventType.JOB_CLAIMED, EventType.JOB_SUCCEEDED)
    }
    took = moments[EventType.JOB_SUCCEEDED, 1] - moments[EventType.JOB_CLAIMED, 1]
    assert run.one("job plan").seconds == pytest.approx(took.total_seconds(), abs=1e-6)
    assert run.one("check").seconds > 0


def test_spans_of_models_and_tools_follow_the_genai_conventions(run: Traced) -> None:
    for chat in run.all("chat"):
        assert chat.kind == CLIENT
        assert chat.facts["gen_ai.operation.name"] == "chat"
        assert chat.facts["gen_ai.provider.name"] == "scripted"
        assert chat.name == f"chat {chat.facts['gen_ai.request.model']}"
        assert chat.facts["gen_ai.usage.input_tokens"] > 0
        assert chat.facts["gen_ai.usage.output_tokens"] > 0
        assert not chat.failed
    agents = [chat.facts["gen_ai.agent.name"] for chat in run.all("chat")]
    assert agents[0] == "builtin/strategist"
    wrote, edited = run.all("execute_tool")
    assert (wrote.facts["gen_ai.tool.name"], wrote.failed) == ("write", False)
    assert (edited.facts["gen_ai.tool.name"], edited.failed) == ("edit", True)
    assert edited.facts["error.type"] == "failed"
    assert wrote.facts["gen_ai.operation.name"] == "execute_tool"


def test_every_name_of_a_convention_is_published(run: Traced) -> None:
    """Compare with the constants of `opentelemetry-semantic-conventions`, which name all attributes."""
    published = {
        value
        for module in (gen_ai_attributes, error_attributes, http_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    ours = {key for span in run.spans for key in span.facts if not key.startswith("cleveragents.")}
    assert ours
    assert ours <= published
    assert "gen_ai.system" not in ours, "replaced by gen_ai.provider.name"
    operations = {one.value for one in GenAiOperationNameValues}
    for span in run.spans:
        operation = span.facts.get("gen_ai.operation.name")
        assert operation is None or operation in operations
        assert operation is None or span.name.split()[0] == operation
    providers = {one.value for one in GenAiProviderNameValues}
    assert {_PROVIDERS.get(name, name) for name in ("openai", "anthropic", "google")} <= providers


def test_spans_of_checks_applies_and_requests_have_their_outcome(run: Traced) -> None:
    assert run.one("check").facts["cleveragents.check.verdict"] == "passed"
    assert run.one("apply").facts["cleveragents.apply.files"] == 1
    assert run.one("job plan").facts["cleveragents.job.state"] == "succeeded"
    served = [span for span in run.spans if span.kind == SERVER]
    assert {span.name for span in served} == {"GET /healthz", "GET /api/plans/{plan_id}"}
    assert {span.facts["http.response.status_code"] for span in served} == {200, 401}
    assert len({span.trace for span in served}) == 2


@pytest.mark.parametrize("words", CONTENTS)
def test_traces_contain_no_goal_prompt_answer_argument_or_content(run: Traced, words: str) -> None:
    assert words.encode() not in run.bodies


def test_the_audit_log_has_what_spans_are_made_of_and_no_more_than_it_should(run: Traced) -> None:
    """Spans contain only what events do."""
    told = json.dumps([(event.event_type.value, str(dict(event.payload))) for event in run.events])
    assert SECRET not in told


# ── Failures ──────────────────────────────────────────────────────────────────────────────────────────


def refused() -> str:
    """Return a URL without a listener."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}"


def test_an_unreachable_collector_logs_one_warning_and_fails_no_plan(tmp_path: Path) -> None:
    bench = PlanBench(tmp_path)
    bench.settings = bench.container.settings = traced(bench.settings, refused())
    with structlog.testing.capture_logs() as said, bench.container:
        plans = [bench.work(bench.plan(write(f"{n}.txt", "x"))) for n in range(2)]
    assert {plan.phase_state for plan in plans} == {(Phase.EXECUTE, PlanState.COMPLETE)}
    lost = [line for line in said if line["event"] == "telemetry.traces_lost"]
    assert len(lost) == 1
    assert lost[0]["log_level"] == "warning"


def test_reports_a_missing_package_with_its_extra(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"telemetry\.endpoint.*pip install .*\[telemetry\]"):
        ensure_installed(lambda name: None)

    def raising(name: str) -> object:
        raise ModuleNotFoundError(name)

    with pytest.raises(ConfigurationError, match=r"pip install .*\[telemetry\]"):
        ensure_installed(raising)
    ensure_installed()


def test_nothing_is_loaded_or_started_unless_a_setting_says_so(tmp_path: Path) -> None:
    import subprocess

    program = (
        "import sys, threading\n"
        "from cleveragents.app.container import Container\n"
        "from cleveragents.demo.story import demo_settings\n"
        "from pathlib import Path\n"
        "with Container(demo_settings(Path(sys.argv[1]))) as container:\n"
        "    container.database\n"
        "    assert container.telemetry is None\n"
        "    assert not any('telemetry' in t.name for t in threading.enumerate())\n"
        "print([m for m in sys.modules if 'opentelemetry' in m or 'telemetry' in m.split('.')])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"


class Exports:
    """Accepts spans, or does what a test scripts."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.batches: list[Sequence[Span]] = []
        self.stopped = threading.Event()

    def __call__(self, spans: Sequence[Span]) -> bool:
        self.batches.append(spans)
        said = self.answers.pop(0) if self.answers else True
        if isinstance(said, Exception):
            raise said
        if said == "hang":
            assert self.stopped.wait(SECONDS)
            return False
        return bool(said)

    def stop(self) -> None:
        self.stopped.set()


def telemetry(exports: Exports, bound: int = 100) -> OtlpTelemetry:
    return OtlpTelemetry(
        TelemetrySettings(endpoint="http://user:hunter2@nowhere:4318"),
        SpanBook(lambda plan: plan, lambda job: None),
        SystemClock(),
        export=lambda: exports,
        bound=bound,
        batch_seconds=0.01,
        close_seconds=0.1,
    )


def event(what: EventType, subject: str, nth: int = 1, /, after: float = 0.0, **facts: Any) -> DomainEvent:
    return DomainEvent(what, subject, f"event {nth}", NOW + timedelta(seconds=after), facts)


CREATED = event(EventType.PLAN_CREATED, "p", phase="strategize", state="queued", action="a/b")


def test_an_unconvertible_event_affects_no_other_and_logs_no_password() -> None:
    exports = Exports(RuntimeError("hunter2"))
    with structlog.testing.capture_logs() as said:
        made = telemetry(exports)
        broken = event(EventType.PLAN_MOVED, "p")
        made.heard([broken, CREATED, broken])
        made.close()
    assert [[span.name for span in batch] for batch in exports.batches] == [["plan"]]
    assert [line["event"] for line in said] == ["telemetry.traces_lost"]
    assert "hunter2" not in str(said)


def test_counts_events_without_room_and_never_waits_for_a_hanging_collector() -> None:
    exports = Exports("hang")
    made = telemetry(exports, bound=2)
    while not exports.batches:
        made.heard([CREATED])
    before = made.lost
    for _ in range(5):
        made.heard([CREATED])
    assert made.lost >= before + 3
    made.close()
    assert exports.stopped.is_set()
    made.close()


def test_logs_the_next_outage_again() -> None:
    exports = Exports(False, True, False)
    with structlog.testing.capture_logs() as said:
        made = telemetry(exports)
        for count in range(1, 4):
            made.heard([CREATED])
            while len(exports.batches) < count:
                assert made._thread.is_alive()
                made._thread.join(0.01)
        made.close()
    assert len(said) == 2


def test_failed_requests_are_failed_spans() -> None:
    exports = Exports()
    made = telemetry(exports)
    made.answered(AnsweredRequest("GET", "/x", 503, NOW, NOW))
    made.close()
    [[span]] = exports.batches
    assert (span.failed, span.attributes["error.type"], span.kind) == ("503", "503", "server")


def test_an_address_without_a_path_stands_for_the_usual_one() -> None:
    assert traces_url("http://a:4318") == traces_url("http://a:4318/") == "http://a:4318/v1/traces"
    assert traces_url("https://a/otlp/v1/traces?x=1") == "https://a/otlp/v1/traces?x=1"


# ── The meaning of events ─────────────────────────────────────────────────────────────────────────────


def book(**roots: str) -> SpanBook:
    return SpanBook(lambda plan: roots.get(plan, plan), lambda job: job.partition(" of ")[2] or None)


def all_of(made: SpanBook, *events: DomainEvent) -> list[Span]:
    return [span for told in events for span in made.heard(told)]


def claimed(job: str, fence: int = 1, number: int = 1, after: float = 0.0) -> DomainEvent:
    facts = {"kind": "plan:p", "attempt": fence, "fence": fence, "worker": "w"}
    return event(EventType.JOB_CLAIMED, job, number, after=after, **facts)


def job_end(kind: EventType, job: str, fence: int = 1, after: float = 1.0) -> DomainEvent:
    return event(kind, job, 99, after=after, kind="plan:p", attempt=fence, fence=fence)


def moved(plan: str, phase: str, state: str, number: int = 1, after: float = 0.0) -> DomainEvent:
    return event(EventType.PLAN_MOVED, plan, number, after=after, phase=phase, state=state)


def test_sub_plans_are_in_the_trace_of_their_root_below_their_parent() -> None:
    made = book(child="p", p="p")
    child = event(EventType.PLAN_CREATED, "child", 2, parent="p", action="a/b")
    top, below, job = all_of(
        made, CREATED, child, claimed("j of child"), job_end(EventType.JOB_SUCCEEDED, "j of child")
    )
    assert top.trace_id == below.trace_id == job.trace_id
    assert (top.parent_id, below.parent_id, job.parent_id) == (None, top.span_id, below.span_id)
    # Another process, without any of this state, gets the same result.
    [elsewhere] = all_of(
        book(child="p"), claimed("j of child", 2), job_end(EventType.JOB_FAILED, "j of child", 2)
    )
    assert (elsewhere.trace_id, elsewhere.parent_id) == (top.trace_id, below.span_id)
    assert elsewhere.failed == "failed"


def test_jobs_without_a_plan_have_separate_traces() -> None:
    [span] = all_of(book(), claimed("j"), job_end(EventType.JOB_CANCELLED, "j"))
    assert (span.parent_id, span.failed) == (None, None)
    assert "cleveragents.plan.id" not in span.attributes


def test_open_spans_of_an_attempt_end_with_it() -> None:
    tool = event(EventType.TOOL_CALL_STARTED, "p", 4, number=1, tool="command", state="started")
    others = event(EventType.TOOL_CALL_STARTED, "q", 5, number=1, tool="command", state="started")
    made = book()
    spans = all_of(
        made,
        claimed("j of p"),
        moved("p", "execute", "processing", 2),
        tool,
        others,
        job_end(EventType.JOB_RETRIED, "j of p"),
    )
    assert [(span.name, span.failed) for span in spans] == [
        ("plan execute", "interrupted"),
        ("execute_tool command", "interrupted"),
        ("job plan", "retried"),
    ]
    assert [span.name for span in made.left(NOW)] == ["execute_tool command"]
    assert made.left(NOW) == []


def test_an_attempt_s_end_under_another_fence_is_not_its_end() -> None:
    made = book()
    assert all_of(made, claimed("j of p", 1), job_end(EventType.JOB_SUCCEEDED, "j of p", 2)) == []


def test_a_phase_that_begins_again_ends_the_one_before() -> None:
    first, second = all_of(
        book(),
        moved("p", "execute", "processing", 1),
        moved("p", "execute", "processing", 2, after=1),
        moved("p", "execute", "errored", 3, after=3),
    )
    assert (first.failed, second.failed) == ("interrupted", "errored")
    assert (second.ended_at - second.started_at).total_seconds() == 2


def test_a_call_started_by_another_process_becomes_a_span_where_it_ends() -> None:
    [span] = all_of(book(), event(EventType.TOOL_CALL_ENDED, "p", number=7, tool="x y z", state="ended"))
    assert (span.name, span.failed) == ("execute_tool unnamed", None)
    assert span.started_at == span.ended_at


def test_a_model_call_without_an_answer_has_failed_and_clocks_may_go_back() -> None:
    asked = event(EventType.MODEL_CALL_STARTED, "p", call="c", model="google/gemini-x", node="a/b:think")
    ended = event(EventType.MODEL_CALL_ENDED, "p", 2, after=-5, call="c", state="settled", tokens=0)
    [span] = all_of(book(), asked, ended)
    assert (span.failed, span.attributes["gen_ai.provider.name"]) == ("_OTHER", "gcp.gemini")
    assert span.ended_at == span.started_at


def test_an_undone_apply_and_a_failed_check_have_failed_and_other_verdicts_are_no_spans() -> None:
    facts = {"apply_id": "a", "kind": "undo", "files": 3}
    spans = all_of(
        book(),
        event(EventType.APPLY_STARTED, "p", 1, **facts),
        event(EventType.APPLY_ENDED, "p", 2, done=False, **facts),
        event(EventType.CHECK_ENDED, "p", 3, check="rm -rf", verdict="failed", seconds=2.5),
        event(EventType.CHECK_ENDED, "p", 4, check="review", verdict="passed"),
        event(EventType.BUDGET_OPENED, "p", 5),
    )
    assert [(span.name, span.failed) for span in spans] == [("undo", "undone"), ("check", "failed")]
    assert (spans[1].ended_at - spans[1].started_at).total_seconds() == 2.5


def test_spans_that_never_end_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "_MOST_OPEN", 2)
    monkeypatch.setattr(spans_module, "_MOST_ROOTS", 2)
    made = book()
    for number in range(5):
        made.heard(claimed(f"{number} of p{number}", number=number))
    assert [span.attributes["cleveragents.plan.id"] for span in made.left(NOW)] == ["p3", "p4"]


def test_refuses_settings_that_are_not_addresses(tmp_path: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"telemetry": {"endpoint": "localhost:4318"}}, Settings)
    assert isinstance(Container(Settings()), Container)
