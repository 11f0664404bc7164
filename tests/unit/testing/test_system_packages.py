"""`make test` installs the programs that tests need if it can, and otherwise reports what is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "requirements" / "system"


class Machine:
    """A search path with fake programs: the user's id, and the installed programs."""

    def __init__(self, directory: Path, *, user: int, apt: str | None) -> None:
        self.directory = directory
        self.log = directory / "apt.log"
        self.log.touch()
        for name in ("bash", "env"):
            self.link(name)
        self.program("id", f"echo {user}")
        self.program("timeout", 'shift; exec "$@"')
        if apt is not None:
            self.program("apt-get", f'echo "$@" >> {self.log}; {apt}')

    def link(self, name: str) -> None:
        found = shutil.which(name)
        assert found is not None
        (self.directory / name).symlink_to(found)

    def program(self, name: str, script: str) -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self) -> str:
        """Return its output; it must succeed whatever is missing."""
        environment = {"PATH": str(self.directory)}
        done = subprocess.run([str(SCRIPT)], env=environment, capture_output=True, text=True, check=True)
        return done.stderr + done.stdout

    @property
    def installed(self) -> list[str]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [words[-1] for words in lines if words[0] == "install"]


def test_both_are_installed_as_root_with_apt(tmp_path: Path) -> None:
    install = f'[ "$1" = update ] && exit; for name; do :; done; /bin/cp {tmp_path}/id {tmp_path}/$name'
    bubblewrap = f"{install}; [ $name != bubblewrap ] || /bin/cp {tmp_path}/id {tmp_path}/bwrap"
    machine = Machine(tmp_path, user=0, apt=bubblewrap)
    assert machine.run().splitlines() == ["Installing chromium bubblewrap …"]
    assert machine.installed == ["chromium", "bubblewrap"]
    assert machine.run() == ""


@pytest.mark.parametrize(("user", "apt"), [(1000, "exit 0"), (0, None), (0, "exit 100")])
def test_reports_missing_packages_with_the_skipped_tests(tmp_path: Path, user: int, apt: str | None) -> None:
    machine = Machine(tmp_path, user=user, apt=apt)
    said = machine.run()
    assert "Missing: chromium. Skipped without it: the browser tests." in said
    assert "Missing: bubblewrap. Skipped without it: the tests of command isolation." in said
    assert machine.installed == (["chromium", "bubblewrap"] if apt == "exit 100" else [])


def test_reports_a_bubblewrap_that_does_not_work(tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=1000, apt=None)
    machine.program("chromium", "exit 0")
    machine.program("bwrap", "exit 1")
    assert "bubblewrap does not work here" in machine.run()
    machine.program("bwrap", "exit 0")
    assert machine.run() == ""


def test_ci_and_make_test_install_them_in_the_same_place() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ntest:")[2].partition("\n\n")[0]
    assert recipe.split("\n")[1:] == ["\t@./requirements/system", "\t@$(BIN)/nox"]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("exec make --keep-going test versions")
