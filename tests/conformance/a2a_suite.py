"""Runs the Technology Compatibility Kit of A2A: `python -m tests.conformance.a2a_suite PYTHON TCK`.

TCK is a checkout of the branch for protocol 1.0 of github.com/a2aproject/a2a-tck, and PYTHON an interpreter
with its requirements. A requirement that fails unexpectedly is an error; docs/reference/conformance.md names
the expected failures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conformance.stand import stand

__all__ = ["main"]

SECONDS = 1800

EXPECTED = {
    "DM-ART-001": "the suite prescribes the content of artifacts; ours are patches",
    "DM-MSG-001": "the suite asks for a message instead of a task; every request is a plan here",
    "CORE-SEND-003": "refused with -32005 as the requirement says, but the suite expects success",
    "CORE-MULTI-005": "needs a task that a message completes; ours waits for an approval by a person",
    "CORE-HIST-001": "needs such a task",
    "CORE-HIST-002": "needs such a task",
    "CORE-HIST-003": "needs such a task",
    "CORE-HIST-004": "needs such a task",
    "CORE-HIST-005": "needs such a task",
    "CORE-HIST-006": "needs such a task",
    "STREAM-SUB-002": "needs such a task",
}
"""Requirements that are known to fail, with the reason."""


def main(python: str, tck: str) -> int:
    """Run the suite, print the failures, and return the exit code."""
    report = Path(tck) / "reports" / "compatibility.json"
    report.unlink(missing_ok=True)
    with stand() as ready:
        command = [python, "run_tck.py", "--sut-host", ready.url, "--transport", "jsonrpc", "--", "-q"]
        subprocess.run(command, cwd=tck, stdout=subprocess.DEVNULL, timeout=SECONDS, check=False)
    results = json.loads(report.read_text())["per_requirement"]
    states = [one["status"] for one in results.values()]
    counts = ", ".join(f"{states.count(state)} {state.lower()}" for state in sorted(set(states)))
    sys.stdout.write(f"/a2a: {counts}\n")
    failed = {name: one for name, one in results.items() if one["status"] == "FAIL"}
    for name, one in failed.items():
        reason = EXPECTED.get(name, f"UNEXPECTED: {one['errors']}")
        sys.stdout.write(f"  {name} ({one['level']}): {reason}\n")
    return 0 if "PASS" in states and set(failed) <= set(EXPECTED) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
