"""Routes that find the code relevant to a question."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from cleveragents.api.context import LONGEST_SECONDS, ContextView
from cleveragents.server.access import OperatorClient
from cleveragents.server.parameters import NAME, Body

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["context"])


class ContextQuestion(Body):
    """A question about a repository."""

    question: str = Field(
        min_length=1,
        max_length=100_000,
        description="a sentence, an error message, a whole issue",
        examples=["Where is the session cookie signed?"],
    )
    resource: str = Field(
        max_length=64, pattern=NAME, description="the name of a resource", examples=["shop-main"]
    )
    budget: int | None = Field(
        None, ge=64, le=200_000, description="limit of tokens in the answer", examples=[8000]
    )
    deadline: float | None = Field(
        None,
        gt=0,
        le=LONGEST_SECONDS,
        description="time limit in seconds, including the index",
        examples=[10],
    )
    at: str | None = Field(
        None,
        max_length=200,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._+/^~-]*$",
        description="a commit of the repository; null: its current files",
        examples=["HEAD~3"],
    )


@router.post("/context", operation_id="findContext")
def find_context(question: ContextQuestion, client: OperatorClient) -> ContextView:
    """Find the code relevant to a question, within a budget of tokens and time.

    No model is called. The first question about a repository builds its index, which is kept. A git remote is
    searched at the current commit of its branch. `at` names another commit.
    """
    return client.context.ask(
        question.question,
        resource=question.resource,
        at=question.at,
        budget=question.budget,
        deadline=question.deadline,
    )
