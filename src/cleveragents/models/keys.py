"""Keys of providers: from the environment, else from the keyring; held in memory only, never shown.

A key that was found is added to the known secrets before the caller gets it. It is handed on as it is, to the
library that needs it, and kept in nothing else of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cleveragents.core.text.known_secrets import KnownSecrets

__all__ = ["SERVICE", "Keys", "ask_keyring"]

SERVICE = "cleveragents"
"""Under which the keyring holds keys, each named like its variable."""


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
