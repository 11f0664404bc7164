"""`python -m tests.crash.soak plans [SECONDS] [SEED]`: plans of all kinds, with a worker killed now and then.

Three workers of one machine run commands, goals with a scripted model and trees of sub-plans, on a directory
and on a git remote; some are cancelled, some applied on request, some undone again. Every few seconds a
random worker is killed with SIGKILL and replaced. Then every plan is checked: its standing, how often it was
applied according to the log, the files and the history of the remote. The log must verify, and no process and
no sandbox may remain.

The result is a list of problems. `wrong_plans` computes it from records alone, so that a test can show it
losses and double applies that never happened.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from cleveragents.api.plans.apply_jobs import apply_later, undo_later
from cleveragents.api.plans.responses import cancel, delete
from cleveragents.app.container import Container
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import GOALS_ACTION
from cleveragents.plans.ports.plans import PlanDraft
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.crash.programs.machine_worker import settings_of
from tests.plan_bench import new_repository
from tests.remotes import Remote, new_remote

__all__ = ["Account", "model_script", "soak_plans", "wanted", "wrong_plans"]

PROGRAM = [sys.executable, "-m", "tests.crash.programs.machine_worker"]
WORKERS = 3
OUTSTANDING = 6
DRAIN_SECONDS = 150.0
KINDS = ("command", "goal", "tree", "cancel", "review", "undo")
SLEEPS = 43_200
ULID_LENGTH = 26


@dataclass(frozen=True)
class Account:
    """The outcome of one plan: `applied` and `undone` count moves in the log, `text` is its file now, and
    `commits` counts the commits of the remote that name the plan (None: on no remote).
    """

    plan_id: str
    kind: str
    number: int
    state: str
    error: str | None
    applied: int
    undone: int
    text: str | None
    commits: int | None = None

    def wrong(self) -> list[str]:
        expected = {"cancel": "cancelled", "undo": "undone"}.get(self.kind, "applied")
        applied, undone = int(expected != "cancelled"), int(expected == "undone")
        text = f"{self.number}\n" if expected == "applied" else None
        found = []
        if self.state != expected:
            found.append(f"is {self.state}, not {expected}: {self.error}")
        if self.applied != applied:
            found.append(f"was applied {self.applied} times, not {applied}")
        if self.undone != undone:
            found.append(f"was undone {self.undone} times, not {undone}")
        if self.text != text:
            found.append(f"has {self.text!r} in its file, not {text!r}")
        if self.commits is not None and expected == "applied" and self.commits != 1:
            found.append(f"has {self.commits} commits, not 1")
        return [f"plan {self.plan_id} ({self.kind}) {text}" for text in found]


def wrong_plans(made: Sequence[str], accounts: Sequence[Account]) -> list[str]:
    """Return the problems, given the created plans and those found."""
    counted = Counter(account.plan_id for account in accounts)
    wrong = [f"plan {plan_id} is lost" for plan_id in made if not counted[plan_id]]
    wrong += [f"unexpected plan {plan_id}" for plan_id in sorted(set(counted) - set(made))]
    return wrong + [text for account in accounts for text in account.wrong()]


@dataclass
class _Made:
    """A created plan and its further actions."""

    id: str
    kind: str
    number: int
    remote: bool
    cancel_at: float


class _Soak:
    """The plans, the workers, and the actions of a person in between. Not thread-safe."""

    def __init__(self, home: Path, seed: int, cleanup: ExitStack) -> None:
        self._home = home
        self._dice = random.Random(seed)
        self._cleanup = cleanup
        self._url = f"sqlite:///{home}/state/state.db"
        (home / "state").mkdir()
        self.repository = new_repository(home / "repository")
        self.remote: Remote = new_remote(home)
        self.container = cleanup.enter_context(Container(settings_of(home / "state", self._url)))
        self.container.audit.sequence_pending()
        self._script = model_script(home)
        self._workers = [self._start() for _ in range(WORKERS)]
        self.made: list[_Made] = []
        self.kills = 0
        self.asked_again = 0

    def _start(self) -> subprocess.Popen[bytes]:
        order = {"directory": str(self._home / "state"), "url": self._url}
        with (self._home / "workers.log").open("ab") as log:
            worker = subprocess.Popen([*PROGRAM, json.dumps(order)], stdout=log, stderr=log)
        self._cleanup.callback(_ended, worker)
        return worker

    def kill_one(self) -> None:
        place = self._dice.randrange(WORKERS)
        self._workers[place].kill()
        self._workers[place].wait(DRAIN_SECONDS)
        self._workers[place] = self._start()
        self.kills += 1

    def next_kill(self) -> float:
        return time.monotonic() + self._dice.uniform(2.0, 6.0)

    def finish(self) -> list[int]:
        return [_ended(worker) for worker in self._workers]

    def now(self, made: _Made) -> Plan:
        return self.container.plan_parts.plans.get(made.id)

    def top_up(self) -> None:
        under_way = sum(not _rests(one, self.now(one)) for one in self.made[-2 * OUTSTANDING :])
        for _ in range(OUTSTANDING - under_way):
            self._make(self._dice.choice(KINDS), len(self.made))

    def _make(self, kind: str, number: int) -> None:
        remote = self._dice.random() < 0.35
        action, request = wanted(kind, number, self._script)
        kept = freeze({"queue": "plans", "profile": "full-auto", "apply": "auto", **request})
        assert isinstance(kept, FrozenObject)
        resource = self.remote.resource if remote else str(self.repository)
        new = PlanDraft(f"make number {number}", action, resource, kept)
        plan = self.container.plan_parts.lifecycle.create(new)
        cancel_at = time.monotonic() + self._dice.uniform(0.5, 6.0)
        self.made.append(_Made(plan.id, kind, number, remote, cancel_at))

    def act(self) -> None:
        """Take the next action on each plan. A refused action is repeated later."""
        for one in self.made:
            plan = self.now(one)
            with suppress(CleverAgentsError):
                if one.kind == "cancel" and not plan.state.ended and time.monotonic() > one.cancel_at:
                    cancel(self.container, one.id, "soaked")
                elif one.kind == "review" and plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
                    apply_later(self.container, one.id, message=None, by="soak")
                elif one.kind == "undo" and plan.phase_state == (Phase.APPLY, PlanState.APPLIED):
                    undo_later(self.container, one.id, message=None, by="soak")
                elif plan.state is PlanState.ERRORED and one.kind != "cancel":
                    self._again(plan)

    def _again(self, plan: Plan) -> None:
        """Resume a plan whose workers were killed too often, as a person would; other failures stay."""
        if "attempt" in (plan.error or "") or "interrupted" in (plan.error or ""):
            self.container.plan_parts.lifecycle.resume(plan)
            self.asked_again += 1

    def all_rest(self) -> bool:
        return all(_rests(one, self.now(one)) for one in self.made)

    def accounts(self) -> list[Account]:
        self.container.audit.sequence_pending()
        moves = self._moves()
        roots = [plan for plan in self._plans() if plan.parent_id is None]
        made = {one.id: one for one in self.made}
        found = []
        for plan in roots:
            one = made.get(plan.id, _Made(plan.id, "?", -1, False, 0.0))
            state = plan.state.value
            text = self._text(one)
            commits = len(self.remote.commits_of(plan.id)) if one.remote else None
            applied, undone = moves[plan.id, "applied"], moves[plan.id, "undone"]
            facts = (plan.id, one.kind, one.number, state, plan.error, applied, undone, text, commits)
            found.append(Account(*facts))
        return found

    def _plans(self) -> list[Plan]:
        found: list[Plan] = []
        while page := self.container.plan_parts.plans.list(limit=500, after=found[-1].id if found else None):
            found += page
        return found

    def _moves(self) -> Counter[tuple[str, str]]:
        moves: Counter[tuple[str, str]] = Counter()
        for record in self.container.audit.read(limit=10_000_000):
            facts: Any = record.event.payload
            if record.event.event_type.value == "plan.moved":
                moves[record.event.subject, str(facts.get("state"))] += 1
        return moves

    def _text(self, one: _Made) -> str | None:
        path = f"made/{one.number}.txt"
        if not one.remote:
            file = self.repository / path
            return file.read_text() if file.exists() else None
        listed = self.remote.said("ls-tree", "-r", "--name-only", "refs/heads/main").split()
        return f"{self.remote.text(path).strip()}\n" if path in listed else None

    def left_behind(self) -> list[str]:
        """Return remaining processes, and remaining files of sandboxes after their plans are deleted."""
        wrong = []
        for process in psutil.process_iter(["cmdline", "cwd"]):
            words = process.info["cmdline"] or []
            sleeps = len(words) == 2 and words[0] == "sleep" and words[1].startswith(f"{SLEEPS}.")
            if sleeps or str(process.info["cwd"]).startswith(str(self._home)):
                wrong.append(f"process {process.pid} lives on: {words}")
        for one in self.made:
            with suppress(CleverAgentsError):
                delete(self.container, one.id, force=True)
        left = [plan.id for plan in self._plans()]
        wrong += [f"plan {plan_id} could not be deleted" for plan_id in left]
        directory = self._home / "state" / "sandboxes"
        kept = [path for path in directory.iterdir() if path.is_dir()] if directory.exists() else []
        wrong += [f"sandbox {path.name} is left" for path in kept if not path.name.startswith(".")]
        return wrong


def soak_plans(seconds: float, seed: int) -> list[str]:
    """Run, and return the problems."""
    with tempfile.TemporaryDirectory(prefix="soak-") as home, ExitStack() as cleanup:
        soak = _Soak(Path(home), seed, cleanup)
        over = time.monotonic() + seconds
        kill_at = soak.next_kill()
        while time.monotonic() < over:
            soak.top_up()
            soak.act()
            if time.monotonic() > kill_at:
                soak.kill_one()
                kill_at = soak.next_kill()
            Event().wait(0.2)
        over = time.monotonic() + DRAIN_SECONDS
        while not soak.all_rest() and time.monotonic() < over:
            soak.act()
            Event().wait(0.2)
        exits = soak.finish()
        accounts = soak.accounts()
        report = soak.container.audit.verify()
        wrong = [*wrong_plans([one.id for one in soak.made], accounts), *map(str, report.findings)]
        kinds = Counter(f"{account.kind} {account.state}" for account in accounts)
        _say(f"{len(soak.made)} plans, {soak.kills} workers killed, exit codes of the last ones {exits}")
        _say(f"{dict(sorted(kinds.items()))}, {soak.asked_again} taken up again by a person")
        _say(f"audit log: {report.rows} events, {len(report.findings)} findings")
        _say(_told_of(wrong, (Path(home) / "workers.log").read_text(errors="replace").splitlines()))
        return wrong + soak.left_behind()


def _told_of(wrong: Sequence[str], log: Sequence[str]) -> str:
    """Return what workers logged about plans with problems, and output that is not a log line."""
    named = {word for text in wrong for word in text.split() if len(word) == ULID_LENGTH}
    return "\n".join(line for line in log if not line.startswith("{") or any(one in line for one in named))


def _rests(one: _Made, plan: Plan) -> bool:
    if plan.state is PlanState.APPLIED:
        return one.kind != "undo"
    return plan.state.ended


def wanted(kind: str, number: int, script: str) -> tuple[str, dict[str, Any]]:
    """Return the action and the request of a plan that creates that file, or will be cancelled."""
    path = f"made/{number}.txt"
    checked = {"checks": [f"test $(cat {path}) = {number}"]}
    if kind == "goal":
        return "builtin/goal", {"arguments": {"goal": f"make number {number}"}, "model": script, **checked}
    if kind == "tree":
        goals = [_part("half", f"mkdir -p made; printf {number} > {path}"),
                 _part("rest", f"echo >> {path}", "half")]  # fmt: skip
        return GOALS_ACTION, {"sub_goals": goals, **checked}
    if kind == "cancel":
        mark = f"{SLEEPS}.{number}"
        return "builtin/command", _command(f"(setsid sh -c 'sleep {mark} & wait' &); sleep {mark}")
    request = _command(f"mkdir -p made; sleep 0.2; echo {number} > {path}")
    return "builtin/command", {**request, **checked, **({"apply": "review"} if kind == "review" else {})}


def _command(script: str) -> dict[str, Any]:
    return {"arguments": {"argv": ["/bin/sh", "-c", script]}}


def _part(name: str, script: str, *needs: str) -> dict[str, Any]:
    return {"name": name, "goal": "", "action": "builtin/command", "needs": list(needs), **_command(script)}


def model_script(home: Path) -> str:
    """Return the name of a model that writes the number in its goal."""
    wanted = {"first_user": r"make number (?P<number>\d+)"}
    written = call("write", path="made/${number}.txt", content="${number}\n")
    rules = [
        strategizes(steps({"title": "make it", "instructions": "write the file"})),
        executes(answer(written), says("done"), when=wanted),
        reviews(accept()),
    ]
    path = home / "script.yaml"
    path.write_text(json.dumps({"version": 1, "facts": {}, "rules": rules}))
    return f"scripted/{path}"


def _ended(worker: subprocess.Popen[bytes]) -> int:
    if worker.poll() is None:
        worker.terminate()
        try:
            return worker.wait(60)
        except subprocess.TimeoutExpired:
            worker.kill()
    return worker.wait(20)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
