"""Read a secret from a file that the operator keeps outside the data directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cleveragents.core.errors import ConfigurationError

__all__ = ["read_key_file"]

_MAX_BYTES = 64 * 1024


def read_key_file(path: Path, setting: str) -> bytes:
    """Return the content of a key file.

    A pipe is accepted, so that a shell can hand over the output of a command (`<(…)`). `ConfigurationError`
    names `setting` if the file cannot be read, is too large to be a key, or is open to other users.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IRWXO:
                problem = f"{path} is accessible to other users; run `chmod o-rwx {path}`"
                raise ConfigurationError(setting, problem)
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(setting, f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(setting, f"{path} is too large to be a key")
    return content
