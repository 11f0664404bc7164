"""Runs of actors: their progress, their ends, and that nothing of them keeps running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.actors.model.actor import (
    ActorLimits,
    Progress,
    ProgressKind,
    StateKey,
    SubgraphNode,
    ToolNode,
)
from cleveragents.actors.ports import ActorOutcome, ActorRequest, QuestionAnswer, ToolAnswer
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.errors import (
    BudgetExhausted,
    Cancelled,
    Closed,
    DeadlineExceeded,
    GraphFailed,
    ModelRefused,
    StaleFence,
    UnknownActor,
    UnknownTool,
)
from cleveragents.core.identifiers import Fence
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import ModelFacts, ModelRequest
from cleveragents.testing.actor_host import ScriptedHost, asks_for
from tests.actor_bench import LIMIT, Bench, KnownActors, actor, open_bench, thinker

TEXT = StateKey("text")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("runner")) as opened:
        yield opened


class Elsewhere:
    """A run on a separate thread."""

    def __init__(self, bench: Bench, request: ActorRequest) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(bench.runner.run, request)

    def outcome(self) -> ActorOutcome:
        try:
            return self._future.result(LIMIT)
        finally:
            self._pool.shutdown()


def entered(host: ScriptedHost) -> None:
    assert host.thinking.acquire(timeout=LIMIT), "the model was never asked"


# ── ends ──


def test_a_run_that_has_ended_is_not_repeated(bench: Bench) -> None:
    host = ScriptedHost(["done"])
    request = bench.request(actor(thinker(output="text"), state=(TEXT,)), host)
    first = bench.runner.run(request)
    assert bench.again().run(request) == first
    assert bench.again().run(replace(request, answer=QuestionAnswer("q", "late"))) == first
    assert len(host.thoughts) == 1


def test_errors_of_ours_come_out_as_themselves(bench: Bench) -> None:
    exhausted = BudgetExhausted("p", "tokens", "tokens", 1)
    inner = actor(thinker(), name="local/inner")
    for which in (actor(thinker()), actor(SubgraphNode(name="sub", actor="local/inner"))):
        with pytest.raises(BudgetExhausted) as raised:
            bench.run(which, ScriptedHost([exhausted]), actors=KnownActors(inner))
        assert raised.value is exhausted


def test_errors_of_others_are_failures_of_the_graph(bench: Bench) -> None:
    with pytest.raises(GraphFailed, match="ZeroDivisionError") as raised:
        bench.run(actor(thinker()), ScriptedHost([ZeroDivisionError("oh")]))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_foreign_timeout_is_not_a_deadline(bench: Bench) -> None:
    with pytest.raises(GraphFailed, match="TimeoutError"):
        bench.run(actor(thinker()), ScriptedHost([TimeoutError("theirs")]), seconds=LIMIT)


def test_a_subgraph_needs_actors(bench: Bench) -> None:
    with pytest.raises(UnknownActor):
        bench.run(actor(SubgraphNode(name="sub", actor="local/inner")), ScriptedHost([]))


def test_a_closed_runner_refuses(bench: Bench) -> None:
    closed = bench.again()
    closed.close()
    request = bench.request(actor(thinker()), ScriptedHost(["x"]))
    for _ in range(2):
        with pytest.raises(Closed):
            closed.run(request)


def test_a_runner_closes_with_its_block(bench: Bench) -> None:
    request = bench.request(actor(thinker()), ScriptedHost(["x"]))
    with bench.again() as runner:
        assert runner.run(request).question is None
    with pytest.raises(Closed):
        runner.run(request)


def test_a_worker_that_lost_its_job_gets_a_stale_fence(bench: Bench) -> None:
    with pytest.raises(StaleFence):
        bench.run(actor(thinker()), ScriptedHost(["x"]), fence=Fence("job", 1))


@pytest.mark.parametrize("where", ["request", "actor"])
def test_time_ends_a_run(bench: Bench, where: str) -> None:
    host = ScriptedHost(["never"], gate=threading.Event())
    limits = ActorLimits(seconds=0.05 if where == "actor" else None)
    with pytest.raises(DeadlineExceeded):
        bench.run(actor(thinker(), limits=limits), host, seconds=0.05 if where == "request" else LIMIT)
    assert host.cancelled == len(host.thoughts), "nothing of it goes on"


# ── persistence ──


def kept_bytes(store: SqlCheckpointStore) -> int:
    return sum(
        len(row.checkpoint[1])
        + sum(len(blob[1]) for _, blob in row.values.values())
        + sum(len(write.value[1]) for write in row.writes)
        for row in store.list(None)
    )


def test_a_runs_storage_grows_linearly_with_its_calls(tmp_path: Path) -> None:
    replies = [*(asks_for(("look", {"n": n})) for n in range(60)), "done"]
    host = ScriptedHost(replies, {"look": lambda n: str(n) * 30_000}, facts=ModelFacts("m", 10**7, 1000))
    with open_bench(tmp_path) as bench:
        inner = actor(thinker(tools=("look",)), name="local/inner", limits=ActorLimits(steps=200))
        outer = actor(SubgraphNode(name="sub", actor="local/inner"), limits=ActorLimits(steps=200))
        bench.run(inner, host)
        assert len(host.uses) == 60
        assert kept_bytes(bench.store) < 3 * 60 * 60_000
        assert sum(file.stat().st_size for file in tmp_path.glob("store.db")) < 5 * 60 * 60_000
        before = kept_bytes(bench.store)
        replies = [asks_for(("look", {"n": 1})), "done"]
        bench.run(outer, ScriptedHost(replies, {"look": lambda n: "x" * 30_000}), actors=KnownActors(inner))
        assert kept_bytes(bench.store) - before < 10_000, "a subgraph that has ended leaves nothing"


def test_a_failed_run_continues_without_a_warning(
    bench: Bench, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    host = ScriptedHost([ModelRefused("m", "no credit"), "fine"])
    request = bench.request(actor(thinker(output="text"), state=(TEXT,)), host)
    with pytest.raises(ModelRefused):
        bench.runner.run(request)
    assert bench.again().run(request).values["text"] == "fine"
    assert "deserialization" not in caplog.text
    assert not recwarn.list


# ── progress ──


def test_progress_is_reported_in_order_on_the_callers_thread(bench: Bench) -> None:
    seen: list[Progress] = []
    threads = set()

    def told(progress: Progress) -> None:
        threads.add(threading.current_thread())
        seen.append(progress)

    inner = actor(thinker(tools=("look",)), name="local/inner")
    outer = actor(
        SubgraphNode(name="sub", actor="local/inner", next=("last",)),
        ToolNode(name="last", tool="look", arguments={"at": "z"}),
    )
    host = ScriptedHost(
        [asks_for(("look", {"at": "y"})), "all done"],
        {"look": lambda at: ToolAnswer(f"saw {at}\nand more", failed=at == "y")},
    )
    bench.run(outer, host, told=told, actors=KnownActors(inner))
    assert threads == {threading.current_thread()}
    assert [(one.kind.value, one.actor, one.node, one.text) for one in seen] == [
        ("node", "local/test", "sub", ""),
        ("node", "local/inner", "sub.think", ""),
        ("thinking", "local/inner", "sub.think", "scripted"),
        ("piece", "local/inner", "sub.think", ""),
        ("thought", "local/inner", "sub.think", ""),
        ("tool", "local/inner", "sub.think", 'look {"at": "y"}'),
        ("tool_done", "local/inner", "sub.think", "saw y"),
        ("thinking", "local/inner", "sub.think", "scripted"),
        ("piece", "local/inner", "sub.think", "all"),
        ("piece", "local/inner", "sub.think", "done"),
        ("thought", "local/inner", "sub.think", "all done"),
        ("node", "local/test", "last", ""),
        ("tool", "local/test", "last", 'look {"at": "z"}'),
        ("tool_done", "local/test", "last", "saw z"),
    ]
    assert [one.failed for one in seen if one.kind is ProgressKind.TOOL_DONE] == [True, False]


def test_a_listener_that_raises_ends_the_run_and_leaves_nothing_behind(bench: Bench) -> None:
    def told(progress: Progress) -> None:
        if progress.kind is ProgressKind.THINKING:
            raise KeyboardInterrupt

    host = ScriptedHost(["never", "now"], gate=threading.Event())
    request = bench.request(actor(thinker(output="text"), state=(TEXT,)), host, told=told)
    with pytest.raises(KeyboardInterrupt):
        bench.runner.run(request)
    assert not bench.runner._bridge._active_tasks
    later = ScriptedHost(["fine"])
    assert bench.runner.run(replace(request, host=later, told=None)).values["text"] == "fine"


# ── cancelling ──


def test_a_run_that_was_cancelled_before_never_begins(bench: Bench) -> None:
    token = CancellationToken()
    token.cancel("no more")
    host = ScriptedHost(["x"])
    with pytest.raises(Cancelled, match="no more"):
        bench.run(actor(thinker()), host, stop=token)
    assert host.thoughts == []


def test_cancelling_ends_the_model_call_and_the_thread_goes_on_later(bench: Bench) -> None:
    token = CancellationToken()
    gate = threading.Event()

    def look() -> str:
        gate.clear()  # for the call that follows
        return "x"

    host = ScriptedHost([asks_for(("look", {})), "never", "done"], {"look": look}, gate=gate)
    request = bench.request(actor(thinker(tools=("look",), output="text"), state=(TEXT,)), host, stop=token)
    gate.set()
    run = Elsewhere(bench, request)
    entered(host)
    entered(host)
    token.cancel("enough")
    with pytest.raises(Cancelled, match="enough"):
        run.outcome()
    gate.set()
    outcome = bench.runner.run(replace(request, stop=CancellationToken()))
    assert outcome.values["text"] in {"never", "done"}
    assert len(host.uses) == 1


def test_cancelling_waits_for_the_tool_that_is_being_called(bench: Bench) -> None:
    token = CancellationToken()
    began, ended = threading.Event(), []

    def work() -> str:
        began.set()
        assert token.wait(LIMIT)
        ended.append(True)
        token.raise_if_cancelled()
        return "unreachable"

    inner = actor(ToolNode(name="work", tool="work"), name="local/inner")
    outer = actor(SubgraphNode(name="sub", actor="local/inner"))
    host = ScriptedHost([], {"work": work})
    run = Elsewhere(bench, bench.request(outer, host, stop=token, actors=KnownActors(inner)))
    assert began.wait(LIMIT)
    token.cancel("stop it")
    with pytest.raises(Cancelled, match="stop it"):
        run.outcome()
    assert ended == [True], "the run was over before its tool was"


def test_a_cancel_reaches_every_branch(bench: Bench) -> None:
    token = CancellationToken()
    nodes = (ToolNode(name="fork", tool="look", next=("a", "b")), thinker("a"), thinker("b"))
    host = ScriptedHost(lambda _: "never", {"look": lambda: "x"}, gate=threading.Event())
    run = Elsewhere(bench, bench.request(actor(*nodes), host, stop=token))
    entered(host)
    entered(host)
    token.cancel()
    with pytest.raises(Cancelled):
        run.outcome()
    assert host.cancelled == 2


class Mute:
    """A stop signal without callbacks, which must be polled."""

    reason = "looked"

    def __init__(self) -> None:
        self.event = threading.Event()

    @property
    def is_cancelled(self) -> bool:
        return self.event.is_set()

    def wait(self, timeout: float | None) -> bool:
        return self.event.wait(timeout)

    def raise_if_cancelled(self) -> None:
        if self.event.is_set():
            raise Cancelled(self.reason)


def test_a_stop_signal_without_callbacks_is_polled(bench: Bench) -> None:
    mute = Mute()
    host = ScriptedHost(["never"], gate=threading.Event())
    run = Elsewhere(bench, bench.request(actor(thinker()), host, stop=mute))
    entered(host)
    mute.event.set()
    with pytest.raises(Cancelled, match="looked"):
        run.outcome()
    assert bench.run(actor(thinker()), ScriptedHost(["x"]), stop=Mute()).question is None


def test_closing_ends_what_runs(bench: Bench) -> None:
    runner = bench.again()
    host = ScriptedHost(["never"], gate=threading.Event())
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(runner.run, bench.request(actor(thinker()), host))
        entered(host)
        runner.close()
        with pytest.raises(Cancelled, match="closed"):
            run.result(LIMIT)


def test_many_runs_go_on_at_once(bench: Bench) -> None:
    gate = threading.Event()
    host = ScriptedHost(lambda thought: thought.last, gate=gate)
    which = actor(thinker(prompt="${goal}", output="text"), state=(TEXT,))
    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(bench.run, which, host, inputs={"goal": f"g{n}"}) for n in range(8)]
        for _ in runs:
            entered(host)
        gate.set()
        texts: list[Any] = [run.result(LIMIT).values["text"] for run in runs]
    assert texts == [f"g{n}" for n in range(8)]


def test_a_scripted_host_makes_no_call_twice(bench: Bench) -> None:
    host = ScriptedHost(["once"], {"look": lambda: "seen"})
    request = ModelRequest(messages=[Message(MessageRole.USER, "go")], max_output_tokens=1)
    for _ in range(2):
        reply = asyncio.run(host.think(None, request, key="k", actor="a", node="n"))
        assert (reply.message.text, host.use("look", {}, step="s").text) == ("once", "seen")
    assert (len(host.thoughts), len(host.uses)) == (1, 1)
    with pytest.raises(UnknownTool):
        host.specs(["look", "touch"])
