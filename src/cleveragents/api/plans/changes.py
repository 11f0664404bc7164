"""The changes that an apply of a plan would make now, and open conflicts with both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.api.format import counted
from cleveragents.changes.model.merge_conflict import MergeConflict, Take
from cleveragents.core.errors import GitFailed, RemoteUnreachable, SandboxMissing, SandboxRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.control_characters import shown
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import Phase

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.change import FileState
    from cleveragents.plans.history import ResultRead
    from cleveragents.plans.model.plan import Plan
    from cleveragents.sandboxes.comparison import ChangedFile
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.ports import Unapplied

__all__ = [
    "ChangedFiles",
    "changed_files",
    "changes_text",
    "commit_message",
    "conflict_with_sides",
    "file_row",
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
_LOOKS = 3
_SUBJECT = 72
"""Maximum length of a subject line and of a line of the body, as git recommends."""
_FILES_NAMED = 20
_VERBS = {"created": "Add", "changed": "Change", "deleted": "Remove"}


class ChangedFiles(Struct, frozen=True):
    """Changed files, the name of the resulting tree, and the read that both come from. Tree and read are None
    if they are unknown on this machine.
    """

    rows: list[Row]
    tree: str | None = None
    read: ResultRead | None = None


def found_changes(parts: PlanParts, plan: Plan) -> ChangedFiles:
    """Return each file that an apply would change now, with the lines added and removed, and the tree that
    would be applied.

    Empty if the plan has no sandbox on this machine. Raises `PlanError` if changes that the review leaves out
    cannot be separated from the rest.
    """

    def look(sandbox: Sandbox) -> ChangedFiles:
        read = parts.result.read(plan, sandbox)
        return replace(_found(sandbox, read.states(), read.base), read=read)

    return _looked_at(parts, plan, look)


def recorded_changes(parts: PlanParts, plan: Plan) -> list[Row]:
    """Return the recorded changes, without counts of lines, and including files that the review leaves out.

    Used for a plan of another machine if the base files cannot be fetched from its remote.
    """
    from cleveragents.sandboxes.comparison import ChangedFile

    found = sorted(parts.history.differences(plan.id).items())
    return [file_row(ChangedFile(path, 0, 0, step.before, step.after)) for path, step in found]


def changed_files(parts: PlanParts, plan: Plan) -> list[Row]:
    """Return the changes of all files, including files that the review leaves out."""

    def look(sandbox: Sandbox) -> ChangedFiles:
        return _found(sandbox, parts.history.states(plan.id), parts.result.base(plan, sandbox))

    return _looked_at(parts, plan, look).rows


def _looked_at(parts: PlanParts, plan: Plan, look: Callable[[Sandbox], ChangedFiles]) -> ChangedFiles:
    from cleveragents.storage.database import forget_reads

    for left in reversed(range(_LOOKS)):
        try:
            return look(parts.sandboxes.look(plan.id))
        except SandboxMissing:
            break
        except (RemoteUnreachable, SandboxRefused):
            return ChangedFiles(recorded_changes(parts, plan))
        except GitFailed:
            # A worker elsewhere has recorded more since; the next read has its contents too.
            if not left:
                raise
            forget_reads()
    return ChangedFiles([])


def _found(sandbox: Sandbox, states: Mapping[str, FileState | None], base: str) -> ChangedFiles:
    """Return the changes from the tree `base` to the sandbox's base with these file states."""
    if not states:
        return ChangedFiles([], sandbox.base)
    look = _Look(str(sandbox.root), base, tuple(sorted(states.items())), sandbox)
    tree, files = _compared(look)
    return ChangedFiles([file_row(changed) for changed in files], tree)


@dataclass(frozen=True, slots=True)
class _Look:
    """The files of a sandbox with their states, as a cache key: two of them are equal if they have the same
    files in the same states.
    """

    place: str
    base: str
    states: tuple[tuple[str, FileState | None], ...]
    sandbox: Sandbox = field(compare=False)


@lru_cache(maxsize=16)
def _compared(look: _Look) -> tuple[str, Sequence[ChangedFile]]:
    """Return the tree and the files that it changes. The result is cached, because each call starts three
    processes.
    """
    from cleveragents.sandboxes.comparison import FILES_AND_LINES, changed_files

    tree = look.sandbox.tree(dict(look.states))
    return tree, changed_files(look.sandbox.diff(tree, base=look.base, options=FILES_AND_LINES))


def file_row(changed: ChangedFile) -> Row:
    """Return a changed file as JSON."""
    return {
        "path": changed.path,
        "change": _change(changed.before, changed.after),
        "added": changed.added,
        "removed": changed.removed,
        "before": state_row(changed.before),
        "after": state_row(changed.after),
    }


def lines_of(row: Mapping[str, JsonValue]) -> str:
    """Return `+5 -3`, or "" if no line was changed."""
    before, after = row["before"], row["after"]
    if isinstance(before, Mapping) and isinstance(after, Mapping) and before["content"] == after["content"]:
        return f"mode {after['mode']}"
    if row["added"] is None:
        return "binary"
    signs = (("+", row["added"]), ("-", row["removed"]))
    return " ".join(f"{sign}{number}" for sign, number in signs if number)


def unapplied_of(parts: PlanParts, plan: Plan) -> Unapplied:
    """Return the files and directories that steps created but an apply leaves out.

    Files come first, because directories are mostly caches of tools.
    """
    from cleveragents.sandboxes.ports import Unapplied

    recorded = [path for path, state in parts.history.states(plan.id).items() if state is not None]
    try:
        found = parts.sandboxes.look(plan.id).unapplied(recorded)
    except (SandboxMissing, RemoteUnreachable, SandboxRefused):
        return Unapplied()
    ignored = sorted(found.ignored, key=lambda entry: (entry.endswith("/"), entry.count("/"), entry))
    return replace(found, ignored=tuple(ignored))


def unapplied_text(found: Unapplied, *, checked: bool) -> list[str]:
    """Return one sentence for each reason why entries are not applied. `checked`: checks ran, without seeing
    ignored files.
    """
    from cleveragents.plans.history import named

    said = []
    if found.ignored:
        without = "; checks ran without " + ("it" if len(found.ignored) == 1 else "them") if checked else ""
        said.append(f"not applied because git ignores them: {named(found.ignored)}{without}")
    if found.repositories:
        places = named([".git" if path == "." else f"{path}/.git" for path in found.repositories])
        said.append(f"not applied because a result cannot contain git repositories: {places}")
    said += [f"not applied: {path} was removed, but .gitmodules still names it" for path in found.submodules]
    return said


def unapplied_message(parts: PlanParts, plan: Plan, found: Unapplied) -> list[str]:
    """Return the sentences of `unapplied_text` for a plan."""
    return unapplied_text(found, checked=bool(parts.check_runs.of_plan(plan.id)))


def last_apply_of(parts: PlanParts, plan: Plan) -> tuple[Row | None, list[Row]]:
    """Return the effect of the last apply or undo, and the renames that it followed; None and an empty list
    if there was none.
    """
    last = parts.applier.last_of_plan(plan.id) if plan.phase is Phase.APPLY else None
    if last is None:
        return None, []
    done: Row = {"kind": last.kind, "files": last.files, "commit": last.commit}
    return done, [{"old": one.old, "new": one.new} for one in last.renames]


def renames_text(renames: Iterable[Mapping[str, JsonValue]]) -> list[str]:
    """Return one sentence per rename."""
    return [f"followed a rename: {rename['old']} → {rename['new']}" for rename in renames]


def changes_text(changes: Sequence[Row]) -> str:
    """Return the number of files and lines as text."""
    if not changes:
        return "nothing was changed"
    told = [counted(len(changes), "file") + " changed"]
    for name in ("added", "removed"):
        number = sum(value for row in changes if isinstance(value := row[name], int))
        if number:
            told.append(f"{counted(number, 'line')} {name}")
    return ", ".join(told)


def _change(before: FileState | None, after: FileState | None) -> str:
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    return "changed"


def state_row(state: FileState | None) -> JsonValue:
    """Return the mode of a file and the hash of its content."""
    return None if state is None else {"mode": f"{state.mode:o}", "content": state.content}


def conflict_with_sides(conflict: MergeConflict, sandbox: Sandbox) -> Row:
    """Return a conflict with both sides."""
    from cleveragents.plans.conflicts.resolution import conflict_text, side_in_short

    def side(take: Take, name: str) -> Row:
        path, state = conflict.side(take)
        return {
            "name": name,
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
        "ours": side(Take.OURS, "this plan"),
        "theirs": side(Take.THEIRS, conflict.other_side),
        "text": conflict_text(conflict, sandbox.content).partition("\n")[2],
    }


def commit_message(plan: PlanView) -> str:
    """Return a drafted commit message: the goal as the subject, then the changed files.

    No model is called, so equal plans get equal messages. A goal that is too long for the subject follows in
    full.
    """
    import textwrap

    goal = " ".join(plan.goal.split()).rstrip(".") or f"Apply plan {plan.id}"
    goal = goal[0].upper() + goal[1:]
    subject = goal if len(goal) <= _SUBJECT else textwrap.shorten(goal, _SUBJECT, placeholder=" …")
    if len(subject) <= len(" …"):  # its first word is too long
        subject = f"{goal[: _SUBJECT - 2]} …"
    whole = [] if subject == goal else [textwrap.fill(goal, _SUBJECT, break_long_words=False)]
    named = [f"- {_VERBS[change.change]} {shown(change.path)}" for change in plan.changes[:_FILES_NAMED]]
    if len(plan.changes) > _FILES_NAMED:
        named.append(f"- … and {counted(len(plan.changes) - _FILES_NAMED, 'more file')}")
    return "\n\n".join([subject, *whole, *(["\n".join(named)] if named else [])])
