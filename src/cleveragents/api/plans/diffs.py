"""The diff of a plan for programs, within limits, and single files of it before and after.

Files that were left out are included, because they can be accepted again. Only known secrets are masked,
because masking by name or shape would hide code from the reviewer. For users who may apply the plan, the
patch is exact.

Git's diffs are parsed by the lengths in hunk headers, so a line of content is never mistaken for a header.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from cleveragents.api.format import printable_name
from cleveragents.api.plans.changes import changed_files, found_changes
from cleveragents.api.plans.review import is_selected
from cleveragents.changes.model.review import HunkId
from cleveragents.core.change import GITLINK
from cleveragents.core.errors import PlanError, Remedy
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.control_characters import named_by
from cleveragents.core.text.redaction import redact_known_text

if TYPE_CHECKING:
    from cleveragents.api.plans.client import FileSide
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.change import FileState
    from cleveragents.plans.history import ResultRead
    from cleveragents.plans.model.plan import Plan
    from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = [
    "MOST_BYTES",
    "DiffBounds",
    "Hunk",
    "Line",
    "PatchBounds",
    "diff_of",
    "file_of",
    "hunks_by_path",
    "masked_patch",
    "meant_hunks",
    "patch_of",
    "patch_of_files",
    "patch_options",
    "pathspecs",
]


_FILE = b"\ndiff --git "
_BEGINNING = re.compile(rb"(?m)^diff --git ")
_PATCH_OPTIONS = ("--no-color", "--src-prefix=a/", "--dst-prefix=b/")
_KINDS = {"+": "add", "-": "remove", "\\": "note"}
_TYPE = 0o170000
_HEADER_BYTES = 16 * 1024
Row = dict[str, JsonValue]

Line = tuple[str, int | None, int | None, str]
"""A line: kind (context, add or remove), old and new number, text."""
_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(r"\\([abfnrtv\\\"]|[0-7]{3})")
_PLAIN = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34}
_HUNKS_KINDS = {" ": "context", "+": "add", "-": "remove"}
_NOTHING = "/dev/null"

MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DiffBounds:
    """Limits of a diff: files, changed lines per file, changed lines in all, characters per line."""

    files: int = 1000
    lines_of_file: int = 5000
    lines: int = 50_000
    line: int = 2000


@dataclass(frozen=True, slots=True)
class PatchBounds:
    """Limits of a masked patch: bytes per file, and in all."""

    bytes_of_file: int = 256 * 1024
    bytes: int = 8 * 1024 * 1024


def diff_of(parts: PlanParts, plan: Plan, bounds: DiffBounds | None = None) -> Row:
    """Return the files with their hunks and verdicts, and the tree of exactly this result. Raises `PlanError`
    as `found_changes`.
    """
    bounds = bounds or DiffBounds()
    found = found_changes(parts, plan)
    rows = [dict(row) | {"accepted": True} for row in found.rows]
    taken = {str(row["path"]) for row in rows}
    out = [row | {"accepted": False} for row in changed_files(parts, plan) if row["path"] not in taken]
    if not rows and not out:
        return {"files": (), "truncated": False, "tree": found.tree}
    # guard: the tree, the hunks and their verdicts come from one read, because an apply takes what was shown
    read = found.read or parts.result.read(plan, parts.sandboxes.look(plan.id))
    shown = sorted([*rows, *out], key=lambda row: str(row["path"]))[: bounds.files]
    small = set(_within(shown, bounds))
    reviewed = _ReviewedHunks(read, parts.history.states(plan.id), small)
    files = [_file(row, reviewed, str(row["path"]) in small, bounds) for row in shown]
    cut = len(shown) < len(rows) + len(out) or any(file["truncated"] for file in files)
    return {"files": freeze(files), "truncated": cut, "tree": found.tree}


def patch_of(
    parts: PlanParts, plan: Plan, *, masked: bool = False, paths: Sequence[str] = (), renames: bool = False
) -> bytes:
    """Return the accepted changes as a patch for `git apply`, byte for byte.

    If `masked`, the patch is for reading only: known secrets are masked, and binary contents are left out,
    because secrets cannot be found in them. `paths` are files and directories; with `renames`, a moved file
    is shown as moved.
    """
    changed = parts.history.states(plan.id)
    specs = pathspecs(changed, paths)
    if not changed or (paths and not specs):
        return b""
    options = patch_options(masked=masked, renames=renames)
    patch = parts.result.diff(plan, parts.sandboxes.look(plan.id), options=options, paths=specs)
    return masked_patch(patch) if masked else patch


def patch_options(*, masked: bool, renames: bool) -> tuple[str, ...]:
    """Return git's options for a patch."""
    how = "--find-renames" if renames else "--no-renames"
    return (*(() if masked else ("--binary",)), how, *_PATCH_OPTIONS)


def pathspecs(changed: Collection[str], names: Sequence[str]) -> list[str]:
    """Return git's pathspecs for changed files and directories; names that match no changed file are skipped.
    A file name that is not valid text is given in its printable form.
    """
    found: list[str] = []
    for name in names:
        plain = name.removeprefix("./").rstrip("/")
        if any(is_selected(path, [plain]) for path in changed):
            found.append(plain or ".")
        else:
            found += [path for path in changed if is_selected(printable_name(path), [plain])]
    return found


def patch_of_files(patch: bytes, names: Sequence[str]) -> bytes:
    """Return the part of a patch for these files and directories. Moved files are always included."""
    begins = [found.start() for found in _BEGINNING.finditer(patch)]
    pieces = [patch[one:other] for one, other in pairwise([*begins, len(patch)])]
    return b"".join(
        piece for piece in pieces if (path := _path_of(piece)) is None or is_selected(path, names)
    )


def _path_of(piece: bytes) -> str | None:
    """Return the file name in the header `diff --git a/NAME b/NAME`, in its printable form; None for a moved
    file. If the file was not moved, both names have the same length.
    """
    header = piece.partition(b"\n")[0].removeprefix(b"diff --git ").decode("utf-8", "surrogateescape")
    half = len(header) // 2
    one, other = named_by(header[:half]), named_by(header[half + 1 :])
    return printable_name(other[2:]) if one[2:] == other[2:] else None


def masked_patch(patch: bytes, bounds: PatchBounds | None = None) -> bytes:
    """Return the patch with known secrets masked. It may not apply any more.

    A file above the limits is replaced by a note, because other requests wait while it is masked.
    """
    bounds = bounds or PatchBounds()
    room = bounds.bytes
    shown: list[bytes] = []
    for number, piece in enumerate(patch.split(_FILE)):
        file = piece if number == 0 else _FILE[1:] + piece
        if len(file) > min(bounds.bytes_of_file, room):  # guard: one file must not block all other requests
            file = _left_out(file)
        room -= len(file)
        lines = file.decode("utf-8", "surrogateescape").split("\n")
        text = "\n".join(_masked([(_KINDS.get(line[:1], "context"), line) for line in lines]))
        shown.append(text.encode("utf-8", "surrogateescape"))
    return b"\n".join(shown)


def _left_out(file: bytes) -> bytes:
    """Return the header of a file that is left out, with the reason."""
    header = file[:_HEADER_BYTES].split(b"\n@@", 1)[0].rstrip(b"\n")
    return header + b"\n(%d bytes are not shown: too many to be masked. Operators get them.)" % len(file)


def _within(rows: Sequence[Mapping[str, JsonValue]], bounds: DiffBounds) -> Iterator[str]:
    """Yield the files whose lines fit into the limits."""
    room = bounds.lines
    for row in rows:
        size = sum(value for name in ("added", "removed") if isinstance(value := row[name], int))
        if row["added"] is not None and size <= min(bounds.lines_of_file, room):
            room -= size
            yield str(row["path"])


class _ReviewedHunks:
    """The hunks of these files, those left out included, with their ids and verdicts. Not thread-safe."""

    def __init__(
        self, read: ResultRead, whole: Mapping[str, FileState | None], paths: Collection[str]
    ) -> None:
        sandbox, base, states = read.sandbox, read.base, read.states(every_hunk=True)
        trees = (base, sandbox.tree(states)), (base, sandbox.tree(whole))
        before = sandbox.base_states(states, base)
        states = {path: state for path, state in states.items() if state != before[path]}
        self.found = dict(_hunks(sandbox, trees[0], [path for path in paths if path in states]))
        self.found |= dict(_hunks(sandbox, trees[1], [path for path in paths if path not in states]))
        self._states, self._base = states, sandbox.base_states(self.found, base)
        self._shown = {**whole, **states}
        self._left_out = {hunk.digest for hunk in read.hunks_left_out()}

    def blob_of(self, path: str) -> str | None:
        """Return the object id of the file with every hunk; None if the plan deleted the file."""
        state = self._shown.get(path)
        return None if state is None else state.content

    def id_of(self, path: str, hunk: Hunk) -> HunkId | None:
        """Return the id of the hunk; None if only the whole file can be left out."""
        before, after = self._base[path], self._states.get(path)
        if before is None or after is None or before.mode & _TYPE != after.mode & _TYPE:
            return None
        old = sum(kind != "add" for kind, *_ in hunk.lines)
        new = sum(kind != "remove" for kind, *_ in hunk.lines)
        return HunkId(path, before.content, after.content, hunk.old_start, old, hunk.new_start, new)

    def verdicts(self, path: str) -> list[Row]:
        """Return the number, the id and the verdict of each hunk of the file."""
        ids = [self.id_of(path, hunk) for hunk in self.found.get(path, ())]
        digests = [None if one is None else one.digest for one in ids]
        return [
            {
                "number": number,
                "id": digest,
                "accepted": path in self._states and digest not in self._left_out,
            }
            for number, digest in enumerate(digests, start=1)
        ]


def meant_hunks(parts: PlanParts, plan: Plan, digests: Collection[str]) -> dict[str, HunkId]:
    """Return the current hunks with these ids. Raises `PlanError` if one is unknown: its file may have
    changed since.
    """
    if not digests:
        return {}
    read = parts.result.read(plan, parts.sandboxes.look(plan.id))
    reviewed = _ReviewedHunks(read, parts.history.states(plan.id), [*read.states(every_hunk=True)])
    known = {
        found.digest: found
        for path, hunks in reviewed.found.items()
        for hunk in hunks
        if (found := reviewed.id_of(path, hunk)) is not None
    }
    for digest in digests:
        if digest not in known:  # guard: a verdict needs a hunk that was seen
            diff = Remedy("plan.diff", plan.id, {"hunks": True}, "Show the present hunks")
            raise PlanError(plan.id, f"no hunk {digest!r} in the present result", (diff,))
    return {digest: known[digest] for digest in digests}


def _hunks(sandbox: Sandbox, trees: tuple[str, str], paths: Sequence[str]) -> Mapping[str, Sequence[Hunk]]:
    """Return the hunks of these paths between a base and a tree."""
    if not paths:  # git would show all files
        return {}
    options = patch_options(masked=True, renames=False)
    return hunks_by_path(sandbox.diff(trees[1], base=trees[0], options=options, paths=paths))


def _file(row: Mapping[str, JsonValue], reviewed: _ReviewedHunks, within: bool, bounds: DiffBounds) -> Row:
    path = str(row["path"])
    shown = _shown(reviewed.found.get(path, ()), bounds)
    hunks = [verdict | row for verdict, row in zip(reviewed.verdicts(path), shown, strict=True)]
    binary, before = row["added"] is None, row["before"]
    return {
        "path": row["path"],
        "change": row["change"],
        "accepted": row["accepted"],
        "binary": binary,
        "added": row["added"],
        "removed": row["removed"],
        "before": row["before"],
        "after": row["after"],
        "hunks": freeze(hunks),
        "truncated": not binary and not within,
        "blob_before": before["content"] if isinstance(before, Mapping) else None,
        "blob_after": reviewed.blob_of(path),
    }


def _shown(hunks: Sequence[Hunk], bounds: DiffBounds) -> list[Row]:
    lines = [(kind, text) for hunk in hunks for kind, _, _, text in hunk.lines]
    texts = (_cut(text, bounds.line) for text in _masked(lines))  # half a secret would not be found
    shown: list[Row] = []
    for hunk in hunks:
        rows = [
            {"kind": kind, "old": old, "new": new, "text": next(texts)} for kind, old, new, _ in hunk.lines
        ]
        header = _cut(redact_known_text(hunk.header), bounds.line)
        starts = {"old_start": hunk.old_start, "new_start": hunk.new_start}
        shown.append({"header": header, **starts, "lines": freeze(rows)})
    return shown


def _masked(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return the texts of lines with known secrets masked, including secrets over several lines.

    The old and the new text are searched separately, because old and new lines may alternate within a secret
    of several lines.
    """
    shown = [text for _, text in lines]
    for side in ("remove", "add"):
        places = [place for place, (kind, _) in enumerate(lines) if kind in ("context", side)]
        masked = (
            redact_known_text("\n".join(lines[place][1] for place in places)).split("\n") if places else ()
        )
        for place, text in zip(places, masked, strict=True):
            if text != lines[place][1]:
                shown[place] = text
    return shown


def _cut(text: str, bound: int) -> str:
    return text if len(text) <= bound else f"{text[:bound]}…"


@dataclass(frozen=True, slots=True)
class Hunk:
    """A hunk with its lines."""

    header: str
    old_start: int
    new_start: int
    lines: Sequence[Line]


def hunks_by_path(diff: bytes) -> Mapping[str, Sequence[Hunk]]:
    """Return the hunks of each file with changed lines. The prefixes are `a/` and `b/`."""
    lines = diff.decode("utf-8", "surrogateescape").split("\n")
    found: dict[str, list[Hunk]] = {}
    before = path = ""
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if line.startswith("--- "):
            before = _named(line)
        elif line.startswith("+++ "):
            after = _named(line)
            path = before if after == _NOTHING else after
        elif header := _HEADER.match(line):
            hunk, place = _hunk(line, header, lines, place)
            found.setdefault(path, []).append(hunk)
    return found


def _hunk(title: str, header: re.Match[str], lines: Sequence[str], place: int) -> tuple[Hunk, int]:
    """Return the hunk, and the index after it."""
    old, new = int(header[1]), int(header[3])
    left = [int(header[2] or 1), int(header[4] or 1)]
    starts = old, new
    found: list[Line] = []
    while place < len(lines) and (left != [0, 0] or lines[place].startswith("\\")):
        sign, text = lines[place][:1], lines[place][1:]
        place += 1
        if sign == "\\":  # no newline at the end of the file
            continue
        is_old, is_new = sign != "+", sign != "-"
        found.append(
            (_HUNKS_KINDS[sign], old if is_old else None, new if is_new else None, _hunks_shown(text))
        )
        old += is_old
        new += is_new
        left = [left[0] - is_old, left[1] - is_new]
    return Hunk(_hunks_shown(title), starts[0], starts[1], found), place


def _hunks_shown(text: str) -> str:
    """Escape bytes that are not text."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _named(line: str) -> str:
    """Return the path in a header without its prefix and git's quoting."""
    name = line[4:].removesuffix("\t")
    if name.startswith('"'):
        raw = b""
        rest = 1
        for escape in _ESCAPE.finditer(name):
            raw += name[rest : escape.start()].encode("utf-8", "surrogateescape")
            raw += bytes([_PLAIN[escape[1]] if escape[1] in _PLAIN else int(escape[1], 8)])
            rest = escape.end()
        raw += name[rest:-1].encode("utf-8", "surrogateescape")
        name = raw.decode("utf-8", "surrogateescape")
    return name if name == _NOTHING else name[2:]


def file_of(parts: PlanParts, plan: Plan, path: str, side: FileSide) -> dict[str, JsonValue] | None:
    """Return the content of the file on this side: text with known secrets masked, or base64. None if the
    plan did not change the file.

    Raises `SandboxMissing`; for the side `accepted`, `PlanError` as `found_changes`.
    """
    sandbox = parts.sandboxes.look(plan.id)
    states = parts.history.own_states(plan.id, sandbox)
    if path not in states:  # guard: only files that the plan changed are readable
        return None
    before = sandbox.base_states([path], parts.result.base(plan, sandbox))[path]
    state = before if side == "before" else states[path]
    if side == "accepted":
        state = parts.result.states(plan, sandbox).get(path, before)
    content = b"" if state is None else _content(sandbox, state)
    shown = content[:MOST_BYTES]
    try:
        text = shown.decode("utf-8", "strict" if len(shown) == len(content) else "ignore")
    except UnicodeDecodeError:
        text = None
    is_text = text is not None and "\0" not in text
    return {
        "path": path,
        "side": side,
        "exists": state is not None,
        "mode": None if state is None else f"{state.mode:o}",
        "size": len(content),
        "binary": not is_text,
        "encoding": "utf-8" if is_text else "base64",
        "content": redact_known_text(text)
        if text is not None and is_text
        else b64encode(shown).decode("ascii"),
        "truncated": len(shown) < len(content),
    }


def _content(sandbox: Sandbox, state: FileState) -> bytes:
    if state.mode == GITLINK:  # a commit of another repository, as in a diff
        return f"Subproject commit {state.content}\n".encode("ascii")
    return sandbox.content(state.content)
