"""The demo is played on real processes, and its judges believe only what they see."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from cleveragents.app.container import Container
from cleveragents.cli.output import Output
from cleveragents.core.actions.model import CheckVerdict
from cleveragents.core.errors import DeadlineExceeded
from cleveragents.core.event import EventType
from cleveragents.demo.command import DemoRun, conclude
from cleveragents.demo.promises import Evidence, PlanRecords, Promise, gather, judge
from cleveragents.demo.sample import CATALOGUE, GOALS, LIMITS
from cleveragents.demo.story import Story, demo_settings, tell
from cleveragents.demo.worker_process import WorkerProcess
from cleveragents.models.model.budget import Spend
from cleveragents.plans.model.plan import PlanState


@dataclass(frozen=True)
class Played:
    """What a whole play left: all of it is over, and only values are kept."""

    story: Story
    found: Evidence
    told: list[str]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    told: list[str] = []

    def say(phase: str, what: str, *details: str) -> None:
        told.extend([what, *(f"  {detail}" for detail in details)])

    with Container(demo_settings(tmp_path_factory.mktemp("demo"))) as container:
        story = tell(container, say)
        return Played(story, gather(container, story), told)


def broken(story: Story, found: Evidence) -> list[str]:
    return [promise.what for promise in judge(story, found) if not promise.kept]


def with_account(found: Evidence, label: str, **changes: object) -> Evidence:
    account = replace(found.accounts[label], **changes)
    return replace(found, accounts={**found.accounts, label: account})


def in_state(found: Evidence, label: str, state: PlanState) -> Evidence:
    return with_account(found, label, plan=changed(found.accounts[label].plan, state=state))


def with_file(found: Evidence, path: str, text: str) -> Evidence:
    return replace(found, files={**found.files, path: text})


def without(found: Evidence, event_type: EventType) -> Evidence:
    kept = [record for record in found.records if record.event.event_type is not event_type]
    return replace(found, records=kept)


def spent(account: PlanRecords, **more: Any) -> Any:
    return changed(account.budget, **more)


def all_passed(account: PlanRecords) -> list[object]:
    return [replace(run, verdict=CheckVerdict.PASSED) for run in account.checks]


def all_failed(account: PlanRecords) -> list[object]:
    return [replace(run, verdict=CheckVerdict.FAILED) for run in account.checks]


Doctored = Callable[[Story, Evidence], tuple[Story, Evidence]]

CASES: Mapping[str, list[Doctored]] = {
    "strategists only read, and give reasons": [
        lambda s, f: (s, with_account(f, "tax", decisions=[])),
        lambda s, f: (
            s,
            with_account(f, "tax", calls=[changed(one, tool="write") for one in f.accounts["tax"].calls]),
        ),
        lambda s, f: (
            s,
            with_account(
                f,
                "tax",
                decisions=[
                    changed(one, made=changed(one.made, rationale="")) for one in f.accounts["tax"].decisions
                ],
            ),
        ),
    ],
    "no file changes before apply": [lambda s, f: (replace(s, when_ready="another"), f)],
    "failed checks are fixed before apply": [
        lambda s, f: (s, with_account(f, "receipt", checks=all_passed(f.accounts["receipt"]))),
        lambda s, f: (s, with_account(f, "discount", checks=all_failed(f.accounts["discount"]))),
        lambda s, f: (s, with_account(f, "discount", checks=[])),
        lambda s, f: (s, in_state(f, "receipt", PlanState.COMPLETE)),
    ],
    "rejected results are fixed": [
        lambda s, f: (s, with_account(f, "welcome", checks=all_passed(f.accounts["welcome"]))),
    ],
    "a conflicting plan is refused completely": [
        lambda s, f: (s, in_state(f, "tax", PlanState.APPLIED)),
        lambda s, f: (s, with_file(f, "prices.sh", f.files["prices.sh"].replace("90", "119"))),
        lambda s, f: (s, with_file(f, "README.md", f.files["README.md"] + "tax")),
        lambda s, f: (s, with_file(f, "test_prices.sh", "expect 39")),
        lambda s, f: (replace(s, refusal="no"), f),
    ],
    "apply merges with your edits": [
        lambda s, f: (replace(s, merged=s.merged.replace("Main Street", "")), f),
        lambda s, f: (replace(s, merged=s.merged.replace("Welcome to", "")), f),
    ],
    "undo reverts one plan only": [
        lambda s, f: (s, with_file(f, "README.md", s.merged)),
        lambda s, f: (s, in_state(f, "welcome", PlanState.APPLIED)),
    ],
    "no process of a cancelled plan survives": [
        lambda s, f: (s, replace(f, alive=[1])),
        lambda s, f: (replace(s, pids=()), f),
        lambda s, f: (s, in_state(f, "simulation", PlanState.COMPLETE)),
        lambda s, f: (replace(s, second_cancel=""), f),
    ],
    "a killed plan resumes and repeats no call": [
        lambda s, f: (s, with_file(f, CATALOGUE, f.files[CATALOGUE] + "colour 3\n")),
        lambda s, f: (replace(s, lines_before_kill=0), f),
        lambda s, f: (replace(s, calls_before_kill=(99,)), f),
        lambda s, f: (s, with_account(f, "catalogue", calls=[*f.accounts["catalogue"].calls] * 2)),
        lambda s, f: (s, without(f, EventType.JOB_CLAIMED)),
    ],
    "every apply is complete or has no effect": [
        lambda s, f: (s, without(f, EventType.APPLY_ENDED)),
        lambda s, f: (s, replace(f, open_applies=1)),
        lambda s, f: (s, replace(f, laid_out=["01M7"])),
    ],
    "no plan exceeds its budget": [
        lambda s, f: (
            s,
            with_account(f, "tax", budget=spent(f.accounts["tax"], spent=Spend(tokens=LIMITS.tokens + 1))),
        ),
        lambda s, f: (
            s,
            with_account(f, "tax", budget=spent(f.accounts["tax"], reserved=Spend(steps=1))),
        ),
    ],
    "branches, index, stash and notes stay": [
        lambda s, f: (s, replace(f, damage="missing blob")),
        lambda s, f: (s, replace(f, refs=f.refs + "refs/stash")),
        lambda s, f: (s, with_file(f, "notes.txt", "")),
    ],
    "the audit log is intact": [
        lambda s, f: (s, replace(f, problems=["row 3: the row was removed"])),
        lambda s, f: (s, replace(f, records=[])),
    ],
    "no orphans remain": [
        lambda s, f: (s, replace(f, left_over=[1])),
        lambda s, f: (s, replace(f, sandboxes=frozenset(s.ids.values()))),
        lambda s, f: (s, replace(f, pins=2)),
        lambda s, f: (replace(s, exit_codes={"worker-1": 1, "worker-2": -9}), f),
        lambda s, f: (replace(s, keeps_sandboxes=True), f),
    ],
}


def test_all_promises_are_kept_and_each_can_be_broken(played: Played) -> None:
    story, found = played.story, played.found
    assert broken(story, found) == []
    assert [promise.what for promise in judge(story, found)] == list(CASES)
    for promise, doctored in CASES.items():
        for doctor in doctored:
            assert promise in broken(*doctor(story, found))


def test_the_plans_end_as_expected(played: Played) -> None:
    assert {label: account.plan.state.value for label, account in played.found.accounts.items()} == {
        "discount": "applied",
        "tax": "constrained",
        "receipt": "applied",
        "catalogue": "applied",
        "simulation": "cancelled",
        "welcome": "undone",
    }
    assert played.story.exit_codes == {"worker-1": 0, "worker-2": -signal.SIGKILL}
    assert 2 <= played.found.most_at_once <= len(GOALS)


def test_the_progress_fits_a_terminal_and_shows_both_sides(played: Played) -> None:
    # The name of the phase takes twelve columns.
    assert max(map(len, played.told)) + 12 <= 100
    told = [line.strip() for line in played.told]
    assert "Where is the discount taken off? → in total(), not in receipt()" in told
    assert "receipt failed its check and was fixed: receipt red 2: sum: 0, not sum: 24" in told
    assert {"|     echo $sum", "|     echo $((sum * 119 / 100))"} <= set(told)
    assert any(line.endswith("the other change is by plan discount") for line in told)


def test_the_end_is_short_and_json_is_complete(
    played: Played, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    performance = DemoRun(played.story, played.found, judge(played.story, played.found))

    def shown(format_name: str, **options: bool) -> tuple[str, str]:
        directory = tmp_path / "stage"
        directory.mkdir(exist_ok=True)
        assert conclude(Output(format_name), performance, directory, 1.0, **options) == 0
        assert directory.exists() == ("keep" in options)
        said = capfd.readouterr()
        return said.out, said.err

    short, _ = shown("plain")
    lines = short.splitlines()
    assert len(lines) + len(played.told) <= 46
    assert max(map(len, lines)) <= 100
    assert short.endswith(f"in parallel; {len(CASES)} promises kept; 1.0 s\n")
    assert "job.reclaimed" not in short
    log, _ = shown("plain", verbose=True)
    [reclaimed] = [line for line in log.splitlines() if "job.reclaimed" in line]
    assert reclaimed.split()[4] == "catalogue"
    told, _ = shown("json")
    assert '"workers": [\n        "worker-2",\n        "worker-1"\n      ]' in told
    _, hints = shown("plain", keep=True)
    assert f"export CLEVERAGENTS_STATE_DIRECTORY={shlex.quote(str(tmp_path / 'stage'))}" in hints
    assert f"agents plan tree {played.story.ids['discount']}" in hints


def test_a_broken_promise_fails_the_demo_and_keeps_its_directory(
    played: Played, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "worker-1.log").write_text("it all began…")
    promises = [Promise("cancel means cancelled", False, "simulation is running")]
    performance = DemoRun(played.story, played.found, promises)
    assert conclude(Output("plain"), performance, tmp_path, 1.0) == 1
    said = capfd.readouterr()
    assert "; NOT all promises kept; 1.0 s" in said.out
    assert said.err.endswith(f"a promise was broken; the state is in {tmp_path}\n")
    assert (tmp_path / "worker-1.log").exists()


def test_a_worker_that_does_not_start_ends_the_story(tmp_path: Path) -> None:
    settings = demo_settings(tmp_path)
    nowhere = changed(settings, database=changed(settings.database, url="sqlite:////dev/null/state.db"))
    worker = WorkerProcess("worker-1", nowhere, tmp_path / "log")
    with pytest.raises(DeadlineExceeded):
        worker.wait_ready()
    assert worker.finish() != 0


def test_an_interrupted_story_leaves_no_process(tmp_path: Path) -> None:
    before = threading.active_count()

    def interrupt(phase: str, what: str, *details: str) -> None:
        raise KeyboardInterrupt

    with Container(demo_settings(tmp_path)) as container:
        with pytest.raises(KeyboardInterrupt):
            tell(container, interrupt)
        assert container.jobs.list(limit=10)
    assert threading.active_count() == before
