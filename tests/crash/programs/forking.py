"""The server loop of programs that read, line by line, which runs to kill: it forks for each.

So the imports happen once; the answer to each line is the child's exit status.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

__all__ = ["serve"]


def serve(child: Callable[[Mapping[str, Any]], None], *, heavy: Sequence[str] = ()) -> None:
    """Run each order from stdin in its own child; `heavy` modules are imported before."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for module in heavy:
        importlib.import_module(module)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line))
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()
