"""A batch: contents that are read and analysed together and become a segment."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleveragents.context.index.build.segment import (
    IndexedContent,
    Segment,
    TermNumbers,
    analysis_to_bytes,
    pack,
    segment_from_bytes,
    segment_of,
    segment_to_bytes,
    unpack,
)
from cleveragents.context.index.place import GitContext
from cleveragents.context.index.view import MOST_BYTES, FileEntry, blob_digest, read_below
from cleveragents.context.model.code import FileAnalysis
from cleveragents.core.errors import GitFailed, ToolRefused
from cleveragents.git.plumbing import run_git, within

__all__ = ["Analyse", "AnalysisRequest", "IndexBatch", "analysis_named", "filled", "opaque"]

Analyse = Callable[[str, bytes], FileAnalysis]
"""Analyses a file's content; its path determines the language."""

TOO_LARGE = "too large"
_GIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """A request to analyse contents, with one entry for each; `git_dir` is as in `CodePlace`."""

    root: Path
    entries: Sequence[FileEntry]
    git_dir: Path | None = None

    def to_bytes(self) -> bytes:
        rows = [[entry.path, entry.digest.hex(), entry.size, entry.on_disk] for entry in self.entries]
        git_dir = None if self.git_dir is None else str(self.git_dir)
        return json.dumps({"root": str(self.root), "entries": rows, "git_dir": git_dir}).encode("ascii")

    @staticmethod
    def from_bytes(data: bytes) -> AnalysisRequest:
        told = json.loads(data)
        entries = [
            FileEntry(path, bytes.fromhex(digest), size, disk) for path, digest, size, disk in told["entries"]
        ]
        git_dir = told["git_dir"]
        return AnalysisRequest(Path(told["root"]), entries, None if git_dir is None else Path(git_dir))


@dataclass(frozen=True, slots=True)
class IndexBatch:
    """The result of an `AnalysisRequest`.

    `analyses[i]` is the analysis of `digests[i]`. `changed` are files whose content changed after the
    request, `missing` those that the repository does not have.
    """

    segment: Segment
    digests: Sequence[bytes]
    analyses: Sequence[bytes]
    changed: Sequence[str] = ()
    missing: Sequence[str] = ()

    def to_bytes(self) -> bytes:
        rest = [[digest.hex() for digest in self.digests], self.changed, self.missing]
        return pack([segment_to_bytes(self.segment), json.dumps(rest).encode("ascii"), pack(self.analyses)])

    @staticmethod
    def from_bytes(data: bytes) -> IndexBatch:
        segment, rest, analyses = unpack(data)
        digests, changed, missing = json.loads(bytes(rest))
        return IndexBatch(
            segment_from_bytes(segment),
            [bytes.fromhex(digest) for digest in digests],
            [bytes(analysis) for analysis in unpack(analyses)],
            changed,
            missing,
        )


def analysis_named(name: str) -> Analyse:
    """Return the function named `module:function`."""
    module, _, function = name.partition(":")
    found: Analyse = getattr(importlib.import_module(module), function)
    return found


def filled(
    order: AnalysisRequest, analyse: Analyse, numbers: TermNumbers, is_over: Callable[[], bool] = bool
) -> IndexBatch:
    """Read and analyse the contents of the request; stop early when `is_over` returns True."""
    changed: list[str] = []
    missing: list[str] = []
    contents = []
    for entry, data in _contents(order, missing):
        if data is None:
            contents.append(IndexedContent(entry.digest, entry.size, opaque(TOO_LARGE)))
        elif not _is_named(data, entry.digest):  # guard: the content must match the digest it is stored under
            (changed if entry.on_disk else missing).append(entry.path)
        else:
            contents.append(IndexedContent(entry.digest, len(data), _analysed(entry.path, data, analyse)))
            if is_over():
                break
    contents.sort(key=lambda content: content.digest)
    return IndexBatch(
        segment_of(contents, [0] * len(contents), numbers),
        [content.digest for content in contents],
        [analysis_to_bytes(content.analysis) for content in contents],
        changed,
        missing,
    )


def _is_named(data: bytes, digest: bytes) -> bool:
    return blob_digest(data, name_bytes=len(digest)) == digest


def opaque(why: str) -> FileAnalysis:
    """Return the analysis of a content that is not searched."""
    return FileAnalysis("text", 0, opaque=why)


def _analysed(path: str, data: bytes, analyse: Analyse) -> FileAnalysis:
    try:
        return analyse(path, data)
    except Exception as error:
        # A file that breaks the analysis must not prevent the others from being indexed.
        import structlog

        log = structlog.get_logger()
        log.exception("index.analysis_failed", path=path)
        return opaque(f"its analysis failed: {type(error).__name__}")


def _contents(order: AnalysisRequest, missing: list[str]) -> Iterator[tuple[FileEntry, bytes | None]]:
    """Yield each entry with its content; None if it is too long to be searched."""
    stored = [entry for entry in order.entries if not entry.on_disk]
    for entry in order.entries:
        if entry.size > MOST_BYTES:
            yield entry, None
        elif entry.on_disk:
            data = read_below(order.root, entry.path, at_most=MOST_BYTES)
            yield entry, b"" if data is None else data
    wanted = [entry for entry in stored if entry.size <= MOST_BYTES]
    for entry, found in zip(wanted, _blobs(GitContext.of(order.root, order.git_dir), wanted), strict=True):
        if found is None:
            missing.append(entry.path)
        else:
            yield entry, found


def _blobs(git: GitContext, entries: Sequence[FileEntry]) -> Iterable[bytes | None]:
    """Return the contents from git, in order; None for each missing content."""
    if not entries:
        return []
    feed = b"".join(entry.digest.hex().encode("ascii") + b"\n" for entry in entries)
    try:
        told = run_git(
            "cat-file",
            "--batch",
            environment=git.environment,
            directory=git.directory,
            feed=feed,
            seconds_left=within(_GIT_SECONDS),
        )
        return list(_parted(told, len(entries)))
    except (GitFailed, ToolRefused):
        return [None] * len(entries)


def _parted(told: bytes, count: int) -> Iterator[bytes | None]:
    at = 0
    for _ in range(count):
        end = told.find(b"\n", at)
        if end < 0:
            raise GitFailed("cat-file", "it ended before its answer was complete")
        words = told[at:end].split(b" ")
        at = end + 1
        if len(words) != 3:
            yield None
            continue
        size = int(words[2])
        yield told[at : at + size] if words[1] == b"blob" else None
        at += size + 1
