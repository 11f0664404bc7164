"""Write and read the anchors of one audit log, as the settings say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.config.service_settings import AuditSettings
from cleveragents.core.clock import Clock
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.errors.remedy import Remedy
from cleveragents.events.anchors.signing import (
    anchor_line,
    create_signing_key,
    load_public_keys,
    load_signing_key,
    public_key_text,
    read_anchors,
)
from cleveragents.events.anchors.targets import AnchorTarget, FileTarget, open_target
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.chain import Anchor, AnchorSet

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["Anchored", "AuditAnchors"]


@dataclass(frozen=True, slots=True)
class Anchored:
    """The newest anchor of the log at a target, and whether it was written just now."""

    target: str
    anchor: Anchor
    new: bool


@dataclass(frozen=True, slots=True)
class AuditAnchors:
    """The anchors of `log`. Stateless: any thread and process may share it.

    `directory` is where the head is, and the signing key unless the settings name another.
    """

    log: DurableAuditLog
    settings: AuditSettings
    directory: Path
    mirrors: Path
    clock: Clock

    def write(self, target: str | None = None, key_file: Path | None = None) -> Anchored | None:
        """Sign the end of the log and append it to the target; None for an empty log.

        Nothing is appended if the newest anchor there says the same. `AuditLogBroken` if the log contradicts
        an anchor that is there: a rewritten log is not anchored over the one before. `ConfigurationError` if
        a line there cannot be verified: it may be such an anchor. `AnchorFailed`.
        """
        place = self._target(target)
        self._ensure_outside(place)
        content = place.read()
        if content.strip() and key_file is None:
            self._ensure_key(place)
        key = load_signing_key(key_file or self._signing_key_file())
        known = read_anchors(place.name, content, [key.public_key(), *self._configured_keys()])
        if known.problems:
            remedy = "set audit.anchor_public_key_file to the keys that signed it, or name a new target"
            raise ConfigurationError("audit.anchor", f"{place.name}: {known.problems[0]}; {remedy}")
        found = self.log.end_to_anchor(known)
        if found is None:
            return None
        first, tip = found
        for anchor in known.anchors:
            if anchor.tip == tip:
                return Anchored(place.name, anchor, new=False)
        now = self.clock.now().astimezone(UTC).replace(microsecond=0)
        anchor = Anchor(first, tip, now.isoformat().replace("+00:00", "Z"))
        place.append(anchor_line(anchor, key))
        return Anchored(place.name, anchor, new=True)

    def read(self, targets: Sequence[str] = (), public_keys: Sequence[Path] = ()) -> list[AnchorSet]:
        """The anchors at these targets, or at the one in the settings; none where there is no target.

        `ConfigurationError` where no public key is known to check them with. `AnchorFailed`.
        """
        named = [text for text in targets or (self.settings.anchor,) if text]
        if not named:
            return []
        keys = [key for path in public_keys for key in load_public_keys(path)] or self._known_keys()
        places = [self._target(text) for text in named]
        return [read_anchors(place.name, place.read(), keys) for place in places]

    def public_key(self, key_file: Path | None = None) -> str:
        """The public key of the signing key, in PEM."""
        return public_key_text(load_signing_key(key_file or self._signing_key_file()).public_key())

    def _target(self, text: str | None) -> AnchorTarget:
        named = text or self.settings.anchor
        if not named:
            options = {"key": "audit.anchor", "value": None}
            default = Remedy("config.set", options=options, text="Set a default target")
            raise ConfigurationError("audit.anchor", "no target for anchors; name one", (default,))
        return open_target(named, mirrors=self.mirrors, token_variable=self.settings.anchor_token_variable)

    def _ensure_outside(self, place: AnchorTarget) -> None:
        if isinstance(place, FileTarget) and place.path.resolve().is_relative_to(self.directory.resolve()):
            problem = f"{place.name} is beside the log; an attacker would remove both, so name another place"
            raise ConfigurationError("audit.anchor", problem)

    def _ensure_key(self, place: AnchorTarget) -> None:
        """A key is made for a new target only: it verifies no anchor that was written before."""
        path = Path(self.settings.anchor_key_file or self.directory / "anchor.key")
        if not path.exists():
            problem = f"{path} is missing, and {place.name} is not empty; restore it, or name a new target"
            raise ConfigurationError("audit.anchor_key_file", problem)

    def _signing_key_file(self) -> Path:
        if self.settings.anchor_key_file:
            return Path(self.settings.anchor_key_file)
        path = self.directory / "anchor.key"
        create_signing_key(path)
        return path

    def _configured_keys(self) -> list[Ed25519PublicKey]:
        configured = self.settings.anchor_public_key_file
        return load_public_keys(Path(configured)) if configured else []

    def _known_keys(self) -> list[Ed25519PublicKey]:
        keys = self._configured_keys()
        if keys:
            return keys
        path = Path(self.settings.anchor_key_file or self.directory / "anchor.key")
        if not path.exists():
            problem = f"no public key to check anchors with: {path} does not exist; pass --public-key FILE"
            raise ConfigurationError("audit.anchor_public_key_file", problem)
        return [load_signing_key(path).public_key()]
