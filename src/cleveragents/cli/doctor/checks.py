"""The checks of `agents doctor` on the machine: programs, isolation, the state directory, disk space.

A check returns the problems that it finds, with remedies. If a check raises an error, `perform` reports a
failed check.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.redaction import redact_text
from cleveragents.processes.program_lookup import look_up

__all__ = [
    "DoctorCheck",
    "DoctorVerdict",
    "bubblewrap",
    "disk_space",
    "git",
    "obstacle",
    "perform",
    "python",
    "sqlite",
    "state_directory",
]

PYTHON_NEEDED = (3, 11)
GIT_NEEDED = (2, 38)  # the first with `merge-tree --write-tree`
SQLITE_NEEDED = (3, 35)  # the first with RETURNING

_COMMAND_SECONDS = 10.0
_LOST = (
    "without isolation, commands have your permissions and the network, `agents serve` and "
    "`agents worker` do not start, and profiles that deny the network run no commands"
)
_MEBIBYTE = 1 << 20
_SPACE_NEEDED = 50 * _MEBIBYTE
_SPACE_WANTED = 1024 * _MEBIBYTE
_SHARE_WANTED = 0.1

# Kernel file systems refuse new files even where the permissions allow them.
_NO_PLACE_FOR_FILES = {
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "mqueue",
    "proc",
    "pstore",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
}


class DoctorVerdict(str, Enum):
    """The result of a check. `warn`: works, with a limitation. `fail`: does not work. `fixed`: did not work
    and was repaired.
    """

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The finding of one check, and its remedy."""

    name: str
    verdict: DoctorVerdict
    finding: str
    remedy: str | None = None


def perform(name: str, check: Callable[[], DoctorCheck]) -> DoctorCheck:
    """Run a check. An error of the check is a failure."""
    try:
        return check()
    except (CleverAgentsError, OSError, subprocess.SubprocessError) as error:
        finding = redact_text("; ".join(str(error).splitlines()))  # a row is one line
        return DoctorCheck(name, DoctorVerdict.FAIL, finding, "fix this, then run `agents doctor` again")


def python(version: tuple[int, ...] = sys.version_info[:3]) -> DoctorCheck:
    """Check the version of this Python interpreter."""
    found = _dotted(version)
    if version < PYTHON_NEEDED:
        return DoctorCheck(
            "python", DoctorVerdict.FAIL, found, f"install Python {_dotted(PYTHON_NEEDED)} or later"
        )
    return DoctorCheck("python", DoctorVerdict.OK, f"{found} ({sys.executable})")


def _installed(name: str) -> str | None:
    """Return the path of a program on PATH; entries of PATH below the current directory do not count."""
    found = look_up(name, os.environ.get("PATH", os.defpath))
    return None if found is None else str(found)


def git() -> DoctorCheck:
    """Check the version of git."""
    remedy = f"install git {_dotted(GIT_NEEDED)} or later and put it on PATH"
    path = _installed("git")
    if path is None:
        return DoctorCheck("git", DoctorVerdict.FAIL, "not found", remedy)
    asked = subprocess.run(
        [path, "--version"],
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    said = asked.stdout.strip()
    version = re.search(r"(\d+)\.(\d+)", said)
    if version is None:
        return DoctorCheck("git", DoctorVerdict.FAIL, f"{path} prints no version", remedy)
    if (int(version[1]), int(version[2])) < GIT_NEEDED:
        return DoctorCheck("git", DoctorVerdict.FAIL, f"{said} is too old", remedy)
    return DoctorCheck("git", DoctorVerdict.OK, f"{said} ({path})")


def bubblewrap(platform: str = sys.platform) -> DoctorCheck:
    """Check whether commands are isolated; if not, name the consequences."""
    from cleveragents.processes.bubblewrap import BubblewrapProbe, hardening_of

    result = BubblewrapProbe().result()
    if result.program is not None:
        return DoctorCheck(
            "bubblewrap", DoctorVerdict.OK, f"{result.program} ({', '.join(hardening_of(result.program))})"
        )
    if platform != "linux":
        problem = "commands are not isolated: bubblewrap runs on Linux only"
        return DoctorCheck(
            "bubblewrap", DoctorVerdict.WARN, problem, f"run plans on Linux, or in a container; {_LOST}"
        )
    remedy = f"install bubblewrap and allow user namespaces; {_LOST}"
    return DoctorCheck(
        "bubblewrap", DoctorVerdict.WARN, f"commands are not isolated: {result.problem}", remedy
    )


def sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> DoctorCheck:
    """Check the version of SQLite in this Python."""
    if version < SQLITE_NEEDED:
        remedy = f"use a Python built with SQLite {_dotted(SQLITE_NEEDED)} or later"
        return DoctorCheck("sqlite", DoctorVerdict.FAIL, _dotted(version), remedy)
    return DoctorCheck("sqlite", DoctorVerdict.OK, _dotted(version))


def state_directory(path: Path) -> DoctorCheck:
    """Check that the state directory is writable and private to this user."""
    name = "state directory"
    if not path.exists():
        why = obstacle(path)
        if why is not None:
            remedy = "fix this, or set state.directory to a writable directory"
            return DoctorCheck(
                name, DoctorVerdict.FAIL, f"{path} does not exist and cannot be created: {why}", remedy
            )
        return DoctorCheck(name, DoctorVerdict.OK, f"{path} (created on first use)")
    facts = path.stat()
    if not stat.S_ISDIR(facts.st_mode):
        return DoctorCheck(
            name, DoctorVerdict.FAIL, f"{path} is not a directory", "move it away, or set state.directory"
        )
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        remedy = "remount it writable, or set state.directory to a writable directory"
        return DoctorCheck(name, DoctorVerdict.FAIL, f"{path} is on a read-only file system", remedy)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return DoctorCheck(name, DoctorVerdict.FAIL, f"{path} is not writable", f"chmod u+rwx {path}")
    if facts.st_uid != os.geteuid():
        return DoctorCheck(
            name, DoctorVerdict.WARN, f"{path} belongs to another user", f"sudo chown -R $USER {path}"
        )
    if stat.S_IMODE(facts.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(facts.st_mode):o}"
        return DoctorCheck(
            name, DoctorVerdict.WARN, f"other users can access {path} (mode {mode})", f"chmod 700 {path}"
        )
    return DoctorCheck(name, DoctorVerdict.OK, str(path))


def disk_space(path: Path, free: int | None = None, quota: int = 0) -> DoctorCheck:
    """Check the free disk space, in bytes. `quota` bounds the space of all sandboxes."""
    if free is None:
        free = shutil.disk_usage(_nearest_existing(path)).free
    finding = f"{free // _MEBIBYTE:,} MiB free"
    remedy = f"free space on the disk of {path}"
    if quota:
        finding += f"; sandboxes may use {quota // _MEBIBYTE:,} MiB"
    if free < _SPACE_NEEDED:
        return DoctorCheck("disk space", DoctorVerdict.FAIL, finding, remedy)
    if free < _SPACE_WANTED:
        return DoctorCheck("disk space", DoctorVerdict.WARN, finding, remedy)
    if free < quota * _SHARE_WANTED:
        remedy += ", or lower sandbox.quota_bytes: the disk is smaller than the quota"
        return DoctorCheck("disk space", DoctorVerdict.WARN, finding, remedy)
    return DoctorCheck("disk space", DoctorVerdict.OK, finding)


def obstacle(path: Path) -> str | None:
    """Return why the missing `path` cannot be created, or None if it can. Creates nothing."""
    above = next(place for place in (path, *path.parents) if os.path.lexists(place))
    if not above.exists():
        return f"{above} is a broken link"
    if not above.is_dir():
        return f"{above} is not a directory"
    kind = _file_system_of(above)
    if kind in _NO_PLACE_FOR_FILES:
        return f"{above} is on {kind}, which allows no new files"
    effective = os.access in os.supports_effective_ids
    if not os.access(above, os.W_OK | os.X_OK, effective_ids=effective):
        return f"{above} is not writable"
    return None


def _file_system_of(folder: Path) -> str:
    import psutil

    real = folder.resolve()
    mounted = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounted[place] for place in (real, *real.parents) if place in mounted), "")


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
