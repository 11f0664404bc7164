"""Mutants that survive, and why that is right. The key is `file::place::guard`."""

from __future__ import annotations

__all__ = ["EXPLAINED"]

_ONE_STEP = "copying a set is one step under the GIL; the lock is for interpreters without one"

EXPLAINED: dict[str, str] = {
    "circuit_breaker.py::CircuitBreaker.is_open::with self._lock": (
        "its two reads give an answer that was right at some moment in between, lock or no lock; the lock "
        "keeps the rule that all state is read under it, and is needed without a GIL"
    ),
    "bridge.py::AdmissionLedger.snapshot::with self._tasks_lock": _ONE_STEP,
    "answer_stream.py::_Delivery.request::with self._lock": (
        "the second of its two: add then look, and flag then collect, meet each other in either order; "
        "needed without a GIL"
    ),
    "attempt_run.py::AttemptRunner._strand::if settled is None or settled[0] is None": (
        "without it the next line fails, `escalate` logs that, and nothing is written or left behind either: "
        "the guard makes an expected end out of what would be reported as a bug"
    ),
    "attempt.py::AttemptTable.running::with self._changed": _ONE_STEP,
    "attempt.py::AttemptTable.abandon::with self._changed": _ONE_STEP,
    "exchange.py::DirectoryHandle.remove_directory::self._leave()": (
        "looking the directory up has just made its parent the one that is remembered, so what is removed "
        "never is; the guard is for whoever lets more be remembered"
    ),
}
