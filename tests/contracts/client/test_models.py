"""Models and profiles, through every client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import ModelUnavailable, NotAllowed, RequestRefused, UnknownModel
from cleveragents.core.policy import Capability, Verdict
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


def test_profiles_say_what_plans_may_do(server: PlanServer, client: Client) -> None:
    known = {one.name: one for one in every(lambda after: client.models.profiles(limit=2, after=after))}
    assert [one.name for one in known.values() if one.default] == ["supervised"]
    assert known["review"].verdicts[Capability.NETWORK] is Verdict.DENY
    assert [as_json(one) for one in known.values()] == server.get("/profiles")["items"]
