"""Language models and profiles: list models, get one, test one; list the profiles of plans."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec.structs import asdict

from cleveragents.api.views import Page, page_of, shown, understood, view, view_of
from cleveragents.core.errors import RequestRefused
from cleveragents.core.policy import Capability, Verdict

if TYPE_CHECKING:
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.core.text.redaction import KnownSecrets
    from cleveragents.models.catalogue import ModelCatalogue
    from cleveragents.models.ports import Model, ModelFacts, ModelReply, ToolCallMode

__all__ = [
    "PROMPT",
    "HttpModels",
    "LocalModels",
    "ModelTrial",
    "ModelView",
    "Models",
    "ProfileView",
    "store_model_settings",
]

PROMPT = "Say hello in five words."
_OUTPUT_TOKENS = 256
_MILLION = 10**6


@view
class ModelView:
    """A language model. Prices are in dollars per million tokens."""

    model: str = shown(examples=["anthropic/claude-sonnet-4-5"])
    input: float | None = shown(examples=[3.0])
    cached: float | None = shown("price of input that is read from the prompt cache", examples=[0.3])
    output: float | None = shown(examples=[15.0])
    context_tokens: int | None = shown(examples=[200_000])
    output_tokens: int | None = shown(examples=[64_000])
    key: Literal["there", "missing", "not needed"] = shown(
        "whether an API key for the model is set", examples=["there"]
    )
    tool_calls: Literal["native", "text", "none"] | None = shown(
        "how the model makes tool calls; null until it is tested or first used",
        default=None,
        examples=["native"],
    )
    cache_write: float | None = shown(
        "price of input that is stored in the prompt cache; null: the price of other input",
        default=None,
        examples=[3.75],
    )
    images: bool = shown("the model takes images; false if that is not known", default=False, examples=[True])
    pdf: bool = shown("the model takes PDFs; false if that is not known", default=False, examples=[True])


@view
class ModelTrial:
    """The answer of a model to a trial, with its cost."""

    model: str = shown(examples=["anthropic/claude-sonnet-4-5"])
    answer: str = shown("masked", examples=["Hello to you, dear friend!"])
    cut_off: bool = shown(examples=[False])
    input_tokens: int | None = shown(examples=[14])
    cached_tokens: int | None = shown(examples=[0])
    output_tokens: int | None = shown(examples=[9])
    cost: str = shown("in dollars, or unknown", examples=["$0.0002"])
    first_word_seconds: float | None = shown(examples=[0.412])
    seconds: float = shown(examples=[0.734])
    tool_calls: Literal["native", "text", "none"] | None = shown(
        "how the model made a small tool call; null for a script", default=None, examples=["native"]
    )


@view
class ProfileView:
    """A profile: which actions of a plan are allowed, need approval or are denied."""

    name: str = shown(examples=["supervised"])
    default: bool = shown("whether plans use this profile by default", examples=[True])
    never_asks: bool = shown(
        "whether requests for approval are denied without asking a person", examples=[False]
    )
    verdicts: dict[Capability, Verdict] = shown(examples=[{"read": "allow", "apply": "ask"}])


class Models(Protocol):
    """The models that actors can use, and the profiles that plans can run under."""

    def prices_as_of(self) -> str | None:
        """Return the date of the built-in prices; None for a server, which does not send it."""

    def list(
        self, *, provider: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[ModelView]:
        """Return one page of the models with known prices and limits, by name. Other models work too.

        Raises `RequestRefused` if there is no such provider.
        """

    def get(self, name: str) -> ModelView:
        """Return the price and limits of a model, and whether its key is set. The model need not be listed.
        Raises `UnknownModel`.

        A script model is a file. For it, raises `NotAllowed` unless the user is an operator of some project.
        """

    def test(
        self, name: str | None = None, *, prompt: str = PROMPT, on_text: Callable[[str], None] | None = None
    ) -> ModelTrial:
        """Send a short prompt to a model, or to `models.default`. The answer has at most 256 tokens.

        `on_text` gets the answer piece by piece and unmasked; a server sends the whole answer at once,
        masked. Raises `NotAllowed` unless the user is an operator, `RequestRefused` without a default model,
        and the errors of the model. Do not call it on a thread with an event loop.
        """

    def choose(self, name: str, *, base_url: str | None = None, key: str = "") -> ModelView:
        """Make a model the default, write it to the settings file, and use it for new plans and turns.

        `base_url` is the address of an OpenAI-compatible server, for a model named `openai/…`; with "", the
        models of OpenAI itself are used; with None, the address stays. Another address gets no key of the
        previous one. A `key` is stored in the keyring; if there is no keyring, the process keeps it until it
        ends. Other processes, such as workers, use the new default after a restart. Raises `NotAllowed`
        unless the user is a server admin; `UnknownModel`, `RequestRefused`, `ConfigurationError`.
        """

    def profiles(self, *, limit: int = 100, after: str | None = None) -> Page[ProfileView]:
        """Return one page of profiles, by name."""


class LocalModels:
    """Models that are called from this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def prices_as_of(self) -> str | None:
        return self._access.container.models.prices_as_of

    def list(
        self, *, provider: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[ModelView]:
        catalogue = self._access.container.models
        if provider is not None and provider not in catalogue.providers():
            raise RequestRefused(_no_provider(provider, catalogue.providers()), "provider")
        known = [
            _model_view(facts, catalogue)
            for facts in catalogue.known()
            if provider is None or facts.name.partition("/")[0] == provider
        ]
        return page_of(known, lambda one: one.model, limit, after)

    def get(self, name: str) -> ModelView:
        from cleveragents.access.model.user import Role

        catalogue = self._access.container.models
        if catalogue.is_file(name):
            self._access.ensure_anywhere(Role.OPERATOR)  # guard: a viewer must not probe for files
        return _model_view(catalogue.facts(name), catalogue)

    def test(
        self, name: str | None = None, *, prompt: str = PROMPT, on_text: Callable[[str], None] | None = None
    ) -> ModelTrial:
        from cleveragents.access.model.user import Role
        from cleveragents.models.catalogue import ModelCatalogue

        self._access.ensure_anywhere(Role.OPERATOR)
        container = self._access.container
        chosen = name or container.settings.models.default
        if not chosen:
            raise RequestRefused("no default model: name a model, or set models.default", "model")
        # Its own catalogue: the models of plans belong to another event loop.
        own = ModelCatalogue(
            container.settings.models,
            secrets=container.secrets,
            modes=container.state_directory / "tool-calls.json",
        )
        return _tried(own, chosen, prompt, on_text)

    def choose(self, name: str, *, base_url: str | None = None, key: str = "") -> ModelView:
        from cleveragents.config.settings import ModelSettings

        self._access.ensure_server_admin()  # guard: the plans of all projects use it
        container = self._access.container
        variables = container.models.key_variables(name)
        is_openai = name.partition("/")[0] == "openai"
        if container.models.is_file(name):
            raise RequestRefused("a script cannot be the default model; name a model of a provider", "model")
        if base_url and not is_openai:
            raise RequestRefused("base_url is only possible for a model named openai/…", "base_url")
        with container.choosing_model:
            before = container.settings.models
            place = before.base_url if base_url is None or not is_openai else base_url
            if key and (not variables or (is_openai and place)):
                raise RequestRefused("the model needs no key", "key")
            key = _sound_key(key)
            changed: dict[str, str] = {"default": name}
            if place != before.base_url:  # guard: another server does not get the key of this one
                changed |= {"base_url": place, "key_variable": ""}
            try:
                settings = ModelSettings(**{**asdict(before), **changed})
            except ValueError as error:
                raise RequestRefused(str(error), "base_url" if base_url else "model") from None
            _ensure_effective(changed, is_openai and not place)
            # Before the effect: an event without a choice is better than a choice without an event.
            self._record(name, place if is_openai else "", rekeyed=bool(key))
            store_model_settings(changed)
            if key:
                _keep_key(variables, key, container.secrets)
            container.use_models(settings)
        return self.get(name)

    def _record(self, name: str, base_url: str, *, rekeyed: bool) -> None:
        from cleveragents.core.event import DomainEvent, EventType
        from cleveragents.core.text.redaction import redact_text
        from cleveragents.storage.outbox import append_to_outbox

        container, by = self._access.container, self._access.user.name
        facts = {"model": name, "base_url": redact_text(base_url) or None, "new_key": rekeyed, "by": by}
        event = DomainEvent(
            EventType.MODEL_CHOSEN, name, container.identifiers.new(), container.clock.now(), facts
        )
        container.database.write(lambda connection: append_to_outbox(connection, event))

    def profiles(self, *, limit: int = 100, after: str | None = None) -> Page[ProfileView]:
        from cleveragents.core.policy import PROFILES

        default = self._access.container.settings.plan.profile
        known = [
            ProfileView(
                name=policy.name,
                default=policy.name == default,
                never_asks=policy.never_asks,
                verdicts={capability: policy.verdict(capability) for capability in Capability},
            )
            for policy in PROFILES.values()
        ]
        return page_of(known, lambda one: one.name, limit, after)


class HttpModels:
    """Models that a server calls."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def prices_as_of(self) -> str | None:
        return None

    def list(
        self, *, provider: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[ModelView]:
        return self._http.page(ModelView, "/models", limit, after, provider=provider)

    def get(self, name: str) -> ModelView:
        said = self._http.get("/models", name=name)
        with understood(said.status):
            (found,) = said["items"]
            return view_of(ModelView, found)

    def test(
        self, name: str | None = None, *, prompt: str = PROMPT, on_text: Callable[[str], None] | None = None
    ) -> ModelTrial:
        told = view_of(ModelTrial, self._http.post("/models/trial", {"model": name, "prompt": prompt}))
        if on_text is not None:
            on_text(told.answer)
        return told

    def choose(self, name: str, *, base_url: str | None = None, key: str = "") -> ModelView:
        body = {"model": name, "base_url": base_url, "key": key}
        return view_of(ModelView, self._http.post("/models/default", body))

    def profiles(self, *, limit: int = 100, after: str | None = None) -> Page[ProfileView]:
        return self._http.page(ProfileView, "/profiles", limit, after)


def store_model_settings(changed: Mapping[str, str]) -> Path:
    """Write settings of models, such as `default`, to the user's settings file, and return the file. An empty
    value removes the setting. Other settings and comments stay.
    """
    from cleveragents.config.document import set_value, unset_value
    from cleveragents.config.loader import user_file_path
    from cleveragents.config.settings import known_keys

    path, keys = user_file_path(os.environ), known_keys()
    # A key goes before its address changes, and the address changes before the default model: after a crash
    # between two of these writes, no server gets the key or the prompts of another one.
    for name in [one for one in ("key_variable", "base_url", "default") if one in changed]:
        value = changed[name]
        key = keys[f"models.{name}"]
        if value:
            set_value(path, key, value)
        else:
            unset_value(path, key)
    return path


def _ensure_effective(changed: Mapping[str, str], at_openai: bool) -> None:
    """Raise `RequestRefused` if a variable of the environment would override the settings file."""
    from cleveragents.config.settings import known_keys

    keys = known_keys()
    variables = [keys[f"models.{name}"].variable for name in changed]
    variables += ["OPENAI_BASE_URL"] if at_openai else []
    found = next((one for one in variables if os.environ.get(one)), None)
    if found is not None:
        raise RequestRefused(
            f"{found} is set in the environment of the server and would override the choice", "model"
        )


def _sound_key(key: str) -> str:
    """Return the key without white space at its ends. Raises `RequestRefused`."""
    key = key.strip()
    if not all("!" <= sign <= "~" for sign in key):
        raise RequestRefused("the key contains an invalid character", "key")
    return key


def _keep_key(variables: Sequence[str], key: str, secrets: KnownSecrets) -> None:
    """Store a key in the keyring; also in the environment, if there is no keyring or another key there."""
    from cleveragents.models.provider import keep_in_keyring

    secrets.add(key)  # guard: masked before anything can print it
    kept = keep_in_keyring(variables[0], key)
    if not kept or any(os.environ.get(one, "").strip() for one in variables):
        os.environ[variables[0]] = key


def _model_view(facts: ModelFacts, catalogue: ModelCatalogue) -> ModelView:
    price = facts.price
    key: Literal["there", "missing", "not needed"] = "not needed"
    if catalogue.needs_key(facts.name):
        key = "there" if facts.keyed else "missing"
    return ModelView(
        model=facts.name,
        input=None if price is None else price.input / _MILLION,
        cached=None if price is None or price.cached is None else price.cached / _MILLION,
        output=None if price is None else price.output / _MILLION,
        context_tokens=facts.context_tokens,
        output_tokens=facts.output_tokens,
        key=key,
        tool_calls=None if facts.tool_calls is None else facts.tool_calls.value,
        images=facts.image_tokens is not None,
        pdf=facts.pdf_tokens is not None,
        cache_write=None if price is None or price.cache_write is None else price.cache_write / _MILLION,
    )


def _no_provider(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known providers: {', '.join(known)}"
    return f"no provider {name!r}; {hint}"


def _tried(
    catalogue: ModelCatalogue, name: str, prompt: str, on_text: Callable[[str], None] | None
) -> ModelTrial:
    import asyncio

    asked = catalogue.get(name)
    began = time.monotonic()
    first: list[float] = []

    def heard(piece: str) -> None:
        if not first:
            first.append(time.monotonic() - began)
        if on_text is not None:
            on_text(piece)

    async def ask() -> tuple[ModelReply, float, ToolCallMode | None]:
        reply = await _reply(asked, prompt, heard)
        seconds = time.monotonic() - began
        probe = catalogue.probe(name)
        return reply, seconds, None if probe is None else await probe()

    reply, seconds, mode = asyncio.run(ask())
    trial = _trial(reply, asked.facts, first, seconds)
    return replace(trial, tool_calls=None if mode is None else mode.value)


async def _reply(asked: Model, prompt: str, heard: Callable[[str], None]) -> ModelReply:
    from cleveragents.models.model.conversation import Message, MessageRole
    from cleveragents.models.ports import ModelRequest

    request = ModelRequest(messages=[Message(MessageRole.USER, prompt)], max_output_tokens=_OUTPUT_TOKENS)
    return await asked.reply(request, heard)


def _trial(reply: ModelReply, facts: ModelFacts, first: Sequence[float], seconds: float) -> ModelTrial:
    from cleveragents.api.format import printable_name
    from cleveragents.core.text.redaction import redact_text
    from cleveragents.models.model.budget import dollars

    usage = reply.usage
    cost = "unknown"
    if usage is not None and facts.price is not None:
        cost = dollars(facts.price.of(usage))
    return ModelTrial(
        model=printable_name(reply.model),
        answer=printable_name(redact_text(reply.message.text)),
        cut_off=reply.cut_off,
        input_tokens=usage.input_tokens if usage else None,
        cached_tokens=usage.cached_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        cost=cost,
        first_word_seconds=round(first[0], 3) if first else None,
        seconds=round(seconds, 3),
    )
