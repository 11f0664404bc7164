"""The progress of a plan as JSON on stdout, one object per event, for programs."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

from cleveragents.actors.model.actor import Progress, ProgressKind, cut_arguments
from cleveragents.cli.render.live_output import ChunkFlow, LiveOutput
from cleveragents.core.text.redaction import redact, redact_text

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["StreamView"]


class StreamView:
    """A view that prints one line per event: `event`, `plan`, the `parent` of a sub-plan, and the facts.

    Thread safety:
        Owner: the command that runs the plan.
        Lock: `_lock` guards pending output and answers; it is held while a line is written, so that lines
        stay in order. Views of several plans share it, as they share stdout.
        Guarantee: every line is one whole object; no piece of an answer comes after its `thought`.
    Cancel safety: a call waits only for the reader of the output.
    """

    def __init__(
        self,
        plan_id: str,
        stream: TextIO | None = None,
        *,
        parent_id: str | None = None,
        lock: threading.Lock | None = None,
    ) -> None:
        self._about = {"plan": plan_id, **({} if parent_id is None else {"parent": parent_id})}
        self._stream = stream
        self._lock = lock or threading.Lock()
        self._gone = False
        self._live = LiveOutput(lambda line: self._write("output", text=line.removeprefix("  ")))
        self._flows: dict[tuple[str, str], ChunkFlow] = {}

    def say(self, message: str) -> None:
        with self._lock:
            self._live.finish()
            self._write("say", text=redact_text(message))

    def seen(self, seen: Progress) -> None:
        with self._lock:
            if seen.kind is ProgressKind.PIECE:
                flow = self._flows.setdefault((seen.actor, seen.node), ChunkFlow())
                self._piece(seen, flow(seen.text))
                return
            flow = self._flows.pop((seen.actor, seen.node), ChunkFlow())
            self._piece(seen, flow.finish())
            self._live.finish()
            facts: dict[str, Any] = {"text": redact_text(seen.text)}
            if seen.kind is ProgressKind.TOOL:
                facts["tool"] = redact_text(seen.tool or seen.text.partition(" ")[0])
                facts["arguments"] = cut_arguments(redact(seen.arguments))
            if seen.kind is ProgressKind.TOOL_DONE:
                facts["failed"] = seen.failed
            self._write(seen.kind.value, actor=seen.actor, node=seen.node, **facts)

    def output(self, chunk: bytes) -> None:
        with self._lock:
            self._live(chunk)

    def close(self) -> None:
        with self._lock:
            self._live.finish()

    def _piece(self, seen: Progress, text: str) -> None:
        if text:
            self._write("piece", actor=seen.actor, node=seen.node, text=text)

    def _write(self, event: str, **facts: Any) -> None:
        if self._gone:
            return
        line = json.dumps({"event": event, **self._about, **facts})
        stream = self._stream or sys.stdout
        try:
            stream.write(f"{line}\n")
            stream.flush()
        except OSError:
            self._gone = True
