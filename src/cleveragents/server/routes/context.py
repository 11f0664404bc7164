"""Context: what of a repository matters for a question."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role
from cleveragents.api.context_account import context_account, has_no_files
from cleveragents.api.project_account import place_of
from cleveragents.core.errors import RequestRefused, SourceMissing
from cleveragents.server.access import Operator
from cleveragents.server.accounts import NAME, Body, account_as
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["context"])

_LONGEST_SECONDS = 60.0


class Question(Body):
    """What somebody wants to know of a repository."""

    question: str = Field(
        min_length=1,
        max_length=100_000,
        description="a sentence, an error message, a whole issue",
        examples=["Where is the session cookie signed?"],
    )
    resource: str = Field(max_length=64, pattern=NAME, description="the name of one", examples=["shop-main"])
    budget: int | None = Field(
        None, ge=64, le=200_000, description="tokens that the answer may take", examples=[8000]
    )
    deadline: float | None = Field(
        None,
        gt=0,
        le=_LONGEST_SECONDS,
        description="seconds that it may take, indexing included",
        examples=[10],
    )
    at: str | None = Field(
        None,
        max_length=200,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+/^~-]*$",
        description="a commit of the repository; null: its files as they are",
        examples=["HEAD~3"],
    )


class Finding(BaseModel):
    """Who found a fragment, and why."""

    strategy: str = Field(examples=["keyword"])
    signal: str = Field(examples=["title"])
    score: float = Field(examples=[0.91])


class Fragment(BaseModel):
    """A piece of a file."""

    path: str = Field(examples=["src/session.py"])
    lines: tuple[int, int] | None = Field(description="the first and the last", examples=[[10, 24]])
    score: float = Field(examples=[0.87])
    depth: str = Field(description="how much of it is shown", examples=["full"])
    tokens: int = Field(examples=[120])
    text: str = Field(examples=["def sign(cookie: str) -> str: …"])
    found_by: list[Finding]


class StrategyAccount(BaseModel):
    """How a strategy fared."""

    name: str = Field(examples=["keyword"])
    status: str = Field(examples=["ok"])
    found: int = Field(examples=[12])
    ms: int = Field(examples=[8])
    error: str | None = Field(examples=[None])
    truncated: bool = Field(examples=[False])


class ContextAnswer(BaseModel):
    """Files and fragments that matter, the best first, within the budget."""

    files: list[str] = Field(examples=[["src/session.py"]])
    fragments: list[Fragment]
    strategies: list[StrategyAccount]
    tokens: int = Field(examples=[2040])
    budget: int = Field(examples=[8000])
    took_ms: int = Field(examples=[180])
    notes: list[str] = Field(description="what went differently", examples=[[]])
    preamble: str = Field(examples=["a web shop in Python"])
    skeleton: str = Field(description="the repository at a glance", examples=["src/\n  session.py"])


@router.post("/context", operation_id="findContext")
def find_context(question: Question, here: Here, access: Operator) -> ContextAnswer:
    """Finds what of a repository matters for a question, within a budget of tokens and of time. No model is
    asked. The first question about a repository builds an index of it; what is done of that is kept. Of a git
    remote, the branch as it is now is asked about; or, in either, another commit."""
    from cleveragents.context.code_index import CodePlace
    from cleveragents.context.query import ContextQuery

    container = here.container
    settings = container.settings.context
    resource = access.resource(question.resource, Role.OPERATOR)
    place = place_of(container, resource)
    asked = ContextQuery(
        question=question.question,
        place=CodePlace(place, question.at),
        budget_tokens=question.budget or settings.budget_tokens,
        deadline_seconds=min(question.deadline or settings.deadline_seconds, _LONGEST_SECONDS),
    )
    try:
        answer = container.context_parts.pipeline.ask(asked)
    except SourceMissing:
        if question.at is None:
            raise
        problem = f"resource {resource.name} has no commit {question.at}"
        raise RequestRefused(problem, "at") from None
    if question.at is None and not answer.files and has_no_files(place):
        # Or whoever asked would look for better words.
        answer = replace(answer, notes=(*answer.notes, f"there is no file in resource {resource.name}"))
    return account_as(ContextAnswer, context_account(answer, only_files=False, limit=None))
