"""Reviews of a plan: verdicts on its changes, which may be left out of an apply, and comments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cleveragents.api.format import UNREADABLE, printable_name, timestamp
from cleveragents.api.reachability import ensure_reachable
from cleveragents.changes.model.review import HunkId, Review, ReviewKind, rejected_hunks
from cleveragents.core.errors import (
    PlanError,
    Remedy,
    RemoteUnreachable,
    RequestRefused,
    SandboxMissing,
    SandboxRefused,
)
from cleveragents.core.json_value import freeze
from cleveragents.core.text.redaction import redact_content_text, redact_known_text
from cleveragents.plans.model.comment import MOST_LINES, CommentLines
from cleveragents.plans.model.status import status_word

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.comment import Comment, CommentAnswer
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "comment_rows",
    "commented_lines",
    "ensure_reviewable",
    "is_selected",
    "left_out_names",
    "review_files",
]


def ensure_reviewable(parts: PlanParts, plan: Plan) -> None:
    """Raise `PlanError` while the plan runs and once it has ended; `NeedsHuman` if its repository is out of
    reach.
    """
    if plan.state.running or plan.state.ended:
        raise PlanError(plan.id, f"{status_word(plan)}; review a plan after its run and before its apply")
    ensure_reachable(parts, plan)


def review_files(
    parts: PlanParts,
    plan: Plan,
    verdicts: Sequence[tuple[str, bool]],
    changesets: Sequence[tuple[str, bool]] = (),
    hunks: Sequence[tuple[HunkId, bool]] = (),
) -> list[str]:
    """Accept or leave out each file, changeset and hunk, and return the selected files. Raises `PlanError`,
    without any verdict, if a name matches nothing.
    """
    with parts.sandbox_edits.unmerged(plan):  # guard: merged changes are reviewed with the parent
        known = _changed_files(parts, plan) if verdicts else []
        files = [(path, taken) for name, taken in verdicts for path in _meant_files(plan, known, name)]
        _ensure_known(parts, plan, [changeset for changeset, _ in changesets])
        # Each is known to be changed: a second check would read all changes for each file.
        chosen = dict(files)
        for path, taken in chosen.items():
            verdict = Review(plan.id, ReviewKind.PATH, path, taken)
            parts.reviews.set(verdict, now=parts.result.clock.now())
        again = [
            (hunk, True) for hunk in rejected_hunks(parts.reviews.of_plan(plan.id)) if chosen.get(hunk.path)
        ]  # a file is accepted with all its hunks
        for hunk, taken in (*again, *hunks):
            verdict = Review(plan.id, ReviewKind.HUNK, hunk.subject, taken)
            parts.reviews.set(verdict, now=parts.result.clock.now())
        for changeset, taken in changesets:
            parts.result.review(plan, ReviewKind.CHANGESET, changeset, accepted=taken)
    return [path for path, _ in files]


def left_out_names(parts: PlanParts, plan: Plan) -> list[str]:
    """Return the files, changesets and hunks that were left out; a hunk by its file and lines. Lapsed
    verdicts are marked. Without a sandbox, hunks are omitted.
    """
    reviews = [review for review in parts.reviews.of_plan(plan.id) if not review.accepted]
    names = [review.subject for review in reviews if review.kind is not ReviewKind.HUNK]
    if len(names) == len(reviews):
        return names
    try:
        sandbox = parts.sandboxes.look(plan.id)
        hunks = parts.result.hunks_left_out(plan, sandbox)
        lapsed = parts.result.lapsed_hunks(plan, sandbox)
    except (SandboxMissing, SandboxRefused, RemoteUnreachable, PlanError):
        return names
    again = [f"{_hunk_name(hunk)}: decide again, the file changed" for hunk in lapsed]
    return [*names, *(_hunk_name(hunk) for hunk in hunks), *again]


def _hunk_name(hunk: HunkId) -> str:
    last = max(hunk.new_start, hunk.new_start + hunk.new_lines - 1)
    return f"{hunk.path}, the hunk at lines {hunk.new_start}-{last}"


def is_selected(path: str, names: Sequence[str]) -> bool:
    """Return whether one of the names is the path or a directory above it. True if there are no names."""
    plain = [name.rstrip("/").removeprefix("./") for name in names]
    return not names or any(
        name in ("", ".") or path == name or path.startswith(f"{name}/") for name in plain
    )


def commented_lines(
    path: str | None,
    line: int | None,
    end_line: int | None,
    *,
    before: bool = False,
    blob: str | None = None,
) -> CommentLines | None:
    """Return the lines of a comment; None for a comment on the whole plan. Raises `RequestRefused`."""
    if all(one is None for one in (path, line, end_line, blob)):
        return None
    if path is None or line is None:
        raise RequestRefused("a comment on lines needs a path and a line", "line")
    last = line if end_line is None else end_line
    if not 1 <= line <= last < line + MOST_LINES:
        what = (
            f"lines {line}-{last}: the last line must not precede the first; a comment covers at most "
            f"{MOST_LINES} lines"
        )
        raise RequestRefused(what, "line")
    return CommentLines(path, line, last, before, blob)


def comment_rows(parts: PlanParts, plan: Plan, comments: Sequence[Comment]) -> list[dict[str, JsonValue]]:
    """Return comments for display, masked, with their current lines."""
    places = parts.comments.places(plan, comments)
    return [_comment_row(one, places.get(one.number)) for one in comments]


def _comment_row(comment: Comment, place: tuple[int, int] | None) -> dict[str, JsonValue]:
    made, anchor = comment.made, comment.made.anchor
    lines = (None, None) if anchor is None else place or (anchor.start, anchor.end)
    return {
        "number": comment.number,
        "state": comment.state.value,
        "text": redact_content_text(made.text),
        "author": made.author,
        "by_actor": made.by_actor,
        "path": None if anchor is None else printable_name(anchor.path),
        "line": lines[0],
        "end_line": lines[1],
        "side": "before" if anchor is not None and anchor.of_base else "after",
        "lines": () if anchor is None else tuple(redact_known_text(line) for line in anchor.lines),
        "blob": None if anchor is None else anchor.blob,
        "outdated": anchor is not None and place is None,
        "revision": comment.batch,
        "answers": freeze([_answer_row(answer) for answer in comment.answers]),
        "created": timestamp(comment.created_at),
    }


def _answer_row(answer: CommentAnswer) -> dict[str, JsonValue]:
    made = answer.made
    return {
        "state": made.state.value,
        "reason": redact_content_text(made.reason),
        "author": made.author,
        "by_actor": made.by_actor,
        "call": made.call,
        "created": timestamp(answer.created_at),
    }


def _changed_files(parts: PlanParts, plan: Plan) -> list[str]:
    entries = [change.entry for change in parts.history.changes(plan.id)]
    return sorted({path for entry in entries for path in (entry.path, entry.old_path) if path is not None})


def _meant_files(plan: Plan, known: Sequence[str], name: str) -> list[str]:
    """Return the changed files that the name selects. A file name that is not valid text is matched by its
    printable form, if unambiguous.

    Raises `PlanError` if the name matches nothing.
    """
    meant = [path for path in known if is_selected(path, [name])]
    alike = [path for path in known if printable_name(path) == name] if UNREADABLE in name else []
    if not meant and len(alike) == 1:
        return alike
    if not meant:
        diff = Remedy("plan.diff", plan.id, {"name_only": True}, "List the changed files")
        raise PlanError(plan.id, f"no file {name!r} among the changes of the plan", (diff,))
    return meant


def _ensure_known(parts: PlanParts, plan: Plan, changesets: Sequence[str]) -> None:
    known = {changeset.id for changeset in parts.changesets.of_plan(plan.id)} if changesets else set()
    for unknown in (changeset for changeset in changesets if changeset not in known):
        log = Remedy("plan.log", plan.id, {"call": None}, "Show the changeset of a call")
        raise PlanError(plan.id, f"no changeset {unknown!r}", (log,))
