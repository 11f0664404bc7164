"""What a provider is to the catalogue: its name, what it needs, and how a model of it is opened.

Keys of providers: from the environment, else from the keyring; held in memory only, never shown.

A key that was found is added to the known secrets before the caller gets it. It is handed on as it is, to the
library that needs it, and kept in nothing else of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.models.ports import Model, ModelFacts

__all__ = ["ONE_CALL_EACH", "SERVICE", "Keys", "ModelSpec", "Provider", "ask_keyring"]


ONE_CALL_EACH = {"Connection": "close"}
"""Headers: no connection outlives its call. Beside an answer of seconds a new one costs nothing, and none is
ever stale, left over at the end, or tied to a loop that is gone."""

SERVICE = "cleveragents"
"""Under which the keyring holds keys, each named like its variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model to be opened. `model` is its name at the provider; `timeout_seconds` bounds a whole answer,
    and is kept by whoever calls: a library that takes a limit of its own may be told it."""

    facts: ModelFacts
    model: str
    timeout_seconds: float
    key: str | None = field(default=None, repr=False)
    base_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider. `open` may import what takes long; whatever it finds missing it says as
    `ConfigurationError`.

    `module` is what it imports, `extra` the extra of ours that installs it, `variables` those that may hold
    its key (any of them), `base_url_variables` those that may say where it is. `reads_facts` is for models
    that say themselves what they can do.
    """

    name: str
    open: Callable[[ModelSpec], Model]
    module: str | None = None
    extra: str | None = None
    variables: tuple[str, ...] = ()
    base_url_variables: tuple[str, ...] = ()
    reads_facts: Callable[[str, str], ModelFacts] | None = None


def ask_keyring(variable: str) -> str | None:
    """What the keyring holds under that name; None where there is none, locked or not installed."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        return keyring.get_password(SERVICE, variable)
    except (KeyringError, OSError, RuntimeError):
        return None


class Keys:
    """Finds keys, and adds them to `secrets`. Any thread may use it; nothing else is kept but for which names
    the keyring had one."""

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

    def find(self, variables: Sequence[str]) -> str | None:
        """The first there is: of all variables, then of the keyring."""
        sources: tuple[Callable[[str], str | None], ...] = (self._environment.get, self._keyring)
        for source in sources:
            for variable in variables:
                key = (source(variable) or "").strip()
                if key:
                    self._secrets.add(key)  # guard: before anything can print it
                    return key
        return None

    def has(self, variables: Sequence[str]) -> bool:
        """Whether there is one. The keyring is asked once: it may be slow, and may ask its owner."""
        if any((self._environment.get(variable) or "").strip() for variable in variables):
            return True
        for variable in variables:
            if variable not in self._in_keyring:
                self._in_keyring[variable] = self._keyring(variable) is not None
        return any(self._in_keyring[variable] for variable in variables)
