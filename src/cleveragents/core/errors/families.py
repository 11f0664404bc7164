"""The base class of all CleverAgents errors and its four families, by the next step of the caller."""

from __future__ import annotations

import re
import threading
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Self, dataclass_transform

from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "CleverAgentsError",
    "Conflict",
    "Fault",
    "InvalidRequest",
    "Unavailable",
    "code_of",
    "error_fields",
]

# Held while a class is made a dataclass, which two threads must not do to the same class. Reentrant: a signal
# handler may raise an error meanwhile.
_making = threading.RLock()
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass_transform(eq_default=False)
@dataclass(eq=False)
class CleverAgentsError(Exception):
    """The base class: `except CleverAgentsError` catches every error that CleverAgents raises on purpose.

    Every error is a dataclass. Making a class one takes 150 µs, and a command raises few of a hundred errors,
    so a class becomes a dataclass when its first error is created.
    """

    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Complete the base classes of an error that another package defines, perhaps as a dataclass."""
        if not cls.__module__.startswith("cleveragents."):
            for base in cls.__bases__:
                if issubclass(base, CleverAgentsError) and base is not CleverAgentsError:
                    error_fields(base)

    def __new__(cls, *args: Any, **facts: Any) -> Self:
        error_fields(cls)
        return super().__new__(cls, *args, **facts)

    def __str__(self) -> str:
        """Return `message` with the fields filled in; a class with more than one wording overrides this."""
        return self.message.format_map(vars(self))

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """Return the operations that fix the problem. A class whose remedies vary has a field of this name
        instead.
        """
        return ()

    def __reduce__(self) -> tuple[type[CleverAgentsError], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


class InvalidRequest(CleverAgentsError):
    """The request itself is wrong; the same request fails again."""

    exit_code = 2


class Conflict(CleverAgentsError):
    """The state changed since you read it; reload it and decide again."""

    exit_code = 75


class Unavailable(CleverAgentsError):
    """The request is valid but cannot be served now; wait, then try again."""

    exit_code = 75


class Fault(CleverAgentsError):
    """A defect that the caller cannot fix; report it."""


def error_fields(kind: type[CleverAgentsError]) -> tuple[Field[Any], ...]:
    """Return the fields of a class of errors."""
    if "__init__" not in vars(kind):  # it is set after the fields
        with _making:
            for one in reversed(kind.__mro__):
                if issubclass(one, CleverAgentsError) and "__init__" not in vars(one):
                    dataclass(eq=False)(one)
    return fields(kind)


def code_of(error: CleverAgentsError) -> str:
    """Return the class name of an error in kebab case, for example `stale-plan`."""
    return _WORD.sub("-", type(error).__name__).lower()
