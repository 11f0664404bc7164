"""Known secrets belong to an owner: masked by any thread while it holds them, and forgotten with it."""

from __future__ import annotations

import ast
import gc
import threading
from pathlib import Path

import click
import pytest

import cleveragents
from cleveragents.app.container import Container
from cleveragents.cli import invocation
from cleveragents.cli.session import Session
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.text.redaction import KnownSecrets, known_values, redact_content_text, redact_text
from tests.server_bench import server_bench

SOURCES = Path(cleveragents.__file__).parent


@pytest.fixture
def secret(request: pytest.FixtureRequest) -> str:
    """Return a different secret for each test: values of uncollected owners may still be masked."""
    return f"the-secret-of-{request.node.name}"


def test_a_secret_is_masked_until_its_owner_forgets_it(secret: str) -> None:
    owner, other = KnownSecrets(), KnownSecrets()
    owner.add(secret)
    other.add("another-of-these")
    assert redact_text(f"{secret} another-of-these") == "*** ***"
    assert redact_content_text(f"x = {secret}") == "x = ***"
    owner.forget()
    assert redact_text(f"{secret} another-of-these") == f"{secret} ***"
    owner.add(secret)
    assert redact_text(secret) == "***"


def test_a_secret_is_forgotten_with_its_owner(secret: str) -> None:
    owner = KnownSecrets()
    owner.add(secret)
    assert secret in known_values()
    del owner
    gc.collect()
    assert redact_text(secret) == secret


def test_a_secret_is_masked_by_threads_that_know_nothing_of_its_owner(secret: str) -> None:
    owner, said = KnownSecrets(), list[str]()
    owner.add(secret)
    thread = threading.Thread(target=lambda: said.append(redact_text(f"it is {secret}")))
    thread.start()
    thread.join()
    assert said == ["it is ***"]


def test_owners_and_secrets_that_are_added_at_once_are_all_kept(secret: str) -> None:
    shared, others = KnownSecrets(), list[KnownSecrets]()
    start = threading.Barrier(8)

    def add(number: int) -> None:
        start.wait()
        for index in range(50):
            shared.add(f"shared-{number}-{index}")
            others.append(KnownSecrets())
            others[-1].add(f"own-secret-{number}-{index}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shared.values) == 400
    assert len(known_values()) >= 800


def test_masks_a_secret_in_json_spelling_and_ignores_short_ones() -> None:
    owner = KnownSecrets()
    owner.add('with "quotes" and\nlines')
    owner.add("short")
    assert redact_text(r'{"x": "with \"quotes\" and\nlines"}') == '{"x": "***"}'
    assert redact_text("short") == "short"


def test_no_module_holds_known_secrets() -> None:
    for path in SOURCES.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            made = isinstance(node, (ast.Assign, ast.AnnAssign)) and "KnownSecrets(" in ast.unparse(node)
            assert not made, f"{path}: {ast.unparse(node)}"


def test_the_parts_of_a_container_share_its_secrets_which_it_forgets_when_closed(
    tmp_path: Path, secret: str
) -> None:
    with server_bench(tmp_path) as bench:
        container = bench.container
        owners = {
            "models": container.models._keys._secrets,
            "commands": container.plan_parts.commands(tmp_path)._secrets,
        }
        assert {name for name, owner in owners.items() if owner is not container.secrets} == set()
        container.secrets.add(secret)
        assert redact_text(secret) == "***"
    assert redact_text(secret) == secret


def test_a_container_leaves_the_secrets_of_others_alone(tmp_path: Path, secret: str) -> None:
    owner = KnownSecrets()
    with server_bench(tmp_path) as bench, Container(bench.container.settings, secrets=owner) as container:
        container.secrets.add(secret)
    assert redact_text(secret) == "***"


def test_masks_an_error_reported_after_the_container_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    @click.command()
    @click.pass_context
    def failing(ctx: click.Context) -> None:
        ctx.obj = Session()
        ctx.obj.container().secrets.add(secret)
        raise ConfigurationError("the value", f"{secret} is not accepted")

    monkeypatch.setenv("CLEVERAGENTS_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setattr(invocation, "cli", failing)
    with pytest.raises(SystemExit):
        invocation.invoke([])
    assert "*** is not accepted" in capsys.readouterr().err
    assert secret not in known_values()
