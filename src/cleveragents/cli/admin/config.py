"""`agents config`: settings, their values, and where each value comes from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.render.narrow_terminal import columns_for
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.json_value import freeze
from cleveragents.core.text.redaction import redact_text

__all__ = ["config"]

_STDIN_LIMIT = 1 << 16


def _complete_key(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from cleveragents.config.settings import known_keys

    return [dotted for dotted in known_keys() if dotted.startswith(incomplete)]


_key_argument = click.argument("key", shell_complete=_complete_key)


@click.group()
def config() -> None:
    """Show and change settings.

    The value of a setting comes from, in ascending order of precedence: its default, your file,
    .cleveragents.toml in the repository (may only tighten), the environment (CLEVERAGENTS_LOG_LEVEL for
    log.level), --set.

    \b
    Example:
      agents config list
    """


@config.command("list")
@format_option
@pass_session
def list_settings(session: Session, output: Output) -> None:
    """Show every setting, its value, and where the value comes from.

    \b
    Example:
      agents config list --format json
    """
    from cleveragents.config.settings import known_keys

    configuration = session.configuration()
    rows = [
        {
            "key": key.dotted,
            "value": configuration.shown(key),
            "from": str(configuration.origins[key.dotted]),
            "layer": configuration.origins[key.dotted].layer.value,
            "variable": key.variable,
            "repository": key.repository.value,
            "description": key.description,
        }
        for key in known_keys().values()
    ]
    columns = columns_for(output, ["key", "value", "from", "description"], spare=["description"], width=70)
    columns = columns_for(output, columns, spare=["from"])
    output.table(rows, columns, empty="no settings")


@config.command("get")
@_key_argument
@format_option
@pass_session
def get_setting(session: Session, key: str, output: Output) -> None:
    """Print the value of KEY; passwords, and the path of a webhook, are masked.

    \b
    Example:
      agents config get worker.concurrency
    """
    from cleveragents.config.values import find_key

    found = find_key(key, "config get")
    configuration = session.configuration()
    value = configuration.shown(found)
    if output.machine_readable:
        output.record({"key": key, "value": value, "from": str(configuration.origins[key])})
    else:
        click.echo(value)


@config.command("set")
@_key_argument
@click.argument("value", required=False, metavar="VALUE")
@pass_session
def set_setting(session: Session, key: str, value: str | None) -> None:
    """Set KEY to VALUE in your settings file; VALUE - reads it from standard input.

    Comments in the file stay. An invalid value is refused, and the file stays as it is. Pass values with
    passwords on standard input to keep them out of the shell history.

    \b
    Example:
      agents config set worker.concurrency 8
      pass show db-url | agents config set database.url -
    """
    from cleveragents.config.document import set_value
    from cleveragents.config.values import find_key

    if value is None:
        name, glued, _ = key.partition("=")
        hint = f"; separate KEY and VALUE by a space: agents config set {name} VALUE" if glued else ""
        raise click.UsageError(f"missing argument 'VALUE'{hint}")
    found = find_key(key, "config set")
    path = _user_file()
    set_value(path, found, _from_stdin() if value == "-" else value)
    progress(f"set {key} in {path}")
    _warn_if_hidden(session, key)


@config.command("unset")
@_key_argument
@pass_session
def unset_setting(session: Session, key: str) -> None:
    """Remove KEY from your settings file.

    Comments in the file stay. An invalid value can be removed. Removing a key that is not set is no error.

    \b
    Example:
      agents config unset worker.concurrency
    """
    from cleveragents.config.document import unset_value
    from cleveragents.config.values import find_key

    found = find_key(key, "config unset")
    path = _user_file()
    if unset_value(path, found):
        progress(f"removed {key} from {path}")
    else:
        progress(f"{key} is not set in {path}; nothing changed")
    _warn_if_hidden(session, key)


@config.command("path")
@format_option
@pass_session
def show_paths(session: Session, output: Output) -> None:
    """Show the configuration files and the state directory.

    Invalid files are reported. If one is invalid, the state directory may be unknown.

    \b
    Example:
      $EDITOR "$(agents config path --format json | jq -r .user)"
    """
    try:
        configuration = session.configuration()
    except ConfigurationError as error:
        user, repository, state = _user_file(), _repository_file(), None
        broken = _problems(error)
    else:
        user, repository = configuration.user_file, configuration.repository_file
        state, broken = configuration.settings.state.directory, []
    paths = {"user": str(user), "repository": str(repository) if repository else None, "state": state}
    if output.machine_readable:
        output.record({**paths, "broken": freeze(broken)})
    else:
        output.record(paths)
    _tell(broken)


def _tell(broken: list[str]) -> None:
    for problem in broken:
        progress(f"invalid: {problem}")


def _problems(error: ConfigurationError) -> list[str]:
    """Return the problems of each file, and the problems of all files together."""
    from cleveragents.config.loader import load_configuration

    own = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    alone = [(own, Path("/"))]
    repository = _repository_file()
    if repository is not None:
        alone.append(({"HOME": "/dev/null"}, repository.parent))
    problems: list[str] = []
    for environment, directory in alone:
        try:
            load_configuration(environment, directory)
        except ConfigurationError as problem:
            problems += str(problem).splitlines()
    problems += [line for line in str(error).splitlines() if line not in problems]
    return [redact_text(problem) for problem in problems]


def _repository_file() -> Path | None:
    from cleveragents.config.loader import find_repository_file

    try:
        return find_repository_file(Path.cwd())
    except FileNotFoundError:
        return None


def _user_file() -> Path:
    # Not from the loaded configuration: an invalid repository file must not block editing the user's file.
    from cleveragents.config.loader import user_file_path

    return user_file_path(os.environ)


def _from_stdin() -> str:
    text = sys.stdin.read(_STDIN_LIMIT)
    return text.removesuffix("\n").removesuffix("\r")


def _warn_if_hidden(session: Session, key: str) -> None:
    from cleveragents.config.values import Layer

    try:
        origin = session.configuration().origins[key]
    except ConfigurationError as error:  # the edit is done; other problems are not its failure
        _tell(_problems(error))
        return
    if origin.layer not in (Layer.FILE, Layer.DEFAULT):
        progress(f"note: {origin} takes precedence here")
