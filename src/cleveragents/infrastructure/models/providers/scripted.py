"""Models that answer from a YAML file: `scripted/path/to/script.yaml`. They need no key and no network."""

from __future__ import annotations

import os
from pathlib import Path

from cleveragents.application.ports.models import Model, ModelFacts
from cleveragents.errors import ConfigurationError, UnknownModel
from cleveragents.infrastructure.models.provider import Opening, Provider

__all__ = ["PROVIDER"]


def _open(opening: Opening) -> Model:
    from cleveragents.infrastructure.models.scripted_model import ScriptedModel

    return ScriptedModel.from_file(opening.facts.name, _path(opening.facts.name, opening.model))


def _facts(name: str, model: str) -> ModelFacts:
    from cleveragents.infrastructure.models.script_document import load_script
    from cleveragents.infrastructure.models.scripted_model import scripted_facts

    return scripted_facts(name, load_script(_path(name, model)))


def _path(name: str, model: str) -> Path:
    """`UnknownModel`, in the same words for whatever is no script: users of a server name paths of its
    machine, and are not to find out which files it has."""
    from cleveragents.infrastructure.models.script_document import NO_SCRIPT, UNREADABLE, load_script

    path = Path(model).expanduser()
    nothing = UnknownModel(name, f"there is no file {model}, or {NO_SCRIPT}")
    if not _is_readable(path):
        raise nothing
    try:
        load_script(path)
    except ConfigurationError as error:
        none = error.problem == NO_SCRIPT or error.problem.startswith(UNREADABLE)
        if none:  # guard: what is there is not told apart from what is not
            raise nothing from None
        raise
    return path


def _is_readable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


PROVIDER = Provider(name="scripted", open=_open, reads_facts=_facts)
