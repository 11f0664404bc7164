"""The duration of short commands, compared with the floor: an interpreter that starts and does nothing.

Aims: `agents --help` at most 4 times `python -c pass` and twice `import click`; `agents plan list` at most
1.3 times the import of SQLAlchemy. Bytecode is compiled beforehand, as the Makefile does when it installs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from benchmarks.ratio import ratio

_ROUNDS = 31


class CommandLine:
    """Whole processes, from start to exit."""

    timeout = 120.0

    def setup(self) -> None:
        self._home = tempfile.TemporaryDirectory()
        own = ("CLEVERAGENTS_", "XDG_", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        self._environment = {
            **inherited,
            "HOME": self._home.name,
            "PYTHONPYCACHEPREFIX": f"{self._home.name}/bytecode",
        }

    def teardown(self) -> None:
        self._home.cleanup()

    def track_help_ratio(self) -> float:
        """`agents --help`."""
        return ratio(self._agents("--help"), self._nothing(), rounds=_ROUNDS)

    def track_version_ratio(self) -> float:
        """`agents --version`."""
        return ratio(self._agents("--version"), self._nothing(), rounds=_ROUNDS)

    def track_config_get_ratio(self) -> float:
        """`agents config get log.level`: reads and validates all layers."""
        return ratio(self._agents("config", "get", "log.level"), self._nothing(), rounds=_ROUNDS)

    def track_help_by_click_ratio(self) -> float:
        """`agents --help`, compared with `import click`."""
        return ratio(self._agents("--help"), self._python("import click"), rounds=_ROUNDS)

    def track_plan_list_ratio(self) -> float:
        """`agents plan list`, compared with `import sqlalchemy`."""
        return ratio(self._agents("plan", "list"), self._python("import sqlalchemy"), rounds=_ROUNDS)

    def _agents(self, *arguments: str) -> Callable[[], object]:
        return self._python("from cleveragents.cli.main import run; run()", *arguments)

    def _nothing(self) -> Callable[[], object]:
        return self._python("pass")

    def _python(self, program: str, *arguments: str) -> Callable[[], object]:
        command = [sys.executable, "-c", program, *arguments]
        return lambda: subprocess.run(command, env=self._environment, check=True, capture_output=True)

    track_help_ratio.unit = "ratio"
    track_version_ratio.unit = "ratio"
    track_config_get_ratio.unit = "ratio"
    track_help_by_click_ratio.unit = "ratio"
    track_plan_list_ratio.unit = "ratio"
