"""The context tools of actors: search for relevant code or whole files, search past commits, and the
remaining budget.

`PlanContext` counts the tokens.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pydantic import Field

from cleveragents.context.context_parts import PastCommit
from cleveragents.context.model.code import is_test
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.plan_context import REQUEST_CONTEXT, PlanContext
from cleveragents.context.query import LEAST_TOKENS
from cleveragents.context.search.git_history import most_alike
from cleveragents.core.errors import OutsideSandbox, QuestionRefused, SourceMissing, ToolRefused
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_content_text
from cleveragents.models.tokens import estimate_text
from cleveragents.plans.tools.block_edits import paths_in
from cleveragents.plans.tools.line_edits import TRIED
from cleveragents.tools.files.text_files import read_text
from cleveragents.tools.ports import FixedTools, SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["ContextTools"]

_FILES_NAMED = 20
_NOTES_TOLD = 5
_MOST_NOTE = 300
_MOST_COMMITS = 2_000
_MOST_MESSAGE = 600
_PATHS_NAMED = 20
_LONGEST_QUESTION = 20_000
_MOST_FILES = 4
_WORTH = 0.3
_LEAST_LINES = 6
_COMMENTS = ("#", "//", "/*")
_TICKS = re.compile(r"`{3,}")


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


class ShowFilesArguments(Arguments):
    question: str = Field(
        min_length=1, max_length=200_000, description="what is to be done; files that it names come first"
    )
    tests: bool = Field(default=True, description="whether tests are shown, too")
    prose: bool = Field(default=True, description="whether paths, comments and docstrings are shown, too")
    without: str = Field(default="", description="a text; lines that it calls `Tried: …` are left out")


class ShowFilesResult(Result):
    text: str = Field(description="the files, each whole in a code block below its path")


class ShowFiles(TypedTool[ShowFilesArguments, ShowFilesResult]):
    """Shows whole files, for models that answer with code and call no tools.

    Files that the question names are chosen first, then the best files of the search, each with its test. A
    file that does not fit into the tokens is left out.
    """

    name = "show_files"
    description = "Shows the files that a task is about, whole."
    capability = Capability.READ
    arguments = ShowFilesArguments
    result = ShowFilesResult

    def __init__(self, context: PlanContext, tokens: int) -> None:
        self._context = context
        self._tokens = tokens

    def run(self, arguments: ShowFilesArguments, workplace: Workplace) -> ShowFilesResult:
        files, question = workplace.files, arguments.question
        named = [path for path in dict.fromkeys(paths_in(question)) if _is_file(files, path)]
        found: list[str] = []
        with suppress(QuestionRefused, SourceMissing):
            answer = self._context.ask(question[:_LONGEST_QUESTION], max(LEAST_TOKENS, self._tokens))
            best = answer.files[0].score if answer.files else 0.0
            found = [place.path for place in answer.files if place.score >= best * _WORTH]
        workplace.stop.raise_if_cancelled()
        shown: dict[str, str] = {}
        room = self._tokens
        candidates = (path for one in [*named, *found] for path in (one, *_tests_of(one)))
        for path in dict.fromkeys(path for path in candidates if _is_file(files, path)):
            text = _whole(files, path)
            tokens = estimate_text(text) if text else room + 1
            if tokens <= room and len(shown) < _MOST_FILES + len(named):
                shown[path] = text
                room -= tokens
        if not arguments.tests:
            shown = {path: text for path, text in shown.items() if not is_test(path)}
        if not arguments.prose:
            shown = {path: _without_prose(path, _text(files, path) or "") for path in shown}
        tried = {line.removeprefix(TRIED) for line in arguments.without.split("\n") if line.startswith(TRIED)}
        return ShowFilesResult(text=_without(tried, _arranged(shown)))


def _without(tried: set[str], text: str) -> str:
    """Return the text without these lines, or whole if few other lines remain."""
    lines = [line for line in text.split("\n") if line.strip() not in tried]
    return "\n".join(lines) if tried and len(lines) >= _LEAST_LINES else text


def _arranged(shown: Mapping[str, str]) -> str:
    """Return the tests, then the other files.

    Tests come first because they do not change during a task: a model server can reuse its computation for
    them.
    """
    tests = [text for path, text in shown.items() if is_test(path)]
    others = [text for path, text in shown.items() if not is_test(path)]
    if not tests or not others:
        return "\n\n".join([*tests, *others])
    return "\n\n".join(["Tests. They are right:", *tests, "Files to work on:", *others])


def _tests_of(path: str) -> tuple[str, ...]:
    """Return the possible paths of the test of a Python file."""
    place = PurePosixPath(path)
    test = f"test_{place.name}"
    return (str(place.with_name(test)), f"tests/{test}", f"test/{test}")


def _is_file(files: SandboxFiles, path: str) -> bool:
    """Return whether the sandbox has this file. A question may name any path, such as `/usr/lib/a.py`."""
    try:
        return files.kind(path) == "file"
    except (ToolRefused, OutsideSandbox):
        return False


def _whole(files: SandboxFiles, path: str) -> str:
    """Return the file in a code block below its path; empty if it is not text."""
    text = _text(files, path)
    if text is None:
        return ""
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{path}\n{fence}\n{text.rstrip()}\n{fence}"


def _text(files: SandboxFiles, path: str) -> str | None:
    try:
        return redact_content_text(read_text(files, path)[0])
    except (ToolRefused, OutsideSandbox):
        return None


def _without_prose(path: str, text: str) -> str:
    """Return the text without lines that hold only a comment, and without docstrings of Python."""
    lines = text.split("\n")
    prose = {number for number, line in enumerate(lines, 1) if line.lstrip().startswith(_COMMENTS)}
    if path.endswith(".py"):
        with suppress(SyntaxError, ValueError, RecursionError):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in prose)


class ContextTools(FixedTools):
    """`ToolSource` of these tools. `files_tokens` limits the files of `show_files`. Any thread may use it."""

    def __init__(self, context: PlanContext, *, files_tokens: int = 8_192) -> None:
        super().__init__(
            GetContextBudget(context),
            QueryHistory(context),
            RequestContext(context),
            ShowFiles(context, files_tokens),
        )


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
