"""`python -m tests.mutants [WORD]`: runs every mutant (of modules whose name contains WORD).

A mutant is caught when a test of its module fails or runs out of time. At least 95 % must be caught, and
each survivor must be explained in `explained.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.explained import EXPLAINED
from tests.mutants.sites import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cleveragents"
REQUIRED = 0.95
SECONDS_PER_MUTANT = 180

TESTS: dict[str, list[str]] = {
    "application/services/async_worker.py": [
        "tests/unit/test_cancellation.py",
        "tests/unit/test_async_worker.py",
        "tests/races/test_cancellation.py",
        "tests/races/test_worker.py",
    ],
    "application/services/acms_pipeline.py": [
        "tests/unit/test_circuit_breaker.py",
        "tests/unit/test_strategy_executor.py",
        "tests/races/test_breaker.py",
        "tests/races/test_executor.py",
    ],
    "application/services/plan_execution_context.py": [
        "tests/unit/test_plan_execution_context.py",
        "tests/races/test_changesets.py",
    ],
    "infrastructure/events/reactive.py": [
        "tests/unit/test_event_bus.py",
        "tests/races/test_event_bus.py",
    ],
    "langgraph/bridge.py": [
        "tests/unit/test_bridge.py",
        "tests/races/test_bridge.py",
    ],
}


def main(words: list[str]) -> int:
    modules = [name for name in TESTS if not words or any(word in name for word in words)]
    mutants = [(name, mutant) for name in modules for mutant in mutants_of(PACKAGE / name)]
    survivors: list[Mutant] = []
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        running = {pool.submit(_caught, name, mutant): mutant for name, mutant in mutants}
        for future in as_completed(running):
            mutant = running[future]
            caught, seconds = future.result()
            verdict = "caught  " if caught else "SURVIVED"
            place = f"{mutant.module.name}:{mutant.line} {mutant.where}"
            _say(f"{verdict} {seconds:5.1f} s  {place}: {mutant.guard}")
            if not caught:
                survivors.append(mutant)
    return _conclude(len(mutants), survivors)


def _conclude(total: int, survivors: list[Mutant]) -> int:
    caught = total - len(survivors)
    unexplained = [mutant for mutant in survivors if mutant.key not in EXPLAINED]
    for mutant in survivors:
        _say(f"survivor {mutant.key}: {EXPLAINED.get(mutant.key, 'UNEXPLAINED')}")
    _say(f"{caught} of {total} mutants caught ({caught / max(total, 1):.0%}), {len(unexplained)} unexplained")
    return 0 if total and caught / total >= REQUIRED and not unexplained else 1


def _caught(name: str, mutant: Mutant) -> tuple[bool, float]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as home:
        source = Path(home) / "src"
        shutil.copytree(PACKAGE, source / "cleveragents", ignore=shutil.ignore_patterns("__pycache__"))
        (source / "cleveragents" / name).write_text(mutant.source, encoding="utf-8")
        began = time.monotonic()
        return _tests_fail(TESTS[name], source), time.monotonic() - began


def _tests_fail(tests: list[str], source: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=60"]
    command += ["-o", f"pythonpath={source} {ROOT}", *tests]
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS_PER_MUTANT, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    if run.returncode not in (0, 1):
        # 2 to 5: interrupted, internal error, usage, no tests. Only pytest-timeout's abort is a catch.
        if b"Timeout" in run.stderr or b"Timeout" in run.stdout or run.returncode < 0:
            return True
        raise RuntimeError(run.stdout.decode()[-2000:] + run.stderr.decode()[-2000:])
    return run.returncode == 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
