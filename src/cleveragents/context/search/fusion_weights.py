"""The learned weights of the context pipeline, from `weights.json`."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files

from cleveragents.context.model.context import Fusion, fusion_from_json

__all__ = ["fusion_weights"]


@lru_cache(maxsize=1)
def fusion_weights() -> Fusion:
    """Load the weights, once per process."""
    text = files("cleveragents.context").joinpath("weights.json").read_text(encoding="utf-8")
    return fusion_from_json(json.loads(text))
