"""`python -m tests.crash.programs.conversation_runner`: one turn of a conversation in a process that dies on
request.

Each line of its input is JSON: `home`, `question`, and `point` and `nth` where the process is killed. It
forks for each.
Without a `point` it writes the names of all reached fault points to the home.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cleveragents.api.client import LocalClient
from cleveragents.api.conversations.client import Attachment, ConversationRequest, TurnView
from cleveragents.app.container import Container
from cleveragents.config.loader import load_configuration
from cleveragents.core.errors import RequestRefused
from cleveragents.core.faults import FaultPoints
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.attached_files import PNG
from tests.crash.programs.forking import serve

HEAVY = (
    "cleveragents.actors.runner",
    "cleveragents.models.scripted_model",
    "cleveragents.actors.library",
    "cleveragents.actors.store.sql_checkpoint_store",
    "cleveragents.api.conversations.local",
    "cleveragents.conversations.turn",
    "cleveragents.conversations.running_turns",
    "jsonschema",
)
QUESTION = "Please paint the shed"
PLANS = {
    "when": {"offered": "start_plan", "attached": "image/png"},  # after a crash, too
    "turns": [
        {"calls": [{"tool": "read", "arguments": {"path": "b.txt"}}]},
        {"calls": [{"tool": "start_plan", "arguments": {"goal": "paint the shed"}}]},
        {"text": "I started a plan."},
    ],
}


@contextmanager
def client_at(home: Path, faults: FaultPoints | None = None) -> Iterator[LocalClient]:
    """Open a client of the state in `home`, as a command does."""
    environment = {"HOME": str(home), "CLEVERAGENTS_STATE_DIRECTORY": str(home / "state")}
    settings = load_configuration(environment, home, [f"models.default=scripted/{home / 'script.yaml'}"])
    with (
        Container(settings.settings, faults=faults) as container,
        LocalClient(container, in_front=True) as client,
    ):
        yield client


def answered(client: LocalClient, home: Path, question: str = QUESTION) -> TurnView:
    """Ask the question, or continue it, and return the turn."""
    talks = client.conversations
    known = talks.list().items
    talk = known[0] if known else talks.create(ConversationRequest(repository=home / "shop"))
    if not talk.turns:
        shown = [Attachment.of("shed.png", PNG)] if question == QUESTION else []
        talks.send(talk.id, question, attachments=shown)
    else:
        try:
            talks.resume(talk.id)
        except RequestRefused:  # it is answered
            assert talk.state is not None
    return talks.wait(talk.id, timeout=120)


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    faults = CrashAt(order["point"], order["nth"]) if "point" in order else recorded
    with client_at(home, faults) as client:
        answered(client, home, order.get("question", QUESTION))
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child, heavy=HEAVY)
