"""`python -m benchmarks.merge_replay REPOSITORY [--merges 200]`: replay real merges with sub-plans.

REPOSITORY is a clone, bare or not. From its merges with two parents, a single merge base and changes on both
sides, `--merges` are selected evenly over its history. For each, a parent plan starts with the merge base in
its sandbox, and one sub-plan for each side starts with the parent's tree in another sandbox. There the files
are set to those of that side, the changes are recorded, and both are merged into the parent, one after the
other. The result is compared with a new merge of the two commits by git (not with the recorded merge, which
people edit).

The report counts merges with the same tree, merges with conflicts at the same paths and everything else the
same, and all others: those are silent differences, and there must be none. Merges that cannot be replayed are
counted by the reason: a side adds ignored files, which no plan records; it moves a submodule; or attributes
make git store a file differently than it was committed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleveragents.changes.model.merge_conflict import MergeConflict
from tests.merge_comparison import difference, entries, git_merge
from tests.merge_stand import MergeStand, Worker

_GITLINK = "160000"


@dataclass(frozen=True, slots=True)
class TrueMerge:
    """A real merge: its base and both of its sides."""

    commit: str
    base: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: the verdict and its details."""

    verdict: str
    detail: str = ""


def _git(repository: Path, *arguments: str, feed: bytes = b"") -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }
    command = ["git", *arguments]
    done = subprocess.run(
        command, cwd=repository, env=environment, input=feed, capture_output=True, check=True
    )
    return os.fsdecode(done.stdout).strip()


def true_merges(repository: Path, wanted: int) -> tuple[list[TrueMerge], Counter[str]]:
    """Return `wanted` merges, evenly over the history, and the reasons why others were skipped."""
    listed = _git(repository, "rev-list", "--all", "--min-parents=2", "--parents", "--topo-order")
    candidates = [line.split() for line in listed.splitlines()]
    passed: Counter[str] = Counter()
    found: list[TrueMerge] = []
    for line in _evenly(candidates):
        if len(found) == wanted:
            break
        if len(line) != 3:
            passed["more than two parents"] += 1
            continue
        commit, ours, theirs = line
        bases = _git(repository, "merge-base", "--all", ours, theirs).split()
        if len(bases) != 1:
            passed["no merge base, or several"] += 1
            continue
        trees = [_git(repository, "rev-parse", f"{one}^{{tree}}") for one in (bases[0], ours, theirs)]
        if len(set(trees)) < 3:
            passed["only one side has changes"] += 1
            continue
        found.append(TrueMerge(commit, bases[0], ours, theirs))
    return found, passed


def _evenly(candidates: Sequence[list[str]]) -> Iterator[list[str]]:
    """Yield all items, first at large regular distances, then those between, so that any prefix is spread
    evenly.
    """
    step = 1
    while step < len(candidates):
        step *= 2
    seen: set[int] = set()
    while step:
        for place in range(0, len(candidates), step):
            if place not in seen:
                seen.add(place)
                yield candidates[place]
        step //= 2


class Replay:
    """The merges of one repository, replayed one after the other in plans."""

    def __init__(self, stand: MergeStand, clone: Path) -> None:
        self._stand = stand
        self._clone = clone

    def replay(self, merge: TrueMerge) -> Replayed:
        _git(self._clone, "checkout", "--quiet", "--force", "--detach", merge.base)
        _git(self._clone, "clean", "-ffdqx")
        parent = self._stand.parent(merge.commit)
        workers = [parent]
        try:
            if parent.tree != self._tree(merge.base):
                return self._unlike("base", parent, merge.base)
            sides = []
            for side in (merge.ours, merge.theirs):
                child = self._stand.child(parent, side)
                workers.append(child)
                child.becomes(self._tree(side))
                if child.tree != self._tree(side):
                    return self._unlike("side", child, side)
                sides.append(child)
            for part, child in enumerate(sides, start=1):
                outcome = self._stand.merge(parent, child, str(part))
            return self._judged(merge, parent, outcome.conflicts)
        finally:
            for worker in workers:
                self._stand.parts.sandboxes.remove(worker.plan.id)

    def _judged(self, merge: TrueMerge, parent: Worker, conflicts: tuple[MergeConflict, ...]) -> Replayed:
        # With the attributes of the first parent's files, as in a merge into it.
        _git(self._clone, "checkout", "--quiet", "--force", merge.ours)
        git = git_merge(self._clone, merge.ours, merge.theirs)
        if git is None:
            return Replayed("skipped: git does not answer")
        sandbox = parent.sandbox
        if self._stand.parts.history.unrecorded(parent.plan.id, sandbox):
            return Replayed("silent difference", "the files differ from the records")
        if not conflicts and not git.conflicted:
            same = parent.tree == git.tree
            return Replayed("same tree" if same else "silent difference", f"{parent.tree} {git.tree}")
        files = {
            path: (f"{state.mode:06o}", state.content)
            for path, state in sandbox.files_below(parent.tree).items()
        }
        told = difference(git, files, conflicts, (self._content, sandbox.content))
        if told is not None:
            return Replayed("silent difference", told)
        return Replayed("same conflicts", ", ".join(sorted(git.conflicted)))

    def _unlike(self, what: str, worker: Worker, commit: str) -> Replayed:
        """Return why the records of a sub-plan differ from the expected tree."""
        wanted = entries(self._clone, commit)
        have = {
            path: (f"{state.mode:06o}", state.content)
            for path, state in worker.sandbox.files_below(worker.tree).items()
        }
        unlike = sorted(path for path in {*wanted, *have} if wanted.get(path) != have.get(path))
        modes = {entry[0] for path in unlike for entry in (wanted.get(path), have.get(path)) if entry}
        if _GITLINK in modes:
            return Replayed("skipped: a submodule moves", unlike[0])
        if worker.sandbox.ignored(unlike) == frozenset(unlike):
            return Replayed("skipped: a side adds files that are ignored", ", ".join(unlike[:3]))
        if all(path in wanted and path in have for path in unlike):
            return Replayed("skipped: attributes change what is stored", ", ".join(unlike[:3]))
        return Replayed(f"not replayed: its {what} is recorded differently", ", ".join(unlike[:3]))

    def _tree(self, commit: str) -> str:
        return _git(self._clone, "rev-parse", f"{commit}^{{tree}}")

    def _content(self, name: str) -> bytes:
        command = ["git", "cat-file", "blob", name]
        return subprocess.run(command, cwd=self._clone, capture_output=True, check=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--merges", type=int, default=200)
    asked = parser.parse_args(arguments)
    merges, passed = true_merges(asked.repository, asked.merges)
    counts: Counter[str] = Counter()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="merge-replay-") as place:
        home = Path(place)
        clone = home / "clone"
        source = str(asked.repository.resolve())
        _git(home, "clone", "--quiet", "--shared", "--no-checkout", source, str(clone))
        stand = MergeStand(home, clone)
        with stand.container:
            replay = Replay(stand, clone)
            for number, merge in enumerate(merges, start=1):
                told = replay.replay(merge)
                counts[told.verdict] += 1
                if told.verdict not in ("same tree", "same conflicts"):
                    print(f"{merge.commit[:12]} {told.verdict}: {told.detail}", file=sys.stderr)
                if number % 20 == 0:
                    print(f"{number} of {len(merges)}: {dict(counts)}", file=sys.stderr)
    seconds = time.monotonic() - started
    print(f"{asked.repository}: {len(merges)} merges replayed in {seconds:.0f} s")
    for verdict, count in [*counts.most_common(), *((f"skipped: {why}", n) for why, n in passed.items())]:
        print(f"{count:6}  {verdict}")
    return 1 if counts["silent difference"] else 0


if __name__ == "__main__":
    sys.exit(main())
