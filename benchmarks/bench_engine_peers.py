"""The embedded job engine, compared with procrastinate and DBOS: jobs per second with 1, 2, 4 and 8
processes.

`engine_peers.py` documents the measurement and its settings; `python -m benchmarks.engine_peers` prints all
results. A ratio is the peer's rate divided by ours: below 1, ours is faster.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.engine_peers import ENGINES, PROCESSES, Stand
from tests.postgres import postgres_server

_JOBS = 1500
_SECONDS = 5.0


class EnginePeers:
    """The effect of more processes on each engine; inconsistent results are a failure."""

    params = (PROCESSES,)
    param_names = ("processes",)
    timeout = 300.0

    def setup(self, processes: int) -> None:
        self._closing = ExitStack()
        directory = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="engines-")))
        self._stand = Stand(directory, self._closing.enter_context(postgres_server()), _JOBS)

    def teardown(self, processes: int) -> None:
        self._closing.close()

    def track_ours_on_sqlite_per_second(self, processes: int) -> float:
        return self._rate("ours, SQLite", processes)

    def track_ours_on_postgresql_per_second(self, processes: int) -> float:
        return self._rate("ours, PostgreSQL", processes)

    def track_procrastinate_ratio(self, processes: int) -> float:
        return self._rate("procrastinate", processes) / self._rate("ours, PostgreSQL", processes)

    def track_dbos_ratio(self, processes: int) -> float:
        return self._rate("DBOS", processes) / self._rate("ours, PostgreSQL", processes)

    track_ours_on_sqlite_per_second.unit = "jobs/s"
    track_ours_on_postgresql_per_second.unit = "jobs/s"
    track_procrastinate_ratio.unit = "ratio"
    track_dbos_ratio.unit = "ratio"

    def _rate(self, name: str, processes: int) -> float:
        one = self._stand.measure(ENGINES[name], processes, _SECONDS)
        assert not one.wrong, one.wrong
        return one.per_second
