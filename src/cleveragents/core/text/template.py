"""Templates: `${name}` in the values of a step, filled in once, without ever becoming code.

A text that is exactly `${name}` becomes the value itself, with its type; where that is a list inside a list,
its elements take its place. Inside a longer text the value is spelt out. `$${` is a plain `${`. What was
filled in is not looked at again, so a value that holds `${…}` stays as it is.

In a shell script a value is never spliced into the text: the script gets it as a positional parameter, and
`${name}` becomes a quoted reference to that. Whatever the value holds, the shell does not parse it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from cleveragents.core.json_value import JsonValue

__all__ = ["Place", "filled", "shell_argv", "template_problems"]

Place = tuple[str | int, ...]

# An escape, a reference, or one that was never closed.
_REFERENCE = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<name>[^{}\n]*)\}|(?P<open>\$\{)")


def filled(template: JsonValue, values: Mapping[str, JsonValue]) -> JsonValue:
    """The template with its references filled in; they all have a value."""
    if isinstance(template, str):
        return _filled_text(template, values)
    if isinstance(template, Mapping):
        return {key: filled(item, values) for key, item in template.items()}
    if isinstance(template, (list, tuple)):
        return tuple(element for item in template for element in _elements(item, values))
    return template


def shell_argv(script: str, values: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """The command that runs the script with these values as its parameters."""
    parts: list[str] = []
    parameters: list[str] = []
    quote = ""
    end = 0
    for found in _REFERENCE.finditer(script):
        literal = script[end : found.start()]
        end = found.end()
        quote = _quote_after(literal, quote)
        parts.append(literal)
        if found["name"] is None:
            parts.append("${")
            continue
        value = values[found["name"]]
        given = [_spelt(item) for item in value] if isinstance(value, (list, tuple)) else [_spelt(value)]
        first = len(parameters) + 1
        parameters += given
        parts.append(_parameters(range(first, first + len(given)), quote))
    parts.append(script[end:])
    return ("sh", "-c", "".join(parts), "sh", *parameters)


def template_problems(
    template: JsonValue,
    names: Collection[str],
    lists: Collection[str],
    *,
    script: bool = False,
    noun: str = "argument",
) -> Iterator[tuple[Place, str]]:
    """What is wrong with the references of a template, and where in it. `lists` are the names of lists,
    `noun` is what a name stands for."""
    for place, text in _texts(template, ()):
        for found in _REFERENCE.finditer(text):
            problem = _problem(found, text, names, () if script else lists, noun)
            if problem:
                yield place, problem


def _problem(
    found: re.Match[str], text: str, names: Collection[str], lists: Collection[str], noun: str
) -> str | None:
    if found["escape"]:
        return None
    literal = " (a plain ${ is written $${)"
    if found["open"]:
        return f"the ${{ in {_shown(text)} is never closed{literal}"
    name = found["name"]
    if name not in names:
        near = get_close_matches(name, list(names), n=1)
        hint = f"did you mean ${{{near[0]}}}?" if near else f"there are: {', '.join(names) or 'none'}"
        return f"there is no {noun} {name!r}; {hint}{literal}"
    if name in lists and found[0] != text:
        return f"{name} is a list, so ${{{name}}} has to stand alone, as an element of its own"
    return None


def _texts(template: JsonValue, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(template, str):
        yield place, template
    elif isinstance(template, Mapping):
        for key, item in template.items():
            yield from _texts(item, (*place, key))
    elif isinstance(template, (list, tuple)):
        for number, item in enumerate(template):
            yield from _texts(item, (*place, number))


def _elements(item: JsonValue, values: Mapping[str, JsonValue]) -> tuple[JsonValue, ...]:
    value = filled(item, values)
    if isinstance(item, str) and isinstance(value, (list, tuple)):
        return tuple(value)
    return (value,)


def _filled_text(text: str, values: Mapping[str, JsonValue]) -> JsonValue:
    whole = _REFERENCE.fullmatch(text)
    if whole and whole["name"] is not None:
        return values[whole["name"]]
    return _REFERENCE.sub(
        lambda found: "${" if found["name"] is None else _spelt(values[found["name"]]), text
    )


def _spelt(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _parameters(numbers: range, quote: str) -> str:
    references = [f"${{{number}}}" for number in numbers]
    if quote == '"':
        return " ".join(references)
    # Without quotes of its own a value would be split, and its wildcards expanded.
    words = " ".join(f'"{reference}"' for reference in references)
    # Inside single quotes nothing is expanded: they are closed before it and opened again after it.
    return f"'{words}'" if quote == "'" else words


def _quote_after(text: str, quote: str) -> str:
    """Which quotes are open behind `text`. Were it ever mistaken, a value might be split, never executed."""
    skip = False
    for character in text:
        if skip:
            skip = False
        elif character == "\\" and quote != "'":
            skip = True
        elif character == quote:
            quote = ""
        elif character in "'\"" and not quote:
            quote = character
    return quote


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}…"
