"""Views of the calls, decisions, comments, conflicts, files and output of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from cleveragents.api.plans.summary import EXAMPLE_PLAN, EXAMPLE_TIME
from cleveragents.api.plans.views import ChangeView, CorrectionView, LimitsView, SubPlanView
from cleveragents.api.views import shown, view, view_of
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.model.comment import CommentState

if TYPE_CHECKING:
    from cleveragents.plans.ports.plans import OutputPiece

__all__ = [
    "AlternativeView",
    "BudgetView",
    "CallView",
    "CommentAnswerView",
    "CommentState",
    "CommentView",
    "ComparisonView",
    "ConflictSideView",
    "CorrectionNode",
    "CorrectionPreview",
    "DecisionNode",
    "DecisionSummary",
    "DecisionView",
    "DiffView",
    "ExplainedDecisionView",
    "FileDiffView",
    "FileView",
    "HunkView",
    "LineView",
    "OpenConflictView",
    "OutputView",
    "SpentView",
    "SubPlanNode",
    "SupersededView",
    "TreeNode",
    "output_view",
    "tree_node",
]

_MARKS = {"context": " ", "add": "+", "remove": "-"}


@view
class ConflictSideView:
    """One side of a conflict."""

    name: str = shown("the side", default="", examples=["this plan"])
    what: str = shown("the kind of file, in words", name="is", examples=["a file"])
    path: str = shown("the path on that side", examples=["src/shop.py"])
    mode: str | None = shown(examples=["100644"])
    content: str | None = shown("the hash of the content", examples=["9f2b…"])


@view
class OpenConflictView:
    """An open conflict between sub-plans, or with the repository, with both sides."""

    path: str = shown(examples=["src/shop.py"])
    kind: str = shown(examples=["content"])
    marked: bool = shown("whether both sides are marked in the file")
    sub_plan: str = shown(
        "the sub-plan that was merged; empty for a conflict with the repository", examples=[EXAMPLE_PLAN]
    )
    title: str = shown(
        "what was merged: the name of that sub-plan, or the repository", examples=["the parser"]
    )
    file: str | None = shown("the path of the file in the sandbox, on the plan's machine")
    ours: ConflictSideView = shown("the plan's side")
    theirs: ConflictSideView = shown("the side of the sub-plan, or of the repository")
    text: str = shown("both sides as text: masked, and cut if long")


@view
class CallView:
    """A tool call with its arguments and output, masked."""

    number: int = shown(examples=[3])
    tool: str = shown(examples=["edit"])
    state: str = shown(examples=["ended"])
    changed: int = shown(examples=[1])
    changeset: str | None
    approval: str | None = shown("granted or denied, if approval was requested")
    rule: str | None = shown("the rule that approved the call instead of a person", default=None)
    reason: str | None = shown("why a person denied the call", default=None)
    started: datetime = shown(examples=[EXAMPLE_TIME])
    ended: datetime | None = shown(examples=[EXAMPLE_TIME])
    arguments: object
    error: str | None
    result: object


@view
class AlternativeView:
    """An alternative to a decision."""

    choice: str
    reason: str


@view
class SupersededView:
    """The correction that superseded a decision."""

    correction: int
    decision: int | None
    guidance: str
    by_itself: bool


@view
class DecisionView:
    """A decision: question and choice."""

    number: int = shown(examples=[3])
    parent: int | None = shown("the number of the decision that led to this one")
    question: str = shown(examples=["Where is the flag parsed?"])
    choice: str = shown(examples=["In the export command itself"])
    rationale: str
    alternatives: tuple[AlternativeView, ...]
    confidence: float | None = shown(examples=[0.8])
    made_by: str = shown(examples=["builtin/strategist"])
    checkpoint: int | None = shown("the number of the first call after the decision")
    state: str = shown("active or superseded", examples=["active"])
    superseded_by: SupersededView | None
    created_at: datetime = shown(examples=[EXAMPLE_TIME])


@view
class ExplainedDecisionView(DecisionView):
    """A decision with the steps that carry it out."""

    steps: tuple[str, ...]


@view
class DecisionNode(DecisionView):
    """A decision in the tree of decisions."""

    kind: Literal["decision"]


@view
class CorrectionNode(CorrectionView):
    """A correction that added guidance and superseded nothing."""

    kind: Literal["correction"]


@view
class SubPlanNode(SubPlanView):
    """A sub-plan in the tree of decisions, started or not."""

    kind: Literal["sub-plan"]
    parent_plan: str
    key: str | None
    goal: str | None


TreeNode = DecisionNode | CorrectionNode | SubPlanNode
_NODES: Mapping[object, type[TreeNode]] = {
    "decision": DecisionNode,
    "correction": CorrectionNode,
    "sub-plan": SubPlanNode,
}


def tree_node(data: Mapping[str, JsonValue]) -> TreeNode:
    """Return the node with this JSON."""
    return view_of(_NODES[data["kind"]], data)


@view
class CommentAnswerView:
    """An answer to a comment."""

    state: CommentState = shown("the state of the comment after this answer")
    reason: str = shown(examples=["The flag has a test now."])
    author: str = shown(examples=["builtin/executor"])
    by_actor: bool = shown("whether the author is an actor, not a person")
    call: int | None = shown("the call that settled the comment", examples=[7])
    created: datetime = shown(examples=[EXAMPLE_TIME])


@view
class CommentView:
    """A comment on a plan, or on lines of its result."""

    number: int = shown(examples=[1])
    state: CommentState
    text: str = shown(examples=["Keep the old name as an alias."])
    author: str = shown(examples=["ada"])
    by_actor: bool = shown("whether the author is an actor, such as the reviewer")
    path: str | None = shown("null for a comment on the whole plan", examples=["src/export.py"])
    line: int | None = shown("the first line in the current file; if outdated, in the original `blob`")
    end_line: int | None = shown("the last line, counted as `line`")
    side: Literal["before", "after"] = shown(
        default="after", description="the version with the lines: before the plan, or the result"
    )
    lines: tuple[str, ...] = shown("the text that was commented on; known secrets are masked")
    blob: str | None = shown("object id of the file that was commented on")
    outdated: bool = shown("whether the lines were changed, or no longer occur at exactly one place")
    revision: int | None = shown("the last correction that sent it to the executor; null: never sent")
    answers: tuple[CommentAnswerView, ...] = shown("oldest first; the last one decides the state")
    created: datetime = shown(examples=[EXAMPLE_TIME])

    @property
    def place(self) -> str:
        """The file and its lines, as in `src/export.py:3-5`; empty for a comment on the whole plan."""
        if self.path is None:
            return ""
        more = "" if self.end_line == self.line else f"-{self.end_line}"
        old = " (before the change)" if self.side == "before" else ""
        return f"{self.path}:{self.line}{more}{old}"


@view
class LineView:
    """A line with its old and new line number. Its text is masked, and shortened if very long."""

    kind: Literal["context", "add", "remove"]
    old: int | None = shown(examples=[12])
    new: int | None = shown(examples=[12])
    text: str


@view
class HunkView:
    """A hunk with its lines."""

    number: int = shown("number of the hunk, from 1 within the file", default=0, examples=[1])
    id: str | None = shown(
        "identifies the hunk and its version in a review; null if only the whole file can be left out",
        default=None,
        examples=["5f0c7a1b9e3d44210c6a"],
    )
    accepted: bool = shown("whether the hunk is part of the result", default=True)
    header: str = shown(examples=["@@ -12,3 +12,5 @@ def export():"])
    old_start: int
    new_start: int
    lines: tuple[LineView, ...]


@view
class FileDiffView(ChangeView):
    """A file that the plan changed."""

    accepted: bool = shown("whether the file is part of the result")
    binary: bool
    hunks: tuple[HunkView, ...]
    truncated: bool = shown("whether the file is too large to show; see the patch")
    blob_before: str | None = shown(
        "object id of the file that the old line numbers refer to; send it with a comment on such a line, so "
        "that the comment is refused if the file has changed",
        default=None,
        examples=["9daeafb9864cf43055ae93beb0afd6c7d144bfa4"],
    )
    blob_after: str | None = shown(
        "as `blob_before`, for the new line numbers; this file includes the hunks that are left out",
        default=None,
        examples=["e965047ad7c57865823c7d992b1d046ea66edf78"],
    )

    def __str__(self) -> str:
        """The file as part of a unified diff."""
        names = (
            "/dev/null" if self.change == "created" else f"a/{self.path}",
            "/dev/null" if self.change == "deleted" else f"b/{self.path}",
        )
        lines = [f"--- {names[0]}", f"+++ {names[1]}"]
        if self.binary or self.truncated:
            lines.append("(binary)" if self.binary else "(too large to show)")
        for hunk in self.hunks:
            lines.append(hunk.header)
            lines += [f"{_MARKS[line.kind]}{line.text}" for line in hunk.lines]
        return "\n".join(lines)


@view
class DiffView:
    """The diff of a plan."""

    files: tuple[FileDiffView, ...]
    truncated: bool = shown("whether the diff was cut; the patch has all of it")
    tree: str | None = shown(
        "identifies the shown result; send it with an apply to apply no other result; null if unknown here",
        default=None,
        examples=["4b825dc642cb6eb9a060e54bf8d69288fbee4904"],
    )

    def __str__(self) -> str:
        """The accepted changes as a unified diff, for people."""
        return "\n".join(str(file) for file in self.files if file.accepted)


@view
class FileView:
    """The content of a file that the plan changed: before or after the change, or with the accepted changes
    only.
    """

    path: str = shown(examples=["src/export.py"])
    side: Literal["before", "after", "accepted"]
    exists: bool
    mode: str | None = shown(examples=["100644"])
    size: int = shown("bytes")
    binary: bool
    encoding: Literal["utf-8", "base64"]
    content: str = shown("the content; masked, if it is text")
    truncated: bool


@view
class SpentView:
    """Spending; money is null if a price is unknown."""

    usd: float | None = shown(examples=[0.0123])
    tokens: int = shown(examples=[34_567])
    steps: int = shown("model calls", examples=[12])


@view
class BudgetView:
    """The limits and spending of a plan's tree."""

    plan: str = shown("the plan at the top of the tree")
    limits: LimitsView
    spent: SpentView
    reserved: SpentView = shown("reserved for running calls: their highest possible cost")
    models: tuple[str, ...]


@view
class DecisionSummary:
    """A decision that a correction would supersede."""

    number: int
    question: str
    choice: str


@view
class CorrectionPreview:
    """The effects of a correction: superseded decisions and undone work."""

    plan: str
    decision: int
    superseded: tuple[DecisionSummary, ...]
    checkpoint: int | None = shown("null if no step ran yet")
    calls: int
    steps: tuple[str, ...]
    files: tuple[str, ...]
    edits_lost: tuple[str, ...] = shown("files edited by hand, whose edits are lost")
    edits_kept: tuple[str, ...]
    sub_plans: tuple[str, ...] = shown("sub-plans that are cancelled")
    sub_plans_kept: tuple[str, ...]


@view
class ComparisonView:
    """The files that differ between two results."""

    files: tuple[ChangeView, ...] = shown(
        "the changes from this plan's result to the other plan's; at most 10,000"
    )
    truncated: bool = shown("whether there are more changes", examples=[False])
    note: str | None = shown("a note if the plans belong to different repositories", examples=[None])


@view
class OutputView:
    """A piece of a plan's output."""

    plan_id: str = shown(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])
    number: int = shown("number of the piece, from 1 for each plan", examples=[12])
    kind: str = shown(
        "progress (lines for people), output (of commands), model (what actors say), "
        "node (JSON: which `actor` is at which `node`; its `event`, if any, is `thinking` or `tool_done`)",
        examples=["output"],
    )
    text: str = shown(examples=["12 passed\n"])
    time: datetime = shown(examples=["2026-01-01T12:00:00Z"])


def output_view(piece: OutputPiece) -> OutputView:
    """Return the view of a piece."""
    return OutputView(
        plan_id=piece.plan_id,
        number=piece.number,
        kind=piece.kind,
        text=piece.text,
        time=piece.written_at.replace(microsecond=0),
    )
