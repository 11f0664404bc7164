"""An index that is filled without a lock: each process checks for missing content and adds it."""

from __future__ import annotations

from cleveragents.context.index.build.builder import IndexBuild
from cleveragents.context.index.index_file import OpenedIndex
from cleveragents.context.index.snapshot import DistinctContents
from cleveragents.context.index.sqlite_code_index import IndexOpener, SqliteCodeIndex
from cleveragents.context.index.view import IndexView

__all__ = ["LookThenBuildIndex"]


class _LookThenBuild(IndexOpener):
    def _fill(self, opened: OpenedIndex, view: IndexView, contents: DistinctContents) -> list[str]:
        lacking = self._lacking(opened.connection, view, contents)
        if lacking:
            self.builder.faults.reach("index.build.before")
            task = IndexBuild(self.builder, self.ground, opened.connection, self.patience)
            task.fill(lacking, len(contents.digests))
        return []


class LookThenBuildIndex(SqliteCodeIndex):
    """An index whose work is repeated by every process."""

    opening = _LookThenBuild
