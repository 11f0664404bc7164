"""Writes every state file we own, over and over, until it is killed: `home resource name`.

A line on stdout after each step: `config`, `sandbox`, `log`, each for a write that is complete.
"""

from __future__ import annotations

import logging
import os
import sys
from itertools import count
from pathlib import Path

import structlog

from cleveragents.application.container import Container
from cleveragents.application.ports.sandboxes import SandboxRequest
from cleveragents.infrastructure.configuration.editing import set_value
from cleveragents.infrastructure.configuration.settings import known_keys
from cleveragents.interfaces.demo.story import demo_settings


def say(line: str) -> None:
    # One write below PIPE_BUF: whole lines, and none in a buffer that a kill would lose.
    os.write(1, f"{line}\n".encode())


def main(home: str, resource: str, name: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    key = known_keys()["worker.concurrency"]
    with Container(demo_settings(Path(home, "state"))) as container:
        registry = container.plan_parts.sandboxes
        for number in count():
            set_value(Path(home, "config.toml"), key, str(1 + number % 60))
            say("config")
            registry.create(SandboxRequest(f"{name}-{number}", Path(resource)))
            say("sandbox")
            container.audit.sequence_pending()
            say("log")
            if number % 2:
                registry.remove(f"{name}-{number}")


if __name__ == "__main__":
    main(*sys.argv[1:])
