"""Costs of model calls: by day, project, model or actor."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from cleveragents.api.views import shown, understood, view, view_of
from cleveragents.core.errors import RequestRefused
from cleveragents.models.store.sql_cost_report import CostGroup

if TYPE_CHECKING:
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport

__all__ = ["DAYS", "CostGroup", "CostView", "Costs", "HttpCosts", "LocalCosts"]

DAYS = 30
"""The number of days of a report without a first day."""


@view
class CostView:
    """The cost of the model calls of one day, project, model or actor."""

    name: str = shown("the day, project, model or actor", examples=["2026-11-15"])
    usd: float = shown("in dollars, without calls of unknown price", examples=[1.2345])
    calls: int = shown("model calls", examples=[42])
    input_tokens: int = shown(examples=[120_000])
    output_tokens: int = shown(examples=[8_000])
    unpriced: int = shown("calls whose price is unknown", examples=[0])
    interrupted: int = shown("calls that were interrupted: each counts with its highest cost", examples=[0])
    cached_tokens: int = shown(
        "input tokens that a provider read from its prompt cache", default=0, examples=[96_000]
    )


class Costs(Protocol):
    """The costs of the plans that the acting user can see."""

    def list(
        self,
        by: CostGroup = "day",
        *,
        since: date | None = None,
        until: date | None = None,
        project: str | None = None,
    ) -> tuple[CostView, ...]:
        """Return the costs from the day `since` to the day `until`, both included, in UTC: days in order,
        others with the highest cost first. The default is the last 30 days.

        Deleted plans are not counted. Raises `RequestRefused` if `until` is before `since`.
        """


class LocalCosts:
    """Costs in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def list(
        self,
        by: CostGroup = "day",
        *,
        since: date | None = None,
        until: date | None = None,
        project: str | None = None,
    ) -> tuple[CostView, ...]:
        from cleveragents.models.model.budget import PICODOLLARS
        from cleveragents.models.store.sql_cost_report import SqlCostReport

        container = self._access.container
        last = until or container.clock.now().astimezone(UTC).date()
        first = since or last - timedelta(days=min(DAYS - 1, last.toordinal() - 1))
        if last < first:
            raise RequestRefused(f"the last day {last} is before the first day {first}", "until")
        sums = SqlCostReport(container.database).sums(
            by,
            since=_midnight(first),
            until=_midnight(last) + timedelta(days=1) if last < date.max else _midnight(last),
            project=project,
            scope=self._access.scope,
        )
        return tuple(
            CostView(
                name=one.name,
                usd=one.picodollars / PICODOLLARS,
                calls=one.calls,
                input_tokens=one.input_tokens,
                output_tokens=one.output_tokens,
                unpriced=one.unpriced,
                interrupted=one.interrupted,
                cached_tokens=one.cached_tokens,
            )
            for one in sums
        )


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


class HttpCosts:
    """Costs of a server's plans."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(
        self,
        by: CostGroup = "day",
        *,
        since: date | None = None,
        until: date | None = None,
        project: str | None = None,
    ) -> tuple[CostView, ...]:
        days = {name: day.isoformat() for name, day in (("since", since), ("until", until)) if day}
        said = self._http.get("/costs", by=by, project=project, **days)
        with understood(said.status):
            return tuple(view_of(CostView, one) for one in said["items"])
