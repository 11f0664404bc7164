"""Settings as plain values that are checked one by one.

Every command reads the settings, and a quick one does hardly anything else; importing a validation library
and building its models took longer than all the rest of it. A setting is a text, a number, a yes or no, or
one of a few words, so what is needed is here. Sections are asked as pydantic's models are (`model_validate`,
`model_dump`, …), so that whoever has settings needs to know no other words.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

__all__ = ["Scalar", "Section", "Setting", "setting"]

Scalar = str | int | float | bool

_NO = frozenset({"0", "false", "no", "off"})
_YES = frozenset({"1", "true", "yes", "on"})


class Setting:
    """One setting as its section declares it: its default and what a value must be. Immutable by custom."""

    __slots__ = ("check", "default", "description", "ge", "gt", "le", "repository")

    def __init__(
        self,
        default: Any,
        description: str,
        repository: str | None,
        bounds: Mapping[str, float | None],
        check: Callable[[str], object] | None,
    ) -> None:
        self.default = default
        self.description = description
        self.repository = repository
        self.gt = bounds.get("gt")
        self.ge = bounds.get("ge")
        self.le = bounds.get("le")
        self.check = check


def setting(
    default: Any,
    description: str,
    *,
    repository: str | None = None,
    check: Callable[[str], object] | None = None,
    **bounds: float,
) -> Any:
    """A field of a section: its default, which is not checked, and what it is for.

    Bounds are `gt`, `ge` and `le`. `check` raises `ValueError` for a text that will not do; `repository` is
    the value of a `Repository`.
    """
    return Setting(default, description, repository, bounds, check)


class Section:
    """Values by name, immutable. A subclass declares each with its type and `setting`; some are sections."""

    model_fields: ClassVar[Mapping[str, Setting]] = {}
    _known_kinds: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls) -> None:
        found = {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}
        nested = {name: value for name, value in vars(cls).items() if isinstance(value, Section)}
        for name, value in nested.items():
            found[name] = Setting(value, type(value).__doc__ or "", None, {}, None)
        cls.model_fields = found

    def __init__(self) -> None:
        """All defaults."""
        self.__dict__.update({name: field.default for name, field in self.model_fields.items()})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings do not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    @classmethod
    def model_validate(cls, values: Mapping[str, Any]) -> Self:
        """These values, and defaults for the others; `ValueError` says what is wrong with the first one."""
        checked: dict[str, Any] = {}
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if field is None:
                raise ValueError(f"there is no setting {name}")
            if isinstance(field.default, Section):
                nested = isinstance(value, Section)
                checked[name] = value if nested else type(field.default).model_validate(value)
            else:
                checked[name] = cls.checked(name, value)
        made = cls().model_copy(update=checked)
        made.check_together()
        return made

    @classmethod
    def model_validate_json(cls, text: str) -> Self:
        return cls.model_validate(json.loads(text))

    @classmethod
    def checked(cls, name: str, value: object, *, strict: bool = False) -> Scalar:
        """The value in the setting's type, or `ValueError`. Strict takes no text for anything but a text."""
        field = cls.model_fields[name]
        kind = cls._kinds()[name]
        parsed = _parsed(kind, value, strict=strict)
        if isinstance(parsed, str):
            if field.check is not None:
                field.check(parsed)
        else:
            _within_bounds(field, parsed)
        return parsed

    @classmethod
    def choices(cls, name: str) -> tuple[Scalar, ...]:
        """The words it may be, as they are declared; nothing for one that is not chosen from a few."""
        return typing.get_args(cls._kinds()[name])

    @classmethod
    def _kinds(cls) -> Mapping[str, Any]:
        known: Mapping[str, Any] | None = cls.__dict__.get("_known_kinds")
        if known is None:
            known = cls._known_kinds = typing.get_type_hints(cls)
        return known

    def check_together(self) -> None:
        """`ValueError` when values that are fine by themselves contradict each other."""

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """The same with these, which are not checked."""
        made = type(self)()
        made.__dict__.update(vars(self))
        made.__dict__.update(update)
        return made

    def model_dump(self) -> dict[str, Any]:
        return {
            name: value.model_dump() if isinstance(value, Section) else value
            for name, value in vars(self).items()
        }

    def model_dump_json(self) -> str:
        return json.dumps(self.model_dump())


def _parsed(kind: Any, value: object, *, strict: bool) -> Scalar:
    choices = typing.get_args(kind)  # of a Literal; other settings have no arguments
    if choices:
        return _chosen(choices, value)
    if kind is str:
        if not isinstance(value, str):
            raise ValueError("should be a valid string")
        return value
    if kind is bool:
        return _yes_or_no(value, strict=strict)
    return _whole(value, strict=strict) if kind is int else _number(value, strict=strict)


def _chosen(choices: tuple[Any, ...], value: object) -> Scalar:
    for choice in choices:
        if value == choice:
            chosen: Scalar = choice
            return chosen
    quoted = [repr(choice) for choice in choices]
    raise ValueError(f"should be {', '.join(quoted[:-1])} or {quoted[-1]}")


def _yes_or_no(value: object, *, strict: bool) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) and not strict else None
    if word not in _YES | _NO:
        raise ValueError("should be a valid boolean: true or false")
    return word in _YES


def _whole(value: object, *, strict: bool) -> int:
    if isinstance(value, str) and not strict:
        whole, point, fraction = value.partition(".")
        try:
            return int(whole if point and fraction and not fraction.strip("0") else value)
        except ValueError:
            raise ValueError("should be a valid integer, unable to parse string as an integer") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("should be a valid integer")
    return value


def _number(value: object, *, strict: bool) -> float:
    if isinstance(value, str) and not strict:
        try:
            number = float(value)
        except ValueError:
            raise ValueError("should be a valid number, unable to parse string as a number") from None
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("should be a valid number")
    else:
        number = _as_float(value)
    if not math.isfinite(number):
        raise ValueError("should be a finite number")
    return number


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError("should be a finite number") from None


def _within_bounds(field: Setting, value: float) -> None:
    if field.gt is not None and not value > field.gt:
        raise ValueError(f"should be greater than {field.gt}")
    if field.ge is not None and not value >= field.ge:
        raise ValueError(f"should be greater than or equal to {field.ge}")
    if field.le is not None and not value <= field.le:
        raise ValueError(f"should be less than or equal to {field.le}")
