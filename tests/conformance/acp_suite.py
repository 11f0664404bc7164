"""Runs clients of ACP against `agents acp`: `python -m tests.conformance.acp_suite NODE MODULES [ACPLINT]`.

NODE is Node.js, MODULES a directory `node_modules` with the packages `@agentclientprotocol/sdk` and `acpx`,
and ACPLINT the program of the PyPI package `acplint`, whose findings are shown and do not count.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.conformance.stand import Stand, stand

__all__ = ["main"]

SECONDS = 900
PROGRAM = Path(__file__).with_name("acp_client.mjs")
PROMPT = "Write the colour of the day"


def main(node: str, modules: str, acplint: str | None = None) -> int:
    """Run the clients, show their output, and return the exit code."""
    agent = [sys.executable, "-m", "cleveragents", "acp"]
    with stand(serves=False) as ready:
        # Node.js looks for packages beside the program.
        program = shutil.copy(PROGRAM, Path(modules).parent)
        passed = _ran(ready, "@agentclientprotocol/sdk", [node, program, str(ready.repository), *agent])
        acpx = [node, str(Path(modules, ".bin", "acpx")), "--approve-all", "--agent", " ".join(agent)]
        passed &= _ran(ready, "acpx", [*acpx, "--cwd", str(ready.repository), "exec", PROMPT])
        if acplint is not None:
            words = [acplint, "--agent", agent[0], "--agent-args", " ".join(agent[1:])]
            words += ["--cwd", str(ready.repository), "--timeout", "120"]
            subprocess.run(words, cwd=ready.repository, env=ready.environment, timeout=SECONDS, check=False)
    return 0 if passed else 1


def _ran(ready: Stand, name: str, command: list[str]) -> bool:
    """Run a client, and return whether it succeeded and applied the result."""
    result = ready.repository / "today.txt"
    result.unlink(missing_ok=True)
    done = subprocess.run(command, cwd=ready.repository, env=ready.environment, timeout=SECONDS, check=False)
    sys.stdout.write(f"{name}: exit {done.returncode}, applied: {result.exists()}\n")
    sys.stdout.flush()
    return done.returncode == 0 and result.exists()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
