"""Many parallel plans on one machine: correctness, the delay of cancellations, and the cost of each plan.

    python -m benchmarks.many_plans [--plans 200] [--at-once N] [--seconds 170]

A separate server (`agents serve`, SQLite, an empty state directory) receives the plans on one repository and
runs all of them in parallel unless `--at-once` limits it. They are, in turn:

- goals with a scripted model: a strategist, an executor that writes a file, a reviewer, and a check;
- commands that write a file, and a check;
- one in ten: commands that sleep and leave a child that was forked twice; once all of them sleep, all are
  cancelled at the same time.

The server applies all but the last kind when they are done. At the end, each of these must be applied with
its one file correct, and each of the others must be cancelled with no process alive. The output is a table
and the same as JSON; the exit code is 1 if something is wrong.

The delay of events is measured by a client of the stream, from the millisecond in an event's id, which is
assigned just before the commit, until its frame arrives. `bench_streams.py` measures the fan-out to many
clients.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.bench_plans import git

__all__ = ["main", "percentile", "run"]

_AGENTS = [sys.executable, "-m", "cleveragents"]
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ENDED = ("applied", "cancelled", "errored", "rejected", "undone", "constrained")
_RESTING = (*_ENDED, "waiting")
_LOOK_SECONDS = 0.05
_SETTLE_SECONDS = 20.0
_PATIENCE_SECONDS = 60.0
_SLEEPS = 86_400

Json = dict[str, Any]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def run(plans: int, at_once: int, seconds: float) -> Json:
    """Run once and return the results, including `wrong`."""
    with _served(plans, at_once) as server:
        before = server.footprint()
        watching = _Watching(server)
        listening = _Listening(server)
        with watching, listening:
            began = time.monotonic()
            goals, commands, sleepers = server.make_plans(plans)
            cancels = server.cancel_all(sleepers, began + seconds)
            rested = server.wait_rested([*goals, *commands, *sleepers], began + seconds)
            took = time.monotonic() - began
        wrong = server.wrong(goals, commands, sleepers, rested)
        # Applied plans keep their sandboxes for review and undo.
        for plan in (plan for plan, state in rested.items() if state in _RESTING):
            server.ask("DELETE", f"/plans/{plan}", params={"force": True})
        after = server.settled(before)
        left = [f"{name}: {before[name]} before, {after[name]} now" for name in _COUNTED]
        wrong += [f"left behind: {text}" for name, text in zip(_COUNTED, left, strict=True)
                  if after[name] > before[name] + _ALLOWED[name]]  # fmt: skip
        return {
            "plans": plans,
            "at_once": at_once,
            "seconds": took,
            "plans_per_second": plans / took,
            "states": dict(Counter(rested.values())),
            "cancel_to_dead_p50_seconds": percentile(cancels, 0.5),
            "cancel_to_dead_p99_seconds": percentile(cancels, 0.99),
            "event_p50_seconds": percentile(listening.late, 0.5),
            "event_p99_seconds": percentile(listening.late, 0.99),
            "events": len(listening.late),
            "events_per_plan": len(listening.late) / plans,
            "memory_per_plan_bytes": (watching.peak["memory"] - before["memory"]) / min(at_once, plans),
            "server_cpu_seconds_per_plan": (after["cpu"] - before["cpu"]) / plans,
            "database_bytes_per_plan": (after["database"] - before["database"]) / plans,
            "before": before,
            "peak": watching.peak,
            "after": after,
            "wrong": wrong,
        }


_COUNTED = ("threads", "descriptors", "processes", "sandboxes")
# The threads that answer requests stay, up to the size of the server's pool, and so do pooled connections.
_ALLOWED = {"threads": 45, "descriptors": 60, "processes": 0, "sandboxes": 0}


class _Server:
    """A server in a separate process. Any thread may use it."""

    def __init__(self, home: Path, process: psutil.Process, url: str) -> None:
        self._home = home
        self._process = process
        self.url = url
        self.token = (home / "state" / "server-token").read_text().strip()
        self._client = httpx.Client(
            base_url=f"{url}/api",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=120.0,
            limits=httpx.Limits(max_connections=16),
        )

    def ask(self, method: str, path: str, **more: Any) -> Any:
        answer = self._client.request(method, path, **more)
        assert answer.status_code < 400, answer.text
        return answer.json() if answer.content else None

    def make_plans(self, count: int) -> tuple[list[str], list[str], list[str]]:
        """Create goals, commands, and commands that sleep; each writes its own file."""
        kinds: tuple[list[str], list[str], list[str]] = ([], [], [])
        bodies = [self._body(number) for number in range(count)]
        with ThreadPoolExecutor(8) as pool:
            made = pool.map(lambda body: str(self.ask("POST", "/plans", json=body[1])["id"]), bodies)
        for (kind, _), plan in zip(bodies, made, strict=True):
            kinds[kind].append(plan)
        return kinds

    def _body(self, number: int) -> tuple[int, Json]:
        shared: Json = {"resource": "shop", "profile": "full-auto", "apply": "auto"}
        checked = {"checks": [f"test $(cat made/{number}.txt) = {number}"]}
        if number % 10 == 9:
            mark = _SLEEPS + number
            script = f"(setsid sh -c 'sleep {mark} & wait' &); sleep {mark}"
            return 2, {**shared, **_command(script)}
        if number % 2:
            return 1, {**shared, **checked, **_command(f"mkdir -p made; echo {number} > made/{number}.txt")}
        model = f"scripted/{self._home}/script.yaml"
        return 0, {**shared, **checked, "goal": f"make number {number}", "model": model}

    def cancel_all(self, plans: Sequence[str], deadline: float) -> list[float]:
        """Cancel them at once when all of them sleep; return the time until no process of each was alive."""
        while len(sleeping := _sleeping()) < len(plans):
            assert time.monotonic() < deadline, f"only {len(sleeping)} of {len(plans)} sleep"
            time.sleep(_LOOK_SECONDS)

        def cancelled(plan: str, number: int) -> float:
            mine = sleeping[number]
            asked = time.monotonic()
            self.ask("POST", f"/plans/{plan}/cancel", json={"reason": "measured"})
            while any(map(_is_alive, mine)):
                assert time.monotonic() < deadline, f"a process of {plan} is still alive"
                time.sleep(0.005)
            return time.monotonic() - asked

        if not plans:
            return []
        with ThreadPoolExecutor(len(plans)) as pool:
            return list(pool.map(cancelled, plans, sorted(sleeping)))

    def wait_rested(self, plans: Sequence[str], deadline: float) -> dict[str, str]:
        """Return the states of all plans when no worker runs any of them, or at the deadline."""
        while True:
            states = self._states()
            if all(states.get(plan) in _RESTING for plan in plans) or time.monotonic() > deadline:
                return {plan: states.get(plan, "gone") for plan in plans}
            time.sleep(0.2)

    def _states(self) -> dict[str, str]:
        with self._reading() as database:
            return dict(database.execute("SELECT id, state FROM plans").fetchall())

    def wrong(
        self, goals: Sequence[str], commands: Sequence[str], sleepers: Sequence[str], states: dict[str, str]
    ) -> list[str]:
        expected = {**dict.fromkeys([*goals, *commands], "applied"), **dict.fromkeys(sleepers, "cancelled")}
        wrong = [
            f"plan {plan} is {states[plan]}, not {state}: {self.ask('GET', f'/plans/{plan}').get('error')}"
            for plan, state in expected.items()
            if states[plan] != state
        ]
        made = {path.stem: path.read_text() for path in (self._home / "shop" / "made").glob("*.txt")}
        wrong += [f"made/{name}.txt says {text!r}" for name, text in made.items() if text != f"{name}\n"]
        if len(made) != len(goals) + len(commands):
            wrong.append(f"{len(made)} files were made of {len(goals) + len(commands)}")
        wrong += [f"process {one.pid} is still alive" for alive in _sleeping().values() for one in alive]
        if not self.ask("GET", "/events/verification").get("ok", True):
            wrong.append("the audit log does not verify")
        return wrong

    def footprint(self) -> Json:
        """Return the current resource usage."""
        process = self._process
        times = process.cpu_times()
        children = [child for child in process.children(recursive=True) if _is_alive(child)]
        with self._reading() as database:
            sandboxes = database.execute("SELECT count(*) FROM sandboxes").fetchone()[0]
        return {
            "threads": process.num_threads(),
            "descriptors": process.num_fds(),
            "processes": len(children),
            "sandboxes": sandboxes,
            "memory": process.memory_info().rss,
            "cpu": times.user + times.system + times.children_user + times.children_system,
            "database": sum(path.stat().st_size for path in (self._home / "state").glob("state.db*")),
        }

    def settled(self, before: Json) -> Json:
        """Return the resource usage once the server is idle."""
        give_up = time.monotonic() + _SETTLE_SECONDS
        while True:
            now = self.footprint()
            if all(now[name] <= before[name] for name in _COUNTED) or time.monotonic() > give_up:
                return now
            time.sleep(0.5)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        path = self._home / "state" / "state.db"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
            yield database

    def close(self) -> None:
        self._client.close()


def _command(script: str) -> Json:
    return {"action": "builtin/command", "arguments": {"argv": ["sh", "-c", script]}}


def _sleeping() -> dict[int, list[psutil.Process]]:
    """Return the sleeping processes of plans, by the plan's number, if both of them sleep."""
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if len(words) == 2 and words[0].endswith("sleep") and words[1].isdigit():
            found.setdefault(int(words[1]) - _SLEEPS, []).append(process)
    return {number: those for number, those in found.items() if number >= 0 and len(those) == 2}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class _Watching:
    """A thread that measures the server's resource usage repeatedly; `peak` holds the largest values."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watching")
        self.peak: Json = server.footprint()

    def _run(self) -> None:
        while not self._over.wait(0.5):
            now = self._server.footprint()
            self.peak = {name: max(value, now[name]) for name, value in self.peak.items()}

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class _Listening:
    """A thread that reads the stream; `late` holds the delay of each event in seconds."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._connected = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listening", daemon=True)
        self.late: list[float] = []

    def _run(self) -> None:
        headers = {"Authorization": f"Bearer {self._server.token}"}
        address = f"{self._server.url}/api/events/stream"
        with httpx.stream("GET", address, headers=headers, timeout=_PATIENCE_SECONDS) as got:
            for line in got.iter_lines():
                now = time.time()
                self._connected.set()
                if line.startswith("data: "):
                    self.late.append(now - _made_at(json.loads(line[6:])["event_id"]))
                if self._over.is_set():
                    return

    def __enter__(self) -> None:
        self._thread.start()
        assert self._connected.wait(30), "the stream did not start"

    def __exit__(self, *_: object) -> None:
        self._over.set()  # noticed with the next message of the server, which sends one now and then
        self._thread.join(_PATIENCE_SECONDS)


def _made_at(identifier: str) -> float:
    """Return the time in the first ten characters of a ULID."""
    milliseconds = 0
    for letter in identifier[:10]:
        milliseconds = milliseconds * 32 + _CROCKFORD.index(letter)
    return milliseconds / 1000


@contextmanager
def _served(plans: int, at_once: int) -> Iterator[_Server]:
    """Run an idle server with one repository, and stop it afterwards."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plans-")))
        _lay_out(home)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CLEVERAGENTS_")}
        environment = {
            **kept,
            "HOME": str(home),
            "CLEVERAGENTS_STATE_DIRECTORY": str(home / "state"),
            "CLEVERAGENTS_SERVER_REQUESTS_PER_MINUTE": "1000000",
            "CLEVERAGENTS_JOBS_PROVIDER_LIMIT": str(at_once),
        }
        place = ["resource", "add", "shop", "--project", "team", "--path", str(home / "shop")]
        for words in (["project", "add", "team"], place):
            subprocess.run([*_AGENTS, *words], env=environment, cwd=home, check=True, capture_output=True)
        log = home / "serve.log"
        with log.open("w") as said:
            process = subprocess.Popen(
                [*_AGENTS, "serve", "--port", "0", "--workers", str(at_once)],
                env=environment,
                cwd=home,
                stdout=said,
                stderr=said,
            )
        stack.callback(_end, process)
        give_up = time.monotonic() + 60
        while "listening on " not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(_LOOK_SECONDS)
        url = log.read_text().partition("listening on ")[2].split()[0]
        server = _Server(home, psutil.Process(process.pid), url)
        stack.callback(server.close)
        server.ask("GET", "/plans")
        yield server


def _lay_out(home: Path) -> None:
    (home / "state").mkdir()
    shop = home / "shop"
    shop.mkdir()
    git(shop, "init", "--quiet", "-b", "main")
    for number in range(50):
        (shop / f"file{number}.txt").write_text(f"line {number}\n" * 20)
    git(shop, "add", ".")
    git(shop, "commit", "--quiet", "-m", "all")
    wanted = r"make number (?P<number>\d+)"
    step = {"title": "make it", "instructions": "write the file"}
    strategy = {"summary": "one step", "decisions": [], "steps": [step]}
    written = {"tool": "write", "arguments": {"path": "made/${number}.txt", "content": "${number}\n"}}
    accepted = {"verdict": "accept", "findings": [], "summary": "good"}
    rules = [
        {"when": {"system": "You plan changes"}, "reply": {"text": json.dumps(strategy)}},
        {"when": {"system": "You change files", "first_user": wanted},
         "turns": [{"calls": [written]}, {"text": "done"}]},
        {"when": {"system": "You review a change"}, "reply": {"text": json.dumps(accepted)}},
    ]  # fmt: skip
    (home / "script.yaml").write_text(json.dumps({"version": 1, "facts": {}, "rules": rules}))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_plans")
    parser.add_argument("--plans", type=int, default=200)
    parser.add_argument("--at-once", type=int, help="maximum number of parallel plans; default: all")
    parser.add_argument("--seconds", type=float, default=170.0, help="at most")
    asked = parser.parse_args(arguments)
    found = run(asked.plans, min(asked.at_once or asked.plans, 1000), asked.seconds)
    for name, value in found.items():
        if name not in ("before", "peak", "after", "wrong"):
            print(f"{name:32} {value:,.3f}" if isinstance(value, float) else f"{name:32} {value}")
    for name in _COUNTED:
        row = [found[moment][name] for moment in ("before", "peak", "after")]
        print(f"{name:32} before {row[0]}, at most {row[1]}, afterwards {row[2]}")
    for text in found["wrong"]:
        print(f"WRONG: {text}")
    print(json.dumps(found))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
