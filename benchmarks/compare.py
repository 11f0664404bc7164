"""`python -m benchmarks.compare [REVISION [WORD …]]`: compare the benchmarks of a revision with the working
tree.

The default is the last landed commit (`origin/main`), or the commit before this one. A ratio that is more
than 10 % worse in two consecutive runs is reported, and the exit code is 1.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.runner import ROOT, revision, run

ALLOWED = 1.10


def main(arguments: list[str]) -> int:
    base = revision(arguments[0]) if arguments else revision("origin/main") or revision("HEAD~1")
    if base is None:
        print(f"no such revision: {arguments[0] if arguments else 'origin/main or HEAD~1'}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bench-base-") as home:
        tree = Path(home) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), base], cwd=ROOT, check=True)
        try:
            return _compare(tree / "src", base, arguments[1:] or ["ratio"])
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def _compare(base_source: Path, base: str, words: list[str]) -> int:
    ours = revision("HEAD") or "0" * 40
    before, now = run(base_source, base, words), run(ROOT / "src", ours, words)
    suspects = _worse(before, now)
    if suspects:
        # A single run on a shared machine is not reliable, so a second one must confirm it.
        again = run(ROOT / "src", ours, sorted({name.split("(")[0] for name in suspects}))
        now.update({name: min(now[name], value) for name, value in again.items() if name in now})
    worse = [name for name in suspects if name in _worse(before, now)]
    for name in sorted(now):
        was = f"{before[name]:10.3f}" if name in before else "       new"
        print(f"{was} → {now[name]:10.3f}  {name}{'   WORSE' if name in worse else ''}")
    return 1 if worse else 0


def _worse(before: dict[str, float], now: dict[str, float]) -> list[str]:
    return [name for name, value in now.items() if name in before and value > before[name] * ALLOWED]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
