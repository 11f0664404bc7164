"""Model providers: the description from which the catalogue opens models, and the sources of API keys.

Keys come from the environment or, if absent there, from the keyring. Every key is added to the known secrets
before a caller receives it. It is passed only to the provider's library, kept in memory only, and never
shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.models.ports import Model, ModelFacts

__all__ = ["ONE_CALL_EACH", "SERVICE", "Keys", "ModelSpec", "Provider", "ask_keyring", "keep_in_keyring"]


ONE_CALL_EACH = {"Connection": "close"}
"""Request headers that close the connection after each call. An answer takes seconds, so a new connection
costs little, and no connection can become stale or outlive its event loop.
"""

SERVICE = "cleveragents"
"""Keyring service that holds the keys. Each entry is named after its environment variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Arguments to open a model.

    `model` is its name at the provider. `key_variables` may hold its key. `timeout_seconds` bounds a whole
    answer; the caller enforces it, and a provider's library may receive it as well.
    """

    facts: ModelFacts
    model: str
    timeout_seconds: float
    key: str | None = field(default=None, repr=False)
    key_variables: tuple[str, ...] = ()
    base_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A model provider. `open` may import slow libraries and raises `ConfigurationError` if something is
    missing.

    `title` is its name for people, and `usual_model` the model that `agents init` suggests. `module` is the
    library it imports, and `extra` is the CleverAgents extra that installs it. `variables` lists the
    environment variables that may hold its key, and `base_url_variables` those that may override its address.
    `hosts` are its own hosts, to which its key may be sent. `reads_facts` is set for models that describe
    themselves.
    """

    name: str
    open: Callable[[ModelSpec], Model]
    title: str = ""
    usual_model: str | None = None
    module: str | None = None
    extra: str | None = None
    variables: tuple[str, ...] = ()
    base_url_variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    reads_facts: Callable[[str, str], ModelFacts] | None = None


def ask_keyring(variable: str) -> str | None:
    """Return the keyring entry; None if it is missing or the keyring is locked or not installed."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(SERVICE, variable)
    except (KeyringError, OSError, RuntimeError):
        return None


def keep_in_keyring(variable: str, key: str) -> bool:
    """Store a key in the keyring; return False if there is no keyring that keeps it."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return False
    try:
        keyring.set_password(SERVICE, variable, key)
    except (KeyringError, OSError, RuntimeError):
        return False
    return ask_keyring(variable) == key  # The null backend accepts a key and forgets it


class Keys:
    """Finds API keys and adds them to `secrets`.

    Any thread may use it. It stores no keys, only which variables have an entry in the keyring.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        keyring: Callable[[str], str | None] = ask_keyring,
        *,
        secrets: KnownSecrets,
    ) -> None:
        self._environment = environment
        self._keyring = keyring
        self._secrets = secrets
        self._in_keyring: dict[str, bool] = {}

    def fresh(self) -> Keys:
        """Return the same keys; the keyring is asked again."""
        return Keys(self._environment, self._keyring, secrets=self._secrets)

    def find(self, variables: Sequence[str]) -> str | None:
        """Return the first key found: in the environment, then in the keyring."""
        sources: tuple[Callable[[str], str | None], ...] = (self._environment.get, self._keyring)
        for source in sources:
            for variable in variables:
                key = (source(variable) or "").strip()
                if key:
                    self._secrets.add(key)  # guard: masked before anything can print it
                    return key
        return None

    def mask(self, variables: Sequence[str]) -> None:
        """Add all keys in the environment to the known secrets, including keys that are not used."""
        for variable in variables:
            key = (self._environment.get(variable) or "").strip()
            if key:
                self._secrets.add(key)

    def has(self, variables: Sequence[str]) -> bool:
        """Return whether a key exists. The keyring is asked only once: it may be slow or prompt the user."""
        if any((self._environment.get(variable) or "").strip() for variable in variables):
            return True
        for variable in variables:
            if variable not in self._in_keyring:
                self._in_keyring[variable] = self._keyring(variable) is not None
        return any(self._in_keyring[variable] for variable in variables)
