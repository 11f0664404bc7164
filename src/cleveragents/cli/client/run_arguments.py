"""What a command line says for the arguments of an action that is the server's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cleveragents.core.actions.arguments import Argument, ArgumentType, parsed
from cleveragents.core.json_value import freeze, thaw

__all__ = ["said_arguments"]


def said_arguments(
    action: str, described: Sequence[Mapping[str, Any]], pairs: Sequence[str], rest: Sequence[str]
) -> dict[str, object]:
    """The values that were said, for arguments as the server describes them. `InvalidArguments`.

    A default is left to the server: what it shows of one is masked, and would be run as it is shown.
    """
    known = [
        Argument(
            name=one["name"],
            type=ArgumentType(one["type"]),
            default=None if one["required"] else freeze(one["default"]),
            description=one["description"],
            rest=one["rest"],
        )
        for one in described
    ]
    values = parsed(action, known, pairs, rest)
    usual = {argument.name: argument.default for argument in known}
    return {name: thaw(value) for name, value in values.items() if value != usual[name]}
