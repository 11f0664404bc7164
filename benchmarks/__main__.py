"""`python -m benchmarks [WORD …]`: run the benchmarks whose names match, or all."""

from __future__ import annotations

import sys

from benchmarks.runner import ROOT, revision, run


def main(words: list[str]) -> int:
    results = run(ROOT / "src", revision("HEAD") or "0" * 40, words)
    print()
    for name, value in sorted(results.items()):
        print(f"{value:12,.3f}  {name}")
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
