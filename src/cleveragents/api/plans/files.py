"""One file that a plan changed, before and after: within bounds, and no other file than those."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from cleveragents.core.file_state import GITLINK
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_known_text

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.file_state import FileState
    from cleveragents.plans.model.plan import Plan
    from cleveragents.sandboxes.ports import Sandbox

__all__ = ["MOST_BYTES", "file_of"]

MOST_BYTES = 1 << 20


def file_of(parts: PlanParts, plan: Plan, path: str, *, after: bool) -> dict[str, JsonValue] | None:
    """The content on that side, text with known secrets masked, or base64; None for a file that the plan did
    not change. `SandboxMissing`."""
    states = parts.history.states(plan.id)
    if path not in states:  # guard: what a plan did not touch is not read through it
        return None
    sandbox = parts.sandboxes.look(plan.id)
    state = states[path] if after else sandbox.base_states([path])[path]
    content = b"" if state is None else _content(sandbox, state)
    shown = content[:MOST_BYTES]
    try:
        text = shown.decode("utf-8", "strict" if len(shown) == len(content) else "ignore")
    except UnicodeDecodeError:
        text = None
    is_text = text is not None and "\0" not in text
    return {
        "path": path,
        "side": "after" if after else "before",
        "exists": state is not None,
        "mode": None if state is None else f"{state.mode:o}",
        "size": len(content),
        "binary": not is_text,
        "encoding": "utf-8" if is_text else "base64",
        "content": redact_known_text(text)
        if text is not None and is_text
        else b64encode(shown).decode("ascii"),
        "truncated": len(shown) < len(content),
    }


def _content(sandbox: Sandbox, state: FileState) -> bytes:
    if state.mode == GITLINK:  # a commit of another repository, spelled as a diff does
        return f"Subproject commit {state.content}\n".encode("ascii")
    return sandbox.content(state.content)
