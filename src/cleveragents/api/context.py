"""Context: find the code relevant to a question."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from cleveragents.api.actions import ensure_no_directory
from cleveragents.api.views import shown, view, view_of
from cleveragents.core.errors import RequestRefused
from cleveragents.core.json_value import freeze

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.context.code_index import IndexProgress
    from cleveragents.context.model.context import (
        ContextAnswer,
        Finding,
        PackedFragment,
        RankedDefinition,
        StrategyReport,
    )

__all__ = [
    "LONGEST_SECONDS",
    "Context",
    "ContextView",
    "DefinitionView",
    "FindingView",
    "FragmentView",
    "HttpContext",
    "LocalContext",
    "RankedFileView",
    "StrategyView",
    "context_view",
]

LONGEST_SECONDS = 60.0
"""The longest deadline of a question about a resource."""

_INDEX_SECONDS = 3600.0
"""The deadline at a terminal: a person sees the progress of the index and may interrupt it; partial work is
kept.
"""

_FIND_SECONDS = 10.0


@view
class FindingView:
    """The strategy that found a fragment or file, and its reason."""

    strategy: str = shown(examples=["keyword"])
    signal: str = shown(examples=["title"])
    score: float = shown(examples=[0.91])


@view
class FragmentView:
    """A fragment of a file."""

    path: str = shown(examples=["src/session.py"])
    lines: tuple[int, int] | None = shown("the first and the last line", examples=[[10, 24]])
    score: float = shown(examples=[0.87])
    depth: str = shown("level of detail", examples=["full"])
    tokens: int = shown(examples=[120])
    text: str = shown(examples=["def sign(cookie: str) -> str: …"])
    found_by: tuple[FindingView, ...] = shown()


@view
class RankedFileView:
    """A file with its score and findings."""

    path: str = shown(examples=["src/session.py"])
    score: float = shown(examples=[0.87])
    found_by: tuple[FindingView, ...] = shown()


@view
class DefinitionView:
    """A function, method or class with its score and the reasons why it was found."""

    path: str = shown(examples=["src/session.py"])
    name: str = shown("the dotted name within the file", examples=["Session.sign"])
    kind: str = shown(examples=["method"])
    lines: tuple[int, int] = shown("the first and the last line", examples=[[10, 24]])
    score: float = shown(examples=[0.87])
    reasons: tuple[str, ...] = shown(
        "the reasons, the most important first", examples=[["named in the question"]]
    )


@view
class StrategyView:
    """The result of one strategy."""

    name: str = shown(examples=["keyword"])
    status: str = shown(examples=["ok"])
    found: int = shown(examples=[12])
    ms: int = shown(examples=[8])
    error: str | None = shown(examples=[None])
    truncated: bool = shown("whether some results were dropped", examples=[False])


@view
class ContextView:
    """The relevant definitions, files and fragments, best first, within the budget."""

    files: tuple[str, ...] = shown(examples=[["src/session.py"]])
    fragments: tuple[FragmentView, ...] = shown()
    strategies: tuple[StrategyView, ...] = shown()
    tokens: int = shown(examples=[2040])
    budget: int = shown(examples=[8000])
    took_ms: int = shown(examples=[180])
    notes: tuple[str, ...] = shown("notes, such as deviations from the request", examples=[[]])
    preamble: str = shown(examples=["a web shop in Python"])
    skeleton: str = shown("an overview of the repository", examples=["src/\n  session.py"])
    ranking: tuple[RankedFileView, ...] = shown("the files with their findings", default_factory=lambda: None)
    definitions: tuple[DefinitionView, ...] = shown("the best definitions, best first", default=())

    def __post_init__(self) -> None:
        if self.ranking is None:  # a server of 0.1.0 does not send the findings
            unsaid = tuple(RankedFileView(path=path, score=0.0, found_by=()) for path in self.files)
            object.__setattr__(self, "ranking", unsaid)

    @property
    def text(self) -> str:
        """The text for a model, as counted against the budget."""
        parts = (self.preamble, self.skeleton, *(fragment.text for fragment in self.fragments))
        return "\n".join(part for part in parts if part)


class Context(Protocol):
    """The search for code relevant to a question."""

    def ask(
        self,
        question: str,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        at: str | None = None,
        budget: int | None = None,
        deadline: float | None = None,
        fragments: bool = True,
        rerank: bool = True,
        on_progress: IndexProgress | None = None,
    ) -> ContextView:
        """Find the code relevant to a question, within a budget of tokens and seconds.

        The repository is that of a `resource`, in its current state or `at` a commit; or the repository
        around the directory `repository` of this machine, which only a local client of the owner can read.
        The first question about a repository builds its index; a local client reports the progress to
        `on_progress`. Without `fragments` only files are ranked, which is faster. A model is called only for
        a directory of this machine, if `context.rerank_model` names one and `rerank` is set.

        Raises `UnknownResource`; `NotAllowed` unless the user is an operator of the project; `RequestRefused`
        if the commit does not exist; `QuestionRefused`, `RemoteUnreachable`, `SandboxRefused`.
        """


class LocalContext:
    """The search in this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def ask(
        self,
        question: str,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        at: str | None = None,
        budget: int | None = None,
        deadline: float | None = None,
        fragments: bool = True,
        rerank: bool = True,
        on_progress: IndexProgress | None = None,
    ) -> ContextView:
        from cleveragents.context.code_index import CodePlace
        from cleveragents.context.query import ContextQuery
        from cleveragents.core.errors import SourceMissing

        container = self._access.container
        settings = container.settings.context
        if resource is not None:
            place, nothing = self._place_of(resource)
            seconds = min(deadline or settings.deadline_seconds, LONGEST_SECONDS)
            index_seconds, pipeline = None, container.context_parts.pipeline
        elif repository is not None:
            self._access.ensure_server_admin()  # guard: only the owner reads directories of the machine
            place, nothing = _place_around(repository, deadline)
            seconds = settings.deadline_seconds if deadline is None else deadline
            index_seconds = _INDEX_SECONDS if deadline is None else None
            parts = container.context_parts
            pipeline = parts.lone_pipeline if rerank else parts.pipeline
        else:
            raise RequestRefused("missing `resource`: pass the name of the resource to search", "resource")
        asked = ContextQuery(
            question=question,
            place=CodePlace(place, at),
            budget_tokens=settings.budget_tokens if budget is None else budget,
            deadline_seconds=seconds,
            index_seconds=index_seconds,
            fragments=fragments,
            progress=on_progress,
        )
        try:
            answer = pipeline.ask(asked)
        except SourceMissing:
            if at is None or resource is None:
                raise
            raise RequestRefused(f"resource {resource} has no commit {at}", "at") from None
        if at is None and nothing is not None and not answer.files:
            # Otherwise the user would look for better words.
            answer = replace(answer, notes=(*answer.notes, nothing))
        return context_view(answer)

    def _place_of(self, name: str) -> tuple[Path, str | None]:
        from cleveragents.access.model.user import Role
        from cleveragents.api.resources import place_of

        resource = self._access.resource(name, Role.OPERATOR)
        place = place_of(self._access.container, resource)
        return place, f"there is no file in resource {resource.name}" if _has_no_files(place) else None


class HttpContext:
    """The search on a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def ask(
        self,
        question: str,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        at: str | None = None,
        budget: int | None = None,
        deadline: float | None = None,
        fragments: bool = True,
        rerank: bool = True,
        on_progress: IndexProgress | None = None,
    ) -> ContextView:
        ensure_no_directory(repository)
        if resource is None:
            raise RequestRefused("missing `resource`: pass the name of the resource to search", "resource")
        body = {"question": question, "resource": resource, "at": at, "budget": budget, "deadline": deadline}
        answer = view_of(ContextView, self._http.post("/context", body))
        return answer if fragments else replace(answer, fragments=())


def context_view(answer: ContextAnswer) -> ContextView:
    """Return the view of an answer."""
    said = {
        "files": [place.path for place in answer.files],
        "fragments": [_fragment(fragment) for fragment in answer.fragments],
        "strategies": [_strategy(report) for report in answer.strategies],
        "tokens": answer.tokens,
        "budget": answer.budget,
        "took_ms": round(answer.seconds * 1000),
        "notes": answer.notes,
        "preamble": answer.preamble,
        "skeleton": answer.skeleton,
        "ranking": [
            {"path": place.path, "score": round(place.score, 4), "found_by": _found_by(place.findings)}
            for place in answer.files
        ],
        "definitions": [_definition(definition) for definition in answer.definitions],
    }
    return view_of(ContextView, freeze(said))


def _place_around(directory: Path, deadline: float | None) -> tuple[Path, str | None]:
    """Return the repository around the directory, or the directory itself; and the reason why nothing can be
    found in it, or None.
    """
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource

    try:
        # With any deadline: a healthy repository responds within a second and must not count as missing.
        seconds = _FIND_SECONDS if deadline is None else min(_FIND_SECONDS, max(1.0, deadline / 4))
        root, _ = find_resource(directory, seconds=seconds)
    except SandboxRefused as refused:
        # A bare repository has commits but no files, and if git fails there may still be files; the index
        # refuses everything else.
        otherwise = ", or name a commit" if "bare repository" in refused.reason else ""
        return directory.resolve(), f"{refused.reason}{otherwise}"
    return root, f"there is no file in {root}" if _has_no_files(root) else None


def _has_no_files(root: Path) -> bool:
    """Return whether the directory has no files at all."""
    try:
        return all(entry.name == ".git" for entry in root.iterdir())
    except OSError:  # the index reports unreadable files
        return False


def _fragment(fragment: PackedFragment) -> dict[str, object]:
    place, rendering = fragment.place, fragment.rendering
    return {
        "path": place.path,
        "lines": None if place.span is None else (place.span.first, place.span.last),
        "score": round(place.score, 4),
        "depth": rendering.depth.value,
        "tokens": rendering.tokens,
        "text": rendering.text,
        "found_by": _found_by(place.findings),
    }


def _definition(definition: RankedDefinition) -> dict[str, object]:
    return {
        "path": definition.path,
        "name": definition.name,
        "kind": definition.kind,
        "lines": (definition.span.first, definition.span.last),
        "score": round(definition.score, 4),
        "reasons": definition.reasons,
    }


def _found_by(findings: Iterable[Finding]) -> list[dict[str, object]]:
    return [
        {"strategy": found.strategy, "signal": found.signal, "score": round(found.score, 4)}
        for found in findings
    ]


def _strategy(report: StrategyReport) -> dict[str, object]:
    return {
        "name": report.name,
        "status": report.status.value,
        "found": len(report.fragments),
        "ms": round(report.seconds * 1000),
        "error": report.error,
        "truncated": report.truncated,
    }
