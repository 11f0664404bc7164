"""Plans as updates of the Agent Client Protocol: text, tool calls, diffs, entries of a plan.

Everything that an editor sends or shows is bounded.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from acp import helpers, schema

from cleveragents.api.conversations.client import Attachment
from cleveragents.api.plans.detail_views import CallView
from cleveragents.api.plans.summary import Phase, PlanState
from cleveragents.api.plans.views import ChangeView, PlanView
from cleveragents.core.errors import CleverAgentsError, RequestRefused
from cleveragents.core.text.redaction import redact_known_text

if TYPE_CHECKING:
    from cleveragents.api.client import Client

__all__ = ["attachments_in", "call_update", "changed_files", "goal_in", "phases_of", "report_of"]

LONGEST_PROMPT = 100_000
_MOST_FILES = 50
_LONGEST_FILE = 200_000
_LONGEST_TITLE = 200
_MOST_NAMED = 200
_LONGEST_PATH = 4096
_PLAIN = "100644"
_SPECIAL = {"120000": "a symbolic link", "160000": "a submodule"}

Kind = Literal["read", "edit", "delete", "move", "search", "execute", "other"]
Content = schema.FileEditToolCallContent | schema.ContentToolCallContent
Entry = Literal["pending", "in_progress", "completed"]

_KINDS: Mapping[str, Kind] = {
    "read": "read",
    "list": "read",
    "glob": "search",
    "grep": "search",
    "context": "search",
    "write": "edit",
    "edit": "edit",
    "multi_edit": "edit",
    "replace": "edit",
    "delete": "delete",
    "move": "move",
    "command": "execute",
}
_PHASES = ((Phase.STRATEGIZE, "Plan the changes"), (Phase.EXECUTE, "Make and check the changes"))


def goal_in(prompt: Sequence[Any]) -> str:
    """Return the text of a prompt. Links and embedded files are named by their address, with their text.

    Raises `RequestRefused` for a prompt without text, one that is too long, and for sounds.
    """
    text = "\n".join(_text_of(block) for block in prompt if not _encoded(block)).strip()
    if not text:
        raise RequestRefused("missing prompt: send text", "prompt")
    if len(text) > LONGEST_PROMPT:  # guard: bounded prompts
        raise RequestRefused(f"the prompt is too long: send at most {LONGEST_PROMPT:,} characters", "prompt")
    return text


def attachments_in(prompt: Sequence[Any]) -> list[Attachment]:
    """Return the images and PDFs of a prompt. Raises `RequestRefused` for other files."""
    return [Attachment.of(name, _decoded(data)) for name, data in filter(None, map(_encoded, prompt))]


def _encoded(block: Any) -> tuple[str, str] | None:
    """Return the name and the content of an image or an embedded binary file; None for other blocks."""
    if isinstance(block, schema.ImageContentBlock):
        return block.uri or "image", block.data
    if isinstance(block, schema.EmbeddedResourceContentBlock):
        resource = block.resource
        if isinstance(resource, schema.BlobResourceContents):
            return resource.uri, resource.blob
    return None


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError:
        raise RequestRefused("an attachment is not valid base64", "prompt") from None


def _text_of(block: Any) -> str:
    if isinstance(block, schema.TextContentBlock):
        return block.text
    if isinstance(block, schema.ResourceContentBlock):
        return block.uri
    if isinstance(block, schema.EmbeddedResourceContentBlock):
        resource = block.resource
        if isinstance(resource, schema.TextResourceContents):
            return f"{resource.uri}:\n{resource.text}"
    raise RequestRefused("sounds are not supported: send text", "prompt")


def call_update(plan_id: str, call: CallView) -> schema.ToolCallStart:
    """Return a tool call of a plan."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    subject = next((str(arguments[key]) for key in ("path", "argv", "pattern") if key in arguments), "")
    status: Literal["in_progress", "completed", "failed"] = (
        "in_progress" if call.ended is None else "failed" if call.error else "completed"
    )
    return helpers.start_tool_call(
        f"{plan_id}-{call.number}",
        redact_known_text(f"{call.tool} {subject}".strip())[:_LONGEST_TITLE],
        kind=_KINDS.get(call.tool, "other"),
        status=status,
        raw_input=json.loads(json.dumps(arguments, default=str)),
    )


def changed_files(client: Client, plan: PlanView, root: Path) -> list[Content]:
    """Return the accepted changes of a plan: diffs of the first fifty text files, then a text that names the
    changes without a diff and the changed modes. The text names 200 files and counts the others.
    """
    diffs: list[Content] = []
    untold: list[str] = []
    for change in plan.changes:
        full = len(diffs) == _MOST_FILES
        diff = f"after the first {_MOST_FILES}" if full else _diff_of(client, plan.id, change, root)
        if isinstance(diff, str):
            untold.append(_named(change, f"{_modes_of(change)}, no diff: {diff}"))
            continue
        diffs.append(diff)
        if _changes_mode(change):
            untold.append(_named(change, _modes_of(change)))
    if not untold:
        return diffs
    lines = [f"{len(untold)} of {len(plan.changes)} files have changes that no diff here shows:", *untold]
    if len(untold) > _MOST_NAMED:
        lines[_MOST_NAMED + 1 :] = [f"- … and {len(untold) - _MOST_NAMED} more files"]
    lines.append(f"The diff of plan {plan.id} shows all changes.")
    return [*diffs, helpers.tool_content(helpers.text_block(redact_known_text("\n".join(lines))))]


def _diff_of(
    client: Client, plan_id: str, change: ChangeView, root: Path
) -> schema.FileEditToolCallContent | str:
    """Return the diff of a file, or the reason why there is none."""
    kinds = [_SPECIAL[side.mode] for side in (change.before, change.after) if side and side.mode in _SPECIAL]
    if kinds:
        return kinds[-1]
    try:
        before = client.plans.file(plan_id, change.path, side="before")
        after = client.plans.file(plan_id, change.path, side="accepted")
    except CleverAgentsError:
        return "the file cannot be read"
    if before.binary or after.binary:
        return "a binary file"
    if any(side.truncated or side.size > _LONGEST_FILE for side in (before, after)):
        return f"larger than {_LONGEST_FILE // 1000} kB"
    return helpers.tool_diff_content(
        str(root / change.path),
        after.content if after.exists else "",
        before.content if before.exists else None,
    )


def _changes_mode(change: ChangeView) -> bool:
    before = change.before.mode if change.before else _PLAIN
    return change.after is not None and change.after.mode != before


def _modes_of(change: ChangeView) -> str:
    modes = [side.mode for side in (change.before, change.after) if side]
    return f"mode {' → '.join(dict.fromkeys(modes))}"


def _named(change: ChangeView, facts: str) -> str:
    # A name of a file may contain line breaks, which would look like other entries.
    name = change.path if change.path.isprintable() else ascii(change.path)
    return f"- {name[:_LONGEST_PATH]} ({change.change}, {facts})"


def phases_of(plan: PlanView) -> schema.AgentPlanUpdate:
    """Return the phases of a plan as entries with a status."""
    order = [Phase.ACTION, Phase.STRATEGIZE, Phase.EXECUTE, Phase.APPLY]
    at = order.index(plan.phase)
    entries = []
    for phase, title in _PHASES:
        past = order.index(phase) < at or (phase is plan.phase and plan.state is PlanState.COMPLETE)
        state: Entry = "completed" if past else "in_progress" if phase is plan.phase else "pending"
        entries.append(helpers.plan_entry(title, status=state))
    return helpers.update_plan(entries)


def report_of(plan: PlanView) -> str:
    """Return the state of a plan at rest, as Markdown: its answer, its state, and the next steps."""
    said = [plan.answer or "", f"Plan `{plan.id}`: {plan.meaning}."]
    pending = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    if plan.state is PlanState.WAITING and pending.get("what"):
        said.append(str(pending["what"]))
    if plan.error:
        said.append(plan.error)
    said += [f"- {' — '.join(step)}" for step in plan.next_steps if plan.needs not in (None, "review")]
    return redact_known_text("\n\n".join(one for one in said if one))
