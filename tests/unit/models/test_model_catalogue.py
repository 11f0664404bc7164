"""The catalogue: names, hints, keys, packages; and no key ever shows."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import structlog

from cleveragents.config.logging import redactor
from cleveragents.config.settings import ModelSettings
from cleveragents.core.errors import CleverAgentsError, ConfigurationError, ModelRefused, UnknownModel
from cleveragents.core.text.redaction import KnownSecrets, redact_known_text
from cleveragents.models import provider as keys
from cleveragents.models.catalogue import ENTRY_POINTS, ModelCatalogue
from cleveragents.models.model.budget import Price
from cleveragents.models.ports import Model, ModelFacts, ToolCallMode
from cleveragents.models.provider import Keys, ModelSpec, Provider
from cleveragents.models.providers import openai
from cleveragents.models.script_document import read_script
from cleveragents.models.text_calls import KeptModes
from cleveragents.testing.scripted_server import ScriptedServer
from tests.model_stand import REQUEST, EndingModel, unavailable

# Found without importing: imports take seconds, and every collection would pay for them.
if find_spec("langchain_openai") is None:
    pytest.skip("langchain_openai is not installed", allow_module_level=True)

KEY = "k3y-0f-nobody-in-particular"
opened: list[ModelSpec] = []


def _open(opening: ModelSpec) -> Model:
    opened.append(opening)
    return EndingModel([unavailable() for _ in range(9)], facts=opening.facts)


OFFERED = Provider(name="acme", open=_open, variables=("ACME_KEY", "ACME_TOKEN"))
NOT_INSTALLED = Provider(name="absent", open=_open, module="no_such_module_at_all", extra="absent")
NO_PROVIDER = object()
meanwhile: list[Callable[[], None]] = []


def _open_slowly(opening: ModelSpec) -> Model:
    while meanwhile:
        meanwhile.pop()()
    return _open(opening)


SLOW = Provider(name="slow", open=_open_slowly)


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, f"tests.unit.models.test_model_catalogue:{value}", ENTRY_POINTS)


ENTRIES = [
    EntryPoint("broken", "no_such_module_at_all:PROVIDER", ENTRY_POINTS),
    EntryPoint("openai", "no_such_module_at_all:PROVIDER", ENTRY_POINTS),
]


@pytest.fixture(autouse=True)
def this_module_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "tests.unit.models.test_model_catalogue", sys.modules[__name__])
    opened.clear()
    yield
    opened.clear()


def catalogue(
    environment: Mapping[str, str] | None = None,
    keyring: Mapping[str, str] | None = None,
    modes: Path | None = None,
    **settings: object,
) -> ModelCatalogue:
    entries = [
        *ENTRIES,
        entry("acme", "OFFERED"),
        entry("absent", "NOT_INSTALLED"),
        entry("nothing", "NO_PROVIDER"),
        entry("misnamed", "OFFERED"),
    ]
    return ModelCatalogue(
        msgspec.convert(settings, ModelSettings),
        environment=environment or {},
        keyring=(keyring or {}).get,
        entries=entries,
        modes=modes,
    )


def test_providers_are_files_and_entry_points() -> None:
    assert set(catalogue().providers()) >= {"acme", "anthropic", "google", "openai", "scripted"}


def test_a_model_is_opened_once_with_its_name_and_key() -> None:
    found = catalogue({"ACME_TOKEN": KEY})
    assert found.get_nowait("acme/big/model") is None
    model = found.get("acme/big/model")
    assert found.get("acme/big/model") is model
    assert found.get_nowait("acme/big/model") is model
    (opening,) = opened
    assert (opening.model, opening.key, opening.facts.name) == ("big/model", KEY, "acme/big/model")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpt-4o-mini", "did you mean openai/gpt-4o-mini?"),
        ("opnai/whatever", "did you mean openai? the providers are"),
        ("openai", "add the name of a model, such as openai/gpt-4.1"),
        ("acme/", "add the name of a model, such as acme/NAME"),
        ("zzz", "write it as provider/model; the providers are"),
        ("", "write it as provider/model"),
        ("scripted/nowhere.yaml", "there is no file nowhere.yaml"),
    ],
)
def test_a_meaningless_name_gets_a_hint(name: str, hint: str) -> None:
    for use in (catalogue().get, catalogue().facts):
        with pytest.raises(UnknownModel) as caught:
            use(name)
        assert hint in str(caught.value)


def test_a_missing_key_is_named_by_its_variables() -> None:
    with pytest.raises(ConfigurationError) as caught:
        catalogue({"ACME_KEY": " "}).get("acme/x")
    assert "set ACME_KEY or ACME_TOKEN" in str(caught.value)
    inside = "or `keyring set cleveragents ACME_KEY`" in str(caught.value)
    assert inside == (find_spec("keyring") is not None)
    for provider, variable in (("openai", "OPENAI"), ("anthropic", "ANTHROPIC"), ("google", "GOOGLE")):
        with pytest.raises(ConfigurationError, match=f"{variable}_API_KEY"):
            catalogue().get(f"{provider}/x")


@pytest.mark.parametrize("wrong", ["sk-\u2026", "sk-one two", "sk-\u00e9"])
def test_a_key_that_no_request_can_carry_is_refused_before_one_is_sent(wrong: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        catalogue({"OPENAI_API_KEY": wrong}).get("openai/gpt-4o")
    strange = next(sign for sign in wrong if sign not in "sk-one")
    assert f"the API key contains the invalid character {strange!r}; set OPENAI_API_KEY" in str(caught.value)
    assert wrong not in str(caught.value)


def test_a_missing_package_says_how_to_install_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        catalogue().get("absent/x")
    assert re.search(r"pip install .*\[absent\]'", str(caught.value)), (
        "the command that fits the installation"
    )


@pytest.mark.parametrize("name", ["broken", "nothing", "misnamed"])
def test_an_invalid_provider_package_affects_only_its_models(name: str) -> None:
    found = catalogue({"ACME_KEY": KEY})
    with pytest.raises(ConfigurationError, match=f"provider {name}"):
        found.get(f"{name}/x")
    assert found.get("acme/x").facts.name == "acme/x"


def test_a_built_in_provider_cannot_be_replaced() -> None:
    assert catalogue({"OPENAI_API_KEY": KEY}).facts("openai/gpt-4o").price == Price(
        2_500_000, 10_000_000, 1_250_000
    )


def test_facts_say_whether_the_key_is_there() -> None:
    assert not catalogue().facts("acme/x").keyed
    assert catalogue({"ACME_KEY": KEY}).facts("acme/x").keyed
    assert catalogue(keyring={"ACME_TOKEN": KEY}).facts("acme/x").keyed
    keyed = {
        facts.name.partition("/")[0]: facts.keyed for facts in catalogue({"GEMINI_API_KEY": KEY}).known()
    }
    assert keyed == {"anthropic": False, "google": True, "openai": False}


def test_the_keyring_is_asked_once_for_what_is_only_looked_at() -> None:
    asked: list[str] = []

    def keyring(variable: str) -> None:
        asked.append(variable)

    found = ModelCatalogue(ModelSettings(), environment={}, keyring=keyring)
    for _ in range(3):
        found.known()
    assert len(asked) == len(set(asked))


def test_a_base_url_needs_no_key_and_keeps_known_prices() -> None:
    """A gateway charges about what the provider charges; a model that is in no list has no known price."""
    found = catalogue(base_url="http://127.0.0.1:1/v1")
    facts = found.facts("openai/gpt-4o")
    assert (facts.price, facts.keyed) == (
        catalogue({"OPENAI_API_KEY": KEY}).facts("openai/gpt-4o").price,
        True,
    )
    assert facts.price is not None
    assert found.get("openai/gpt-4o").facts == facts
    assert found.facts("openai/local").price is None
    assert not catalogue(base_url="http://127.0.0.1:1/v1").facts("anthropic/x").keyed


def test_the_mode_of_tool_calls_is_listed_probed_or_known(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[models."openai/listed"]\ntool_calls = "none"\n')
    modes = tmp_path / "state" / "modes.json"
    server = "http://127.0.0.1:1/v1"
    found = catalogue(base_url=server, prices=str(own), modes=modes)
    KeptModes(modes).keep("openai/listed", server, ToolCallMode.TEXT)
    KeptModes(modes).keep("openai/probed", server, ToolCallMode.TEXT)
    KeptModes(modes).keep("openai/Qwen2.5-Coder-7B", "http://127.0.0.1:2/v1", ToolCallMode.NATIVE)
    names = ("listed", "probed", "Qwen2.5-Coder-7B", "local")
    kept = [found.facts(f"openai/{name}").tool_calls for name in names]
    assert kept == [ToolCallMode.NONE, ToolCallMode.TEXT, ToolCallMode.TEXT, None]
    assert catalogue({"OPENAI_API_KEY": KEY}).facts("openai/gpt-4o").tool_calls is ToolCallMode.NATIVE


@pytest.mark.parametrize("content", ["", "[]", "{", '{"http://127.0.0.1:1/v1 openai/x": "often"}'])
def test_a_damaged_file_of_modes_costs_only_another_probe(tmp_path: Path, content: str) -> None:
    modes = tmp_path / "modes.json"
    modes.write_text(content)
    kept = KeptModes(modes)
    assert kept.get("openai/x", "http://127.0.0.1:1/v1") is None
    kept.keep("openai/x", "http://127.0.0.1:1/v1", ToolCallMode.TEXT)
    assert KeptModes(modes).get("openai/x", "http://127.0.0.1:1/v1") is ToolCallMode.TEXT
    assert [path.name for path in tmp_path.iterdir()] == ["modes.json"]


def test_a_wrong_mode_in_a_list_is_named(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[models."openai/x"]\ntool_calls = "often"\n')
    with pytest.raises(
        ConfigurationError, match="tool_calls should be one of native, text, none, not 'often'"
    ):
        catalogue(prices=str(own)).facts("openai/x")


def test_an_invalid_base_url_is_reported_with_its_variable() -> None:
    with pytest.raises(ConfigurationError, match="OPENAI_BASE_URL: must be a URL"):
        catalogue({"OPENAI_BASE_URL": "nonsense"}).get("openai/x")


def test_an_invalid_price_list_is_reported_for_every_model(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("rules: []\n")
    for name in (f"scripted/{tmp_path}/script.yaml", "acme/x"):
        with pytest.raises(ConfigurationError, match=r"cannot be read: No such file .*models.prices"):
            catalogue({"ACME_KEY": KEY}, prices=str(tmp_path / "none.toml")).get(name)


def test_prices_of_ones_own_count_first(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('[models."openai/gpt-4o"]\ninput = 1\noutput = 2\n')
    found = catalogue(base_url="http://127.0.0.1:1/v1", prices=str(prices))
    assert found.facts("openai/gpt-4o").price == Price(1_000_000, 2_000_000)


def test_an_open_model_keeps_the_facts_it_was_opened_with(tmp_path: Path) -> None:
    """The file is not read for every question, and the open model does not follow its changes."""
    script = tmp_path / "script.yaml"
    script.write_text("version: 1\nfacts: {context_tokens: 777}\nrules: [{reply: {text: hi}}]\n")
    name = f"scripted/{script}"
    models = catalogue()
    models.get(name)
    script.write_text("version: 1\nfacts: {context_tokens: 1}\nrules: [{reply: {text: hi}}]\n")
    assert models.facts(name).context_tokens == 777
    assert catalogue().facts(name).context_tokens == 1


def test_a_scripted_model_says_itself_what_it_can(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("facts: {context_tokens: 99, input_price: 1, output_price: 2.5}\nrules: []\n")
    name = f"scripted/{script}"
    expected = ModelFacts(name, 99, 8192, Price(1_000_000, 2_500_000))
    assert catalogue().facts(name) == expected
    assert catalogue().get(name).facts == expected


def test_all_models_of_a_provider_share_its_breaker() -> None:
    found = catalogue({"ACME_KEY": KEY}, retries=0)
    one, other = found.get("acme/one"), found.get("acme/other")
    for _ in range(5):
        with pytest.raises(CleverAgentsError, match="busy"):
            asyncio.run(one.reply(REQUEST))
    with pytest.raises(CleverAgentsError, match="calls are paused"):
        asyncio.run(other.reply(REQUEST))


def test_running_calls_are_limited_per_provider() -> None:
    async def most() -> int:
        found = catalogue({"ACME_KEY": KEY}, concurrency=2, retries=0)
        release = asyncio.Event()
        inner = EndingModel([release for _ in range(6)])
        models = [found._wrapped(inner, found._provider("acme")) for _ in range(3)]
        calls = [asyncio.ensure_future(model.reply(REQUEST)) for model in models for _ in range(2)]
        await asyncio.wait(calls, timeout=0.01)
        release.set()
        await asyncio.wait_for(asyncio.gather(*calls), 30)
        return inner.most

    assert asyncio.run(most()) == 2


# ── keys never show ───────────────────────────────────────────────────────────────────────────────


def test_the_environment_comes_before_the_keyring() -> None:
    found = Keys({"B": "from environment"}, {"A": "from keyring", "B": "no"}.get, secrets=KnownSecrets())
    assert found.find(("A", "B")) == "from environment"
    assert Keys({}, {"B": "from keyring"}.get, secrets=KnownSecrets()).find(("A", "B")) == "from keyring"
    assert Keys({}, {}.get, secrets=KnownSecrets()).find(("A", "B")) is None


def test_a_keyring_that_is_locked_or_broken_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.errors import KeyringLocked

    def locked(service: str, name: str) -> str:
        raise KeyringLocked(service)

    monkeypatch.setattr(keyring, "get_password", locked)
    assert keys.ask_keyring("OPENAI_API_KEY") is None
    monkeypatch.setattr(keyring, "get_password", lambda service, name: f"{service} {name}")
    assert keys.ask_keyring("OPENAI_API_KEY") == "cleveragents OPENAI_API_KEY"
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert keys.ask_keyring("OPENAI_API_KEY") is None


def everything_said_about(model: Model, opening: ModelSpec | None = None) -> str:
    """Return everything that a log, a debugger or a traceback could show of it."""
    seen: set[int] = set()
    said: list[str] = [repr(opening), str(opening)]
    todo: list[object] = [model]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        said += [repr(thing), str(thing)]
        if hasattr(thing, "_model"):
            todo.append(thing._model)
        if hasattr(thing, "_chat"):
            todo.append(thing._chat)
    return "\n".join(said)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_no_key_is_in_what_a_model_prints(provider: str) -> None:
    model = catalogue({f"{provider.upper()}_API_KEY": KEY}).get(f"{provider}/x")
    assert KEY not in everything_said_about(model)
    assert KEY not in repr(ModelSpec(facts=model.facts, model="x", timeout_seconds=1, key=KEY))


def test_a_key_that_comes_back_in_an_error_is_masked() -> None:
    script = read_script(f"rules: [{{reply: {{fault: {{status: 401, message: 'bad: {KEY}'}}}}}}]", "s")
    with ScriptedServer(script) as server:
        found = catalogue({"OPENAI_API_KEY": KEY}, base_url=server.base_url, key_variable="OPENAI_API_KEY")
        with pytest.raises(ModelRefused) as caught:
            asyncio.run(found.get("openai/x").reply(REQUEST))
    assert "bad: ***" in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_logged_key_is_masked() -> None:
    secrets = KnownSecrets()
    Keys({"ACME_KEY": KEY}, {}.get, secrets=secrets).find(("ACME_KEY",))
    stream = StringIO()
    structlog.configure(
        processors=[redactor(()), structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    structlog.get_logger().error("call.failed", harmless=f"sent {KEY} along")
    assert "sent *** along" in stream.getvalue()
    assert KEY not in stream.getvalue()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert "OPENAI_API_KEY" in os.environ
    assert ModelCatalogue(ModelSettings()).facts("openai/x").keyed


KEYED = read_script("rules: [{reply: {text: hi}}]", "s")


@pytest.mark.parametrize(
    ("settings", "accepted"),
    [
        ({}, False),
        ({"key_variable": "GATEWAY_KEY"}, False),
        ({"key_variable": "OPENAI_API_KEY"}, True),
    ],
)
def test_a_key_of_openai_is_not_sent_to_another_host_by_itself(
    settings: dict[str, str], accepted: bool
) -> None:
    """The server accepts only that key."""
    keys = {"OPENAI_API_KEY": KEY, "GATEWAY_KEY": "another"}
    with ScriptedServer(KEYED, key=KEY) as server:
        model = catalogue(keys, base_url=server.base_url, **settings).get("openai/x")
        if accepted:
            assert asyncio.run(model.reply(REQUEST)).message.text == "hi"
            return
        with pytest.raises(ModelRefused) as caught:
            asyncio.run(model.reply(REQUEST))
    named = settings.get("key_variable") or "models.key_variable, the variable"
    assert f"check {named}" in str(caught.value)


def test_a_base_url_in_the_environment_is_used_with_the_key_beside_it() -> None:
    with ScriptedServer(KEYED, key=KEY) as server:
        found = catalogue({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url})
        assert asyncio.run(found.get("openai/x").reply(REQUEST)).message.text == "hi"


def test_the_own_host_of_a_provider_gets_its_key() -> None:
    with pytest.raises(ConfigurationError, match="contains the invalid character"):
        catalogue({"OPENAI_API_KEY": "kéy"}, base_url="https://api.openai.com/v1").get("openai/x")
    catalogue({"OPENAI_API_KEY": "kéy"}, base_url="https://api.openai.com.evil.example/v1").get("openai/x")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match="GATEWAY_KEY has no key; set GATEWAY_KEY"):
        catalogue(base_url="http://127.0.0.1:9/v1", key_variable="GATEWAY_KEY").get("openai/x")


def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated() -> None:
    with pytest.raises(msgspec.ValidationError, match="not the key itself") as caught:
        catalogue(key_variable="sk-0123456789")
    assert "sk-0123456789" not in str(caught.value)


def test_an_unused_key_is_masked() -> None:
    secrets = KnownSecrets()
    settings = ModelSettings(base_url="http://127.0.0.1:9/v1")
    ModelCatalogue(settings, environment={"OPENAI_API_KEY": KEY}, secrets=secrets).get("openai/x")
    assert KEY not in redact_known_text(f"it said {KEY}")


def test_a_model_that_is_opened_while_the_settings_change_is_opened_again() -> None:
    """A catalogue that keeps it would use the old settings for ever."""
    catalogue = ModelCatalogue(
        ModelSettings(timeout_seconds=1.0), environment={}, entries=[entry("slow", "SLOW")]
    )
    opened.clear()
    meanwhile.append(lambda: catalogue.use(ModelSettings(timeout_seconds=2.0)))
    old, new = catalogue.get("slow/a"), catalogue.get("slow/a")
    assert [one.timeout_seconds for one in opened] == [1.0, 2.0, 2.0], "none with the old settings is used"
    assert old is not new
    assert catalogue.get("slow/a") is new


def test_a_key_never_goes_to_a_server_that_is_chosen_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "PROVIDER", replace(openai.PROVIDER, open=_open))
    chosen, asked = ModelSettings(base_url="http://127.0.0.1:9/v1"), list[str]()

    def keyring(variable: str) -> str:
        asked.append(variable)
        if len(asked) == 2:  # for the facts, and then for the key: while the keyring asks its user
            catalogue.use(chosen)
        return KEY

    catalogue = ModelCatalogue(ModelSettings(), environment={}, keyring=keyring, entries=[])
    opened.clear()
    catalogue.get("openai/gpt-4.1")
    assert [one.key for one in opened] == [KEY, None], "the first is not used"
    assert opened[-1].base_url == chosen.base_url
