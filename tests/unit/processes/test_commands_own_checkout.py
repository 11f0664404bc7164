"""A check that would import the user's own checkout instead of the sandbox is detected."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cleveragents.core.errors import Cancelled
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.bubblewrap import shared_probe
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.own_checkout import imports_from
from cleveragents.processes.ports import Command

needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)
FINDER = """
import sys
from importlib.machinery import ModuleSpec, PathFinder
MAPPING = {{'package': {package!r}}}
class _EditableFinder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None
def install():
    sys.meta_path.append(_EditableFinder)
"""


class World:
    """A checkout with a package, a sandbox of it, and a virtual environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkout = directory / "checkout"
        self.root = directory / "state" / "sandbox"
        for tree in (self.checkout, self.root):
            (tree / "src" / "package").mkdir(parents=True)
            (tree / "src" / "package" / "__init__.py").touch()
        self.stop = CancellationToken()

    def environment(self, place: Path) -> Path:
        """Create an environment by hand, faster than `venv`; return its site-packages."""
        (place / "bin").mkdir(parents=True)
        interpreter = Path(os.path.realpath(sys.executable))
        for name in ("python", "python3"):
            (place / "bin" / name).symlink_to(interpreter)
        (place / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = place / "lib" / version / "site-packages"
        packages.mkdir(parents=True)
        self.bin = place / "bin"
        return packages

    def ask(
        self, *, isolation: str = "off", argv: tuple[str, ...] = ("true",), **variables: str
    ) -> str | None:
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", **variables}
        command = Command(argv, self.root, self.root, environment=environment)
        runner = GuardedCommandRunner(isolation=isolation)
        return imports_from(self.checkout, runner, command, self.stop.view())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_accepts_an_environment_independent_of_the_checkout(world: World) -> None:
    packages = world.environment(world.directory / "venv")
    (packages / "ours.pth").write_text(f"{world.root / 'src'}\n")
    assert world.ask() is None
    assert world.ask(argv=("no-such-program",)) is None


def test_detects_a_pth_file_into_the_checkout(world: World) -> None:
    packages = world.environment(world.directory / "venv")
    (packages / "package.pth").write_text(f"{world.checkout / 'src'}\n")
    found = world.ask()
    assert found is not None
    assert "instead of the sandbox" in found
    assert found.endswith(f"its sys.path contains {world.checkout / 'src'}")


def test_detects_an_editable_import_hook(world: World) -> None:
    packages = world.environment(world.directory / "venv")
    package = str(world.checkout / "src" / "package")
    (packages / "__editable___package_1_finder.py").write_text(FINDER.format(package=package))
    (packages / "__editable__.package.pth").write_text(
        "import __editable___package_1_finder as finder; finder.install()\n"
    )
    found = world.ask()
    assert found is not None
    assert found.endswith(package)


def test_detects_a_linked_package(world: World) -> None:
    packages = world.environment(world.directory / "venv")
    (packages / "package").symlink_to(world.checkout / "src" / "package")
    assert "a link in its packages" in str(world.ask())


def test_detects_pythonpath_and_an_environment_in_the_checkout(world: World) -> None:
    world.environment(world.directory / "venv")
    assert "its sys.path contains" in str(world.ask(PYTHONPATH=str(world.checkout / "src")))
    world.environment(world.checkout / ".venv")
    assert "its environment is" in str(world.ask())


def test_asks_the_interpreter_of_the_test_program_too(world: World) -> None:
    """`pytest` may be a script of an environment that is not the one on PATH."""
    packages = world.environment(world.directory / "other")
    (packages / "package.pth").write_text(f"{world.checkout / 'src'}\n")
    other = world.bin / "python"
    world.environment(world.directory / "venv")
    (world.bin / "pytest").write_text(f"#!{other}\n")
    (world.bin / "pytest").chmod(0o755)
    assert str(world.ask()).startswith(str(other))
    (world.root / "check").write_text(f"#!{other}\n")
    (world.root / "check").chmod(0o755)
    (world.bin / "pytest").unlink()
    assert world.ask() is None
    assert str(world.ask(argv=("./check",))).startswith(str(other))


def test_a_sandbox_below_the_checkout_may_import_from_itself(world: World) -> None:
    packages = world.environment(world.directory / "venv")
    world.root = world.checkout / ".state" / "sandbox"
    (world.root / "src").mkdir(parents=True)
    (packages / "ours.pth").write_text(f"{world.root / 'src'}\n")
    assert world.ask() is None


@needs_bubblewrap
def test_isolation_prevents_imports_from_the_checkout(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = world.environment(world.directory / "venv")
    # Commands see an outside program only through the PATH of this process.
    monkeypatch.setenv("PATH", f"{world.bin}:{os.environ['PATH']}")
    (packages / "package.pth").write_text(f"{world.checkout / 'src'}\n")
    assert world.ask(isolation="required") is None
    assert world.ask(isolation="off") is not None
    # Unless the caller exposes it.
    command = Command(
        ("true",),
        world.root,
        world.root,
        readable=(world.checkout,),
        environment={"PATH": f"{world.bin}:/usr/bin:/bin"},
    )
    runner = GuardedCommandRunner(isolation="required")
    assert "its sys.path contains" in str(imports_from(world.checkout, runner, command, world.stop.view()))


def test_detects_a_real_editable_install(world: World) -> None:
    """This project is installed like that during its own development."""
    project = Path(__file__).parents[3]
    inside = subprocess.run(
        [sys.executable, "-c", "import cleveragents; print(cleveragents.__file__)"],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    if not inside.stdout.startswith(str(project)):
        pytest.skip("cleveragents is not installed editable here")
    world.checkout = project
    world.bin = Path(sys.executable).parent
    assert str(project) in str(world.ask())


def stand_in(world: World, script: str) -> None:
    world.bin = world.directory / "bin"
    world.bin.mkdir(exist_ok=True)
    (world.bin / "python").write_text(f"#!/bin/sh\n{script}\n")
    (world.bin / "python").chmod(0o755)


def test_reports_nothing_without_an_interpreter(world: World) -> None:
    """The shim of a version manager exits like a shell if there is no interpreter."""
    world.bin = world.directory / "bin"
    world.bin.mkdir()
    assert world.ask(PATH=str(world.bin)) is None
    stand_in(world, "echo python: command not found >&2; exit 127")
    assert world.ask(PATH=str(world.bin)) is None


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo nonsense", r"nonsense \(exit code 0\)"),
        ("exit 1", r"no output \(exit code 1\)"),
        ("echo cleveragents-imports:nonsense", r"cleveragents-imports:nonsense \(exit code 0\)"),
        ("echo 'cleveragents-imports:[1, 2]'", r"\[1, 2\] \(exit code 0\)"),
        ("exec /bin/sleep 1000", "timed out"),
    ],
)
def test_reports_an_interpreter_that_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    """Otherwise any failure of the question would look like a negative answer."""
    monkeypatch.setattr("cleveragents.processes.own_checkout._ASK_SECONDS", 1.0)
    stand_in(world, script)
    told = world.ask(PATH=str(world.bin))
    assert told is not None
    assert re.fullmatch(f"cannot determine which files python would import: .*{reason}", told)


def test_modules_of_the_sandbox_cannot_forge_the_answer(world: World) -> None:
    packages = world.environment(world.directory / "venv")
    for name in ("os", "sys", "json", "ast", "posixpath", "encodings", "site"):
        (world.root / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    (world.root / "src" / "json.py").write_text("raise SystemExit('shadowed')\n")
    assert world.ask() is None
    assert world.ask(PYTHONPATH="src") is None
    (packages / "package.pth").write_text(f"{world.checkout / 'src'}\n")
    assert str(world.ask()).endswith(f"its sys.path contains {world.checkout / 'src'}")
    assert str(world.ask(PYTHONPATH="src")).endswith(f"its sys.path contains {world.checkout / 'src'}")


def test_resolves_relative_entries_from_the_checks_directory(world: World) -> None:
    world.environment(world.directory / "venv")
    outside = os.path.relpath(world.checkout / "src", world.root)
    assert str(world.ask(PYTHONPATH=outside)).endswith(f"its sys.path contains {world.checkout / 'src'}")


def test_reports_an_environment_in_which_python_fails_to_start(world: World) -> None:
    """The check would have the same environment, so the tested files are unknown."""
    world.environment(world.directory / "venv")
    (world.root / "src" / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    assert "cannot determine which files python would import" in str(world.ask(PYTHONPATH="src"))


def test_reports_a_non_ascii_path(world: World) -> None:
    packages = world.environment(world.directory / "venv")
    place = world.checkout / "Ä ö"
    place.mkdir()
    (packages / "package.pth").write_text(f"{place}\n", "utf-8")
    assert str(world.ask(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")) != "None"
    assert str(world.ask()).endswith(f"its sys.path contains {place}")


def test_the_timeout_of_the_check_does_not_limit_the_question(world: World) -> None:
    world.environment(world.directory / "venv")
    command = Command(
        ("true",),
        world.root,
        world.root,
        timeout_seconds=0.001,
        output_limit_bytes=1,
        environment={"PATH": str(world.bin)},
    )
    runner = GuardedCommandRunner(isolation="off")
    assert imports_from(world.checkout, runner, command, world.stop.view()) is None


def test_a_cancelled_question_raises_cancelled(world: World) -> None:
    world.environment(world.directory / "venv")
    world.stop.cancel("enough")
    with pytest.raises(Cancelled):
        world.ask()
