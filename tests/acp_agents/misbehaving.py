"""Agents that misbehave, each in its own way, written without the library. Run with the name of the way.

`ACP_PIDS` names a pipe into which every process writes its pid.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def announce() -> None:
    pipe = os.environ.get("ACP_PIDS")
    if pipe:
        Path(pipe).write_text(f"{os.getpid()}\n")


def for_ever() -> None:
    while True:
        time.sleep(3600)


def answer(number: Any, result: Any) -> None:
    say({"jsonrpc": "2.0", "id": number, "result": result})


def update(**facts: Any) -> None:
    say({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": facts}})


def text(words: str) -> None:
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": words})


def ask(method: str, **params: Any) -> Any:
    """Return the answer to a request, whatever else arrives before."""
    say({"jsonrpc": "2.0", "id": "mine", "method": method, "params": {"sessionId": "s", **params}})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "mine":
            return message
    return {}


def done(number: Any) -> None:
    answer(number, {"stopReason": "end_turn"})


def serve(on_prompt: Callable[[Any], None], **answers: Any) -> None:
    """Answer all requests of the protocol, and pass prompts to `on_prompt`."""
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method == "initialize":
            answer(number, {"protocolVersion": answers.get("version", 1)})
        elif method == "session/new" and "refusal" in answers:
            say({"jsonrpc": "2.0", "id": number, "error": answers["refusal"]})
        elif method == "session/new":
            os.environ["ROOT"] = message["params"]["cwd"]
            answer(number, {"sessionId": "s"})
        elif method == "session/prompt":
            on_prompt(number)


def dies(number: Any) -> None:
    Path("half.txt").write_text("half\n")
    sys.stderr.write("out of order\n")
    sys.stderr.flush()
    os._exit(7)


def never_answers(number: Any) -> None:
    announce()


def floods(number: Any) -> None:
    while True:
        text("x" * 50)


def long_line(number: Any) -> None:
    while True:
        sys.stdout.write("x" * 65536)


def babbles(number: Any) -> None:
    while True:
        sys.stdout.write("this is no message\n" * 1000)


def odd_messages(number: Any) -> None:
    """Send messages that must all be skipped."""
    for odd in (5, [1], "x", None, {"id": [1]}, {"id": 3, "error": "x"}, {"method": 5}, {"jsonrpc": "2.0"}):
        say(odd)
    sys.stdout.write("[" * 100_000 + "\n")
    sys.stdout.write("\xff not json\n")
    update(sessionUpdate="nobody knows this")
    update(sessionUpdate="agent_message_chunk", content={"type": "image"})
    say({"jsonrpc": "2.0", "method": "unheard/of", "params": {}})
    unknown = ask("fs/unheard_of")["error"]["code"]
    wrong = ask("fs/write_text_file", path=5)["error"]["code"]
    other = ask("fs/write_text_file", path="/x", content="", sessionId="another")["error"]["code"]
    text(f"{unknown} {wrong} {other}")
    done(number)


def writes_outside(number: Any) -> None:
    root = os.environ["ROOT"]
    outside = Path(os.environ["OUTSIDE"])
    said: list[Any] = [
        "error" in ask("fs/write_text_file", path=path, content="x")
        for path in (str(outside), f"{root}/../escaped.txt", f"{root}/.git/config", "relative.txt")
    ]
    said.append("error" in ask("fs/read_text_file", path=str(outside)))
    said.append("error" in ask("terminal/output", terminalId="nothing"))
    try:
        outside.write_text("directly")
        said.append("wrote")
    except OSError:
        said.append("could not")
    text(" ".join(map(str, said)))
    done(number)


def answers_wrongly(number: Any) -> None:
    answer(number, {"stopReason": "because"})


def says_no(number: Any) -> None:
    error = {"code": -32603, "message": "it is Sunday", "data": {"details": "come back tomorrow"}}
    say({"jsonrpc": "2.0", "id": number, "error": error})


def asks_too_much(number: Any) -> None:
    root = os.environ["ROOT"]
    for this in range(200):
        params = {"sessionId": "s", "path": f"{root}/a.txt"}
        say({"jsonrpc": "2.0", "id": this, "method": "fs/read_text_file", "params": params})
    failed = sum("error" in json.loads(sys.stdin.readline()) for _ in range(200))
    text("some refused" if 0 < failed < 200 else f"{failed} refused")
    done(number)


def forks(number: Any) -> None:
    """Start a child that ignores SIGTERM, in its own session, and a grandchild; then end the turn."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setsid()
        if os.fork() == 0:
            announce()
            for_ever()
        announce()
        for_ever()
    done(number)


def keeps_writing(number: Any) -> None:
    """Write one file after the other, from another process, until it is killed."""
    announce()
    if os.fork() == 0:
        for count in range(10_000_000):
            Path(f"own-{count % 7}.txt").write_text(f"{count}\n")


def main(way: str) -> None:
    answers: dict[str, Any] = {}
    if way == "silent":
        announce()
        for_ever()
    if way == "gone":
        sys.stderr.write(f"I cannot start with {os.environ.get('GIVEN_TOKEN')}\n")
        sys.exit(3)
    if way == "from_the_future":
        answers["version"] = 77
    if way == "wants_a_login":
        answers["refusal"] = {"code": -32000, "message": "Authentication required"}
    if way == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    on_prompt = {name: found for name, found in globals().items() if callable(found)}.get(way, never_answers)
    serve(on_prompt, **answers)
    if way == "stubborn":
        for_ever()


if __name__ == "__main__":
    main(sys.argv[1])
