"""Settings files: bounded reads, validation of each key with line numbers, and atomic edits.

An edit changes one setting in the user's file and keeps its comments. The new content is complete and valid
before it is written to a temporary file, synced and renamed, so a kill at any moment leaves the old file or
the new one. Concurrent editors take turns by a separate lock file, because the settings file itself is
replaced and a lock on it would be lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleveragents.config.settings import Key, RepositoryPolicy, Settings, known_keys
from cleveragents.config.values import (
    Layer,
    Mistakes,
    Origin,
    Scalar,
    Values,
    find_key,
    parse_value,
    validate_settings,
)
from cleveragents.core.errors import ConfigurationError, Remedy, StoreBusy, StoreFull
from cleveragents.core.faults import FaultPoints, NoFaults

if TYPE_CHECKING:
    import tomlkit

__all__ = ["check_document", "parse_document", "read_bounded", "set_value", "unset_value"]


_SIZE_LIMIT = 1 << 20
_TOLD = 20

_LOCK_SECONDS = 10.0
_LOCK_PAUSE_SECONDS = 0.01


def parse_document(text: str, path: Path, layer: Layer) -> Values:
    """Return the validated settings of a TOML text.

    Raises `ConfigurationError` with one line per mistake, each with the file and, if known, the line. A
    setting that `layer` may not set is a mistake.
    """
    values, mistakes = check_document(text, path, layer)
    mistakes.raise_any()
    return values


def check_document(text: str, path: Path, layer: Layer) -> tuple[Values, Mistakes]:
    """Return the valid settings of a TOML text, and its mistakes.

    Raises `ConfigurationError` if the text is not TOML.
    """
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
        if len(mistakes) == _TOLD:  # bounds the time to refuse a hostile file
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
    """Return the text of a file, or None if it does not exist.

    Never blocks on a pipe or reads a huge file.
    """
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
            str(path), f"is larger than {_SIZE_LIMIT // 1024} KiB; settings files are smaller"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            str(path), f"is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None


def _entries(document: Mapping[str, object]) -> Iterator[tuple[str, str | None, object]]:
    """Yield the section, name and value of each setting.

    The name is None for an empty section or a top-level value.
    """
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
    raise ConfigurationError(
        source, f"{key.dotted!r} in quotes is not a setting; write {key.dotted} = … without quotes"
    )


def _check_theirs(key: Key, source: str) -> None:
    """Raise `ConfigurationError` for a setting that a repository may not set.

    The setting is not silently ignored, because the user could take it for effective.
    """
    if key.repository is RepositoryPolicy.NEVER:
        own = Remedy(
            "config.set", options={"key": key.dotted, "value": None}, text="Set it in your own settings file"
        )
        raise ConfigurationError(source, f"a repository may not set {key.dotted}", (own,))


def _place(path: Path, text: str, section: str, name: str) -> str:
    """Return `path:line` of a setting.

    Returns the path alone if the line is unknown, as for dotted keys and inline tables.
    """
    # The text is untrusted: each expression takes linear time.
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


def set_value(path: Path, key: Key, text: str, *, faults: FaultPoints | None = None) -> Scalar:
    """Set a key in the file at `path` and return the parsed value.

    On return the value is on disk. Mistakes in other settings of the file are not touched. Raises
    `ConfigurationError` before the write if the value is invalid, contradicts another setting, or the file is
    not TOML. Raises `StoreBusy` if another editor holds the lock, and `StoreFull`.
    """
    value = parse_value(key, text, "config set")
    _edit(path, lambda target: _with_value(target, key, value), faults)
    return value


def unset_value(path: Path, key: Key, *, faults: FaultPoints | None = None) -> bool:
    """Remove a key from the file at `path`; return False, without a write, if the file does not have it.

    On return the removal is on disk. The removed value may be invalid, and mistakes in other settings are not
    touched. Raises `ConfigurationError` before the write if the remaining settings contradict each other or
    the file is not TOML, and `StoreBusy` and `StoreFull` as `set_value` does.
    """
    if read_bounded(path) is None:
        return False  # does not create the directory or the lock file
    return _edit(path, lambda target: _without_value(target, key), faults)


def _edit(path: Path, edited: Callable[[Path], str | None], faults: FaultPoints | None) -> bool:
    """Replace the file, under the lock, by the content that `edited` returns. If the new content is None,
    return False without a write.
    """
    # A symbolic link, for example into a dotfiles repository, stays a link; a circular link is not followed.
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _turn(target.parent / ".config.lock"):
            content = edited(target)
            if content is None:
                return False
            _replace(target, content.encode(), faults or NoFaults())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(str(target)) from None
        raise ConfigurationError(str(target), f"cannot be written: {error.strerror}") from None
    return True


def _with_value(path: Path, key: Key, value: Scalar) -> str:
    import tomlkit

    document, section, others = _read(path, key)
    _check_together(others | {key.dotted: value}, "config set")
    section[key.name] = value
    return tomlkit.dumps(document)


def _without_value(path: Path, key: Key) -> str | None:
    import tomlkit

    document, section, others = _read(path, key)
    if key.name not in section:
        return None
    _check_together(others, "config unset")
    del section[key.name]
    if isinstance(section, (tomlkit.items.Table, tomlkit.items.InlineTable)) and not _says(section):
        del document[key.section]
    return tomlkit.dumps(document)


def _read(path: Path, key: Key) -> tuple[tomlkit.TOMLDocument, MutableMapping[str, Any], dict[str, Scalar]]:
    """Return the parsed file, the section of the key, and all other valid settings.

    Other invalid settings are ignored, so that several mistakes can be corrected one by one. They are still
    reported whenever the settings are loaded.
    """
    import tomlkit

    text = read_bounded(path) or ""
    values, _ = check_document(text, path, Layer.FILE)
    document = tomlkit.parse(text)
    section = document.setdefault(key.section, tomlkit.table())
    if not isinstance(section, MutableMapping):
        raise ConfigurationError(
            str(path), f"{key.section!r} is not a section; remove it, or write [{key.section}]"
        )
    return document, section, {dotted: value for dotted, (value, _) in values.items() if dotted != key.dotted}


def _says(section: tomlkit.items.Table | tomlkit.items.InlineTable) -> bool:
    """Return whether the section is not empty: it has a setting or a comment."""
    return bool(section.as_string().strip(" \t\r\n{}"))


def _check_together(values: dict[str, Scalar], source: str) -> None:
    defaults = Settings()
    complete: dict[str, Scalar] = {}
    for key in known_keys().values():
        complete[key.dotted] = getattr(getattr(defaults, key.section), key.name)
    # These defaults depend on the environment; any valid value will do.
    complete["state.directory"] = "/"
    complete["database.url"] = "sqlite:////state.db"
    validate_settings(complete | values, source)


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    give_up = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= give_up:
                raise StoreBusy(_LOCK_SECONDS) from None
        time.sleep(_LOCK_PAUSE_SECONDS)


def _replace(path: Path, content: bytes, faults: FaultPoints) -> None:
    # The name is fixed because the lock is held: an existing file was left by a killed editor.
    fresh = path.with_name(f".{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(fresh, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        faults.reach("config.write.before")
        file.write(content)
        file.flush()
        faults.reach("config.write.after")
        os.fsync(descriptor)
    faults.reach("config.rename.before")
    fresh.replace(path)
    faults.reach("config.rename.after")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
