"""A watched turn over connections that break: each piece of output comes once, in order."""

from __future__ import annotations

import json
from typing import Any

from tests.scripted_server import MOMENT, Reply, client_of

TALK = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1E"
LIMITS = dict.fromkeys(("usd", "tokens", "steps", "seconds"))


def talk(state: str) -> dict[str, Any]:
    """Return a conversation whose last turn has this state."""
    empty = dict.fromkeys(("resource_name", "model", "by", "forked_from", "usd"))
    counts = dict.fromkeys(("turns", "compacted", "model_calls", "tokens"), 1)
    texts = {"id": TALK, "title": "t", "project": "shop", "resource": "/srv"}
    times = {"created": MOMENT, "updated": MOMENT}
    return {**empty, **counts, **texts, **times, "state": state, "plans": [], "limits": LIMITS}


def piece(number: int) -> dict[str, Any]:
    return {"number": number, "kind": "model", "text": f"word {number} ", "time": MOMENT}


def streamed(*frames: tuple[str, dict[str, Any]]) -> bytes:
    """Return a connection that sends its position, then these frames, and breaks."""
    told = [f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in frames]
    return "".join(["retry: 1000\nid: 7\n\n", *told]).encode()


def output(number: int) -> tuple[str, dict[str, Any]]:
    return "output", {"plan_id": TALK, **piece(number)}


class Server:
    """Sends output up to number 6 over three connections, some of it twice; the turn ends with the third."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.connections = [
            streamed(output(4), output(5)),
            streamed(output(5)),
            streamed(output(5), ("turn.ended", {"facts": {"conversation": TALK}})),
        ]
        self.state = "running"

    def __call__(self, method: str, path: str, query: dict[str, list[str]]) -> Reply:
        if path == "/events/stream":
            self.asked += query["output"]
            if len(self.connections) == 1:
                self.state = "answered"
            return 200, self.connections.pop(0)
        if path.endswith("/output"):
            first = int(query.get("after", ["0"])[0]) + 1
            items = [{"conversation_id": TALK, **piece(number)} for number in range(first, 7)]
            return 200, {"items": items[: int(query["limit"][0])], "begins": 3}
        return 200, talk(self.state)


def test_a_broken_connection_loses_and_repeats_no_output() -> None:
    server = Server()
    with client_of(server) as client:
        numbers = [one.number for one in client.conversations.watch(TALK)]
    assert numbers == [4, 5, 6], "the last piece was stored, but the stream ended before it"
    assert server.asked == [f"{TALK}:3", f"{TALK}:5", f"{TALK}:5"]


def test_a_watch_begins_after_the_last_piece_seen() -> None:
    server = Server()
    with client_of(server) as client:
        numbers = [one.number for one in client.conversations.watch(TALK, after=5)]
    assert numbers == [6]
    assert server.asked[0] == f"{TALK}:5"
