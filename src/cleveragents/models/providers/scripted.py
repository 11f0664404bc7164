"""Models that answer from a YAML file: `scripted/path/to/script.yaml`. They need no key and no network."""

from __future__ import annotations

import os
import stat
from codecs import getincrementaldecoder
from pathlib import Path

from cleveragents.core.errors import ConfigurationError, UnknownModel
from cleveragents.models.ports import Model, ModelFacts
from cleveragents.models.provider import ModelSpec, Provider

__all__ = ["PROVIDER", "what_is_there"]

_LOOKED_AT = 4096


def _open(opening: ModelSpec) -> Model:
    from cleveragents.models.scripted_model import ScriptedModel

    return ScriptedModel.from_file(opening.facts.name, _path(opening.facts.name, opening.model))


def _facts(name: str, model: str) -> ModelFacts:
    from cleveragents.models.script_document import load_script
    from cleveragents.models.scripted_model import scripted_facts

    return scripted_facts(name, load_script(_path(name, model)))


def _path(name: str, model: str) -> Path:
    """Return the path of a script.

    Raises `UnknownModel` with the same text for a missing file and for a file that is not a script. Users of
    a server can name any path on its machine and must not learn which files exist there.
    """
    from cleveragents.models.script_document import NO_SCRIPT, UNREADABLE, load_script

    path = _place(model)
    nothing = UnknownModel(name, f"there is no file {model}, or {NO_SCRIPT}")
    if not _is_readable(path):
        raise nothing
    try:
        load_script(path)
    except ConfigurationError as error:
        none = error.problem == NO_SCRIPT or error.problem.startswith(UNREADABLE)
        if none:  # guard: a missing file and another kind of file must look the same
            raise nothing from None
        raise
    return path


def what_is_there(name: str) -> str | None:
    """Explain why a name that the catalogue refused is not a script; None if it does not name one.

    The explanation reveals which files exist, so show it only to users with access to this machine.
    """
    from cleveragents.models.script_document import NO_SCRIPT

    provider, _, model = name.partition("/")
    if provider != PROVIDER.name or not model:
        return None
    try:
        path = _place(model)
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return f"{model} is a directory, not a script"
        if not stat.S_ISREG(mode):
            return f"{model} is not a regular file"
        with path.open("rb") as opened:
            begins = opened.read(_LOOKED_AT)
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no file {model}"
    except OSError as error:
        return f"{model} cannot be read: {error.strerror}"
    except ValueError:  # no file name contains a NUL
        return None
    return f"{model} is {_kind_of(begins)}{NO_SCRIPT.removeprefix('not a script')}"


def _place(model: str) -> Path:
    try:
        return Path(model).expanduser()
    except RuntimeError:  # `~name`, and no such user exists
        return Path(model)


def _kind_of(begins: bytes) -> str:
    if not begins.strip():
        return "empty"
    try:
        getincrementaldecoder("utf-8")().decode(begins)
    except UnicodeDecodeError:
        return "not text"
    return "not text" if b"\0" in begins else "not a script"


def _is_readable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


PROVIDER = Provider(name="scripted", open=_open, reads_facts=_facts)
