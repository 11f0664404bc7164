"""`python -m benchmarks.real_tasks`: small tasks with a real model, ours beside aider and mini-swe-agent.

    git clone --bare https://github.com/exercism/python CLONES/exercism+python
    git clone --bare https://github.com/jkoppel/QuixBugs CLONES/jkoppel+QuixBugs
    python -m benchmarks.real_tasks run --clones CLONES --server http://127.0.0.1:8080/v1 \\
        --model qwen2.5-coder-1.5b --set dev --aider AIDER_VENV/bin/aider --mini MINI_VENV/bin/mini
    python -m benchmarks.real_tasks report RESULTS

`run` appends a line for each attempt to the results and skips the attempts that are there, so it can be
stopped and started again. Each attempt has the same limits: `--tokens` generated tokens and `--seconds`.
`report` prints the share of solved tasks, paired by task, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.real_tasks.harnesses import HARNESSES, Attempt
from benchmarks.real_tasks.proxy import Meter, proxy
from benchmarks.real_tasks.tasks import SETS, SOURCES, Task, load, tests_pass, write_files

_STOP_SECONDS = 20
_SAMPLES = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run attempts or report them."""
    # A shell starts background jobs with SIGINT ignored; a run must end when it is interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_tasks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the attempts that are missing")
    run.add_argument(
        "--clones", type=Path, required=True, help="folder with exercism+python and jkoppel+QuixBugs"
    )
    run.add_argument("--server", required=True, help="base URL of the model server")
    run.add_argument("--model", required=True)
    run.add_argument("--set", choices=sorted(SETS), default="dev")
    run.add_argument("--results", type=Path, default=Path("real_tasks.jsonl"))
    run.add_argument("--transcripts", type=Path, help="folder for requests and answers")
    run.add_argument("--tokens", type=int, default=3_000, help="generated tokens of an attempt")
    run.add_argument("--seconds", type=float, default=600.0, help="time limit of an attempt")
    run.add_argument("--aider", type=Path, help="the aider executable")
    run.add_argument("--mini", type=Path, help="the mini executable of mini-swe-agent")
    run.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="the interpreter of the tests, with pytest"
    )
    run.add_argument("--only", default="", help="tasks whose name contains this")
    report = commands.add_parser("report", help="print the results")
    report.add_argument("results", type=Path)
    given = parser.parse_args(arguments)
    return _report(given.results) if given.command == "report" else _run(given)


def _run(given: argparse.Namespace) -> int:
    clones = {name: _clone(given.clones, name) for name in SOURCES}
    programs = {"python": given.python, "aider": given.aider, "mini": given.mini}
    programs = {name: place for name, place in programs.items() if place}
    harnesses = [name for name in HARNESSES if name == "cleveragents" or name.split("-")[0] in programs]
    done = {(row["task"], row["harness"], row["model"]) for row in _rows(given.results)}
    tasks = [task for task in load(clones, given.set) if given.only in task.name]
    attempts = [
        (task, name) for task in tasks for name in harnesses if (task.name, name, given.model) not in done
    ]
    for number, (task, name) in enumerate(attempts, 1):
        print(f"{number} of {len(attempts)}: {task.name}, {name}", end=" … ", file=sys.stderr, flush=True)
        row = {"set": given.set, "model": given.model, **_attempt(given, task, name, programs)}
        with given.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        verdict = "solved" if row["solved"] else f"not solved ({row['ended']})"
        print(f"{verdict}, {row['output_tokens']} tokens, {row['seconds']} s", file=sys.stderr, flush=True)
    return _report(given.results)


def _attempt(
    given: argparse.Namespace, task: Task, name: str, programs: Mapping[str, Path]
) -> dict[str, Any]:
    log = None
    if given.transcripts:
        given.transcripts.mkdir(parents=True, exist_ok=True)
        log = given.transcripts / f"{task.name.replace('/', '-')}-{name}.jsonl"
        log.unlink(missing_ok=True)
    meter = Meter(given.tokens, log)
    with tempfile.TemporaryDirectory() as place, proxy(given.server, meter) as base_url:
        directory, home = Path(place, "repository"), Path(place, "home")
        home.mkdir()
        _repository(directory, task.files)
        attempt = Attempt(task, given.model, base_url, directory, home, programs)
        command, more = HARNESSES[name](attempt)
        begun = time.monotonic()
        ended = _watch(command, attempt, {**attempt.environment(), **more}, meter, given.seconds, log)
        seconds = time.monotonic() - begun
        files = {path.name: _text(path) for path in directory.iterdir() if path.is_file()}
    source = files.get(task.source, "")
    return {
        "task": task.name,
        "harness": name,
        "solved": tests_pass({**files, **task.hidden}, given.python),
        "edited": source != task.files[task.source] and _compiles(source),
        "ended": ended,
        "calls": meter.calls,
        "prompt_tokens": meter.prompt_tokens,
        "cached_tokens": meter.cached_tokens,
        "output_tokens": meter.output_tokens,
        "model_seconds": round(meter.model_seconds, 1),
        "seconds": round(seconds, 1),
    }


def _watch(
    command: list[str],
    attempt: Attempt,
    environment: dict[str, str],
    meter: Meter,
    seconds: float,
    log: Path | None,
) -> str:
    """Run the harness until it ends or a limit is reached. Returns how it ended."""
    output = log.with_suffix(".log") if log else Path(os.devnull)
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=attempt.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + seconds
        ended = ""
        try:
            while not ended:
                try:
                    ended = f"exit {process.wait(timeout=0.5)}"
                except subprocess.TimeoutExpired:
                    if meter.over.is_set():
                        ended = "token limit"
                    elif time.monotonic() > deadline:
                        ended = "time limit"
        finally:  # also if the run is interrupted: a harness left alone would use the model on
            _end(process)
    return ended


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the process group of a harness, and kill it if it does not end."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_STOP_SECONDS)


def _repository(directory: Path, files: Mapping[str, str]) -> None:
    write_files(directory, files)
    user = ["-c", "user.name=task", "-c", "user.email=task@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*user, "commit", "-qm", "Start"]):
        subprocess.run(["git", *command], cwd=directory, check=True)


def _clone(clones: Path, name: str) -> Path:
    place = clones / name.replace("/", "+")
    return place / "repo" if (place / "repo").is_dir() else place


def _rows(results: Path) -> list[dict[str, Any]]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text("utf-8").splitlines()]


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")


def _compiles(source: str) -> bool:
    try:
        compile(source, "source", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _report(results: Path) -> int:
    """Print the figures of each model, set and harness, and the ratio of ours to each other one."""
    rows = _rows(results)
    for model, chosen in sorted({(row["model"], row["set"]) for row in rows}):
        group = [row for row in rows if (row["model"], row["set"]) == (model, chosen)]
        names = [name for name in HARNESSES if any(row["harness"] == name for row in group)]
        solved = {
            name: {row["task"]: row["solved"] for row in group if row["harness"] == name} for name in names
        }
        paired = sorted(set.intersection(*(set(found) for found in solved.values())))
        print(f"{model}, {chosen}: {len(paired)} tasks with all of {', '.join(names)}")
        print("| harness | solved | edited | tokens in | out | model seconds | per solved task |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name in names:
            own = [row for row in group if row["harness"] == name and row["task"] in paired]
            total = {
                key: sum(row[key] for row in own) for key in own[0] if isinstance(own[0][key], int | float)
            }
            count = max(1, total["solved"])
            each = f"{total['output_tokens'] / count:,.0f} tokens, {total['model_seconds'] / count:,.0f} s"
            cells = [f"{total['solved']} of {len(own)}", str(total["edited"]), f"{total['prompt_tokens']:,}"]
            cells += [f"{total['output_tokens']:,}", f"{total['model_seconds']:,.0f}", each]
            print(f"| {name} | {' | '.join(cells)} |")
        for name in names[1:]:
            low, high = _interval([solved[names[0]][task] - solved[name][task] for task in paired])
            print(f"ours minus {name}: {low:+.0%} to {high:+.0%} of the tasks (95 %, paired bootstrap)")
        for task in paired:
            print(f"  {task}: {', '.join(name for name in names if solved[name][task]) or 'nobody'}")
    return 0


def _interval(differences: Sequence[int]) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference, by a paired bootstrap with a fixed seed."""
    chosen = random.Random(1)
    size = len(differences)
    means = sorted(sum(chosen.choices(differences, k=size)) / size for _ in range(_SAMPLES))
    return means[int(_SAMPLES * 0.025)], means[int(_SAMPLES * 0.975)]


if __name__ == "__main__":
    sys.exit(main())
