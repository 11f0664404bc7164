"""The catalogue of models, by `provider/name`, and the list of their prices.

Providers are the modules of `providers` and the entry points of installed packages. Names and facts load
quickly. Opening a model imports its provider's library, which can take seconds, so do not open one on an
event loop. Every model is wrapped, from outside in, by a concurrency limit, a circuit breaker, a deadline and
retries.

Facts about models (prices, token limits, whether they take images and PDFs) come from the shipped list and
the user's own list. A model in neither list has an unknown price, not a price of zero. A dated name
(`gpt-4o-2024-08-06`) that is not listed has the facts of the undated name. A listed model keeps its price if
a base URL is configured, because a gateway charges about the same.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from cleveragents.config.entry_points import built_in, install_command, installed
from cleveragents.config.settings import is_web_address
from cleveragents.core.errors import ConfigurationError, UnknownModel
from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.models import providers
from cleveragents.models.model.budget import Price
from cleveragents.models.ports import Model, ModelFacts, ToolCallMode
from cleveragents.models.provider import Keys, ModelSpec, Provider, ask_keyring

if TYPE_CHECKING:
    from cleveragents.config.settings import ModelSettings
    from cleveragents.core.circuit_breaker import CircuitBreaker
    from cleveragents.models.model_wrappers import FairSemaphore
    from cleveragents.models.text_calls import KeptModes

__all__ = ["ENTRY_POINTS", "UNKNOWN_CONTEXT", "UNKNOWN_OUTPUT", "ModelCatalogue", "PriceList"]


ENTRY_POINTS = "cleveragents.models"
"""Entry point group. Each entry is named after its provider and refers to a `Provider`."""
_FAILURES_IN_A_ROW = 5
_COOL_DOWN_SECONDS = 30.0

UNKNOWN_CONTEXT = 32_768

UNKNOWN_OUTPUT = 4_096
"""Limits assumed for unlisted models; all but the smallest models meet them."""
_DATED = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|latest|\d{3}|0)$")
_WRITES_CACHE = "anthropic/"
"""Prefix of models whose provider charges 1.25 times the input price for input that it caches."""
_PICODOLLARS_A_TOKEN = 10**6  # for a price of one dollar per million tokens
_KEYS = {"input", "output", "cached", "cache_write", "context_tokens", "output_tokens", "tool_calls"} | {
    "image_tokens",
    "pdf_tokens",
}


class PriceList:
    """Facts about models by `provider/name`.

    The user's list takes precedence over the shipped list. Immutable.
    """

    def __init__(self, own: str = "") -> None:
        self._shipped, self.as_of, self._text_callers = _shipped()
        self._own = _read(own) if own else {}

    def facts(self, name: str) -> ModelFacts:
        """Return the listed facts about a model; its price is unknown if it is not listed."""
        for listed in (self._own, self._shipped):
            for spelling in (name, _DATED.sub("", name)):
                if spelling in listed:
                    return _named(listed[spelling], name)
        return ModelFacts(name, UNKNOWN_CONTEXT, UNKNOWN_OUTPUT)

    def nearest(self, name: str) -> str | None:
        """Return the closest listed name; None if the name is listed or nothing is close."""
        every = {**self._shipped, **self._own}
        if name in every or _DATED.sub("", name) in every:
            return None
        return next(iter(get_close_matches(name, list(every), n=1, cutoff=0.88)), None)

    def known_mode(self, name: str) -> ToolCallMode | None:
        """Return the tool-call mode of a model with this name on the user's own server; None if unknown."""
        spelling = name.lower()
        text = any(fnmatchcase(spelling, pattern) for pattern in self._text_callers)
        return ToolCallMode.TEXT if text else None

    def known(self) -> tuple[ModelFacts, ...]:
        """Return all listed models, sorted by name."""
        every = {**self._shipped, **self._own}
        return tuple(every[name] for name in sorted(every))


class ModelCatalogue:
    """The `ModelSource` that the settings describe. Holds no resources: models keep no connections.

    Any thread may use it: its dictionaries only grow, in single atomic steps, until `use` replaces that of
    the open models. If two threads open the same model at once, both get the same model. All models of a
    provider share its concurrency limit and its breaker. Keys are masked as long as `secrets` exists; without
    `secrets`, as long as the catalogue exists.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        environment: Mapping[str, str] | None = None,
        keyring: Callable[[str], str | None] = ask_keyring,
        entries: Iterable[EntryPoint] | None = None,
        clock: Callable[[], float] = time.monotonic,
        secrets: KnownSecrets | None = None,
        modes: Path | None = None,
    ) -> None:
        self._settings = settings
        self._modes_file = modes
        self._environment = os.environ if environment is None else environment
        self._keys = Keys(self._environment, keyring, secrets=secrets or KnownSecrets())
        self._entries = entries
        self._clock = clock
        self._opened: dict[str, Model] = {}
        self._places: dict[str, FairSemaphore] = {}
        self._breakers: dict[str, CircuitBreaker] = {}

    def get(self, name: str) -> Model:
        found = self._opened.get(name)
        if found is not None:
            return found
        return self._opened.setdefault(name, self._open(name))

    def use(self, settings: ModelSettings) -> None:
        """Open models with other settings from now on. A model that was opened stays as it is."""
        # In this order: `get` takes the dictionary before it reads the settings, so that the new dictionary
        # has no model of the old settings.
        self._settings = settings
        self._keys = self._keys.fresh()
        self._opened = {}

    def get_nowait(self, name: str) -> Model | None:
        return self._opened.get(name)

    def facts(self, name: str) -> ModelFacts:
        provider, model = self._parted(name)
        if provider.reads_facts is not None:
            opened = self._opened.get(name)  # an open model has read its facts, and reading is slow
            return provider.reads_facts(name, model) if opened is None else opened.facts
        facts = self._prices.facts(name)
        mode = self._mode(provider, facts)
        return replace(facts, keyed=self._is_keyed(provider), tool_calls=mode)

    def known(self) -> Sequence[ModelFacts]:
        built_in = {name: self._provider(name) for name in self._builtin}
        keyed = {name: self._is_keyed(provider) for name, provider in built_in.items()}
        found = []
        for listed in self._prices.known():
            name = listed.name.partition("/")[0]
            facts = self._prices.facts(listed.name)
            mode = self._mode(built_in[name], facts) if name in built_in else facts.tool_calls
            found.append(replace(facts, keyed=keyed.get(name, True), tool_calls=mode))
        return found

    def is_file(self, name: str) -> bool:
        """Return whether the model is a file that states its own facts, such as a script."""
        provider = name.partition("/")[0]
        return provider in self.providers() and self._provider(provider).reads_facts is not None

    def key_variables(self, name: str) -> tuple[str, ...]:
        """Return the variables that may hold the key of the model's provider. Raises `UnknownModel`."""
        return self._parted(name)[0].variables

    def needs_key(self, name: str) -> bool:
        """Return whether the model needs an API key at its current address."""
        provider = name.partition("/")[0]
        if provider not in self.providers():
            return True
        known = self._provider(provider)
        return bool(known.variables) and self._base_url(known) is None

    def providers(self) -> tuple[str, ...]:
        """Return the names of all built-in and installed providers."""
        return tuple(sorted({*self._builtin, *self._offered}))

    @property
    def prices_as_of(self) -> str:
        """The date of the shipped prices."""
        return self._prices.as_of

    # ── opening ───────────────────────────────────────────────────────────────────────────────────

    def _open(self, name: str) -> Model:
        settings = self._settings
        provider, model = self._parted(name)
        self._prices.known()  # report a mistake in the user's price list before anything is paid for
        facts = self.facts(name)
        self._check_installed(provider, name)
        variables = self._key_variables(provider)
        key = self._keys.find(variables)
        # A key that no request can carry would look like a failed connection and be retried.
        strange = next((sign for sign in key or "" if not "!" <= sign <= "~"), None)
        if strange is not None:
            remedy = _where_keys_go(variables)
            problem = f"the API key contains the invalid character {strange!r}; {remedy}"
            raise ConfigurationError(f"model {name}", problem)
        base_url = self._base_url(provider)
        if variables != provider.variables and variables and key is None:
            problem = f"{variables[0]} has no key; {_where_keys_go(variables)}"
            raise ConfigurationError("models.key_variable", problem)
        if provider.variables and key is None and base_url is None:
            problem = (
                f"needs an API key; {_where_keys_go(provider.variables)} (CleverAgents never stores the key)"
            )
            near = self._prices.nearest(name)
            if near is not None:
                problem += f"; the model is not listed, did you mean {near}?"
            raise ConfigurationError(f"model {name}", problem)
        opening = ModelSpec(
            facts=facts,
            model=model,
            timeout_seconds=self._settings.timeout_seconds,
            key=key,
            key_variables=variables,
            base_url=base_url,
        )
        opened = self._wrapped(provider.open(opening), provider)
        # guard: the key and the address belong to the same settings
        return opened if self._settings is settings else self._open(name)

    def _mode(self, provider: Provider, facts: ModelFacts) -> ToolCallMode | None:
        """Return the tool-call mode of the model; None if unknown.

        The listed facts decide first. A provider's own server accepts native calls. On another server, an
        earlier probe decides, then the mode that is known for the model's name.
        """
        server = self._base_url(provider)
        if facts.tool_calls is not None:
            return facts.tool_calls
        if server is None:
            return None if provider.reads_facts is not None else ToolCallMode.NATIVE
        kept = None if self._modes is None else self._modes.get(facts.name, server)
        return kept or self._prices.known_mode(facts.name)

    def probe(self, name: str) -> Callable[[], Awaitable[ToolCallMode]] | None:
        """Return a function that probes how the model makes tool calls and stores the result.

        Returns None for a scripted model, because a probe of a script is meaningless.
        """
        from cleveragents.models.text_calls import probe

        provider, _ = self._parted(name)
        if provider.reads_facts is not None:
            return None
        model = self.get(name)

        async def probed() -> ToolCallMode:
            mode, _ = await probe(model)
            server = self._base_url(provider)
            if server is not None and self._modes is not None:
                self._modes.keep(name, server, mode)
            return mode

        return probed

    @cached_property
    def _modes(self) -> KeptModes | None:
        if self._modes_file is None:
            return None
        from cleveragents.models.text_calls import KeptModes

        return KeptModes(self._modes_file)

    def _wrapped(self, model: Model, provider: Provider) -> Model:
        from cleveragents.models.model_wrappers import (
            BreakingModel,
            DeadlineModel,
            LimitedModel,
            RetryingModel,
            RetryPolicy,
        )

        seconds = self._settings.timeout_seconds
        waits = self._settings.usage_limit_hours > 0
        patience = RetryPolicy(retries=self._settings.retries, seconds=seconds, raises_limits=waits)
        tried: Model = DeadlineModel(RetryingModel(model, patience), seconds)
        tried = BreakingModel(tried, self._breaker_of(provider.name), provider.name)
        name, mode = model.facts.name, self._mode(provider, model.facts)
        server = self._base_url(provider)
        if mode is ToolCallMode.TEXT or (server is not None and mode is None):
            from cleveragents.models.text_calls import TextCallingModel

            keep = None if self._modes is None else partial(self._modes.keep, name, server or "")
            tried = TextCallingModel(tried, mode, keep)
        return LimitedModel(tried, self._places_of(provider.name))

    def _places_of(self, provider: str) -> FairSemaphore:
        from cleveragents.models.model_wrappers import FairSemaphore

        return self._places.setdefault(provider, FairSemaphore(self._settings.concurrency))

    def _breaker_of(self, provider: str) -> CircuitBreaker:
        from cleveragents.core.circuit_breaker import CircuitBreaker

        breaker = CircuitBreaker(
            failure_threshold=_FAILURES_IN_A_ROW,
            cool_down_seconds=_COOL_DOWN_SECONDS,
            # A trial may take as long as an answer. A second trial in parallel would show nothing new.
            trial_lease_seconds=self._settings.timeout_seconds + 1.0,
            clock=self._clock,
        )
        return self._breakers.setdefault(provider, breaker)

    def _base_url(self, provider: Provider) -> str | None:
        """Return the address that the user configured; None for the provider's default."""
        if not provider.base_url_variables:
            return None
        if provider.name == "openai" and self._settings.base_url:
            return self._settings.base_url
        for variable in provider.base_url_variables:
            url = self._environment.get(variable)
            if url and not is_web_address(url):
                raise ConfigurationError(variable, "must be a URL that starts with http:// or https://")
            if url:
                return url
        return None

    def _key_variables(self, provider: Provider) -> tuple[str, ...]:
        """Return the variables that may hold the key for the provider's address.

        The server of `models.base_url` gets only the key that `models.key_variable` names. A base URL in the
        environment belongs to the key beside it, as in the libraries of the providers.
        """
        url = self._settings.base_url if provider.name == "openai" else ""
        if url and urlsplit(url).hostname not in provider.hosts:  # guard: another host gets another key
            self._keys.mask(provider.variables)
            named = self._settings.key_variable
            return (named,) if named else ()
        return provider.variables

    def _is_keyed(self, provider: Provider) -> bool:
        if not provider.variables or self._base_url(provider) is not None:
            return True
        return self._keys.has(provider.variables)

    def _check_installed(self, provider: Provider, name: str) -> None:
        if provider.module is not None and find_spec(provider.module) is None:
            remedy = install_command(provider.extra or provider.name)
            raise ConfigurationError(f"model {name}", f"needs {provider.module}: {remedy}")

    # ── names ─────────────────────────────────────────────────────────────────────────────────────

    def _parted(self, name: str) -> tuple[Provider, str]:
        provider, _, model = name.partition("/")
        if provider in self.providers() and model:
            return self._provider(provider), model
        raise UnknownModel(name, self._hint(name, provider, model))

    def _hint(self, name: str, provider: str, model: str) -> str:
        listed = [facts.name for facts in self._prices.known()]
        if provider in self.providers():
            example = next(
                (other for other in listed if other.startswith(f"{provider}/")), f"{provider}/NAME"
            )
            return f"add the name of a model, such as {example}"
        bare = {other.partition("/")[2]: other for other in listed}
        close = get_close_matches(provider, self.providers(), n=1, cutoff=0.75)
        if close and f"{close[0]}/{model}" in listed:
            return f"there is no provider {provider!r}; did you mean {close[0]}/{model}?"
        what = f"there is no provider {provider!r}" if model else "write it as provider/model"
        near = [bare.get(one, one) for one in get_close_matches(name, [*listed, *bare], n=1, cutoff=0.75)]
        if near and not model:
            return f"{what}; did you mean {near[0]}?"
        near = near or close  # suggesting an unknown model of a known provider would not help
        meant = f"did you mean {near[0]}? " if near else ""
        return f"{what}; {meant}the providers are {', '.join(self.providers())}"

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList(self._settings.prices)

    @cached_property
    def _builtin(self) -> frozenset[str]:
        return built_in(providers)

    @cached_property
    def _offered(self) -> Mapping[str, EntryPoint]:
        found = installed(ENTRY_POINTS) if self._entries is None else self._entries
        ordered = sorted(found, key=lambda entry: (entry.name, entry.value))
        # A built-in provider cannot be replaced by an installed package.
        return {entry.name: entry for entry in reversed(ordered) if entry.name not in self._builtin}

    def _provider(self, name: str) -> Provider:
        if name in self._builtin:
            return cast("Provider", import_module(f"{providers.__name__}.{name}").PROVIDER)
        return _load_entry(self._offered[name])


def _load_entry(entry: EntryPoint) -> Provider:
    """Load the provider of an installed package.

    Any error in the code of the package is raised as a `ConfigurationError` that names the package.
    """
    try:
        offered = entry.load()
    except (Exception, SystemExit) as error:
        problem = f"{entry.value} cannot be loaded ({type(error).__name__}: {error})"
        raise ConfigurationError(f"provider {entry.name}", problem) from error
    if not isinstance(offered, Provider) or offered.name != entry.name:
        problem = f"{entry.value} is not a provider named {entry.name!r}"
        raise ConfigurationError(f"provider {entry.name}", problem)
    return offered


def _where_keys_go(variables: Sequence[str]) -> str:
    from cleveragents.models.provider import SERVICE

    inside = f", or `keyring set {SERVICE} {variables[0]}`" if find_spec("keyring") is not None else ""
    return f"set {' or '.join(variables)}{inside}"


def _named(facts: ModelFacts, name: str) -> ModelFacts:
    return replace(facts, name=name)


@cache
def _shipped() -> tuple[Mapping[str, ModelFacts], str, tuple[str, ...]]:
    text = files("cleveragents.models").joinpath("prices.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text, parse_float=Decimal)
    return _parsed(document, "prices.toml"), str(document["as_of"]), tuple(document["text_tool_calls"])


def _read(path: str) -> Mapping[str, ModelFacts]:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        document = tomllib.loads(text, parse_float=Decimal)
    except OSError as error:
        raise ConfigurationError(path, f"cannot be read: {error.strerror}; see models.prices") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(path, f"is not valid TOML: {error}") from None
    return _parsed(document, path)


def _parsed(document: Mapping[str, Any], source: str) -> Mapping[str, ModelFacts]:
    models = document.get("models")
    if not isinstance(models, dict):
        raise ConfigurationError(source, 'has no table [models."provider/name"]; add one')
    return {name: _facts(name, entry, source) for name, entry in models.items()}


def _facts(name: str, entry: object, source: str) -> ModelFacts:
    where = f"{source}: {name}"
    if not isinstance(entry, dict):
        raise ConfigurationError(where, "must be a table")
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise ConfigurationError(where, f"unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    if ("input" in entry) != ("output" in entry):
        raise ConfigurationError(where, "a price needs both input and output")
    price = None
    if "input" in entry:
        cached, write = (
            _per_token(entry[key], where) if key in entry else None for key in ("cached", "cache_write")
        )
        price = Price(_per_token(entry["input"], where), _per_token(entry["output"], where), cached, write)
        if write is None and name.startswith(_WRITES_CACHE):  # guard: a cache write is never underestimated
            price = replace(price, cache_write=-(-price.input * 5 // 4))
    return ModelFacts(
        name,
        _tokens(entry.get("context_tokens", UNKNOWN_CONTEXT), where),
        _tokens(entry.get("output_tokens", UNKNOWN_OUTPUT), where),
        price,
        tool_calls=_tool_calls(entry.get("tool_calls"), where),
        image_tokens=_tokens(entry["image_tokens"], where) if "image_tokens" in entry else None,
        pdf_tokens=_tokens(entry["pdf_tokens"], where) if "pdf_tokens" in entry else None,
    )


def _tool_calls(mode: object, where: str) -> ToolCallMode | None:
    try:
        return None if mode is None else ToolCallMode(mode)
    except ValueError:
        known = ", ".join(mode.value for mode in ToolCallMode)
        raise ConfigurationError(where, f"tool_calls should be one of {known}, not {mode!r}") from None


def _per_token(dollars_a_million: object, where: str) -> int:
    if isinstance(dollars_a_million, bool) or not isinstance(dollars_a_million, (int, Decimal)):
        raise ConfigurationError(where, "a price must be a number: dollars per million tokens")
    exact = Decimal(dollars_a_million) * _PICODOLLARS_A_TOKEN
    if not exact.is_finite() or exact < 0 or exact != int(exact):
        remedy = "use 0 or more, with at most 6 decimals"
        raise ConfigurationError(where, f"{dollars_a_million} is not a price; {remedy}")
    return int(exact)


def _tokens(number: object, where: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigurationError(where, "a token count must be a whole number greater than 0")
    return number
