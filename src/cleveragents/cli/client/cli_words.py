"""What a server says in the words of its API, in those of the command line: fields are options here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["in_words_of_the_cli", "refused_fields"]

_OPTIONS = {
    "model": "--model",
    "limits.tokens": "--max-tokens",
    "limits.usd": "--max-usd",
    "limits.steps": "--max-steps",
    "limits.seconds": "--timeout",
    "limits": "--max-…",
    "commit": "--commit",
    "replace": "--replace",
    "force": "--yes",
    "discard": "--yes",
}
_FIELDS = {
    **_OPTIONS,
    "plan_id": "PLAN",
    "job_id": "JOB",
    "resource": "--resource",
    "goal": "the goal",
    "goals": "the file",
    "action": "--action",
    "arguments": "--arg",
    "actor": "--actor",
    "actor_yaml": "--actor",
    "profile": "--profile",
    "checks": "--check",
    "invariants": "--invariant",
    "max_parallel": "--parallel",
    "to_branch": "--to-branch",
    "reason": "--reason",
    "text": "the answer",
    "guidance": "--guidance",
    "decision": "DECISION",
    "call": "NUMBER",
    "path": "PATH",
    "accept": "PATHS",
    "reject": "PATHS",
    "accept_changesets": "--changeset",
    "reject_changesets": "--changeset",
    "question": "the question",
    "prompt": "--prompt",
    "at": "--at",
    "budget": "--budget",
    "deadline": "--deadline",
    "name": "NAME",
    "project": "--project",
    "remote": "--remote",
    "branch": "--branch",
    "label": "--label",
    "days": "--days",
    "yaml": "the file",
    "after": "--after",
    "limit": "--limit",
    "type": "--type",
    "state": "--state",
}
_NAMED = re.compile("`(" + "|".join(re.escape(name) for name in _OPTIONS) + ")`")
_PLACES = ("body", "query", "path", "header")
_KIND = re.compile(r"^(Input|String|List|Dictionary) should ")
_PATTERN = re.compile(r"String should match pattern '.*'", re.DOTALL)


def in_words_of_the_cli(text: str) -> str:
    """The text, with fields of requests called as options."""
    return _NAMED.sub(lambda found: _OPTIONS[found[1]], text)


def refused_fields(errors: Any) -> str | None:
    """What is wrong with a request, option by option; None if that is not said."""
    if not isinstance(errors, Sequence) or isinstance(errors, str) or not errors:
        return None
    return "; ".join(_told(one) for one in errors if isinstance(one, Mapping)) or None


def _told(one: Mapping[str, Any]) -> str:
    steps = [str(step) for step in one.get("where", ())]
    inner = steps[1:] if steps and steps[0] in _PLACES else steps
    while inner and inner[-1].isdecimal():  # the place in a list
        inner = inner[:-1]
    path = ".".join(inner)
    field = _FIELDS.get(path) or _FIELDS.get(inner[-1] if inner else "") or path or "the request"
    said = _PATTERN.sub("is not written as such a thing is", str(one.get("problem", "")))
    problem = _KIND.sub("should ", said).removeprefix("Value error, ")
    return f"{field}: {problem[:1].lower()}{problem[1:]}"
