"""How what strategies say of files is put together: a weight for each signal, and what a path alone tells.

Signals count different things, so each is brought to the same scale for every question: what it says of a
file, as a share of the most that it says of any. The weights are learned from questions whose answers are
known, and none is below zero: evidence for a file never counts against it. They are data, which
`fusion_from_json` reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cleveragents.context.model.code_paths import kind_of
from cleveragents.core.json_value import JsonValue

__all__ = ["Fusion", "Signal", "fusion_from_json"]

Signal = tuple[str, str]
"""The strategy's name, and its name for one way of looking."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """`signals` that nobody has measured count as `unknown`. `priors` are added for what a path is; `kinds`
    multiply the sum of what is not source."""

    signals: Mapping[Signal, float]
    priors: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[str, float] = field(default_factory=dict)
    unknown: float = 0.3

    def worth(self, shares: Mapping[Signal, float]) -> float:
        """Of everything said of a file, each signal's share of its highest score."""
        return sum(self.signals.get(signal, self.unknown) * share for signal, share in shares.items())

    def prior(self, path: str) -> float:
        return sum(weight * _PRIORS[name](path) for name, weight in self.priors.items())

    def kind(self, path: str) -> float:
        return self.kinds.get(kind_of(path), 1.0)


_ASIDE = re.compile(
    r"(?:^|/)(?:docs?|examples?|benchmarks?|asv_bench|tutorials?|galler(?:y|ies)|scripts?|tools?|bin|build\w{0,20}"
    r"|release|setup\.py|setupext|versioneer|extras?|ci|\.[\w-]{1,40}|maint\w{0,20})(?:/|$|\.py$)",
    re.IGNORECASE,
)
_PRIORS: Mapping[str, Callable[[str], float]] = {
    "aside": lambda path: float(bool(_ASIDE.search(path))),  # not what users run
}


def fusion_from_json(data: JsonValue) -> Fusion:
    """`ValueError` if that is no description of weights."""
    if not isinstance(data, Mapping):
        raise ValueError("weights are an object")
    signals = {
        (strategy, signal): _number(signal, weight)
        for strategy in _object(data, "signals")
        for signal, weight in _object(_object(data, "signals"), strategy).items()
    }
    priors = {name: _number(name, value) for name, value in _object(data, "priors").items()}
    if unknown := priors.keys() - _PRIORS.keys():
        raise ValueError(f"no such prior: {', '.join(sorted(unknown))}")
    kinds = {name: _number(name, value) for name, value in _object(data, "kinds").items()}
    return Fusion(signals, priors, kinds)


def _object(data: Mapping[str, JsonValue], name: str) -> Mapping[str, JsonValue]:
    found = data.get(name, {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is no object")
    return found


def _number(name: str, value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"the weight of {name} is no number")
    return float(value)
