"""Views: the frozen, typed values that a client returns, and their JSON.

A view is a frozen dataclass. Its JSON has the same names as its fields, over HTTP and with `--format json`; a
field whose JSON name is a Python keyword declares this name separately. An older client ignores a field that
a newer server adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform, get_args, get_type_hints

from cleveragents.api.format import on_one_line, printable_value
from cleveragents.core.errors import ServerFailed
from cleveragents.core.json_value import thaw
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue

__all__ = ["Page", "ServerResponse", "as_json", "every", "page_of", "shown", "understood", "view", "view_of"]

View = TypeVar("View")

_NOT_UNDERSTOOD = "answer-not-understood"
_MOST_WORDS = 300
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class ServerResponse(dict[str, Any]):
    """A JSON object from a server. Reading a missing name raises `ServerFailed`."""

    def __init__(self, said: Mapping[str, Any], status: int) -> None:
        super().__init__(said)
        self.status = status

    def __missing__(self, name: str) -> Any:
        raise _not_understood(ValueError(f"the field `{name}` is missing"), self.status)


@contextmanager
def understood(status: int = 200) -> Iterator[None]:
    """Translate errors in the block, which reads a server's answer, to `ServerFailed`: the answer has an
    unknown form, for example from another version. A `CleverAgentsError` passes unchanged.
    """
    from msgspec import MsgspecError

    try:
        yield
    except (MsgspecError, *_UNREADABLE) as error:
        raise _not_understood(error, status) from error


def _not_understood(error: Exception, status: int) -> ServerFailed:
    words = redact_text(on_one_line(str(error)))[:_MOST_WORDS] or type(error).__name__
    if isinstance(error, LookupError):
        words = f"{words} is missing"
    problem = f"cannot read the server's answer: {words}; the server may have another version"
    return ServerFailed(problem, _NOT_UNDERSTOOD, status)


def shown(
    description: str = "",
    *,
    examples: list[Any] | None = None,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    name: str | None = None,
) -> Any:
    """Declare a field of a view, with its description and examples in the API's documentation.

    A field without a default is required. A default from a factory is not documented. `name` is the JSON
    name, if it is a Python keyword.
    """
    said: dict[str, Any] = {"description": description} if description else {}
    said |= {} if name is None else {"alias": name}
    metadata = said if examples is None else {**said, "examples": examples}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(shown,))
def view(kind: type[View]) -> type[View]:
    """Make the class a view: frozen, with keyword arguments only."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[View]):
    """One page of a list. `next` is the `after` of the next page; None on the last page."""

    items: tuple[View, ...]
    next: str | None = field(default=None, metadata={"description": "value of `after` for the next page"})


def every(page_after: Callable[[str | None], Page[View]]) -> Iterator[View]:
    """Yield the items of all pages."""
    after: str | None = None
    while True:
        page = page_after(after)
        yield from page.items
        if (after := page.next) is None:
            return


def page_of(items: Iterable[View], key: Callable[[View], str], limit: int, after: str | None) -> Page[View]:
    """Return one page of a short list, in the order of `key`."""
    left = sorted((item for item in items if after is None or key(item) > after), key=key)
    piece = tuple(left[:limit])
    return Page(items=piece, next=key(piece[-1]) if len(left) > limit else None)


def view_of(kind: type[View], data: JsonValue) -> View:
    """Return the view with this JSON.

    Raises an error if the JSON has another shape: `ServerFailed` if it came from a server, else
    `msgspec.ValidationError`.
    """
    from msgspec import convert

    with understood(data.status) if isinstance(data, ServerResponse) else nullcontext():
        return convert(_renamed(kind, printable_value(thaw(data)), to_json=False), kind)


def as_json(view: object) -> dict[str, Any]:
    """Return the JSON of a view."""
    from msgspec import to_builtins

    # Lists instead of tuples.
    said = _renamed(type(view), printable_value(to_builtins(view)), to_json=True)
    assert isinstance(said, dict)
    return said


@dataclass(frozen=True, slots=True)
class _Names:
    """The fields of a view that have another name in JSON, and the fields that contain views with such
    fields.
    """

    in_json: Mapping[str, str]
    inside: Mapping[str, type]


@cache
def _names_of(kind: type) -> _Names:
    # Generic classes keep type variables as hints; their views are converted one by one.
    hints = get_type_hints(kind)
    inside: dict[str, type] = {}
    for item in fields(kind):
        for found in _views_in(hints[item.name]):
            names = _names_of(found)
            if names.in_json or names.inside:
                inside[item.name] = found
    in_json = {item.name: item.metadata["alias"] for item in fields(kind) if "alias" in item.metadata}
    return _Names(in_json, inside)


def _views_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for inner in get_args(hint):
        yield from _views_in(inner)


def _renamed(kind: type, data: object, *, to_json: bool) -> object:
    """Return the data of a view, of a list of views or of None with the keys renamed: to the names in JSON if
    `to_json`, else to the names of the fields.
    """
    names = _names_of(kind)
    if not (names.in_json or names.inside):
        return data
    if isinstance(data, (list, tuple)):
        return [_renamed(kind, one, to_json=to_json) for one in data]
    if not isinstance(data, dict):
        return data
    renamed = dict(data)
    for name, inner in names.inside.items():
        if name in renamed:
            renamed[name] = _renamed(inner, renamed[name], to_json=to_json)
    pairs = names.in_json.items() if to_json else ((new, old) for old, new in names.in_json.items())
    new_names = dict(pairs)
    return {new_names.get(name, name): value for name, value in renamed.items()}
