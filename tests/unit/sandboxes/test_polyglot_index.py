"""A polyglot index: read with object names of 20 bytes it has only files, with 32 bytes a submodule.

git does not verify the digest of an index, so one with a valid SHA-1 is read in a SHA-256 repository, too.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from pathlib import Path

import pytest

from cleveragents.core.change import GITLINK, REGULAR
from cleveragents.git.index_file import plain_index
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from tests.sandbox_resources import make_repository

# 257 bytes: the first length whose two bytes contain no NUL.
HIDDEN = "build/" + "n" * 125 + "/" + "m" * 125
LENGTH = b"\1\1"
ARM = f"""
mkdir -p {HIDDEN}; git init -q {HIDDEN}
git -C {HIDDEN} -c user.name=a -c user.email=a commit -q --allow-empty -m x
git config --file {HIDDEN}/.git/config core.fsmonitor "touch $TRACE; false"
"""


def entry(name: bytes, *, group: int = 0) -> bytes:
    """Return an entry with an object name of 20 bytes."""
    facts = struct.pack(">10I", *(0,) * 6, REGULAR, 0, group, 0)
    made = facts + b"\1" * 20 + struct.pack(">H", len(name)) + name
    return made + bytes(8 - len(made) % 8)


def two_indexes() -> bytes:
    """Build both. Each entry of the second reading begins 8 bytes later, so its mode is the group of the
    first.
    """
    first = entry(b"A" * 10 + LENGTH + b"A" * 253)
    second = entry(b"B" * 18 + LENGTH + HIDDEN.encode(), group=GITLINK)
    data = struct.pack(">4sII", b"DIRC", 2, 2) + first + second
    return data + hashlib.sha1(data).digest()


def test_the_first_reading_has_only_files_and_is_kept() -> None:
    data = two_indexes()
    plain = plain_index(data, name_bytes=20)
    assert plain is not None
    assert plain.data == data
    assert [mode for _, mode in plain.entries] == [REGULAR] * 2


@pytest.mark.parametrize("inside", ["", "inner"], ids=["own", "inside"])
def test_a_polyglot_index_names_no_submodule(tmp_path: Path, inside: str) -> None:
    """In an ignored directory. The submodule is armed again after the scan, which disarms it."""
    formats = () if inside else ("--object-format=sha256",)
    resource = make_repository(tmp_path / "r", {"a": "1\n", ".gitignore": "build/\n"}, *formats)
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    root, trace = sandbox.root / inside, tmp_path / "ran"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRACE": str(trace)}
    environment["GIT_DEFAULT_HASH"] = "sha256"

    def run(script: str) -> None:
        subprocess.run(["sh", "-ec", script], cwd=root, env=environment, check=True, timeout=60)

    def is_led_there() -> bool:
        """Return whether git enters it; git fails in the end, because objects are missing."""
        run(ARM)
        trace.unlink(missing_ok=True)
        subprocess.run(["git", "status"], cwd=root, env=environment, check=False, timeout=60)
        return trace.exists()

    with sandbox.writing():
        root.mkdir(exist_ok=True)
        if inside:
            run("git init -q")
        (root / ".git/index").write_bytes(two_indexes())
        assert is_led_there(), "the second reading counts"
        (root / ".git/index").write_bytes(two_indexes())  # git may have rewritten it
        sandbox.scan()
    assert not is_led_there()
