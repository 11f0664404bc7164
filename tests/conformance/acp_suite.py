"""Runs clients of ACP against `agents acp`: `python -m tests.conformance.acp_suite NODE MODULES [ACPLINT]`.

NODE is Node.js, MODULES a directory `node_modules` with the package `@agentclientprotocol/sdk`, and ACPLINT
the program of the PyPI package `acplint`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.conformance.stand import stand

__all__ = ["main"]

SECONDS = 900
PROGRAM = Path(__file__).with_name("acp_client.mjs")


def main(node: str, modules: str, acplint: str | None = None) -> int:
    """Run the clients, show their output, and return the exit code."""
    agent = [sys.executable, "-m", "cleveragents", "acp"]
    with stand(serves=False) as ready:
        # Node.js looks for packages beside the program.
        program = shutil.copy(PROGRAM, Path(modules).parent)
        command = [node, program, str(ready.repository), *agent]
        done = subprocess.run(command, env=ready.environment, timeout=SECONDS, check=False)
        applied = (ready.repository / "today.txt").exists()
        sys.stdout.write(f"@agentclientprotocol/sdk: exit {done.returncode}, applied: {applied}\n")
        if acplint is not None:
            words = [acplint, "--agent", agent[0], "--agent-args", " ".join(agent[1:])]
            subprocess.run(words, cwd=ready.repository, env=ready.environment, timeout=SECONDS, check=False)
    return 0 if done.returncode == 0 and applied else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
