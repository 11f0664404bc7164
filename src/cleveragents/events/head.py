"""The head of the audit log: the expected end of the log, attested outside the database.

An attacker who can write the database can rewrite the whole chain of hashes, or truncate it. The number of
rows and the last hash are therefore kept in a separate file, sealed with a key that only its owner can read.
Both are in the data directory, with the lock file that allows only one sequencer at a time. An operator can
keep the key elsewhere (`audit.key_file`), so that a thief of the data directory cannot seal a changed log.
"""

from __future__ import annotations

import errno
import fcntl
import hmac
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom

from cleveragents.core.errors import AuditLogBroken, ConfigurationError, StoreBusy, StoreFull
from cleveragents.core.faults import FaultPoints
from cleveragents.events.chain import Tip

__all__ = ["HEAD_NAME", "HeadFile", "lock_within", "read_key_file"]


HEAD_NAME = "audit.head"
_KEY_BYTES = 32
_KEY_SETTING = "audit.key_file"
_FORM = "write one with `openssl rand -hex 32`"
_PAUSE_SECONDS = 0.001
_JITTER = SystemRandom()

_MAX_BYTES = 64 * 1024


class HeadFile:
    """The files `audit.head`, `audit.key` (0600) and `audit.lock` in one directory.

    `load` and `store` take no lock: call them inside `exclusively`, which excludes all other threads and
    processes that use the directory. A read outside `exclusively` returns a complete head, but possibly an
    older one.

    `key_file` is a key that the operator keeps outside the directory. This key is read for each seal, and
    never created by CleverAgents. Raises `ConfigurationError` if it cannot be read.
    """

    def __init__(
        self, directory: Path, *, fsync: bool, faults: FaultPoints, key_file: Path | None = None
    ) -> None:
        self._directory = directory
        self._fsync = fsync
        self._faults = faults
        self.path = directory / HEAD_NAME
        self._key_is_elsewhere = key_file is not None
        self.key_path = key_file or directory / "audit.key"
        self._new_key_path = directory / "audit.key.new"
        self._lock_path = directory / "audit.lock"

    @contextmanager
    def exclusively(self, timeout: float) -> Iterator[None]:
        """Exclude all other sequencers during the block. Raises `StoreBusy` after the timeout."""
        descriptor = self._open_lock_file()
        try:
            lock_within(descriptor, timeout)
            try:
                yield
            finally:
                # Explicitly, because a forked child may hold a copy of the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def exists(self) -> bool:
        """Return whether a head was ever written to this directory: the head or its key exists."""
        return self.path.exists() or (not self._key_is_elsewhere and self.key_path.exists())

    def load(self) -> Tip:
        """Return the attested tip.

        Raises `AuditLogBroken` if it is missing, malformed, or not sealed by our key.
        """
        with _translated(self.path):
            return self._load()

    def _load(self) -> Tip:
        self._finish_new_key()
        try:
            fields = json.loads(self.path.read_text())
            tip = Tip(int(fields["rows"]), str(fields["hash"]))
            seal = str(fields["seal"])
        except FileNotFoundError:
            raise AuditLogBroken(0, f"the head file {self.path} is missing") from None
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise AuditLogBroken(0, f"the head file {self.path} is malformed") from error
        if not hmac.compare_digest(seal.encode(errors="replace"), self._seal(tip, self._key()).encode()):
            problem = f"the head file {self.path} was altered, or {self.key_path} is not its key"
            raise AuditLogBroken(tip.rows, problem)
        return tip

    def store(self, tip: Tip) -> None:
        """Attest the tip atomically: the file never holds a partial head.

        Raises `StoreFull` if the disk is full.
        """
        with _translated(self.path):
            self._store(tip)

    def _store(self, tip: Tip) -> None:
        exists = self._key_is_elsewhere or self.key_path.exists()
        key = self._key() if exists else self._new_key()
        text = json.dumps({"rows": tip.rows, "hash": tip.hash, "seal": self._seal(tip, key)})
        fresh = self.path.with_suffix(".new")
        self._write(fresh, text.encode())
        self._faults.reach("audit.head.before_rename")
        fresh.replace(self.path)
        self._finish_new_key()
        self._sync_directory()
        self._faults.reach("audit.head.after_rename")

    @staticmethod
    def _seal(tip: Tip, key: bytes) -> str:
        return hmac.digest(key, f"{tip.rows}:{tip.hash}".encode(), "sha256").hex()

    def _key(self) -> bytes:
        if self._key_is_elsewhere:
            return self._key_from_elsewhere()
        try:
            key = bytes.fromhex(self.key_path.read_text())
        except FileNotFoundError:
            raise AuditLogBroken(0, f"the key file {self.key_path} is missing") from None
        except ValueError as error:
            raise AuditLogBroken(0, f"the key file {self.key_path} does not hold a key") from error
        return key

    def _key_from_elsewhere(self) -> bytes:
        try:
            key = bytes.fromhex(read_key_file(self.key_path, _KEY_SETTING).decode("ascii").strip())
        except ValueError as error:
            raise ConfigurationError(_KEY_SETTING, f"{self.key_path} does not hold a key: {_FORM}") from error
        if len(key) < _KEY_BYTES:
            raise ConfigurationError(_KEY_SETTING, f"the key in {self.key_path} is too short: {_FORM}")
        return key

    def _new_key(self) -> bytes:
        key = secrets.token_bytes(_KEY_BYTES)
        self._write(self._new_key_path, key.hex().encode())
        return key

    def _finish_new_key(self) -> None:
        """Give the new key its final name, once the first head is stored.

        So a crash before the head is stored leaves neither a head nor a key, and a crash afterwards leaves
        both.
        """
        if self._key_is_elsewhere:
            return
        if self._new_key_path.exists() and self.path.exists() and not self.key_path.exists():
            with suppress(FileNotFoundError):  # another process was faster
                self._new_key_path.replace(self.key_path)

    def _write(self, path: Path, content: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.write(descriptor, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _sync_directory(self) -> None:
        if not self._fsync:
            return
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open_lock_file(self) -> int:
        with _translated(self._lock_path):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(str(path)) from error
        problem = f"{error.strerror}; the audit log needs a writable data directory"
        raise ConfigurationError(str(path), problem) from error


def lock_within(descriptor: int, timeout: float) -> None:
    """Lock an open file for this process. Raises `StoreBusy` if another process holds it too long."""
    give_up = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= give_up:
                raise StoreBusy(timeout) from error
        time.sleep(_PAUSE_SECONDS * (0.5 + _JITTER.random()))


def read_key_file(path: Path, setting: str) -> bytes:
    """Return the content of a key file.

    A pipe is accepted, so that a shell can pass the output of a command (`<(…)`). Raises
    `ConfigurationError`, which names `setting`, if the file cannot be read, is too large to be a key, or is
    open to other users.
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
