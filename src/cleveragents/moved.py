"""Import paths of 0.1.0 that the documentation showed, kept for one release.

An old path is an alias of the new module and raises a `DeprecationWarning`. The published paths
(`application.services.async_worker` and the others in the specification) are separate modules and stay.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False  # avoids importing typing and importlib.abc at every start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from types import ModuleType
else:
    Loader = object

__all__ = ["MOVED", "install"]

_PREFIX = "cleveragents."

MOVED = {
    "application.ports.context_parts": "context.context_parts",
    "application.ports.tools": "tools.ports",
    "application.services.job_engine": "jobs.engine",
    "application.services.job_handlers": "jobs.ports",
    "application.services.worker_options": "jobs.worker.attempt",
    "domain.change": "core.change",
    "domain.context": "context.model.context",
    "domain.event": "core.event",
    "domain.job": "jobs.model.job",
    "domain.policy": "core.policy",
    "errors": "core.errors",
    "infrastructure.clock": "core.clock",
    "infrastructure.configuration.settings": "config.settings",
    "infrastructure.events.audit": "events.audit",
    "infrastructure.events.sink": "events.sink",
    "infrastructure.identifiers": "core.identifiers",
    "infrastructure.jobs.process_supervisor": "jobs.process.supervisor",
    "infrastructure.models.catalogue": "models.catalogue",
    "infrastructure.models.script_document": "models.script_document",
    "infrastructure.persistence.database": "storage.database",
    "infrastructure.persistence.sql_job_store": "jobs.store.sql_job_store",
    "infrastructure.tools.builtin": "tools.builtin",
    "infrastructure.tools.typed_tool": "tools.typed_tool",
    "reactive.message": "actors.streams.message",
}
"""Old module to new module, both below `cleveragents`."""

_KEPT = {"application", "application.services", "infrastructure", "infrastructure.events"}
_PARENTS = {old.rsplit(".", depth)[0] for old in MOVED for depth in range(1, old.count(".") + 1)} - _KEPT


def install() -> None:
    """Make the old paths importable."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        # First: otherwise an old folder with only a `__pycache__` would be taken for a package.
        sys.meta_path.insert(0, _MovedModules())


class _MovedModules(Loader):
    """Finds old paths, and their packages if those no longer exist. Stateless."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old = fullname.removeprefix(_PREFIX)
        if old == fullname or (old not in MOVED and old not in _PARENTS):
            return None
        return ModuleSpec(fullname, self, is_package=old not in MOVED)

    def create_module(self, spec: ModuleSpec) -> None:
        """Use the default module creation."""

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = MOVED.get(old.removeprefix(_PREFIX))
        if new is not None:
            warnings.warn(f"{old} has moved to {_PREFIX}{new}", DeprecationWarning, stacklevel=2)
            sys.modules[old] = import_module(f"{_PREFIX}{new}")
