"""The tools of one actor's run: which it may have, and what it is told when it uses one.

What cannot be done is an answer, not an error: the model is to try something else. Only what a person has to
decide, and a cancel, leaves the run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleveragents.application.ports.actors import ToolAnswer
from cleveragents.application.services.tool_answers import cut, spelt_result
from cleveragents.application.services.tool_execution import CallRequest, ToolExecution
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.policy import Verdict
from cleveragents.domain.tool import CallState, ToolSpec
from cleveragents.errors import CallDenied, PolicyDenied

__all__ = ["EVERY_TOOL", "ActorTools"]

EVERY_TOOL = "*"
"""In an actor's list of tools: all that there are."""


@dataclass(frozen=True, slots=True)
class ActorTools:
    """The tools that a run's policy does not deny.

    Thread safety:
        Owner: the run that made it.
        Lock: `_lock` is held for a whole call: the execution makes one at a time, and branches of a graph
            may ask at once. Unlike other locks of ours it is held across I/O; a cancel reaches the call
            through its own stop signal, so whoever waits is let in, and finds itself cancelled, too.
        Guarantee: calls of one sandbox happen one after the other.
    Cancel safety: a cancelled call stays open, as `ToolExecution` says.
    """

    execution: ToolExecution
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def specs(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        """Those of the named tools that may be used, in the order of their names. `UnknownTool`."""
        source = self.execution.tools
        wanted = source.names() if EVERY_TOOL in names else tuple(dict.fromkeys(names))
        found = [source.get(name).spec for name in wanted]
        return [spec for spec in found if self._may_be_used(spec)]

    def use(self, tool: str, arguments: Mapping[str, JsonValue], *, step: str) -> ToolAnswer:
        """What came of the call. `NeedsHuman`, `Cancelled`."""
        request = CallRequest(step, tool, arguments)
        try:
            with self._lock:
                call = self.execution.call(request)
        except (PolicyDenied, CallDenied) as denied:
            return ToolAnswer(str(denied), failed=True)
        if call.state is CallState.FAILED:
            return ToolAnswer(cut(call.error or "it failed"), failed=True)
        return ToolAnswer(spelt_result(call.result), value=call.result)

    def _may_be_used(self, spec: ToolSpec) -> bool:
        return self.execution.policy.verdict(spec.capability) is not Verdict.DENY
