"""The history of a repository from git, with each commit read only once.

Commits never change, so their data is stored by commit id in the repository's index file, and only new
commits are read from git. If the file is unusable, git is asked each time. Commits are compared with a
question by the words of their messages.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cleveragents.context.code_index import CodePlace
from cleveragents.context.context_parts import PastCommit
from cleveragents.context.index.build.segment import IndexDamaged, sealed, unsealed
from cleveragents.context.index.index_file import IndexFile, is_damage, transaction
from cleveragents.context.index.place import IndexDeadline, ResolvedPlace, git_seconds, ground_of
from cleveragents.context.model.code_terms import terms_of
from cleveragents.core.errors import GitFailed, SourceMissing, ToolRefused
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.git.plumbing import run_git

__all__ = ["GitCommitHistory", "most_alike"]


_MOST_MESSAGE = 4_000
_MOST_READ = 64_000
_MOST_PATHS = 500
_MOST_KEPT = 50_000
_ASKED_AT_ONCE = 4_000
_MOST_SECONDS = 30.0
_TELL = ("diff-tree", "--stdin", "--always", "--root", "-r", "-z", "--name-only", "--no-renames")
_QUIETLY = ("--no-ext-diff", "--no-textconv", "--encoding=UTF-8", "--format=%x00%x01%H %ct%n%B%x00")
_HEAD = re.compile(rb"\0\x01([0-9a-f]{40,64}) (-?\d+)\n")
_Row = tuple[int, str, list[str]]

_MOST_COMPARED = 2_000


class GitCommitHistory:
    """A `CommitHistory` for git repositories; `directory` is the directory of the code indexes.

    Stateless: any thread may share it.
    """

    def __init__(
        self, directory: Path, *, version: int | None = None, seconds: float = _MOST_SECONDS
    ) -> None:
        from cleveragents.context.analysis import ANALYSIS_VERSION

        self._directory = directory.absolute()
        self._version = ANALYSIS_VERSION if version is None else version
        self._seconds = seconds

    def commits(self, place: CodePlace, *, limit: int) -> Sequence[PastCommit]:
        patience = IndexDeadline.of(self._seconds, None)
        try:
            ground = ground_of(place, patience)
        except SourceMissing:
            return ()
        if ground.repository is None:
            return ()
        try:
            wanted = _wanted(ground, limit, patience)
            rows = self._rows(ground, wanted, patience)
        except (GitFailed, ToolRefused):
            return ()
        prefix = ground.repository.prefix
        return [_past(name, rows[name], prefix) for name in wanted if name in rows]

    def _rows(self, ground: ResolvedPlace, wanted: Sequence[str], patience: IndexDeadline) -> dict[str, _Row]:
        """Return the data of these commits, stored or read from git."""
        file = IndexFile((self._directory / ground.key).with_suffix(".db"), self._version, ground.home)
        opened = file.open()
        try:
            rows: dict[str, _Row] = {}
            try:
                rows = _kept(opened.connection, wanted)
            except (sqlite3.Error, IndexDamaged, ValueError) as error:
                if is_damage(error) or isinstance(error, ValueError):
                    file.discard(opened)
            lacking = [name for name in wanted if name not in rows]
            asked = dict(_asked(ground, lacking, patience)) if lacking else {}
            with suppress(sqlite3.Error):
                _keep(opened.connection, asked)
        finally:
            opened.close()
        return rows | asked


def _wanted(ground: ResolvedPlace, limit: int, patience: IndexDeadline) -> list[str]:
    """Return the commit ids, newest first."""
    options = ("--no-merges", f"--max-count={limit}", ground.commit or "HEAD", "--")
    told = run_git(
        "rev-list",
        *options,
        environment=ground.git.environment,
        directory=ground.git.directory,
        seconds_left=git_seconds(patience),
    )
    return told.decode("ascii").split()


def _kept(connection: sqlite3.Connection, wanted: Sequence[str]) -> dict[str, _Row]:
    rows = {}
    for name in wanted:
        row = connection.execute("SELECT data FROM past_commit WHERE id = ?", (name,)).fetchone()
        if row is not None:
            at, message, paths = json.loads(bytes(unsealed(row[0])))
            rows[name] = (at, message, paths)
    return rows


def _keep(connection: sqlite3.Connection, rows: Mapping[str, _Row]) -> None:
    if not rows:
        return
    data = [(name, sealed(json.dumps(row).encode("ascii"))) for name, row in rows.items()]
    with transaction(connection):
        if connection.execute("SELECT count(*) FROM past_commit").fetchone()[0] > _MOST_KEPT:
            connection.execute("DELETE FROM past_commit")
        connection.executemany("INSERT OR IGNORE INTO past_commit VALUES (?, ?)", data)


def _asked(
    ground: ResolvedPlace, names: Sequence[str], patience: IndexDeadline
) -> Iterator[tuple[str, _Row]]:
    for at in range(0, len(names), _ASKED_AT_ONCE):
        feed = "".join(f"{name}\n" for name in names[at : at + _ASKED_AT_ONCE]).encode("ascii")
        told = run_git(
            *_TELL,
            *_QUIETLY,
            environment=ground.git.environment,
            directory=ground.git.directory,
            feed=feed,
            seconds_left=git_seconds(patience),
        )
        heads = list(_HEAD.finditer(told))
        for head, following in zip(heads, [*heads[1:], None], strict=True):
            body = told[head.end() : following.start() if following else len(told)]
            message, _, listed = body.partition(b"\0")
            paths = [os.fsdecode(path) for path in listed.strip(b"\0\n").split(b"\0") if path]
            words = message[:_MOST_READ].decode("utf-8", "replace").strip()
            # Before truncation: half a secret is not recognised as one.
            words = redact_content_text(words)[:_MOST_MESSAGE]
            yield head[1].decode("ascii"), (int(head[2]), words, paths[:_MOST_PATHS])


def _past(name: str, row: _Row, prefix: str) -> PastCommit:
    seconds, message, paths = row
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        at = datetime.fromtimestamp(0, UTC)
    own = tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix))
    return PastCommit(name, at, message, own)


def most_alike(
    commits: Sequence[PastCommit], query: Mapping[str, float], *, most: int
) -> list[tuple[float, PastCommit]]:
    """Return the commits that share terms with the query, the most similar first, each with its score.

    `query` maps terms to weights. Rare terms count more, and a long message must share more terms for the
    same score.
    """
    words = [Counter(terms_of(commit.message[:_MOST_COMPARED])) for commit in commits]
    holders = Counter(term for counted in words for term in counted if term in query)
    scored: list[tuple[float, int]] = []
    for position, counted in enumerate(words):
        worth = sum(
            query[term] * math.log(1 + len(commits) / holders[term]) for term in counted if term in query
        )
        if worth > 0:
            scored.append((worth / (1 + math.log(1 + len(counted))), -position))
    scored.sort(reverse=True)  # of two equally similar commits, the newer one first
    return [(worth, commits[-position]) for worth, position in scored[:most]]
