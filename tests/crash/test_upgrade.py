"""State of an earlier version opens, verifies and resumes.

An archive in `states` is named after the version that created it below /mnt: a repository, an applied plan,
one that is ready for review, and one that waits for approval. State contains paths, so bubblewrap mounts the
unpacked archive at /mnt again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cleveragents.processes.bubblewrap import shared_probe

ROOT = Path(__file__).parents[2]
STATES = sorted((Path(__file__).parent / "states").glob("*.tar.xz"))
NEEDS_A_PERSON = 3

pytestmark = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)


class Upgraded:
    """`agents` of this version on the state of an earlier one."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def agents(self, *words: str, code: int = 0) -> str:
        program = [sys.executable, "-m", "cleveragents", "--set", "sandbox.isolation=off", *words]
        around = ["bwrap", "--dev-bind", "/", "/", "--bind", str(self._place), "/mnt", "--chdir", "/mnt/repo"]
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/mnt/home",
            "XDG_DATA_HOME": "/mnt/data",
            "XDG_CONFIG_HOME": "/mnt/config",
            "PYTHONPATH": f"{ROOT / 'src'}",
        }
        done = subprocess.run(
            [*around, *program], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=100
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout.decode()

    def read(self, name: str) -> str:
        return (self._place / "repo" / name).read_text()

    def plan(self, state: str) -> str:
        plans: Any = json.loads(self.agents("plan", "list", "--format", "json"))
        [found] = [plan["id"] for plan in plans if plan["state"] == state]
        return str(found)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name.removesuffix(".tar.xz"))
def test_an_earlier_state_verifies_resumes_applies_and_undoes(state: Path, tmp_path: Path) -> None:
    with tarfile.open(state) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        archive.extractall(tmp_path)
    upgraded = Upgraded(tmp_path)
    assert "56 events, verified" in upgraded.agents("events", "verify")
    waiting, ready = upgraded.plan("waiting"), upgraded.plan("complete")
    # The request of 0.1.0 does not cover the exact arguments, so it is repeated.
    upgraded.agents("plan", "approve", waiting, code=NEEDS_A_PERSON)
    upgraded.agents("plan", "approve", waiting, code=NEEDS_A_PERSON)
    upgraded.agents("plan", "apply", waiting)
    upgraded.agents("plan", "apply", ready)
    assert upgraded.read("greeting.txt") == "hello\n"
    assert upgraded.read("numbers.txt") == "one\ntwo\nthree\nfour\nfive\n"
    upgraded.agents("plan", "undo", ready)
    assert upgraded.read("numbers.txt") == "one\ntwo\nthree\nfour\n"
    assert "verified" in upgraded.agents("events", "verify")
