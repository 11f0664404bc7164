"""A merge whose process is killed at every durable step: the next process merges once and loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.core.event import EventType
from cleveragents.core.tool import CallState
from tests.crash.programs.merge_runner import TEXT, carried_through, prepared
from tests.crash.runner import Runner, running
from tests.merge_stand import MergeStand

RESULT = {
    ".gitignore": "*.tmp\n*.log\n",
    "a.txt": TEXT.replace("line 5\n", "theirs\n").replace("line 12\n", "bottom\n"),
    "new/file.txt": "new\n",
    "work.log": "kept\n",
}
OURS = ("merge.", "resolve.", "tool.")
# Nothing durable separates these from the previous point, or nothing is left to do.
SAME = ("merge.taken_in.after", "resolve.started.after", "tool.ended.after")


@pytest.fixture
def runner() -> Iterator[Runner]:
    with running("merge_runner") as made:
        yield made


def ensure_complete(home: Path) -> None:
    """Check that both are merged and the conflict is resolved, each once, and that records
    and files agree.
    """
    stand = MergeStand(home, home / "repository")
    with stand.container:
        parent = stand.found(json.loads((home / "plans.json").read_text())[0])
        files = parent.sandbox.files_below(parent.tree)
        assert {
            path: parent.sandbox.content(state.content).decode() for path, state in files.items()
        } == RESULT
        assert {path: parent.text(path) for path in RESULT} == RESULT
        assert stand.parts.history.unrecorded(parent.plan.id, parent.sandbox) == {}
        calls = stand.parts.history.calls(parent.plan.id)
        done = Counter(call.step for call in calls if call.state is CallState.ENDED)
        assert done == {"merge-1": 1, "merge-2": 1, None: 1}
        assert {call.state for call in calls} <= {CallState.ENDED, CallState.FAILED}
        assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == ()
        told = [stand.told(kind) for kind in (EventType.PLAN_MERGED, EventType.CONFLICT_KEPT)]
        assert [len(facts) for facts in told] == [2, 1]
        assert len(stand.told(EventType.CONFLICT_RESOLVED)) == 1
        recorded = Counter(change.entry.path for change in stand.parts.history.changes(parent.plan.id))
        assert recorded == {".gitignore": 1, "a.txt": 3, "gone.txt": 1, "new/file.txt": 1, "work.log": 1}


def test_a_killed_merge_happens_once_and_loses_nothing(runner: Runner, tmp_path: Path) -> None:
    home, template = tmp_path / "home", tmp_path / "untouched"
    home.mkdir()
    prepared(home)
    shutil.copytree(home, template, symlinks=True)
    assert runner.run(home) == 0
    ensure_complete(home)
    counts = Counter(json.loads((home / "points.json").read_text()))
    every = os.environ.get("CLEVERAGENTS_EVERY_FAULT_POINT")
    names = [name for name in counts if name.startswith(OURS) and (every or name not in SAME)]
    assert {"merge.started.after", "merge.files.after", "merge.ending.after", "tool.record.after"} <= {*names}
    assert {"resolve.files.after", "resolve.ending.after"} <= {*names}
    for name in names:
        # The first merge adds nothing new; the last occurrence belongs to the resolution, if it has such a
        # point.
        for nth in range(min(2, counts[name]), counts[name] + 1):
            shutil.rmtree(home)
            shutil.copytree(template, home, symlinks=True)
            assert runner.run(home, point=name, nth=nth) == -signal.SIGKILL, (name, nth)
            try:
                carried_through(home)
                ensure_complete(home)
            except BaseException as error:
                error.add_note(f"killed at {name}, the {nth}th time")
                raise
