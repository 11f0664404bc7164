"""Layered settings and where each value comes from.

    defaults < ~/.config/cleveragents/config.toml < .cleveragents.toml < CLEVERAGENTS_* < --set key=value

Each layer is validated by itself: a mistake is reported at its source even if a stronger layer hides it, and
one error lists all mistakes of all layers. The repository's file may only make settings stricter
(`settings.RepositoryPolicy`): the stricter of its value and the user's value is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

from cleveragents.config.document import parse_document, read_bounded
from cleveragents.config.settings import (
    Key,
    RepositoryPolicy,
    Settings,
    known_keys,
    nearest_key,
)
from cleveragents.config.values import (
    Layer,
    Mistakes,
    Origin,
    Scalar,
    Values,
    find_key,
    parse_value,
    shorten,
    validate_settings,
)
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.identifiers import MARKER_VARIABLE

__all__ = ["Configuration", "find_repository_file", "load_configuration", "user_file_path"]

REPOSITORY_FILE = ".cleveragents.toml"

# This variable marks the processes of a job; it is not a setting.
_RESERVED_VARIABLES = (MARKER_VARIABLE,)

_PREFIX = "CLEVERAGENTS_"


class Configuration(Struct, frozen=True):
    """The effective settings, the origin of each value, and the files that were considered."""

    settings: Settings
    origins: Mapping[str, Origin]
    user_file: Path
    repository_file: Path | None

    def value(self, key: Key) -> Scalar:
        section = getattr(self.settings, key.section)
        value: Scalar = getattr(section, key.name)
        return value

    def shown(self, key: Key) -> Scalar:
        """Return the value of a setting for display, with passwords in URLs and the path of a webhook
        masked.
        """
        from cleveragents.core.text.redaction import redact_text

        value = self.value(key)
        if key.dotted == "notifications.webhook" and value:  # guard: the path is often a secret
            parts = urlsplit(str(value))
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/***"
        return redact_text(value) if isinstance(value, str) else value

    def tightened_beyond(self, settings: Settings) -> list[str]:
        """Return the keys whose value comes from the repository's file and differs from the value in
        `settings`.
        """
        return [
            key.dotted
            for key in known_keys().values()
            if self.origins[key.dotted].layer is Layer.REPOSITORY
            if getattr(getattr(settings, key.section), key.name) != self.value(key)
        ]


def load_configuration(
    environment: Mapping[str, str], directory: Path, overrides: Sequence[str] = ()
) -> Configuration:
    """Return the configuration of a command started in `directory`.

    Raises `ConfigurationError` with one line per mistake.
    """
    user_file = user_file_path(environment)
    repository_file = find_repository_file(directory)
    values = _defaults(environment)
    mistakes = Mistakes()
    with mistakes.noted():
        values.update(_read_file(user_file, Layer.FILE))
    if repository_file is not None:
        with mistakes.noted():
            _tighten(values, _read_file(repository_file, Layer.REPOSITORY))
    with mistakes.noted():
        values.update(_from_environment(environment))
    with mistakes.noted():
        values.update(_from_flags(overrides))
    mistakes.raise_any()
    if not values["database.url"][0]:
        values["database.url"] = (f"sqlite:///{values['state.directory'][0]}/state.db", Origin(Layer.DEFAULT))
    settings = validate_settings({key: value for key, (value, _) in values.items()}, source="settings")
    origins = {key: origin for key, (_, origin) in values.items()}
    return Configuration(settings, origins, user_file, repository_file)


def user_file_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file: `$XDG_CONFIG_HOME/cleveragents/config.toml`."""
    return _xdg(environment, "XDG_CONFIG_HOME", ".config") / "cleveragents" / "config.toml"


def _defaults(environment: Mapping[str, str]) -> Values:
    settings = Settings()
    origin = Origin(Layer.DEFAULT)
    values: Values = {}
    for key in known_keys().values():
        values[key.dotted] = (getattr(getattr(settings, key.section), key.name), origin)
    directory = _xdg(environment, "XDG_DATA_HOME", ".local/share") / "cleveragents"
    values["state.directory"] = (str(directory), origin)
    return values


def _read_file(path: Path, layer: Layer) -> Values:
    text = read_bounded(path)
    return {} if text is None else parse_document(text, path, layer)


def _tighten(values: Values, wanted: Values) -> None:
    for dotted, (value, origin) in wanted.items():
        key = known_keys()[dotted]
        if key.repository is RepositoryPolicy.JOIN:
            values[dotted] = (f"{values[dotted][0]}+{value}", origin)  # the stricter answer applies
        elif _is_tighter(key, value, values[dotted][0]):
            values[dotted] = (value, origin)


def _is_tighter(key: Key, value: Scalar, than: Scalar) -> bool:
    if key.repository is RepositoryPolicy.RAISE:
        order = key.choices  # from the loosest to the tightest
        return order.index(value) > order.index(than)
    return float(value) < float(than)


def _from_environment(environment: Mapping[str, str]) -> Values:
    by_variable = {key.variable: key for key in known_keys().values()}
    values: Values = {}
    mistakes = Mistakes()
    for variable in sorted(environment):
        if not variable.startswith(_PREFIX) or variable in _RESERVED_VARIABLES:
            continue
        with mistakes.noted():
            key = by_variable.get(variable) or _no_variable(variable)
            value = parse_value(key, environment[variable], variable)
            values[key.dotted] = (value, Origin(Layer.ENVIRONMENT, variable))
    mistakes.raise_any()
    return values


def _no_variable(variable: str) -> NoReturn:
    nearest = nearest_key(variable.removeprefix(_PREFIX).lower().replace("_", ".", 1))
    hint = f"; did you mean {known_keys()[nearest].variable}?" if nearest else ""
    raise ConfigurationError("environment", f"{variable} is not a setting{hint}")


def _from_flags(overrides: Sequence[str]) -> Values:
    values: Values = {}
    mistakes = Mistakes()
    for override in overrides:
        with mistakes.noted():
            dotted, equals, text = override.partition("=")
            if not equals:
                raise ConfigurationError("--set", f"{shorten(override)} is not key=value")
            key = find_key(dotted.strip(), "--set")
            values[key.dotted] = (parse_value(key, text.strip(), "--set"), Origin(Layer.FLAG, "--set"))
    mistakes.raise_any()
    return values


def find_repository_file(directory: Path) -> Path | None:
    """Return the nearest repository file between `directory` and the root of its repository, or None."""
    found: Path | None = None
    for folder in (directory, *directory.parents):
        if found is None and (folder / REPOSITORY_FILE).exists():
            found = folder / REPOSITORY_FILE
        if (folder / ".git").exists():
            return found
    return None


def _xdg(environment: Mapping[str, str], variable: str, fallback: str) -> Path:
    # The XDG specification requires that relative paths are ignored.
    chosen = environment.get(variable, "")
    if chosen.startswith("/"):
        return Path(chosen)
    return Path(environment.get("HOME") or Path.home()) / fallback
