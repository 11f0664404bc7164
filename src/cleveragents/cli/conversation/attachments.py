"""Files that a person attaches to a question in the terminal."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from cleveragents.core.errors import RequestRefused
from cleveragents.models.model.attachment import MOST_ATTACHED_BYTES, Attachment, ensure_attachable

__all__ = ["attached_files"]

# Not blocking: opening a pipe must not wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def attached_files(paths: Sequence[str], before: Sequence[Attachment] = ()) -> tuple[Attachment, ...]:
    """Return the attachments `before` and the files at these paths. Raises `RequestRefused` for a file that
    cannot be read, is not a regular file or no image or PDF, and for too many or too large files.
    """
    found = (*before, *(Attachment.of(path, _content(path)) for path in paths))
    ensure_attachable(found)
    return found


def _content(path: str) -> bytes:
    try:
        descriptor = os.open(Path(path).expanduser(), _READ)
    except OSError as error:
        # A link in a repository may lead to a private file.
        link = error.errno == errno.ELOOP
        why = "is a symbolic link; name the file it leads to" if link else f"cannot be read: {error.strerror}"
        raise _refused(path, why) from None
    except (ValueError, RuntimeError):  # a NUL, or `~name` of no user
        raise _refused(path, "is not a valid path") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # guard: a device or a pipe may never end
            raise _refused(path, "is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MOST_ATTACHED_BYTES + 1)
    finally:
        os.close(descriptor)


def _refused(path: str, why: str) -> RequestRefused:
    return RequestRefused(f"{path!r} {why}", "attachments")
