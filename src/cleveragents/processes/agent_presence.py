"""Whether an agent of somebody else's can be run here, told before anything is made for it or asked."""

from __future__ import annotations

import os
from importlib.util import find_spec

from cleveragents.processes.program_lookup import look_up

__all__ = ["absence_of", "absence_of_acp"]

_EXTRA = "agents that speak ACP need the extra `acp`: pip install 'cleveragents[acp]'"


def absence_of(program: str, install: str = "") -> str | None:
    """Why it cannot be run, with how to get it; None if it is there. One that is named by a path within the
    sandbox may be made until then."""
    if program.startswith("/"):
        missing, where = not os.access(program, os.X_OK), ""
    else:
        missing = "/" not in program and look_up(program, os.environ.get("PATH", os.defpath)) is None
        where = " on your PATH"
    if not missing:
        return None
    remedy = f"; to install it: {install}" if install else ""
    return f"there is no program {program!r}{where}{remedy}"


def absence_of_acp() -> str | None:
    """What is missing before anybody can be talked to by the Agent Client Protocol, if anything is."""
    return _EXTRA if find_spec("acp") is None else None
