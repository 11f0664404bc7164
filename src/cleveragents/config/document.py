"""Settings files: read within bounds, checked key by key, all mistakes named with their lines."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from cleveragents.config.mistakes import Mistakes
from cleveragents.config.settings import Key, Repository, known_keys
from cleveragents.config.values import Layer, Origin, Values, find_key, parse_value
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.errors.remedy import Remedy

__all__ = ["check_document", "parse_document", "read_bounded"]

_SIZE_LIMIT = 1 << 20
_TOLD = 20


def parse_document(text: str, path: Path, layer: Layer) -> Values:
    """The settings of a TOML text, each checked, and whether that layer may say it at all.

    The error has a line for each mistake, with the file and, where it can be told, the line there.
    """
    values, mistakes = check_document(text, path, layer)
    mistakes.raise_any()
    return values


def check_document(text: str, path: Path, layer: Layer) -> tuple[Values, Mistakes]:
    """The settings of a TOML text that are right, and what is wrong with the others; `ConfigurationError` for
    what is no TOML."""
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(str(path), f"not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(str(path), "not valid TOML: nested too deeply") from None
    values: Values = {}
    mistakes = Mistakes()
    for section, name, value in _entries(document):
        if len(mistakes) == _TOLD:  # whoever wrote the file, to refuse it should not take long
            mistakes.add(ConfigurationError(str(path), f"there may be more; these are the first {_TOLD}"))
            break
        with mistakes.noted():
            if name is None:
                _check_section(section, value, path, text)
                continue
            source = _place(path, text, section, name)
            key = find_key(f"{section}.{name}", source)
            if layer is Layer.REPOSITORY:
                _check_theirs(key, source)
            values[key.dotted] = (parse_value(key, value, source, strict=True), Origin(layer, source))
    return values, mistakes


def read_bounded(path: Path) -> str | None:
    """The file's text, or None if there is none; never blocks on a pipe, never swallows a huge file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigurationError(str(path), "is not a regular file; remove it or put a TOML file there")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_SIZE_LIMIT + 1)
    finally:
        os.close(descriptor)
    if len(content) > _SIZE_LIMIT:
        raise ConfigurationError(
            str(path), f"is larger than {_SIZE_LIMIT // 1024} KiB; that is no settings file"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(path), f"is not UTF-8 text (byte {error.start}); TOML must be") from None


def _entries(document: Mapping[str, object]) -> Iterator[tuple[str, str | None, object]]:
    """Section, name and value of each setting; of what is no section, or an empty one, there is no name."""
    for section, content in document.items():
        if isinstance(content, dict) and content:
            for name, value in content.items():
                yield section, name, value
        else:
            yield section, None, content


def _check_section(section: str, content: object, path: Path, text: str) -> None:
    empty = isinstance(content, dict)
    if empty and any(key.section == section for key in known_keys().values()):
        return
    source = _place(path, text, section, "") if empty else _place(path, text, "", section)
    key = find_key(section, source)
    raise ConfigurationError(source, f"{key.dotted!r} in quotes is no setting; write {key.dotted} = …")


def _check_theirs(key: Key, source: str) -> None:
    """What a repository may not say is refused, not ignored: silence would look like obedience."""
    if key.repository is Repository.NEVER:
        own = Remedy("config.set", options={"key": key.dotted, "value": None}, text="Set it in your own file")
        raise ConfigurationError(source, f"a repository may not set {key.dotted}", (own,))


def _place(path: Path, text: str, section: str, name: str) -> str:
    """`path:line` of a setting; the path alone when the line cannot be told (dotted keys, inline tables)."""
    # Whoever wrote the text: no expression here takes longer than its line is long.
    header = re.compile(r"\s*\[+([^\[\]]+)\]")
    wanted = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
    dotted = re.compile(rf"\s*{re.escape(section)}\s*\.\s*{re.escape(name)}\s*=")
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        opened = header.match(line)
        if opened:
            current = opened.group(1).strip().strip("\"'")
            if not name and current == section:
                return f"{path}:{number}"
        elif name and ((current == section and wanted.match(line)) or (not current and dotted.match(line))):
            return f"{path}:{number}"
    return str(path)
