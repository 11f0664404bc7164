"""The request for a new plan, and its limits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cleveragents.core.errors import RequestRefused

if TYPE_CHECKING:
    from cleveragents.api.server_requests import ServerPlanRequest
    from cleveragents.models.model.budget import BudgetLimits as Bounds

__all__ = ["Limits", "PlanRequest"]

_MOST_PARALLEL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that a plan and its sub-plans may spend in total. None is no limit."""

    usd: float | None = None
    """US dollars; needs a known price for every model."""
    tokens: int | None = None
    steps: int | None = None
    """Model calls."""
    seconds: float | None = None
    """Working time."""

    def __post_init__(self) -> None:
        """Raise `RequestRefused` unless each limit is a number greater than 0."""
        for name in ("usd", "tokens", "steps", "seconds"):
            value = getattr(self, name)
            whole = name in ("tokens", "steps")
            kinds = int if whole else (int, float)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value <= 2**53:
                wanted = "a whole number" if whole else "a number"
                raise RequestRefused(f"{name} must be {wanted} greater than 0", f"limits.{name}")

    def counted(self) -> Bounds:
        """Return the limits in the units of budgets."""
        from cleveragents.api.plans.budget import limits_of

        return limits_of(self.usd, self.tokens, self.steps, self.seconds)

    def body(self) -> dict[str, object]:
        """Return the limits as JSON."""
        return {"usd": self.usd, "tokens": self.tokens, "steps": self.steps, "seconds": self.seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A request for a plan: a `goal`, or an `action` with its `arguments`, or several `goals` (YAML).

    The plan runs on `repository`, a directory of this machine, or on `resource`, a registered repository. A
    server accepts only a `resource`. `apply="auto"` applies the result without a review if its checks pass,
    and `"review"` never applies it automatically; with None, the `profile` decides.
    """

    goal: str | None = None
    action: str | None = None
    arguments: Mapping[str, object] | None = None
    goals: str | None = None
    repository: str | os.PathLike[str] = "."
    resource: str | None = None
    checks: Sequence[str] = ()
    invariants: Sequence[str] = ()
    model: str | None = None
    actor: str | None = None
    actor_yaml: str | None = None
    profile: str | None = None
    limits: Limits = field(default_factory=Limits)
    max_parallel: int | None = None
    apply: Literal["review", "auto"] | None = None
    to_branch: str | None = None
    start: Literal["tree", "HEAD"] = "tree"
    include: Sequence[str] = ()
    """Ignored files to copy into the sandbox, as patterns; on this machine only."""

    def __post_init__(self) -> None:
        """Raise `RequestRefused` if the fields contradict each other."""
        if self.goals is not None and (self.goal, self.action, self.arguments) != (None, None, None):
            raise RequestRefused("`goals` cannot be combined with goal, action or arguments", "goals")
        if self.goals is None and self.action is None and self.goal is None:
            raise RequestRefused("missing goal: give a goal or an action", "goal")
        if self.action is None and self.arguments is not None:
            raise RequestRefused("arguments need an action", "arguments")
        if self.actor is not None and self.actor_yaml is not None:
            raise RequestRefused("give either the name of an actor or its YAML", "actor_yaml")
        for name in ("checks", "invariants", "include"):
            if isinstance(getattr(self, name), str):
                raise RequestRefused(f"{name} must be a list of texts, not one text", name)
        for name, known in (("apply", ("review", "auto", None)), ("start", ("tree", "HEAD"))):
            if getattr(self, name) not in known:
                words = " or ".join(str(one) for one in known)
                raise RequestRefused(f"{name} must be {words}", name)
        if self.max_parallel is not None and not 1 <= self.max_parallel <= _MOST_PARALLEL:
            raise RequestRefused(f"max_parallel must be from 1 to {_MOST_PARALLEL}", "max_parallel")

    def asked(self) -> ServerPlanRequest:
        """Return the request for the services."""
        from cleveragents.api.plans.create import PlanSpec
        from cleveragents.api.server_requests import ServerPlanRequest
        from cleveragents.core.json_value import freeze_object

        arguments = None if self.action is None else freeze_object(self.arguments or {}, where="arguments")
        wanted = PlanSpec(
            action=self.action,
            words=(self.goal,) if self.action is None and self.goal is not None else (),
            pairs=(),
            checks=tuple(self.checks),
            profile=self.profile,
            from_head=self.start == "HEAD",
            include=tuple(self.include),
            goal=self.goal,
            commit=False,
            actor=self.actor,
            sent_actor=self.actor_yaml,
            model=self.model,
            limits=self.limits.counted(),
            invariants=tuple(self.invariants),
            arguments=arguments,
            parallel=self.max_parallel,
        )
        return ServerPlanRequest(self.resource or "", wanted, self.apply, self.to_branch, self.goals)

    def body(self) -> dict[str, object]:
        """Return the request as JSON for a server. Raises `RequestRefused` for files of this machine."""
        if self.include:
            raise RequestRefused("ignored files cannot be sent to a server; omit `include`", "include")
        return {
            "resource": self.resource,
            "goal": self.goal,
            "action": self.action,
            "arguments": None if self.arguments is None else dict(self.arguments),
            "goals": self.goals,
            "checks": [*self.checks],
            "invariants": [*self.invariants],
            "model": self.model,
            "actor": self.actor,
            "actor_yaml": self.actor_yaml,
            "profile": self.profile,
            "limits": self.limits.body(),
            "max_parallel": self.max_parallel,
            "apply": self.apply,
            "to_branch": self.to_branch,
            "start": self.start,
        }
