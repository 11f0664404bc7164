"""The command that adds an extra fits the way the product was installed."""

from __future__ import annotations

import sys
from importlib.metadata import Distribution
from importlib.metadata._meta import SimplePath
from pathlib import Path

import pytest

from cleveragents.config import entry_points
from cleveragents.config.entry_points import install_command


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/bin/python")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(entry_points, "find_spec", lambda name: object())
    installed_from(monkeypatch, None)
    return tmp_path


def installed_from(monkeypatch: pytest.MonkeyPatch, source: str | None) -> None:
    """Pretend that the product was installed with this `direct_url.json`."""

    class Installed(Distribution):
        def read_text(self, filename: str) -> str | None:
            return source

        def locate_file(self, path: object) -> SimplePath:
            raise NotImplementedError

    monkeypatch.setattr(entry_points, "distribution", lambda name: Installed())


@pytest.mark.parametrize(
    ("requirement", "command"),
    [
        ("", "uv tool install 'cleveragents[openai]' --with other"),
        (', extras = ["acp", "mcp"]', "uv tool install 'cleveragents[acp,mcp,openai]' --with other"),
        (', path = "/srv/c.whl"', "uv tool install 'cleveragents[openai] @ /srv/c.whl' --with other"),
    ],
)
def test_uv_installs_all_extras_from_the_same_place(prefix: Path, requirement: str, command: str) -> None:
    other = '{ name = "other" }, '
    receipt = f'[tool]\nrequirements = [{other}{{ name = "cleveragents"{requirement} }}]\n'
    (prefix / "uv-receipt.toml").write_text(receipt)
    assert install_command("openai") == command


def test_uv_keeps_the_packages_that_were_added(prefix: Path) -> None:
    added = '{ name = "a", extras = ["x"], specifier = ">=1,<2" }, { name = "b", git = "https://e.test/b" }'
    (prefix / "uv-receipt.toml").write_text(
        f'[tool]\nrequirements = [{{ name = "cleveragents" }}, {added}]\n'
    )
    command = install_command("mcp")
    assert (
        command == "uv tool install 'cleveragents[mcp]' --with 'a[x]>=1,<2' --with 'b @ git+https://e.test/b'"
    )


@pytest.mark.parametrize(
    "receipt", ["", "[tool]\nrequirements = 3\n", "nonsense", "[tool]\nrequirements = []\n"]
)
def test_a_damaged_receipt_of_uv_leaves_a_plain_command(prefix: Path, receipt: str) -> None:
    (prefix / "uv-receipt.toml").write_text(receipt)
    assert install_command("mcp") == "uv tool install 'cleveragents[mcp]'"


def test_pipx_adds_to_its_environment(prefix: Path) -> None:
    (prefix / "pipx_metadata.json").write_text("{}")
    assert install_command("mcp") == "pipx inject cleveragents 'cleveragents[mcp]'"


def test_pip_of_the_active_environment_has_the_short_form(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install_command("mcp") == f"{prefix}/bin/python -m pip install 'cleveragents[mcp]'"
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
    assert install_command("mcp") == "pip install 'cleveragents[mcp]'"


def test_an_environment_without_pip_is_left_to_uv(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_points, "find_spec", lambda name: None)
    assert install_command("mcp") == f"uv pip install --python {prefix}/bin/python 'cleveragents[mcp]'"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ('{"url": "file:///srv/c.whl", "archive_info": {}}', "'cleveragents[mcp] @ file:///srv/c.whl'"),
        ('{"url": "file:///srv/my%20c", "dir_info": {}}', "'cleveragents[mcp] @ file:///srv/my%20c'"),
        (
            '{"url": "file:///srv/my%20c", "dir_info": {"editable": true}}',
            "--editable '/srv/my c[mcp]'",
        ),
        (
            '{"url": "https://e.test/c", "vcs_info": {"vcs": "git", "commit_id": "9f2b"}}',
            "'cleveragents[mcp] @ git+https://e.test/c@9f2b'",
        ),
        ("nonsense", "'cleveragents[mcp]'"),
        ('["url"]', "'cleveragents[mcp]'"),
    ],
)
def test_an_extra_comes_from_where_the_product_came_from(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, source: str, wanted: str
) -> None:
    installed_from(monkeypatch, source)
    assert install_command("mcp") == f"{prefix}/bin/python -m pip install {wanted}"
    (prefix / "pipx_metadata.json").write_text("{}")
    assert install_command("mcp") == f"pipx inject cleveragents {wanted}"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ('{"url": "https://e.test/c", "dir_info": null}', " @ https://e.test/c"),
        ('{"url": "https://e.test/c", "vcs_info": {"vcs": "git"}}', ""),
        ('{"url": "https://e.test/c", "vcs_info": "git"}', ""),
        ('{"url": "https://e.test/c", "dir_info": []}', " @ https://e.test/c"),
        ('{"url": "https://e.test/c", "dir_info": ["x"]}', ""),
        ('["https://e.test/c"]', ""),
    ],
)
def test_an_odd_source_does_not_break_the_hint(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, source: str, place: str
) -> None:
    installed_from(monkeypatch, source)
    assert install_command("mcp").endswith(f" -m pip install 'cleveragents[mcp]{place}'")
