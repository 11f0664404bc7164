"""The goals of the demo, as a user says them to `agents run`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.core.json_value import freeze, thaw
from cleveragents.models.model.budget import PICODOLLARS, Limits

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.plans.ports.plans import NewPlan

__all__ = ["CHECK", "GOALS", "LIMITS", "laid_script", "plan_for"]

GOALS: Mapping[str, str] = {
    "discount": "Take 10 % off orders of 100 and more",
    "tax": "Add 19 % tax to every total",
    "receipt": "Show the sum at the end of a receipt",
    "catalogue": "Write the catalogue of all colours",
    "simulation": "Find out how long the paint lasts",
    "welcome": "Welcome customers in the README",
}
LIMITS = Limits(picodollars=PICODOLLARS // 10, tokens=100_000, steps=30, seconds=120.0)
"""Of each plan: ten cents."""

CHECK = "sh test.sh"

_SCRIPT = "model.yaml"


def laid_script(directory: Path) -> Path:
    """What the model says, as a file there."""
    script = directory / _SCRIPT
    script.write_bytes(files("cleveragents.demo").joinpath(_SCRIPT).read_bytes())
    return script


def plan_for(container: Container, goal: str, root: Path, script: Path) -> NewPlan:
    """As `agents run GOAL --model scripted/SCRIPT --check 'sh test.sh' --max-usd 0.10 …` asks it."""
    from cleveragents.plans.ports.plans import NewPlan

    parts = container.plan_parts
    action = parts.action_named("builtin/goal", str(root))
    request = freeze(
        {
            "arguments": thaw(action.parse((f"goal={goal}",), ())),
            "checks": [CHECK],
            "profile": parts.default_profile,
            "from_head": False,
            "include": [],
            "directory": "",
            "model": f"scripted/{script}",
            "actor": None,
            "limits": thaw(LIMITS.to_json()),
        }
    )
    assert isinstance(request, Mapping)
    return NewPlan(goal, action.name, str(root), request)
