"""Settings files: read within bounds, checked key by key, all mistakes named with their lines.

Changing one setting in the user's file: comments kept, never half-written, two at once lose nothing.

The new content is complete and valid before anything is touched; it goes to a file beside the old one, to
the disk, and then takes its name. So a kill at any moment leaves the old file or the new one. Editors take
turns by a lock on a file of its own: the settings file is replaced, and a lock on it would go with it.
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
    if key.repository is RepositoryPolicy.NEVER:
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


def set_value(path: Path, key: Key, text: str, *, faults: FaultPoints | None = None) -> Scalar:
    """Sets the key in the file at `path` to what `text` says; returns the value in its type.

    When it returns, the file on disk holds it; what else is wrong in there stays. `ConfigurationError` before
    anything is written if the value is wrong, by itself or beside the others, or the file is no TOML;
    `StoreBusy` if another editor kept the lock; `StoreFull`.
    """
    value = parse_value(key, text, "config set")
    _edit(path, lambda target: _with_value(target, key, value), faults)
    return value


def unset_value(path: Path, key: Key, *, faults: FaultPoints | None = None) -> bool:
    """Takes the key out of the file at `path`; False if it was not in there, and then nothing is written.

    When it returns, the file on disk does not hold it. The value that goes may be wrong, and what else is
    stays; `ConfigurationError` before anything is written if what is left contradicts itself, or the file is
    no TOML. `StoreBusy` and `StoreFull` as for `set_value`.
    """
    if read_bounded(path) is None:
        return False  # nor are a directory and a lock made for it
    return _edit(path, lambda target: _without_value(target, key), faults)


def _edit(path: Path, edited: Callable[[Path], str | None], faults: FaultPoints | None) -> bool:
    """Gives the file the content that `edited` says, in this editor's turn; False if it says none."""
    # A link into somebody's collection of dotfiles stays a link; one that leads in circles is not read.
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
    """The file, the key's section in it, and all other settings there that are right.

    Of two that are wrong either could never be mended if the other were in its way; so what else is wrong
    stays, and is told whenever the file is read.
    """
    import tomlkit

    text = read_bounded(path) or ""
    values, _ = check_document(text, path, Layer.FILE)
    document = tomlkit.parse(text)
    section = document.setdefault(key.section, tomlkit.table())
    if not isinstance(section, MutableMapping):
        raise ConfigurationError(
            str(path), f"{key.section!r} is no section there; take it out, or make it [{key.section}]"
        )
    return document, section, {dotted: value for dotted, (value, _) in values.items() if dotted != key.dotted}


def _says(section: tomlkit.items.Table | tomlkit.items.InlineTable) -> bool:
    """Whether there is a setting or a comment in it, and not its name alone."""
    return bool(section.as_string().strip(" \t\r\n{}"))


def _check_together(values: dict[str, Scalar], source: str) -> None:
    defaults = Settings()
    complete: dict[str, Scalar] = {}
    for key in known_keys().values():
        complete[key.dotted] = getattr(getattr(defaults, key.section), key.name)
    # Their defaults depend on where this runs; any valid ones do here.
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
    # One name for all: the lock is held, so whatever bears it was left by an editor that was killed.
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
