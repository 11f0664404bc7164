"""One server's entry in a configuration file: validated as a whole, every mistake reported with its
correction.

Values may refer to environment variables, `${NAME}` or `${NAME:-otherwise}`. The references are filled in
when the server starts. So a file can be listed and changed although variables are not set, and secrets stay
in memory only as long as needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

__all__ = ["VARIABLE", "McpServer", "entry_of", "variables_of"]

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""A reference to a variable: `${NAME}` or `${NAME:-otherwise}`."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,30}(?<!_)")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_LOCAL = ("command", "args", "env", "cwd")
_REMOTE = ("url", "headers")
_OURS = ("type", "isolated", "disabled")
# Keys of other programs that share the file; ignored here.
_OTHERS = frozenset({"alwaysAllow", "autoApprove", "description", "note", "timeout", "trust"})
_TYPES = {"stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}


@dataclass(frozen=True, slots=True)
class McpServer:
    """A configured server with unfilled variables. `own`: from the user's file, not from the file of a
    repository.

    Fields that may hold a secret are excluded from its representation.
    """

    name: str
    source: str
    own: bool
    command: tuple[str, ...] = field(default=(), repr=False)
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    directory: str = ""
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    isolated: bool = True
    disabled: bool = False


def variables_of(server: McpServer) -> Iterator[tuple[str, str]]:
    """Yield the variables that the server's entry refers to, each with the place that uses it."""
    places = [("the command", word) for word in server.command]
    places += [("cwd", server.directory), ("the URL", server.url)]
    places += [(f"env {name}", text) for name, text in server.environment.items()]
    places += [(f"header {name}", text) for name, text in server.headers.items()]
    for place, text in places:
        for match in VARIABLE.finditer(text):
            yield match.group(1), place


def entry_of(name: str, facts: object, source: str, *, own: bool) -> tuple[McpServer | None, list[str]]:
    """Return the server, or all mistakes in its entry."""
    problems = [] if _NAME.fullmatch(name) else [_WRONG_NAME]
    if not isinstance(facts, Mapping):
        return None, [*problems, "must be an object with `command` or `url`"]
    problems += _unknown(facts)
    problems += _shape(facts)
    if facts.get("isolated", True) is not True and facts.get("isolated") is not False:
        problems.append("`isolated` must be true or false")
    if facts.get("isolated") is False and not own:  # guard: a repository may tighten, never loosen
        problems.append(
            "a repository must not set `isolated`: false; add the server to your own file instead"
        )
    if not isinstance(facts.get("disabled", False), bool):
        problems.append("`disabled` must be true or false")
    if problems:
        return None, problems
    server = McpServer(
        name=name,
        source=source,
        own=own,
        command=(facts["command"], *facts.get("args", ())) if "command" in facts else (),
        environment=MappingProxyType(dict(facts.get("env", {}))),
        directory=facts.get("cwd", ""),
        url=facts.get("url", ""),
        headers=MappingProxyType(dict(facts.get("headers", {}))),
        isolated=facts.get("isolated", True),
        disabled=facts.get("disabled", False),
    )
    return server, []


_WRONG_NAME = "the name must consist of letters, digits, `-` and single `_`, at most 32 characters"


def _unknown(facts: Mapping[str, object]) -> list[str]:
    known = (*_LOCAL, *_REMOTE, *_OURS)
    problems: list[str] = []
    for key in facts:
        if key in known or key in _OTHERS:
            continue
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(known)}"
        problems.append(f"unknown key {key!r}; {hint}")
    return problems


def _shape(facts: Mapping[str, object]) -> list[str]:
    problems: list[str] = []
    if ("command" in facts) == ("url" in facts):
        problems.append("set either `command`, to start the server, or `url`, to connect to it")
    foreign = _REMOTE if "command" in facts else _LOCAL
    problems += [
        f"`{key}` cannot be used with `{_kind(facts)}`"
        for key in foreign
        if key in facts and key != _kind(facts)
    ]
    kind = facts.get("type")
    if kind is not None and (not isinstance(kind, str) or _TYPES.get(kind) not in facts):
        problems.append(f"unknown type {kind!r}; use stdio (with `command`) or http (with `url`)")
    for key in ("command", "cwd", "url"):
        if key in facts and (not isinstance(facts[key], str) or not facts[key]):
            problems.append(f"`{key}` must be a string")
    arguments = facts.get("args", [])
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        problems.append("`args` must be a list of strings")
    problems += [
        f"`{key}` must be an object of strings"
        for key in ("env", "headers")
        if not _texts(facts.get(key, {}))
    ]
    for key in ("env", "headers"):
        for name in _keys(facts, key):
            if not _WORD.fullmatch(name):  # guard: the names are shown for approval
                problems.append(f"`{key}` has the name {name!r}; use letters, digits, `_`, `.` and `-`")
    url = facts.get("url")
    if isinstance(url, str) and url and not url.startswith(("http://", "https://", "${")):
        problems.append("`url` must begin with http:// or https://")
    return problems


def _kind(facts: Mapping[str, object]) -> str:
    return "command" if "command" in facts else "url"


def _keys(facts: Mapping[str, object], key: str) -> list[str]:
    value = facts.get(key)
    return list(value) if isinstance(value, Mapping) else []


def _texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values())
