"""What a plan would change if it were applied now.

An open conflict between a plan and a sub-plan, with both sides, as JSON shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from cleveragents.api.format import counted
from cleveragents.changes.model.merge_conflict import MergeConflict, Take
from cleveragents.core.errors import GitFailed, RemoteUnreachable, SandboxMissing, SandboxRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.control_characters import shown
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import Phase

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.change import FileState
    from cleveragents.plans.model.plan import Plan
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.ports import Unapplied

__all__ = [
    "ChangedFiles",
    "changed_files",
    "changes_of",
    "changes_text",
    "conflict_with_sides",
    "found_changes",
    "last_apply_of",
    "lines_of",
    "recorded_changes",
    "renames_text",
    "state_row",
    "unapplied_message",
    "unapplied_of",
    "unapplied_text",
]


Row = dict[str, JsonValue]
Lines = tuple[int | None, int | None]
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Files that are changed, and the name of the tree that this makes; none where nobody can say it here."""

    rows: list[Row]
    tree: str | None = None


def changes_of(parts: PlanParts, plan: Plan) -> list[Row]:
    """Each file that would be changed if the plan were applied now, with the lines added and removed.

    Without its sandbox, of which the lines are read, there is nothing left to say. `PlanError` if what the
    review left out cannot be told from the rest.
    """
    return found_changes(parts, plan).rows


def found_changes(parts: PlanParts, plan: Plan) -> ChangedFiles:
    """The same, with the tree that would be applied. `PlanError`."""
    return _looked_at(parts, plan, lambda sandbox: _found(sandbox, parts.result.states(plan, sandbox)))


def recorded_changes(parts: PlanParts, plan: Plan) -> list[Row]:
    """What is recorded that it changed, without its lines, and whatever the review left out of it: for a plan
    of another machine whose remote cannot be asked for the files that it began with."""
    found = parts.history.differences(plan.id)
    return [_row(path, step.before, step.after, (0, 0)) for path, step in sorted(found.items())]


def changed_files(parts: PlanParts, plan: Plan) -> list[Row]:
    """The same of all that it changed, whatever the review left out of it."""

    def look(sandbox: Sandbox) -> ChangedFiles:
        states = parts.history.states(plan.id)
        base = sandbox.base_states(states)
        return _found(sandbox, {path: state for path, state in states.items() if state != base[path]})

    return _looked_at(parts, plan, look).rows


def _looked_at(parts: PlanParts, plan: Plan, look: Callable[[Sandbox], ChangedFiles]) -> ChangedFiles:
    for left in reversed(range(_LOOKS)):
        try:
            return look(parts.sandboxes.look(plan.id))
        except SandboxMissing:
            break
        except (RemoteUnreachable, SandboxRefused):
            return ChangedFiles(recorded_changes(parts, plan))
        except GitFailed:
            # Who works on it elsewhere has recorded something since; the next look has its contents, too.
            if not left:
                raise
    return ChangedFiles([])


def _found(sandbox: Sandbox, states: Mapping[str, FileState | None]) -> ChangedFiles:
    if not states:
        return ChangedFiles([], sandbox.base)
    look = _Look(str(sandbox.root), sandbox.base, tuple(sorted(states.items())), sandbox)
    tree, base, lines = _compared(look)
    counted = {path: lines.get(path, (None, None)) for path in states}
    return ChangedFiles(
        [_row(path, base[path], states[path], counted[path]) for path in sorted(states)], tree
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """At what a sandbox would bring: the same as another if both are at the same states of the same files."""

    place: str
    base: str
    states: tuple[tuple[str, FileState | None], ...]
    sandbox: Sandbox = field(compare=False)


@lru_cache(maxsize=16)
def _compared(look: _Look) -> tuple[str, Mapping[str, FileState | None], Mapping[str, Lines]]:
    """The tree that they make, what the files were, and how many lines differ. Who follows a plan asks again
    and again, and each time would start four processes."""
    states = dict(look.states)
    base = look.sandbox.base_states(states)
    tree = look.sandbox.tree(states)
    text = look.sandbox.diff(tree, options=("--numstat", "--no-renames", "-z"))
    return tree, base, _counted_lines(text)


def _row(path: str, before: FileState | None, after: FileState | None, lines: Lines) -> Row:
    return {
        "path": path,
        "change": _change(before, after),
        "added": lines[0],
        "removed": lines[1],
        "before": state_row(before),
        "after": state_row(after),
    }


def lines_of(row: Mapping[str, JsonValue]) -> str:
    """`+5 -3`, as people read it; nothing where no line was changed."""
    before, after = row["before"], row["after"]
    if isinstance(before, Mapping) and isinstance(after, Mapping) and before["content"] == after["content"]:
        return f"mode {after['mode']}"
    if row["added"] is None:
        return "binary"
    signs = (("+", row["added"]), ("-", row["removed"]))
    return " ".join(f"{sign}{number}" for sign, number in signs if number)


def unapplied_of(parts: PlanParts, plan: Plan) -> Unapplied:
    """What its steps made and nobody gets. Files first: directories are seldom more than what some tool keeps
    for itself."""
    from cleveragents.sandboxes.ports import Unapplied

    recorded = [path for path, state in parts.history.states(plan.id).items() if state is not None]
    try:
        found = parts.sandboxes.look(plan.id).unapplied(recorded)
    except (SandboxMissing, RemoteUnreachable, SandboxRefused):
        return Unapplied()
    ignored = sorted(found.ignored, key=lambda entry: (entry.endswith("/"), entry.count("/"), entry))
    return replace(found, ignored=tuple(ignored))


def unapplied_text(found: Unapplied, *, checked: bool) -> list[str]:
    """One sentence for each kind; `checked`: whether checks ran, which they do without ignored files."""
    from cleveragents.plans.history import named

    said = []
    if found.ignored:
        without = "; checks ran without " + ("it" if len(found.ignored) == 1 else "them") if checked else ""
        said.append(f"not applied, because ignored: {named(found.ignored)}{without}")
    if found.repositories:
        places = named([".git" if path == "." else f"{path}/.git" for path in found.repositories])
        said.append(f"not applied, because a plan's result holds no repositories: {places}")
    said += [
        f"{path}: its directory was removed, but .gitmodules still names it; not applied"
        for path in found.submodules
    ]
    return said


def unapplied_message(parts: PlanParts, plan: Plan, found: Unapplied) -> list[str]:
    """The same of a plan."""
    return unapplied_text(found, checked=bool(parts.check_runs.of_plan(plan.id)))


def last_apply_of(parts: PlanParts, plan: Plan) -> tuple[Row | None, list[Row]]:
    """What its last apply or undo did, and the renames that it followed; None and none before the first."""
    last = parts.applier.last_of_plan(plan.id) if plan.phase is Phase.APPLY else None
    if last is None:
        return None, []
    done: Row = {"kind": last.kind, "files": last.files, "commit": last.commit}
    return done, [{"old": one.old, "new": one.new} for one in last.renames]


def renames_text(renames: Iterable[Mapping[str, JsonValue]]) -> list[str]:
    """One sentence for each rename."""
    return [f"followed a rename: {rename['old']} → {rename['new']}" for rename in renames]


def changes_text(changes: Sequence[Row]) -> str:
    """How many files and lines."""
    if not changes:
        return "nothing was changed"
    told = [counted(len(changes), "file") + " changed"]
    for name in ("added", "removed"):
        number = sum(value for row in changes if isinstance(value := row[name], int))
        if number:
            told.append(f"{counted(number, 'line')} {name}")
    return ", ".join(told)


def _counted_lines(numstat: bytes) -> dict[str, Lines]:
    """Of git's `--numstat -z`; a binary file has dashes for numbers."""
    found: dict[str, Lines] = {}
    for record in numstat.decode("utf-8", "surrogateescape").split("\0"):
        if record:
            added, removed, path = record.split("\t", 2)
            found[path] = (None, None) if added == "-" else (int(added), int(removed))
    return found


def _change(before: FileState | None, after: FileState | None) -> str:
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    return "changed"


def state_row(state: FileState | None) -> JsonValue:
    """A file's mode and its content's name."""
    return None if state is None else {"mode": f"{state.mode:o}", "content": state.content}


def conflict_with_sides(conflict: MergeConflict, sandbox: Sandbox) -> Row:
    """Where it is, and what each side made of it."""
    from cleveragents.plans.conflicts.resolution import conflict_text, side_in_short

    def side(take: Take) -> Row:
        path, state = conflict.side(take)
        return {
            "is": side_in_short(conflict, take),
            "path": shown(path),
            "mode": None if state is None else f"{state.mode:o}",
            "content": None if state is None else state.content,
        }

    return {
        "path": conflict.shown_path,
        "kind": conflict.kind,
        "marked": conflict.marked,
        "sub_plan": conflict.plan_id,
        "title": redact_text(conflict.title),
        "file": str(sandbox.root / conflict.path) if conflict.path == conflict.shown_path else None,
        "ours": side(Take.OURS),
        "theirs": side(Take.THEIRS),
        "text": conflict_text(conflict, sandbox.content).partition("\n")[2],
    }
