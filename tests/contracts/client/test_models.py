"""Models and profiles, through every client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.config.loader import user_file_path
from cleveragents.core.errors import ModelUnavailable, NotAllowed, RequestRefused, UnknownModel
from cleveragents.core.policy import Capability, Verdict
from cleveragents.models import provider
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

SECRET = "sk-proj-" + "a1B2" * 10


@pytest.fixture
def scripted(tmp_path: Path) -> str:
    script = tmp_path / "script.yaml"
    rules = [
        {"when": {"user": "five words"}, "reply": {"text": f"The key is {SECRET}."}},
        {"when": {"user": "away"}, "reply": {"fault": {"status": 503, "retry_after_seconds": 0}}},
    ]
    script.write_text(json.dumps({"rules": rules}))
    return f"scripted/{script}"


def test_models_are_listed_in_pages_and_found(server: PlanServer, client: Client) -> None:
    known = client.models.list(provider="anthropic", limit=1000).items
    paged = list(every(lambda after: client.models.list(provider="anthropic", limit=2, after=after)))
    assert list(known) == paged == sorted(paged, key=lambda one: one.model)
    assert client.models.get(known[0].model) == known[0]
    assert as_json(known[0]) == server.get("/models", name=known[0].model)["items"][0]
    unlisted = client.models.get("openai/of-next-year")
    assert (unlisted.model, unlisted.input) == ("openai/of-next-year", None)


def test_an_unknown_model_is_an_error_with_its_name(server: PlanServer, client: Client) -> None:
    for name in ("opnai/gpt-4o", "nobody", "openai/", "a model/with ?#%/x"):
        with pytest.raises(UnknownModel) as expected:
            server.bench.container.models.facts(name)
        with pytest.raises(UnknownModel) as caught:
            client.models.get(name)
        assert (caught.value.name, str(caught.value)) == (name, str(expected.value))
    with pytest.raises(RequestRefused) as refused:
        client.models.list(provider="opnai")
    assert refused.value.where == "provider"
    assert "did you mean openai?" in refused.value.problem


def test_a_model_is_tested_and_its_answer_is_masked(client: Client, scripted: str) -> None:
    heard: list[str] = []
    told = client.models.test(scripted, on_text=heard.append)
    assert "The key is" in told.answer
    assert SECRET not in told.answer
    assert "The key is" in "".join(heard)
    assert (told.cut_off, told.cost) == (False, "unknown")


def test_a_model_that_fails_is_not_asked_again(client: Client, scripted: str) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        client.models.test(scripted, prompt="away?")
    assert caught.value.model == scripted
    with pytest.raises(RequestRefused) as refused:
        client.models.test()
    assert refused.value.where == "model"


def test_a_viewer_tests_no_model_and_looks_for_no_script(client_of: ClientOf, scripted: str) -> None:
    viewer = client_of("viewer")
    for name in (scripted, "scripted//nowhere"):
        with pytest.raises(NotAllowed) as caught:
            viewer.models.get(name)
        assert caught.value.name == "viewer"
    with pytest.raises(NotAllowed):
        viewer.models.test(scripted)


@pytest.fixture
def own_settings(server: PlanServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The settings file of the user; there is no keyring, and no key in the environment."""
    container = server.bench.container
    before = container.settings.models
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    monkeypatch.setattr(provider, "keep_in_keyring", lambda variable, key: False)
    yield user_file_path(os.environ)
    container.use_models(before)


def test_an_admin_chooses_the_default_model(
    server: PlanServer, client_of: ClientOf, own_settings: Path
) -> None:
    container, client = server.bench.container, client_of("admin")
    own_settings.parent.mkdir(parents=True)
    own_settings.write_text("# mine\n[plan]\nmax_parallel = 3\n")
    assert client.models.choose("anthropic/claude-sonnet-4-5").key == "missing"
    chosen = client.models.choose("anthropic/claude-sonnet-4-5", key=f" {SECRET} ")
    assert (chosen.model, chosen.key) == ("anthropic/claude-sonnet-4-5", "there")
    assert server.get("/about")["default_model"] == container.settings.models.default == chosen.model
    client.models.choose("openai/qwen3:8b", base_url="http://127.0.0.1:9/v1")
    assert container.settings.models.base_url == "http://127.0.0.1:9/v1"
    assert client.models.get("openai/qwen3:8b").key == "not needed"
    text = own_settings.read_text()
    assert text.startswith("# mine\n")
    assert 'default = "openai/qwen3:8b"' in text
    assert SECRET not in text
    container.use_models(replace(container.settings.models, key_variable="GATEWAY_KEY"))
    client.models.choose("openai/other")
    assert container.settings.models.key_variable == "GATEWAY_KEY"
    client.models.choose("openai/gpt-4.1", base_url="")  # at the provider again
    assert container.settings.models.key_variable == "", "the key of another server"
    assert container.settings.models.base_url == ""
    assert "base_url" not in own_settings.read_text()
    events = client.events.list(event_type="model.chosen").items
    assert [one.facts["model"] for one in events][1:3] == ["anthropic/claude-sonnet-4-5", "openai/qwen3:8b"]
    assert SECRET not in str(events)


def test_a_wrong_choice_of_a_model_changes_nothing(
    client_of: ClientOf, scripted: str, own_settings: Path
) -> None:
    client = client_of("admin")
    with pytest.raises(UnknownModel):
        client.models.choose("opnai/gpt-4o")
    wrong: list[tuple[str, str, str, str]] = [
        (scripted, "", "", "model"),
        ("openai/a", "ftp://127.0.0.1", "", "base_url"),
        ("anthropic/a", "http://127.0.0.1:9", "", "base_url"),
        ("openai/a", "http://127.0.0.1:9", SECRET, "key"),
        ("anthropic/a", "", "two words", "key"),
    ]
    for name, base_url, key, where in wrong:
        with pytest.raises(RequestRefused) as refused:
            client.models.choose(name, base_url=base_url, key=key)
        assert refused.value.where == where
        assert SECRET not in str(refused.value)
    with pytest.raises(NotAllowed):
        client_of("operator").models.choose("openai/gpt-4.1")
    assert not own_settings.exists()


def test_profiles_say_what_plans_may_do(server: PlanServer, client: Client) -> None:
    known = {one.name: one for one in every(lambda after: client.models.profiles(limit=2, after=after))}
    assert [one.name for one in known.values() if one.default] == ["supervised"]
    assert known["review"].verdicts[Capability.NETWORK] is Verdict.DENY
    assert [as_json(one) for one in known.values()] == server.get("/profiles")["items"]
