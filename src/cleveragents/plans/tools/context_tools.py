"""The context tools of actors: search for relevant code, search past commits, and the remaining budget.

`PlanContext` counts the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from pydantic import Field

from cleveragents.context.context_parts import PastCommit
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.plan_context import REQUEST_CONTEXT, PlanContext
from cleveragents.context.query import LEAST_TOKENS
from cleveragents.context.search.git_history import most_alike
from cleveragents.core.errors import QuestionRefused, SourceMissing, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.models.tokens import estimate_text
from cleveragents.tools.ports import FixedTools, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["ContextTools"]

_FILES_NAMED = 20
_NOTES_TOLD = 5
_MOST_NOTE = 300
_MOST_COMMITS = 2_000
_MOST_MESSAGE = 600
_PATHS_NAMED = 20


class RequestContextArguments(Arguments):
    question: str = Field(
        min_length=1, max_length=20_000, description="what you need to know, with names and error messages"
    )
    budget_tokens: int = Field(
        default=4_000, ge=LEAST_TOKENS, le=100_000, description="the most tokens that the answer may have"
    )


class RequestContextResult(Result):
    text: str = Field(description="the relevant code as whole definitions, the best file first")
    files: list[str] = Field(description="the relevant files, the best first")
    tokens: int
    tokens_left: int = Field(description="the context tokens that remain for the plan")
    notes: list[str]


class RequestContext(TypedTool[RequestContextArguments, RequestContextResult]):
    name = REQUEST_CONTEXT
    description = (
        "Find the code relevant to a question, by words, names, paths, imports and history, within a token "
        "budget. Quicker than searching file by file."
    )
    capability = Capability.READ
    arguments = RequestContextArguments
    result = RequestContextResult

    def __init__(self, context: PlanContext) -> None:
        self._context = context

    def run(self, arguments: RequestContextArguments, workplace: Workplace) -> RequestContextResult:
        left = self._context.left
        if left < LEAST_TOKENS:  # guard: the total stays within the limit
            spent = f"the plan has used its {self._context.terms.plan_tokens:,} tokens of context"
            raise ToolRefused(self.name, f"{spent}; use grep and read")
        try:
            answer = self._context.ask(arguments.question, min(arguments.budget_tokens, left))
        except (QuestionRefused, SourceMissing) as refused:
            raise ToolRefused(self.name, str(refused)) from refused
        workplace.stop.raise_if_cancelled()
        room = min(arguments.budget_tokens, left) - answer.tokens
        notes, room = _fitting((note[:_MOST_NOTE] for note in answer.notes[:_NOTES_TOLD]), room)
        files, room = _fitting((place.path for place in answer.files[:_FILES_NAMED]), room)
        tokens = min(arguments.budget_tokens, left) - room
        return RequestContextResult(
            text=answer.text, files=files, tokens=tokens, tokens_left=left - tokens, notes=notes
        )


class QueryHistoryArguments(Arguments):
    question: str = Field(default="", max_length=20_000, description="what the commits should be about")
    path: str = Field(default="", description="only commits that changed this file, or files like `src/**`")
    limit: int = Field(default=10, ge=1, le=50, description="the number of commits to return")


class QueriedCommit(Result):
    id: str
    date: str
    message: str
    paths: list[str]


class QueryHistoryResult(Result):
    commits: list[QueriedCommit] = Field(
        description="the most similar first; the newest first without a question"
    )
    searched: int = Field(description="the number of commits searched")


class QueryHistory(TypedTool[QueryHistoryArguments, QueryHistoryResult]):
    name = "query_history"
    description = "Find past commits that are about a question, or that changed a file."
    capability = Capability.READ
    arguments = QueryHistoryArguments
    result = QueryHistoryResult

    def __init__(self, context: PlanContext) -> None:
        self._context = context

    def run(self, arguments: QueryHistoryArguments, workplace: Workplace) -> QueryHistoryResult:
        commits = self._context.commits(_MOST_COMMITS)
        pattern = arguments.path.removeprefix("./").replace("**", "*")
        if pattern:
            commits = [commit for commit in commits if _touches(commit, pattern)]
        found = list(commits[: arguments.limit])
        if arguments.question.strip():
            query = dict.fromkeys(terms_of(arguments.question), 1.0)
            found = [commit for _, commit in most_alike(commits, query, most=arguments.limit)]
        return QueryHistoryResult(commits=[_told(commit) for commit in found], searched=len(commits))


class GetContextBudgetArguments(Arguments):
    pass


class GetContextBudgetResult(Result):
    allowed: int = Field(description="all tokens of context that the plan may receive")
    given: int
    left: int


class GetContextBudget(TypedTool[GetContextBudgetArguments, GetContextBudgetResult]):
    name = "get_context_budget"
    description = "Return how many tokens of context remain for request_context."
    capability = Capability.READ
    arguments = GetContextBudgetArguments
    result = GetContextBudgetResult

    def __init__(self, context: PlanContext) -> None:
        self._context = context

    def run(self, arguments: GetContextBudgetArguments, workplace: Workplace) -> GetContextBudgetResult:
        given, allowed = self._context.given, self._context.terms.plan_tokens
        return GetContextBudgetResult(allowed=allowed, given=given, left=max(0, allowed - given))


class ContextTools(FixedTools):
    """`ToolSource` of these three tools. Any thread may use it."""

    def __init__(self, context: PlanContext) -> None:
        super().__init__(GetContextBudget(context), QueryHistory(context), RequestContext(context))


def _fitting(texts: Iterable[str], room: int) -> tuple[list[str], int]:
    """Return the first texts that fit into `room` tokens, and the remaining room."""
    kept: list[str] = []
    for text in texts:
        tokens = estimate_text(text) + 1
        if tokens > room:  # guard: every token counts
            break
        kept.append(text)
        room -= tokens
    return kept, room


def _touches(commit: PastCommit, pattern: str) -> bool:
    below = f"{pattern.rstrip('/')}/"
    return any(
        path == pattern or path.startswith(below) or fnmatchcase(path, pattern) for path in commit.paths
    )


def _told(commit: PastCommit) -> QueriedCommit:
    return QueriedCommit(
        id=commit.id[:12],
        date=commit.at.date().isoformat(),
        message=redact_content_text(commit.message.strip())[:_MOST_MESSAGE],
        paths=list(commit.paths[:_PATHS_NAMED]),
    )
