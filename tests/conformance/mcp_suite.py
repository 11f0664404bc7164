"""Runs the conformance suite of MCP: `python -m tests.conformance.mcp_suite NODE SUITE [EVERYTHING]`.

NODE is Node.js 22 or later, SUITE the `index.js` of the npm package `@modelcontextprotocol/conformance`, and
EVERYTHING the file of the SDK's reference server. A scenario that fails unexpectedly is an error;
docs/reference/conformance.md names the expected failures.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.everything_routes import PATH, VARIABLE
from tests.conformance.stand import stand

__all__ = ["main"]

REVISIONS = ("2026-07-28", "2025-11-25")
SECONDS = 900

EXPECTED = {
    "/mcp": frozenset(
        {
            "completion-complete",
            "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
            "http-custom-header-server-validation",
            "input-required-result-basic-elicitation",
            "input-required-result-basic-list-roots",
            "input-required-result-basic-sampling",
            "input-required-result-capability-check",
            "input-required-result-multi-round",
            "input-required-result-multiple-input-requests",
            "input-required-result-non-tool-request",
            "input-required-result-request-state",
            "input-required-result-result-type",
            "input-required-result-tampered-state",
            "json-schema-2020-12",
            "logging-set-level",
            "prompts-get-embedded-resource",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-with-image",
            "resources-read-binary",
            "resources-read-text",
            "resources-subscribe",
            "resources-templates-read",
            "resources-unsubscribe",
            "server-sse-polling",
            "server-stateless",
            "tools-call-audio",
            "tools-call-elicitation",
            "tools-call-embedded-resource",
            "tools-call-image",
            "tools-call-mixed-content",
            "tools-call-sampling",
            "tools-call-with-logging",
            "tools-call-with-progress",
        }
    ),
    PATH: frozenset(
        {
            "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
            "tools-call-elicitation",
            "tools-call-sampling",
        }
    ),
}
"""Scenarios that are known to fail, beside those of the Tasks extension: at `/mcp` those that need tools,
resources or prompts of the suite, and at the reference server those in which a server of the revision
2025-11-25 sends requests to its client.
"""


def main(node: str, suite: str, everything: str | None = None) -> int:
    """Run the suite, print a table, and return the exit code."""
    variables = {} if everything is None else {VARIABLE: everything}
    targets = EXPECTED if everything else {"/mcp": EXPECTED["/mcp"]}
    wrong = 0
    with stand(**variables) as ready, tempfile.TemporaryDirectory() as place:
        for path, expected in targets.items():
            for revision in REVISIONS:
                results = Path(place) / path.strip("/") / revision
                command = [node, suite, "server", "--url", f"{ready.url}{path}"]
                options = ["--requirements", revision, "--output-dir", str(results)]
                subprocess.run([*command, *options], stdout=subprocess.DEVNULL, timeout=SECONDS, check=False)
                wrong += _report(f"{path} {revision}", results, expected)
    return 1 if wrong else 0


def _report(title: str, results: Path, expected: frozenset[str]) -> int:
    """Print the failed scenarios, and return the number of unexpected results."""
    failed: dict[str, list[str]] = {}
    passed = set()
    for file in sorted(results.glob("*/checks.json")):
        scenario = re.sub(r"-\d{4}-\d{2}-\d{2}T[\d-]+Z$", "", file.parent.name.removeprefix("server-"))
        bad = [one for one in json.loads(file.read_text()) if one["status"] == "FAILURE"]
        if bad:
            failed[scenario] = [f"{one['id']}: {one.get('errorMessage', '')}"[:200] for one in bad]
        else:
            passed.add(scenario)
    new = {one for one in failed if one not in expected and not one.startswith("tasks-")}
    counts = f"{len(passed)} scenarios passed, {len(failed)} failed, {len(new)} of them unexpectedly"
    sys.stdout.write(f"{title}: {counts}\n")
    for scenario, problems in failed.items():
        mark = "UNEXPECTED " if scenario in new else ""
        sys.stdout.write("\n    ".join((f"  {mark}{scenario}", *problems)) + "\n")
    return len(new) + (not passed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
