"""Templates: `${name}` in the values of a step, substituted once and never executed as code.

A text that is exactly `${name}` becomes the value itself, with its type. If the value is a list and the text
is an element of a list, the elements of the value take its place. Inside a longer text the value is converted
to text. `$${` is a literal `${`. Substituted values are not expanded again, so a value that contains `${…}`
stays unchanged.

A shell script gets each value as a positional parameter, and `${name}` becomes a quoted reference to it. The
shell therefore never parses the value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches

from cleveragents.core.json_value import JsonValue

__all__ = ["Place", "filled", "shell_argv", "template_problems"]

Place = tuple[str | int, ...]

# An escape, a reference, or a reference that is not closed.
_REFERENCE = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<name>[^{}\n]*)\}|(?P<open>\$\{)")


def filled(template: JsonValue, values: Mapping[str, JsonValue]) -> JsonValue:
    """Return the template with its references substituted; every reference must have a value."""
    if isinstance(template, str):
        return _filled_text(template, values)
    if isinstance(template, Mapping):
        return {key: filled(item, values) for key, item in template.items()}
    if isinstance(template, (list, tuple)):
        return tuple(element for item in template for element in _elements(item, values))
    return template


def shell_argv(script: str, values: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Return the command that runs the script with these values as parameters."""
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
    """Return the problems with the references of a template, and their places.

    `lists` holds the names of lists. `noun` describes a name in messages.
    """
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
    literal = " (write $${ for a literal ${)"
    if found["open"]:
        return f"the ${{ in {_shown(text)} is not closed{literal}"
    name = found["name"]
    if name not in names:
        near = get_close_matches(name, list(names), n=1)
        hint = f"did you mean ${{{near[0]}}}?" if near else f"known: {', '.join(names) or 'none'}"
        return f"there is no {noun} {name!r}; {hint}{literal}"
    if name in lists and found[0] != text:
        return f"{name} is a list, so ${{{name}}} must be a list element by itself"
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
    # Without quotes the shell would split the value and expand its wildcards.
    words = " ".join(f'"{reference}"' for reference in references)
    # Single quotes prevent expansion, so they are closed before the reference and opened again after it.
    return f"'{words}'" if quote == "'" else words


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open at the end of `text`.

    A wrong result could make the shell split a value, but never execute it.
    """
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
