"""The root of all our errors, and its four families by what the caller can do next."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from cleveragents.core.errors.remedy import Remedy

__all__ = ["CleverAgentsError", "Conflict", "Fault", "InvalidRequest", "Unavailable", "code_of"]

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(eq=False)
class CleverAgentsError(Exception):
    """The root: `except CleverAgentsError` catches every error we raise on purpose."""

    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""

    def __str__(self) -> str:
        """`message`, with the fields in place; an error that has more to decide says it itself."""
        return self.message.format_map(vars(self))

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """What a person can do about it; a class whose cases differ has a field of that name."""
        return ()

    def __reduce__(self) -> tuple[type[CleverAgentsError], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


class InvalidRequest(CleverAgentsError):
    """The request itself is wrong; the same request fails again."""

    exit_code = 2


class Conflict(CleverAgentsError):
    """The world moved since you looked; reload and decide again."""

    exit_code = 75


class Unavailable(CleverAgentsError):
    """Right request, wrong moment."""

    exit_code = 75


class Fault(CleverAgentsError):
    """Something is broken that no caller can mend."""


def code_of(error: CleverAgentsError) -> str:
    """The class's name as programs compare it: `stale-plan`."""
    return _WORD.sub("-", type(error).__name__).lower()
