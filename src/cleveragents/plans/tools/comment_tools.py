"""The tool `answer_comment`: the executor of a revision answers the comments that were sent to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import Field

from cleveragents.core.errors import ToolRefused, UnknownComment, UnknownTool
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.comment import Comment, CommentState, NewAnswer
from cleveragents.plans.store.sql_comment_store import SqlCommentStore
from cleveragents.plans.tools.conflict_tools import running_call
from cleveragents.tools.ports import FixedTools, Tool, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["ANSWER_COMMENT", "CommentTarget", "CommentTools"]

ANSWER_COMMENT = "answer_comment"
_LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class CommentTarget:
    """The plan whose comments are answered, and the answering actor. `calls` returns the calls of the plan,
    the latest last.
    """

    plan_id: str
    actor: str
    comments: SqlCommentStore
    calls: Callable[[], Iterable[ToolCall]]
    now: Callable[[], datetime]

    def answerable(self) -> list[Comment]:
        """Return the open comments that the executor knows: comments of a revision, and
        findings of actors.
        """
        return [one for one in self.comments.of_plan(self.plan_id) if one.is_open and _is_known(one)]


class AnswerCommentArguments(Arguments):
    comment: int = Field(ge=1, description="the number of the comment")
    resolution: Literal["resolved", "declined"] = Field(
        description="`resolved`: the files are now as the comment asks; `declined`: they stay, for a reason"
    )
    reason: str = Field(
        default="", max_length=_LONGEST, description="what was changed; for `declined`, why nothing was"
    )
    call: int | None = Field(
        default=None, ge=1, description="the number of the call that settled it; default: the last change"
    )


class AnswerCommentResult(Result):
    comment: int
    state: str
    call: int | None = Field(description="the call that settled the comment")
    open: list[int] = Field(description="the comments that still need an answer")


class AnswerComment(TypedTool[AnswerCommentArguments, AnswerCommentResult]):
    name = ANSWER_COMMENT
    description = "Answer a comment on your result once it is settled. Without an answer it stays open."
    capability = Capability.READ
    arguments = AnswerCommentArguments
    result = AnswerCommentResult

    def __init__(self, target: CommentTarget) -> None:
        self._target = target

    def run(self, arguments: AnswerCommentArguments, workplace: Workplace) -> AnswerCommentResult:
        target, state = self._target, CommentState(arguments.resolution)
        reason = redact_content_text(arguments.reason.strip())
        this = running_call(self.name, target.calls())
        settled = self._settling(arguments, this)
        if not reason and (settled is None or state is CommentState.DECLINED):
            why = "a declined comment needs a reason"
            if state is CommentState.RESOLVED:
                why = "no change was made since the comment; name the call that settled it, or give a reason"
            raise ToolRefused(self.name, why)
        made = NewAnswer(state, target.actor, reason, by_actor=True, call=settled, by_call=this.number)
        try:
            target.comments.answer(
                target.plan_id, arguments.comment, made, now=target.now(), ensure=_ensure_answerable
            )
        except UnknownComment as error:
            raise ToolRefused(self.name, f"no comment {error.number}") from error
        left = [one.number for one in target.answerable()]
        return AnswerCommentResult(comment=arguments.comment, state=state.value, call=settled, open=left)

    def _settling(self, arguments: AnswerCommentArguments, this: ToolCall) -> int | None:
        """Return the number of the call that settled the comment; None for a declined comment."""
        done = [
            call
            for call in self._target.calls()
            if call.number < this.number and call.state is CallState.ENDED and call.tool != self.name
        ]
        if arguments.call is not None:
            if all(call.number != arguments.call for call in done):
                raise ToolRefused(self.name, f"no finished call {arguments.call} before this one")
            return arguments.call
        if arguments.resolution == CommentState.DECLINED.value:
            return None
        every = self._target.comments.of_plan(self._target.plan_id)
        since = [one.created_at for one in every if one.number == arguments.comment]
        changed = (
            [call.number for call in done if call.changeset_id is not None and call.started_at >= max(since)]
            if since
            else []
        )
        return max(changed, default=None)


class CommentTools(FixedTools):
    """`ToolSource` of `answer_comment`, which exists only while a comment needs an answer. Any thread may use
    it.
    """

    def __init__(self, target: CommentTarget) -> None:
        super().__init__(AnswerComment(target))
        self._target = target

    def get(self, name: str) -> Tool:
        found = super().get(name)
        if not any(_is_known(one) for one in self._target.comments.of_plan(self._target.plan_id)):
            raise UnknownTool(name, ())
        return found

    def names(self) -> tuple[str, ...]:
        return super().names() if self._target.answerable() else ()


def _is_known(comment: Comment) -> bool:
    return comment.batch is not None or comment.made.by_actor


def _ensure_answerable(comment: Comment) -> None:
    if not _is_known(comment):  # guard: a comment that came meanwhile belongs to the next revision
        raise ToolRefused(ANSWER_COMMENT, f"comment {comment.number} is not part of this revision")
    if not comment.is_open:
        raise ToolRefused(ANSWER_COMMENT, f"comment {comment.number} is already {comment.state.value}")
