"""The requests of an external agent in one session, turned into recorded calls.

If the agent requests a file access or a command, the request becomes a call of our own tools. Changes that
the agent makes directly are detected and recorded under a call `acp`: before each call that writes, so that
they are not attributed to that call; when the agent reports progress; and at the end.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from cleveragents.actors.model.actor import ProgressKind
from cleveragents.actors.ports import AgentUpdate, PermissionRequest, TerminalCommand, ToolAnswer
from cleveragents.core.errors import CallDenied, OutsideSandbox, PolicyDenied, ToolRefused
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import ACP, CallState, ToolCall
from cleveragents.plans.actors.actor_tools import ActorTools
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.processes.ports import StopSignal

__all__ = [
    "ACP",
    "COMMAND",
    "READ",
    "WRITE",
    "RecordedAgentClient",
    "capability_for",
    "command_arguments",
    "is_approved",
    "permission_arguments",
    "text_of",
]


_SHOWN = 200

READ = "read"
WRITE = "write"
COMMAND = "command"
# The session limits its time. The tool's own limit only has to be no shorter, and constant: an approval holds
# for a call with the same arguments.
_COMMAND_SECONDS = 8 * 3600.0
_FOR_A_SHELL = re.compile(r"[\s|&;<>()$`\"'*?\[\]#~%\\]")
_DETAILS = 2_000
_TITLE = 500
_MOST_PATHS = 20
_MOST_CHARACTERS = 200_000
_CAPABILITIES = {
    "read": Capability.READ,
    "search": Capability.READ,
    "think": Capability.READ,
    "edit": Capability.EDIT,
    "move": Capability.EDIT,
    "delete": Capability.DELETE,
    "execute": Capability.COMMAND,
    "fetch": Capability.NETWORK,
}


class RecordedAgentClient:
    """`AgentClient` of one session. The names of its calls consist of `step`, the name of the node's calls,
    and `session`, the name of this session. So no later session reuses a name. `answered` are earlier calls
    that a person was asked about.

    Thread safety:
        Owner: the session that made it. The agent's requests come on several threads.
        Lock: `_turn` guards all state and is held for a whole call, including its command. A waiting thread
            gives up after a while: the agent has to end its command first.
        Guarantee: calls are made one after the other; changes that the agent made by itself before a call are
            recorded before that call's changes; an answer of a person is used once, for the request that the
            person saw.
    Cancel safety: a cancelled call stays open, as `ToolExecution` says; `close` still records all changes.
    """

    def __init__(
        self,
        tools: ActorTools,
        *,
        agent: str,
        step: str,
        session: int,
        answered: Iterable[ToolCall] = (),
        seconds_left: Callable[[], float] | None = None,
        told: Callable[[AgentUpdate], None] | None = None,
        patience_seconds: float = 10.0,
    ) -> None:
        self._tools = tools
        self._agent = agent
        self._step = step
        self._session = f"{step}.s{session}"
        self._seconds_left = seconds_left
        self._told = told
        self._patience_seconds = patience_seconds
        self._turn = threading.Lock()
        self._numbers = count(1)
        self._asked: Counter[str] = Counter()
        self._answers: dict[str, list[ToolCall]] = {}
        self._taken_back = ""
        for call in answered:
            if call.digest is not None:  # guard: a request of an older version does not identify its call
                self._answers.setdefault(call.digest, []).append(call)

    @property
    def directory(self) -> Path:
        return self._root / self._tools.execution.directory

    def read(self, path: str, line: int | None, limit: int | None) -> str:
        arguments: dict[str, JsonValue] = {"path": self._inside(READ, path)}
        arguments |= {} if line is None else {"offset": max(line, 1)}
        arguments["limit"] = 100_000 if limit is None else min(max(limit, 1), 100_000)
        return text_of(self._used(READ, arguments).value, limit)

    def write(self, path: str, content: str) -> None:
        inside = self._inside(WRITE, path)
        self.told(AgentUpdate(ProgressKind.TOOL, f"{WRITE} {inside}"))
        self._used(WRITE, {"path": inside, "content": content}, writes=True)

    def run(
        self, command: TerminalCommand, ended: StopSignal, on_output: Callable[[bytes], None]
    ) -> int | None:
        here = self._tools.execution.on_output

        def hear(chunk: bytes) -> None:
            on_output(chunk)
            if here is not None:
                here(chunk)

        where = "" if command.directory is None else self._inside(COMMAND, command.directory)
        arguments = command_arguments(command, where, self._tools.execution.directory)
        self.told(AgentUpdate(ProgressKind.TOOL, f"{COMMAND} {command.command[:_SHOWN]}"))
        done = self._used(COMMAND, arguments, writes=True, ended=ended, on_output=hear).value
        code = done.get("exit_code") if isinstance(done, Mapping) else None
        return code if isinstance(code, int) else None

    def permit(self, wanted: PermissionRequest) -> bool:
        arguments = permission_arguments(self._agent, wanted)
        # guard: the record may be cut, and an approval holds for the whole request
        whole: dict[str, JsonValue] = {
            "details": wanted.details,
            "paths": wanted.paths,
            "title": wanted.title,
        }
        digest = self._tools.execution.digest_of(ACP, {**arguments, **whole})
        with self._taking_turn():
            self._asked[digest] += 1
            # Without the session: an answer holds for the same request in the next session.
            step = f"{self._step}.leave-{digest}-{self._asked[digest]}"
            with self._tools.turn() as execution:
                return is_approved(
                    execution, CallRequest(step, ACP, arguments, capability=capability_for(wanted))
                )

    def did(self, what: str) -> None:
        # guard: changes of a running command would be taken for the agent's
        if not self._turn.acquire(blocking=False):
            return
        try:
            self._file(what)
        finally:
            self._turn.release()

    def told(self, update: AgentUpdate) -> None:
        if self._told is not None:
            self._told(update)

    def close(self) -> None:
        """Record the last changes of the agent. Raises `ToolRefused` if changes were reverted and the agent
        was not told.
        """
        with self._turn:
            self._file("at the end")
            self._ensure_kept()

    @property
    def _root(self) -> Path:
        return self._tools.execution.sandbox.root

    def _used(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        writes: bool = False,
        ended: StopSignal | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> ToolAnswer:
        """Call the tool and return its answer. Raises `ToolRefused` with the error if it failed."""
        with self._taking_turn():
            if writes:  # guard: the agent's own changes are not this call's
                self._file(f"before {tool}")
                self._ensure_kept()
            earlier = self._answer_for(tool, arguments)
            step, granted = self._next_step(), False
            if earlier is not None and earlier.state is CallState.ASKED:
                step = str(earlier.step)
            elif earlier is not None and earlier.approval == "granted":
                granted = True
            elif earlier is not None:
                why = _DENIED if earlier.reason is None else f"{_DENIED}: {earlier.reason}"
                self._tools.refuse(tool, arguments, why, step=step)
                raise ToolRefused(tool, why)
            request = CallRequest(step, tool, arguments, granted=granted, ended=ended, on_output=on_output)
            answer = self._tools.make(request, self._seconds_left)
        if answer.failed:
            raise ToolRefused(tool, answer.text)
        return answer

    def _answer_for(self, tool: str, arguments: Mapping[str, JsonValue]) -> ToolCall | None:
        """Return a call of an earlier session with the same request, whose answer has not been used yet; None
        if there is none.
        """
        if not self._answers:
            return None
        found = self._answers.get(self._tools.execution.digest_of(tool, arguments))
        return found.pop(0) if found else None

    def _file(self, what: str) -> None:
        arguments = {"agent": self._agent, "changed": redact_text(what)[:_SHOWN]}
        with self._tools.turn() as execution:
            call = execution.take_in(self._next_step(), ACP, arguments)
        if call is not None and call.error is not None:
            self._taken_back = call.error

    def _ensure_kept(self) -> None:
        problem, self._taken_back = self._taken_back, ""
        if problem:  # guard: the agent must learn that its changes are gone
            raise ToolRefused(self._agent, problem)

    def _next_step(self) -> str:
        return f"{self._session}.{next(self._numbers)}"

    def _inside(self, tool: str, path: str) -> str:
        """Return the path relative to the root of the sandbox. Raises `ToolRefused` if it is not below the
        root.
        """
        root = str(self._root)
        for spelling in dict.fromkeys((root, os.path.realpath(root))):
            if path == spelling or path.startswith(f"{spelling}/"):
                return path[len(spelling) :].lstrip("/")
        # A relative path would mean different places here and there.
        problem = "is outside the sandbox" if path.startswith("/") else "is not an absolute path"
        refusal = str(OutsideSandbox(path, problem))
        self._tools.refuse(tool, {"path": path}, refusal, step=self._next_step())
        raise ToolRefused(tool, refusal)

    @contextmanager
    def _taking_turn(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=self._patience_seconds):
            raise ToolRefused(ACP, "a terminal command is still running; wait for it, or kill it")
        try:
            yield
        finally:
            self._turn.release()


_DENIED = "denied by a person"


def is_approved(execution: ToolExecution, request: CallRequest) -> bool:
    """Return whether the policy or a person approves a request that needs no tool of ours. The request is
    recorded in any case. Raises `NeedsHuman`, `Cancelled`.
    """
    try:
        call = execution.begin(request)
    except PolicyDenied as denied:
        execution.refuse(request, str(denied))
        return False
    except CallDenied:
        return False
    if call.state is CallState.FAILED:
        return False
    if call.state is not CallState.ENDED:
        execution.calls.move(call, CallState.ENDED, now=execution.clock.now(), result="allowed")
    return True


def capability_for(wanted: PermissionRequest) -> Capability:
    """Return the capability that the request needs; a request of an unknown kind needs `COMMAND`."""
    return _CAPABILITIES.get(wanted.kind, Capability.COMMAND)


def permission_arguments(agent: str, wanted: PermissionRequest) -> dict[str, JsonValue]:
    """Return the arguments of a request for approval, as they are recorded and shown. Truncated text states
    how much is missing.
    """
    details = "" if wanted.details is None else json.dumps(wanted.details, sort_keys=True, default=thaw)
    said: dict[str, JsonValue] = {
        "title": _cut(wanted.title, _TITLE),
        "paths": tuple(_cut(path, _TITLE) for path in wanted.paths[:_MOST_PATHS]),
        "more_paths": max(0, len(wanted.paths) - _MOST_PATHS),
        "details": _cut(details, _DETAILS),
    }
    asked: dict[str, JsonValue] = {"agent": agent, "asks": "permission", "kind": wanted.kind}
    return asked | {name: value for name, value in said.items() if value}


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"


def command_arguments(command: TerminalCommand, where: str, works_in: str) -> dict[str, JsonValue]:
    """Return the arguments for our tool. `where` is relative to the root of the sandbox; `works_in` is the
    working directory of the plan.
    """
    variables = tuple(f"{name}={value}" for name, value in command.environment)
    line = not command.arguments and bool(_FOR_A_SHELL.search(command.command.strip()))
    arguments: dict[str, JsonValue]
    if line and not variables:
        arguments = {"script": command.command}
    else:
        words = ("/bin/sh", "-c", command.command) if line else (command.command.strip(), *command.arguments)
        arguments = {"argv": ("env", *variables, *words) if variables else words}
    if where == works_in:
        where = ""
    elif works_in and where:
        inside = where.startswith(f"{works_in}/")
        where = where[len(works_in) + 1 :] if inside else f"../{where}"  # which the tool refuses
    return {**arguments, "directory": where, "timeout_seconds": _COMMAND_SECONDS}


def text_of(result: JsonValue, limit: int | None) -> str:
    """Return the text that our `read` tool returned. Raises `ToolRefused` if the text is incomplete or
    inexact: an agent that writes such a text back would destroy the rest of the file.
    """
    assert isinstance(result, Mapping)
    path, content = result["path"], str(result["content"])
    if result["encoding"] != "utf-8":
        raise ToolRefused(READ, f"{path!r} is not UTF-8 text")
    cut = len(content) >= _MOST_CHARACTERS or "no room" in str(result["note"])
    if cut or (result["truncated"] and limit is None and "follow" in str(result["note"])):
        lines = result["total_lines"]
        raise ToolRefused(READ, f"{path!r} is too long to read at once ({lines} lines); request a range")
    return content
