"""Models that answer from a YAML file: `scripted/path/to/script.yaml`. They need no key and no network."""

from __future__ import annotations

from pathlib import Path

from cleveragents.application.ports.models import Model, ModelFacts
from cleveragents.errors import UnknownModel
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
    path = Path(model).expanduser()
    if not path.is_file():
        raise UnknownModel(name, f"there is no file {model}")
    return path


PROVIDER = Provider(name="scripted", open=_open, reads_facts=_facts)
