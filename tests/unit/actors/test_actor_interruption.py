"""A run that is interrupted after any of its writes: run again, it ends as if nothing had happened.

Whatever was stored last, a node's writes or the checkpoint after them, an unfinished node is not taken for
finished, and no call is made under two names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cleveragents.actors.model.actor import Actor, HumanNode, StateKey, SubgraphNode, ToolNode
from cleveragents.actors.ports import ActorOutcome, QuestionAnswer, ToolAnswer
from cleveragents.actors.runner import BridgeActorRunner
from cleveragents.actors.store.checkpoint_rows import StoredCheckpoint, StoredWrite
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.errors import GraphFailed
from cleveragents.core.identifiers import Fence
from cleveragents.testing.actor_host import ScriptedHost, asks_for
from tests.actor_bench import Bench, KnownActors, actor, open_bench, thinker

LOG = StateKey("log", "list", reducer="append", default=())
TEXT = StateKey("text")


class CutOff(Exception):
    """The process is dead from here on."""


class CutOffStore:
    """A store whose process dies right after its `nth` write."""

    def __init__(self, store: SqlCheckpointStore, nth: int) -> None:
        self._store = store
        self._left = nth

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, checkpoint: StoredCheckpoint, *, fence: Fence | None = None) -> None:
        self._write(lambda: self._store.put(checkpoint, fence=fence))

    def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[StoredWrite],
        *,
        replace: bool,
        fence: Fence | None = None,
        checkpoint: StoredCheckpoint | None = None,
    ) -> None:
        facts: dict[str, Any] = {"replace": replace, "fence": fence, "checkpoint": checkpoint}
        self._write(lambda: self._store.put_writes(thread_id, namespace, checkpoint_id, writes, **facts))

    def _write(self, write: Callable[[], None]) -> None:
        if self._left <= 0:
            raise CutOff
        self._left -= 1
        write()
        if self._left == 0:
            raise CutOff


def looped() -> tuple[Actor, KnownActors]:
    """A model that makes two calls at once, then one, then ends."""
    return actor(thinker(output="text", tools=("look",)), state=(TEXT,)), KnownActors()


def branched() -> tuple[Actor, KnownActors]:
    nodes = (
        ToolNode(name="first", tool="look", arguments={"at": "first"}, output="text", next=("a", "b")),
        ToolNode(name="a", tool="look", arguments={"at": "a"}, output="log", next=("last",)),
        ToolNode(name="b", tool="look", arguments={"at": "b"}, output="log", next=("last",)),
        ToolNode(name="last", tool="look", arguments={"at": "last"}, output="text"),
    )
    return actor(*nodes, state=(TEXT, LOG)), KnownActors()


def nested() -> tuple[Actor, KnownActors]:
    inner = actor(thinker(output="text", tools=("look",)), name="local/inner", state=(TEXT,))
    outer = actor(
        SubgraphNode(name="below", actor="local/inner", outputs={"text": "text"}, next=("after",)),
        ToolNode(name="after", tool="look", arguments={"at": "after"}),
        state=(TEXT,),
    )
    return outer, KnownActors(inner)


def asking() -> tuple[Actor, KnownActors]:
    nodes = (
        ToolNode(name="before", tool="look", arguments={"at": "before"}, next=("ask",)),
        HumanNode(name="ask", question="Well?", output="text", next=("after",)),
        ToolNode(name="after", tool="look", arguments={"at": "after"}),
    )
    return actor(*nodes, state=(TEXT,)), KnownActors()


def said(at: str) -> Any:
    return asks_for(("look", {"at": at}))


def host() -> ScriptedHost:
    def look(at: str) -> ToolAnswer:
        return ToolAnswer(at, value=[at] if at in "ab" else at)

    return ScriptedHost(script, {"look": look})


def script(thought: Any) -> Any:
    """Return answers that depend on the results so far, as a model's do, so that they are the same after a
    restart.
    """
    done = sum(1 for message in thought.request.messages if message.role.value == "tool")
    return [said("1"), said("2"), "found"][done]


def carried(
    runner: BridgeActorRunner, bench: Bench, made: tuple[Actor, KnownActors], **facts: Any
) -> ActorOutcome:
    """Run to the end, and answer every question."""
    which, actors = made
    facts = {"thread_id": bench.thread(), **facts}
    outcome = runner.run(bench.request(which, actors=actors, **facts))
    if outcome.question is not None:
        answer = QuestionAnswer(outcome.question.id, "well")
        outcome = runner.run(bench.request(which, actors=actors, answer=answer, **facts))
    return outcome


def calls(host: ScriptedHost) -> set[str]:
    """Return the calls of models and tools by name."""
    return {thought.key for thought in host.thoughts} | {step for _, _, step in host.uses}


def ended(run: Callable[[], ActorOutcome]) -> bool:
    """Return whether the run ended before it was interrupted."""
    try:
        run()
    except GraphFailed as failed:
        if isinstance(failed.__cause__, CutOff):
            return False
        raise
    return True


@pytest.mark.parametrize("make", [looped, branched, nested, asking])
def test_a_run_that_is_cut_off_after_any_write_ends_as_if_it_were_not(
    tmp_path: Path, make: Callable[[], tuple[Actor, KnownActors]]
) -> None:
    made = make()
    with open_bench(tmp_path) as bench:
        whole_host = host()
        whole = carried(bench.runner, bench, made, host=whole_host)
        steps = sorted(step.partition(".")[2] for _, _, step in whole_host.uses)
        assert steps
        for nth in count(1):
            thread, helper = bench.thread(), host()
            with BridgeActorRunner(CutOffStore(bench.store, nth)) as runner:
                if ended(partial(carried, runner, bench, made, host=helper, thread_id=thread)):
                    break
            again = host()
            outcome = carried(bench.runner, bench, made, host=again, thread_id=thread)
            assert outcome.values == whole.values, f"cut off after write {nth}"
            named = {step.partition(".")[2] for _, _, step in (*helper.uses, *again.uses)}
            assert sorted(named) == steps, f"cut off after write {nth}"
            # Of parallel branches, one may have ended without its end being recorded.
            lost = 1 if make is branched else 0
            assert len(calls(helper) & calls(again)) <= lost, f"cut off after write {nth}"
        assert nth > 4
