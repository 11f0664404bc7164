"""A well-behaved agent without the library, so that it starts quickly. Its prompt says what it does, as for
`well_behaved.py`: a JSON list of steps, each a list that starts with the name of a function below.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

NUMBERS = count(1)
TOLD = [""]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def asked(method: str, **params: Any) -> Any:
    """Return the whole answer, including an error."""
    number = next(NUMBERS)
    send(id=number, method=method, params={"sessionId": "s", **params})
    while True:
        message = json.loads(sys.stdin.readline())
        if message.get("id") == number and "method" not in message:
            return message


def update(**facts: Any) -> None:
    send(method="session/update", params={"sessionId": "s", "update": facts})


def say(text: str) -> None:
    update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": f"{text} "})


def path(name: str) -> str:
    return str(Path.cwd() / name)


def read(name: str, line: int | None = None, limit: int | None = None) -> None:
    answer = asked("fs/read_text_file", path=path(name), line=line, limit=limit)
    say(
        f"refused:{answer['error']['message']}"
        if "error" in answer
        else f"read:{answer['result']['content']}"
    )


def write(name: str, content: str) -> None:
    answer = asked("fs/write_text_file", path=path(name), content=content)
    if "error" in answer:
        say(f"refused:{answer['error']['message']}")


def write_at_once(name: str, times: int) -> None:
    """Send all requests before reading any answer."""
    for number in range(times):
        params = {"sessionId": "s", "path": path(name), "content": f"version {number}\n"}
        send(id=f"w{number}", method="fs/write_text_file", params=params)
    for _ in range(times):
        json.loads(sys.stdin.readline())


def secretly(name: str, content: str) -> None:
    Path(name).write_text(content)


def ask(kind: str, title: str) -> None:
    kinds = ("allow_always", "allow_once", "reject_once", "reject_always")
    options = [{"optionId": one, "name": one, "kind": one} for one in kinds]
    call = {"toolCallId": title, "kind": kind, "title": title}
    answer = asked("session/request_permission", toolCall=call, options=options)
    say(f"{title}:{answer['result']['outcome']['optionId']}")


def terminal(command: str, *arguments: str) -> None:
    name = asked("terminal/create", command=command, args=list(arguments))["result"]["terminalId"]
    ended = asked("terminal/wait_for_exit", terminalId=name)["result"]
    seen = asked("terminal/output", terminalId=name)["result"]
    asked("terminal/release", terminalId=name)
    say(f"exit:{ended['exitCode']}:{seen['output']}")


def until_ready(command: str) -> str:
    """Start a command that keeps running; return its terminal."""
    name: str = asked("terminal/create", command=command)["result"]["terminalId"]
    while "ready" not in asked("terminal/output", terminalId=name)["result"]["output"]:
        pass
    return name


def serve(command: str) -> None:
    name = until_ready(command)
    asked("terminal/kill", terminalId=name)
    say(f"ended:{asked('terminal/wait_for_exit', terminalId=name)['result']['signal']}")


def leave_running(command: str) -> None:
    until_ready(command)


def busy(command: str, name: str) -> None:
    """Write while its own command runs."""
    terminal = until_ready(command)
    write(name, "x")
    asked("terminal/release", terminalId=terminal)


def terminals(most: int) -> None:
    answers = [asked("terminal/create", command="true") for _ in range(most + 1)]
    say(f"refused:{sum('error' in answer for answer in answers)}")


def tell_prompt() -> None:
    say(TOLD[0].partition("[[")[0])


def environment(*names: str) -> None:
    say(",".join(f"{name}={os.environ.get(name)}" for name in names))


def betray(name: str) -> str:
    """Reveal the value in every possible way, also in two pieces; then fail."""
    value = os.environ[name]
    half = len(value) // 2
    for kind in ("agent_thought_chunk", "agent_message_chunk"):
        for piece in (f"it is {value[:half]}", f"{value[half:]}, you see"):
            update(sessionUpdate=kind, content={"type": "text", "text": piece})
    entry = {"content": f"use {value}", "priority": "high", "status": "pending"}
    update(sessionUpdate="plan", entries=[entry])
    facts = {"title": f"curl {value}", "kind": "execute", "rawInput": {"words": ["curl", value]}}
    update(sessionUpdate="tool_call", toolCallId="1", status="in_progress", **facts)
    ask("execute", f"send {value}")
    terminal("echo", value)
    terminal(f"printf {value[:half]}; echo {value[half:]}")
    secretly("mine.txt", value)
    update(sessionUpdate="tool_call_update", toolCallId="1", status="completed")
    say(f"it was {value}")
    return "refusal"


def at_home(name: str) -> None:
    file = Path.home() / name
    say(f"home:{file.read_text() if file.exists() else None}")


def announce(pipe: str) -> None:
    Path(pipe).write_text(f"{os.getpid()}\n")


def wait_for(name: str) -> None:
    """Wait until the file exists."""
    while not Path(name).exists():
        pass


def until_cancelled() -> str:
    while json.loads(sys.stdin.readline()).get("method") != "session/cancel":
        pass
    secretly("late.txt", "written after the cancel\n")
    return "cancelled"


def stop(reason: str) -> str:
    return reason


def carry_out(text: str) -> str:
    TOLD[0] = text
    steps: dict[str, Callable[..., str | None]] = {
        name: found for name, found in globals().items() if callable(found)
    }
    for name, *words in json.loads(text[text.index("[[") :]):
        reason = steps[name](*words)
        if reason is not None:
            return reason
    return "end_turn"


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        result: dict[str, Any] = {"protocolVersion": 1}
        if method == "session/new":
            os.chdir(message["params"]["cwd"])
            result = {"sessionId": "s"}
        elif method == "session/prompt":
            result = {"stopReason": carry_out(message["params"]["prompt"][0]["text"])}
        elif method != "initialize":
            continue
        send(id=message["id"], result=result)


if __name__ == "__main__":
    main()
