"""`dataclass` of the standard library, whose methods are made when a class is first used.

The standard library writes and compiles the source of up to eight methods for every class, which takes about
half a millisecond; a command imports some 400 classes and uses a few of them. Here a class gets a placeholder
for each of these methods. The first look at any of them has the standard library make all of them, and they
take the places of the placeholders: from then on the class is as quick as any other.

What differs: a wrong declaration (a mutable default, say) is reported at the first use, and a class without a
docstring gets none.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_FIELDS = "__dataclass_fields__"
_REPLACE = ("__replace__",) if sys.version_info >= (3, 13) else ()
_ALWAYS = (_FIELDS, "__dataclass_params__", "__match_args__", "__init__", "__repr__", *_REPLACE)
_OPTIONS = {"eq", "frozen", "kw_only", "slots"}
_NO_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")

_lock = threading.RLock()  # reentrant: a class has its bases made


class _Placeholder:
    """A method or an attribute of a dataclass that is made when it is looked at."""

    __slots__ = ("declaration", "name")

    def __init__(self, name: str, declaration: _Declaration) -> None:
        self.name = name
        self.declaration = declaration

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        value = self.declaration.made()[self.name]
        bind = getattr(type(value), "__get__", None)
        return value if bind is None else bind(value, instance, owner)


class _Declaration:
    """What a class says of itself, and the attributes that follow from it.

    Thread safety:
        Owner: the class.
        Lock: `_lock`, one for all classes, is held while the methods of one class and its bases are compiled.
        Guarantee: the attributes are made once; a thread sees a placeholder, which waits for them, or the
            attribute itself, and never a class without either.
    Cancel safety: what was interrupted is made anew at the next use.
    """

    def __init__(self, kind: type, options: Mapping[str, bool]) -> None:
        self.kind = kind
        self.options = options
        self.annotations = kind.__annotations__
        self.defaults = {name: kind.__dict__[name] for name in self.annotations if name in kind.__dict__}
        self._made: dict[str, Any] | None = None

    def placeholders(self) -> dict[str, Any]:
        """Return the attributes that the class gets: those that it does not define itself."""
        wanted = [*_ALWAYS]
        given = self.kind.__dict__
        hashed: dict[str, Any] = {}
        if self.options.get("eq", True):
            wanted.append("__eq__")
            if given.get("__hash__") is None and ("__hash__" not in given or "__eq__" in given):
                if self.options.get("frozen"):
                    hashed["__hash__"] = _Placeholder("__hash__", self)
                else:
                    hashed["__hash__"] = None
        if self.options.get("frozen"):
            wanted += ["__setattr__", "__delattr__"]
        return {name: _Placeholder(name, self) for name in wanted if name not in given} | hashed

    def made(self) -> dict[str, Any]:
        """Return the attributes; make them, and put them into the class, at the first call."""
        if self._made is None:
            with _lock:
                if self._made is None:
                    self._made = self._make()
                    self._place(self._made)
        return self._made

    def _make(self) -> dict[str, Any]:
        model = self._model()
        made = dict(model.__dict__)
        if self.options.get("frozen"):
            made["__setattr__"], made["__delattr__"] = _refusals(self.kind, model.__dict__[_FIELDS])
        return made

    def _place(self, made: Mapping[str, Any]) -> None:
        for name, placed in tuple(self.kind.__dict__.items()):
            if isinstance(placed, _Placeholder):
                setattr(self.kind, name, made[name])

    def _model(self) -> type:
        """Return a class of these fields, and those of the bases, made by the standard library."""
        inherited = {
            field.name: field
            for base in reversed(self.kind.__mro__[1:])
            if _FIELDS in base.__dict__
            for field in dataclasses.fields(base)
        }
        types = {name: field.type for name, field in inherited.items()}
        space: dict[str, Any] = {
            **{name: field for name, field in inherited.items() if name not in self.annotations},
            **self.defaults,
            "__annotations__": {**types, **self.annotations},
            "__module__": self.kind.__module__,
            "__qualname__": self.kind.__qualname__,
            "__doc__": "not to be written",
        }
        if hasattr(self.kind, "__post_init__"):
            space["__post_init__"] = None
        return dataclasses.dataclass(**{**self.options, "slots": False})(type(self.kind.__name__, (), space))


def _refusals(kind: type, fields: Mapping[str, object]) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return `__setattr__` and `__delattr__` of a frozen class."""

    def refuse_assignment(self: object, name: str, value: object) -> None:
        if type(self) is kind or name in fields:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def refuse_deletion(self: object, name: str) -> None:
        if type(self) is kind or name in fields:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return refuse_assignment, refuse_deletion


def _declared(kind: type, options: Mapping[str, bool]) -> type:
    if not _understood(kind, options):
        return dataclasses.dataclass(**options)(kind)
    declaration = _Declaration(kind, options)
    if options.get("slots"):
        return _slotted(declaration)
    for name, placed in declaration.placeholders().items():
        setattr(kind, name, placed)
    for name, default in declaration.defaults.items():
        if isinstance(default, Field):
            if default.default is MISSING:
                delattr(kind, name)
            else:
                setattr(kind, name, default.default)
    return kind


def _understood(kind: type, options: Mapping[str, bool]) -> bool:
    """Whether the class needs nothing that only the standard library knows."""
    return (
        options.keys() <= _OPTIONS
        and "__slots__" not in kind.__dict__
        and all(
            isinstance(said, str) and not any(word in said for word in _NO_FIELDS)
            for said in kind.__annotations__.values()
        )
        and not (options.get("slots") and any(_without_slots(base) for base in kind.__mro__[1:]))
    )


def _without_slots(base: type) -> bool:
    return _FIELDS in base.__dict__ and "__slots__" not in base.__dict__


def _slotted(declaration: _Declaration) -> type:
    """Return the class anew, with a slot for each field: slots cannot be added to a class."""
    old = declaration.kind
    inherited = {name for base in old.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
    space = {name: value for name, value in old.__dict__.items() if name not in declaration.annotations}
    space.pop("__dict__", None)
    space.pop("__weakref__", None)
    space |= declaration.placeholders()
    space["__slots__"] = tuple(name for name in declaration.annotations if name not in inherited)
    if declaration.options.get("frozen"):
        space.setdefault("__getstate__", _state)
        space.setdefault("__setstate__", _set_state)
    new = type(old)(old.__name__, old.__bases__, space)
    new.__qualname__ = old.__qualname__
    declaration.kind = new
    return new


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)  # it may be frozen


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(kind: type | None = None, /, **options: bool) -> Any:
        """Declare a dataclass, with the options of the standard library."""
        if kind is None:
            return lambda kind: _declared(kind, options)
        return _declared(kind, options)
