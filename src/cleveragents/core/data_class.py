"""Dataclasses that are quick to define.

The decorator of the standard library compiles up to seven functions for each class. That was a third of the
CPU time of a short command, which defines 400 classes and exits. This decorator compiles `__init__`, once for
classes with fields of the same kinds; the other methods are closures over the names of the fields.

In every other respect the classes are dataclasses: `fields`, `replace`, `asdict`, pattern matching, copies
and pickles work, and a class may inherit from a dataclass of either kind. `InitVar` is not supported.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if not TYPE_CHECKING:  # type checkers recognise the decorator of the standard library

    def dataclass(kind=None, /, **options):
        """Make the class a dataclass. The options are `eq`, `frozen`, `kw_only`, `order` and `slots`, as in
        the standard library.
        """
        return _define(kind) if kind is not None else lambda kind: _define(kind, **options)


class _FromFactory:
    """The default of a parameter whose value a factory creates."""

    def __repr__(self) -> str:
        return "<factory>"


_FROM_FACTORY = _FromFactory()
_Fields = Sequence[Field[Any]]
_Method = Callable[..., Any]
_Role = tuple[bool, bool, str]


def _define(
    kind: type[Any],
    *,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    order: bool = False,
    slots: bool = False,
) -> type[Any]:
    own = dict(vars(kind))
    parents = [getattr(base, "__dataclass_params__", None) for base in kind.__mro__[1:]]
    if order or "__setattr__" in own or any(parent is not None and parent.frozen for parent in parents):
        # Rare. The call below would be refused for a child of a frozen class.
        return dataclasses.dataclass(eq=eq, frozen=frozen, kw_only=kw_only, order=order, slots=slots)(kind)
    made: Any = dataclasses.dataclass(eq=False, init=False, repr=False, kw_only=kw_only, slots=slots)(kind)
    params = made.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = True, True, eq, frozen
    parts = fields(made)
    methods = {"__init__": _init(made, parts, frozen), "__repr__": _repr(parts)}
    if eq:
        methods["__eq__"] = _eq(parts)
        # In a class that defines `__eq__` alone, Python has set the hash to None.
        has_hash = "__hash__" in own and (own.pop("__hash__") is not None or "__eq__" not in own)
        if frozen and not has_hash:
            methods["__hash__"] = _hash(parts)
        elif not has_hash:
            made.__hash__ = None
    if frozen:
        methods |= _assignment(made, frozenset(each.name for each in parts))
        methods |= _STATE if slots else {}
    for name in methods.keys() - own.keys():
        setattr(made, name, methods[name])
    result: type[Any] = made
    return result


def _init(kind: type[Any], parts: _Fields, frozen: bool) -> _Method:
    """Return the constructor. Raises `TypeError` if a field without default follows one with a default."""
    template = _template(tuple(map(_role, parts)), frozen, hasattr(kind, "__post_init__"))
    names = {f"_{number}": each.name for number, each in enumerate(parts)}
    values: dict[str, Any] = {"__put__": object.__setattr__, "__from_factory__": _FROM_FACTORY}
    for number, each in enumerate(parts):
        values[f"__make_{number}__"] = each.default_factory
        values[f"__default_{number}__"] = each.default
    code = template.replace(
        co_varnames=tuple(names.get(name, name) for name in template.co_varnames),
        co_names=tuple(names.get(name, name) for name in template.co_names),
        co_consts=tuple(names.get(value, value) for value in template.co_consts),
    )
    cells = tuple(CellType(values[name]) for name in template.co_freevars)
    variables = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    init = FunctionType(code, variables, "__init__", None, cells)
    positional = [_default(each) for each in parts if each.init and not each.kw_only]
    required = positional.count(MISSING)
    if MISSING in positional[required:]:
        raise TypeError(f"{kind.__qualname__}: a field without default follows one with a default")
    init.__defaults__ = tuple(positional[required:])
    named = {each.name: _default(each) for each in parts if each.init and each.kw_only}
    init.__kwdefaults__ = {name: value for name, value in named.items() if value is not MISSING}
    init.__annotations__ = {each.name: each.type for each in parts if each.init} | {"return": None}
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init


def _default(part: Field[Any]) -> object:
    return part.default if part.default_factory is MISSING else _FROM_FACTORY


def _role(part: Field[Any]) -> _Role:
    """Return whether the field is a parameter, and by keyword only; and what else gives it a value."""
    if part.default_factory is not MISSING:
        return part.init, bool(part.kw_only), "make"
    return part.init, bool(part.kw_only), "" if part.init or part.default is MISSING else "default"


@cache
def _template(roles: Sequence[_Role], frozen: bool, post_init: bool) -> CodeType:
    """Return the code of a constructor for fields called `_0`, `_1`, and so on.

    Compiling takes longer than everything else, and most classes differ from others only in their names.
    """
    parameters, named, body = ["self"], ["*"], ["pass"]
    for number, (init, kw_only, source) in enumerate(roles):
        name = value = f"_{number}"
        if init:
            (named if kw_only else parameters).append(name)
        if source:
            value = f"__make_{number}__()" if source == "make" else f"__default_{number}__"
            value = f"{value} if {name} is __from_factory__ else {name}" if init else value
        if init or source:
            body.append(f"__put__(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if post_init:
        body.append("self.__post_init__()")
    free = [f"__{kind}_{number}__" for number in range(len(roles)) for kind in ("make", "default")]
    head = f"def make({', '.join(('__put__', '__from_factory__', *free))}):"
    parameters += named if len(named) > 1 else ()
    init_ = "\n  ".join((f" def __init__({', '.join(parameters)}):", *body))
    code = compile(f"{head}\n{init_}", "<string>", "exec")
    for _ in ("make", "__init__"):
        code = next(each for each in code.co_consts if isinstance(each, CodeType))
    return code


def _repr(parts: _Fields) -> _Method:
    names = [each.name for each in parts if each.repr]

    @recursive_repr()
    def represented(self: object) -> str:
        told = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({told})"

    return represented


def _eq(parts: _Fields) -> _Method:
    values = _values([each.name for each in parts if each.compare])

    def equals(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equals


def _hash(parts: _Fields) -> _Method:
    values = _values([each.name for each in parts if (each.compare if each.hash is None else each.hash)])

    def hashed(self: object) -> int:
        return hash(values(self))

    return hashed


def _values(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    """Return a function that returns the values of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _assignment(kind: type[Any], names: frozenset[str]) -> dict[str, _Method]:
    """Return the methods that refuse to change a frozen object."""

    def assign(self: object, name: str, value: object) -> None:
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        if type(self) is kind or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    return {"__setattr__": assign, "__delattr__": delete}


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: Sequence[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_STATE: dict[str, _Method] = {"__getstate__": _state, "__setstate__": _restore}
"""Copies and pickles of frozen objects with slots."""
