"""Runs SPIN over every model here: each must hold, and each of its mutants must fail.

A mutant is the same model with one guard taken out (`-DMUTANT_<name>`); the names stand in the model, after
"mutants:". A model that holds for its mutants, too, would prove nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

MODELS = Path(__file__).parent
SECONDS_LIMIT = 300
DEPTH_LIMIT = 2_000_000


@dataclass(frozen=True)
class Finding:
    """What an exhaustive search said."""

    errors: int
    states: int
    complaint: str


def main() -> int:
    """0 if all is as it should be."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        sys.stderr.write(
            f"models: {' and '.join(missing)} not found; install it (Debian: apt install spin gcc)\n"
        )
        return 2
    failed = False
    for model in sorted(MODELS.glob("*.pml")):
        for mutant in (None, *mutants_of(model)):
            failed |= not judge(model, mutant)
    return 1 if failed else 0


def mutants_of(model: Path) -> list[str]:
    """The names that a model says its mutants have."""
    found = re.search(r"mutants:((?:\s+[A-Z_]+)+)", model.read_text())
    names = found.group(1).split() if found else []
    if not names:
        raise SystemExit(f"models: {model.name} names no mutants")
    unused = [name for name in names if f"MUTANT_{name}" not in model.read_text()]
    if unused:
        raise SystemExit(f"models: {model.name} names mutants that change nothing: {', '.join(unused)}")
    return names


def judge(model: Path, mutant: str | None) -> bool:
    """Says what became of one model, or mutant; True if it is what should."""
    findings = [search(model, mutant, liveness=False)]
    if re.search(r"^ltl\b", model.read_text(), re.MULTILINE):
        findings.append(search(model, mutant, liveness=True))
    caught = [finding for finding in findings if finding.errors]
    states = sum(finding.states for finding in findings)
    name = model.name if mutant is None else f"{model.name} {mutant}"
    if mutant is None:
        ok = not caught
        verdict = f"holds, {states:,} states" if ok else f"FAILS: {caught[0].complaint}"
    else:
        ok = bool(caught)
        verdict = f"fails as it should after {states:,} states" if ok else f"NOT CAUGHT in {states:,} states"
    sys.stdout.write(f"{name:<45} {verdict}\n")
    return ok


def search(model: Path, mutant: str | None, *, liveness: bool) -> Finding:
    """Builds the verifier in a folder of its own and runs it to the end."""
    defines = [] if mutant is None else [f"-DMUTANT_{mutant}"]
    kind = ["-DNFAIR=3"] if liveness else ["-DSAFETY", "-DNOCLAIM"]
    with TemporaryDirectory() as folder:
        run(["spin", *defines, "-a", str(model)], folder)
        run(["gcc", "-O1", "-w", "-DVECTORSZ=2048", *kind, "-o", "pan", "pan.c"], folder)
        said = run(["./pan", f"-m{DEPTH_LIMIT}", *(["-a", "-f"] if liveness else [])], folder)
    errors = re.search(r"errors: (\d+)", said)
    states = re.search(r"(\d+) states, stored", said)
    if errors is None or states is None or "max search depth too small" in said:
        raise SystemExit(f"models: {model.name}: the search was not completed:\n{said}")
    complaint = re.search(r"pan:\d+: (.*)", said)
    return Finding(int(errors.group(1)), int(states.group(1)), complaint.group(1) if complaint else "")


def run(command: list[str], folder: str) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_LIMIT, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"models: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
