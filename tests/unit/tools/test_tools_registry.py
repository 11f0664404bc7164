"""The registry: built-in tools by file, others by package; a broken package affects no other."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from cleveragents.core.errors import ToolRefused, UnknownTool
from cleveragents.tools import builtin
from cleveragents.tools.registry import ENTRY_POINTS, ToolRegistry

PLUGIN = """
from cleveragents.core.policy import Capability
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

class Empty(Arguments):
    pass

class Nothing(Result):
    pass

class Idle(TypedTool[Empty, Nothing]):
    name = "idle"
    description = "Does nothing."
    capability = Capability.READ
    arguments = Empty
    result = Nothing

    def run(self, arguments, workplace):
        return Nothing()

idle = Idle()
not_a_tool = object()
"""
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a directory of installed packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, name: str, source: str, **tools: str) -> None:
    (site / f"{name}_code.py").write_text(source)
    about = site / f"{name}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(METADATA.format(name=name))
    entries = "".join(f"{tool} = {name}_code{target}\n" for tool, target in tools.items())
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entries}")


@pytest.fixture(autouse=True)
def modules_of_tests_are_forgotten() -> object:
    yield
    for name in [name for name in sys.modules if name.endswith("_code")]:
        del sys.modules[name]


def test_a_built_in_tool_is_one_file() -> None:
    files = {path.stem for path in Path(builtin.__path__[0]).glob("*.py")} - {"__init__"}
    registry = ToolRegistry(entries=())
    assert set(registry.names()) == files
    assert [spec.name for spec in registry.specs()] == sorted(files)
    assert registry.problems() == ()


def test_finding_names_imports_no_tool() -> None:
    code = (
        "import sys; from cleveragents.tools.registry import ToolRegistry; r = ToolRegistry();"
        "assert 'write' in r.names(); r.get('move');"
        "loaded = [m for m in sys.modules if m.startswith('cleveragents.tools.builtin.')];"
        "assert loaded == ['cleveragents.tools.builtin.move'], loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_tool_is_loaded_once() -> None:
    registry = ToolRegistry(entries=())
    assert registry.get("read") is registry.get("read")


def test_an_unknown_tool_lists_the_closest_names_first() -> None:
    with pytest.raises(UnknownTool) as unknown:
        ToolRegistry(entries=()).get("wirte")
    assert unknown.value.known[0] == "write"
    assert len(unknown.value.known) == len(set(unknown.value.known))


def test_a_package_may_offer_tools_as_objects_or_classes(site: Path) -> None:
    install(site, "one", PLUGIN, idle=":idle")
    registry = ToolRegistry()
    assert registry.get("idle").spec.description == "Does nothing."
    assert "idle" in [spec.name for spec in registry.specs()]
    install(site, "two", PLUGIN, idle=":Idle")
    assert ToolRegistry([EntryPoint("idle", "two_code:Idle", ENTRY_POINTS)]).get("idle").spec.name == "idle"


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (
            "import gone_for_good",
            ":idle",
            r"package bad 1\.2 cannot be loaded \(ModuleNotFoundError",
        ),
        ("raise SystemExit(3)", ":idle", r"package bad 1\.2 cannot be loaded \(SystemExit"),
        ("raise ValueError('x')", ":idle", r"package bad 1\.2 cannot be loaded \(ValueError: x"),
        (PLUGIN, ":missing", r"package bad 1\.2 cannot be loaded \(AttributeError"),
        (PLUGIN, ":not_a_tool", r"package bad 1\.2 cannot be loaded"),
        (PLUGIN.replace('"idle"', '"other"'), ":idle", r"bad 1\.2 offers bad_code:idle, which is not a tool"),
        (
            "from cleveragents.core.errors import Closed\nraise Closed('x')",
            ":idle",
            r"package bad 1\.2 cannot be loaded",
        ),
    ],
)
def test_a_broken_package_is_named_and_affects_no_other(
    site: Path, source: str, target: str, reason: str
) -> None:
    install(site, "bad", source, idle=target)
    registry = ToolRegistry()
    with pytest.raises(ToolRefused, match=f"^idle: .*{reason}"):
        registry.get("idle")
    assert "read" in [spec.name for spec in registry.specs()]
    assert "idle" not in [spec.name for spec in registry.specs()]
    assert [problem.tool for problem in registry.problems()] == ["idle"]


def test_no_package_replaces_a_built_in_tool_and_the_first_package_wins(site: Path) -> None:
    """The meaning of `write` does not depend on installed packages."""
    install(site, "one", PLUGIN, idle=":idle", write=":idle")
    install(site, "two", PLUGIN, idle=":idle")
    registry = ToolRegistry()
    assert registry.get("write").spec.description.startswith("Creates a file")
    said = sorted(str(problem) for problem in registry.problems())
    assert said == [
        "idle: the package two 1.2 offers a tool whose name is taken; the tool is ignored",
        "write: the package one 1.2 offers a tool whose name is taken; the tool is ignored",
    ]


def test_an_entry_without_a_package_is_named_by_its_module() -> None:
    registry = ToolRegistry([EntryPoint("idle", "nowhere_code:idle", ENTRY_POINTS)])
    with pytest.raises(ToolRefused, match=r"the package of nowhere_code:idle cannot be loaded"):
        registry.get("idle")
