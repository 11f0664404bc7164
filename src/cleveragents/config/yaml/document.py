"""YAML as plain values with line numbers.

People write these files by hand, so each mistake is reported with its line. They also come from untrusted
repositories, so reading must be cheap for any content. Anchors are refused (a dozen lines of them can expand
to gigabytes), as are tags, multiple documents, duplicate keys and values that JSON cannot represent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.template import Place

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError

__all__ = ["SIZE_LIMIT_BYTES", "DocumentKind", "YamlDocument", "read_yaml"]

SIZE_LIMIT_BYTES = 64 << 10

_DEPTH_LIMIT = 16
_TAGS = "tag:yaml.org,2002:"
_HALF = "an incomplete character (half of a surrogate pair, \\ud800 to \\udfff); write the character itself"


class DocumentKind(Struct, frozen=True):
    """A kind of YAML file: its name in messages, its first key, and the constructor of its error."""

    noun: str
    begins: str
    error: Callable[[str, tuple[str, ...]], Exception]


class YamlDocument(Struct, frozen=True):
    """The values of a document and their line numbers, counted from 1."""

    data: JsonValue
    lines: Mapping[Place, int]

    def line(self, place: Place) -> int:
        """Return the line of a place, or of the nearest place around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


@lru_cache(maxsize=32)
def read_yaml(content: bytes, source: str, kind: DocumentKind) -> YamlDocument:
    """Return the parsed document. Raises the error of `kind` with all problems and their lines.

    Results are cached by content: every plan reads its actor, and parsing YAML is slow.
    """
    try:
        node = _composed(_decoded(content), kind)
    except _Unreadable as error:
        raise kind.error(source, (str(error),)) from None
    reader = _Reader()
    data = reader.value(node, ())
    if reader.problems:
        raise kind.error(source, tuple(reader.problems))
    return YamlDocument(data, reader.lines)


class _Unreadable(Exception):
    """Raised if a text cannot be read, with the reason. Never raised outside this module."""


def _decoded(content: bytes) -> str:
    if len(content) > SIZE_LIMIT_BYTES:
        limit = SIZE_LIMIT_BYTES // 1024
        raise _Unreadable(f"the file is larger than {limit} KiB; move long texts into separate files")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Unreadable(f"line {line}: not UTF-8 text; save the file as UTF-8") from None
    if "\0" in text:
        raise _Unreadable("the file is binary; write YAML text")
    return text


def _composed(text: str, kind: DocumentKind) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = _DEPTH_LIMIT
    # This only disables a warning about repeated anchors; all anchors are refused below.
    yaml.composer.warn_double_anchors = False
    try:
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        raise _Unreadable(_syntax_problem(error, kind)) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{ord(text[error.position]):04X}"
        problem = f"line {line}: the character {character} is not allowed in YAML; delete it"
        raise _Unreadable(problem) from None
    if node is None:
        raise _Unreadable(f"the file is empty; begin it with `{kind.begins}`")
    return node


def _syntax_problem(error: MarkedYAMLError, kind: DocumentKind) -> str:
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem)
    if "quoted scalar" in str(error.context) and error.context_mark is not None:
        # The parser reports the end of the file, which does not help.
        mark = error.context_mark
        problem = "the text that begins here has no closing quote; add it"
    elif problem.startswith("expected <block end>"):
        problem = "the line does not fit the lines before it; look for a missing quote or a wrong indentation"
    elif problem.startswith("mapping values are not allowed"):
        problem = "a colon and a space inside a text; put the text in quotes"
    line = mark.line + 1 if mark else 1
    if "'\\t'" in problem:
        problem = "YAML does not allow tabs here; indent with spaces"
    elif problem.startswith("but found another document"):
        problem = f"a second document begins here; one file holds one {kind.noun}"
    elif problem.startswith("maximum depth"):
        problem = f"nested deeper than {_DEPTH_LIMIT} levels"
    elif problem.startswith("found undefined alias"):
        problem = (
            "anchors and aliases (&name, *name) are not supported; write the value out, or quote the text"
        )
    return f"line {line}: {problem}"


@dataclass(slots=True)
class _Reader:
    """Converts nodes into values and collects lines and problems."""

    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def value(self, node: Any, place: Place) -> JsonValue:
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        if node.anchor:  # guard: an alias can expand a small file into an endless one
            return self._wrong(
                line, "anchors and aliases (&name, *name) are not supported; write the value out"
            )
        tag = str(node.tag)
        kind = tag.removeprefix(_TAGS)
        if node.id == "mapping" and kind == "map":
            return self._mapping(node, place)
        if node.id == "sequence" and kind == "seq":
            return tuple(self.value(item, (*place, number)) for number, item in enumerate(node.value))
        convert = _SCALARS.get(kind) if node.id == "scalar" else None
        if convert is None:
            return self._wrong(line, f"the tag {tag[:60]} is not supported; remove it")
        try:
            return convert(node.value)
        except UnicodeDecodeError:
            return self._wrong(line, _HALF)
        except ValueError:
            return self._wrong(line, f"{node.value[:40]!r} is not a valid {kind}; quote it if it is text")

    def _mapping(self, node: Any, place: Place) -> JsonValue:
        values: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.id != "scalar" or str(key_node.tag) != f"{_TAGS}str":
                self._wrong(line, f"a key must be text; put quotes around {_brief(key_node)}")
                continue
            try:
                key = _text(key_node.value)
            except UnicodeDecodeError:
                self._wrong(line, _HALF)
                continue
            if key in values:
                before = self.lines[*place, key]
                self._wrong(line, f"{key!r} is given twice (first on line {before}); keep one")
                continue
            self.lines[*place, key] = line
            values[key] = self.value(value_node, (*place, key))
        return values

    def _wrong(self, line: int, problem: str) -> JsonValue:
        said = f"line {line}: {problem}"
        if said not in self.problems:
            self.problems.append(said)
        return None


def _brief(node: Any) -> str:
    return repr(node.value[:40]) if isinstance(node.value, str) else f"the {node.id}"


def _text(text: str) -> str:
    """Join the surrogate pairs in a text. JSON, which is valid YAML, writes a character above U+FFFF as two
    escapes.
    """
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _integer(text: str) -> int:
    plain = text.replace("_", "")
    try:
        return int(plain)
    except ValueError:
        return int(plain, 0)


def _float(text: str) -> float:
    number = float(text.replace("_", ""))
    if not isfinite(number):
        raise ValueError(text)
    return number


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_SCALARS: Mapping[str, Callable[[str], JsonValue]] = {
    "str": _text,
    "timestamp": str,
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "null": lambda text: None,
}
