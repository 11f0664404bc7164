"""Views: the frozen, typed values that a client returns, and their JSON.

A view is a frozen dataclass. Its JSON has the same names as its fields, over HTTP and with `--format json`.
An older client ignores a field that a newer server adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform

from cleveragents.api.wording import shown_value
from cleveragents.core.json_value import thaw

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue

__all__ = ["Page", "as_json", "every", "shown", "view", "view_of"]

View = TypeVar("View")


def shown(description: str = "", *, examples: list[Any] | None = None, default: Any = MISSING) -> Any:
    """Declare a field of a view, with its description and examples in the API's documentation.

    A field without a default is required.
    """
    said = {"description": description} if description else {}
    return field(default=default, metadata=said if examples is None else {**said, "examples": examples})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(shown,))
def view(kind: type[View]) -> type[View]:
    """Make the class a view: frozen, with keyword arguments only."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[View]):
    """One page of a list. `next` is the `after` of the next page; None on the last page."""

    items: tuple[View, ...]
    next: str | None = field(default=None, metadata={"description": "the `after` of the next page"})


def every(page_after: Callable[[str | None], Page[View]]) -> Iterator[View]:
    """Yield the items of all pages."""
    after: str | None = None
    while True:
        page = page_after(after)
        yield from page.items
        if (after := page.next) is None:
            return


def view_of(kind: type[View], data: JsonValue) -> View:
    """Return the view with this JSON. `msgspec.ValidationError` if the JSON has another shape."""
    from msgspec import convert

    return convert(shown_value(thaw(data)), kind)


def as_json(view: object) -> dict[str, Any]:
    """Return the JSON of a view."""
    from msgspec import to_builtins

    said = shown_value(to_builtins(view))  # lists instead of tuples
    assert isinstance(said, dict)
    return said
