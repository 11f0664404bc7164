"""Of many commands, one warns the user that bubblewrap is missing."""

from __future__ import annotations

from cleveragents.processes.bubblewrap import BubblewrapProbe


class Interrupted(BubblewrapProbe):
    """A probe in which another caller arrives between check and mark, unless the lock prevents it."""

    def __init__(self) -> None:
        self.noted = False
        self.interrupted = False
        self.answers: list[bool] = []
        super().__init__()

    @property
    def _told(self) -> bool:
        seen = self.noted
        if not self.interrupted and not self._lock.locked():
            self.interrupted = True
            self.answers.append(self.first_time())
        return seen

    @_told.setter
    def _told(self, noted: bool) -> None:
        self.noted = noted


def test_exactly_one_concurrent_caller_is_first() -> None:
    probe = Interrupted()
    answers = [probe.first_time(), probe.first_time(), *probe.answers]
    assert answers.count(True) == 1
