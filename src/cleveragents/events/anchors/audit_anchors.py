"""Anchors of an audit log: written, read, signed with Ed25519 and verified.

An anchor is one line of JSON. `payload` is the signed text, as a string, so that its bytes need no canonical
form; `signature` covers those bytes; `key` is the fingerprint of the signing key. Keys are PEM, so that
`openssl` can create them and verify a signature without this program.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from cleveragents.config.service_settings import AuditSettings
from cleveragents.core.clock import Clock
from cleveragents.core.errors import ConfigurationError, Remedy
from cleveragents.events.anchors.targets import AnchorTarget, FileTarget, open_target
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.chain import Anchor, AnchorSet, Tip
from cleveragents.events.head import read_key_file

__all__ = [
    "Anchored",
    "AuditAnchors",
    "anchor_line",
    "create_signing_key",
    "fingerprint",
    "load_public_keys",
    "load_signing_key",
    "public_key_text",
    "read_anchors",
]


_TYPE = "cleveragents.audit.anchor/1"
_HASH = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_MOST_EVENTS = 2**63 - 1
_PROBLEMS_NAMED = 5
_PEM_END = b"-----END PUBLIC KEY-----"
_FORM = "make one with `openssl genpkey -algorithm ed25519`"


@dataclass(frozen=True, slots=True)
class Anchored:
    """The newest anchor of the log at a target, and whether this call wrote it."""

    target: str
    anchor: Anchor
    new: bool


@dataclass(frozen=True, slots=True)
class AuditAnchors:
    """The anchors of `log`. Stateless: any thread and process may share it.

    `directory` holds the head, and the signing key unless the settings name another file.
    """

    log: DurableAuditLog
    settings: AuditSettings
    directory: Path
    mirrors: Path
    clock: Clock

    def write(self, target: str | None = None, key_file: Path | None = None) -> Anchored | None:
        """Sign the end of the log and append it to the target; return None for an empty log.

        Nothing is appended if the newest anchor at the target is identical. Raises `AuditLogBroken` if the
        log contradicts an anchor at the target: a rewritten log must not be anchored over the original.
        Raises `ConfigurationError` if a line of the target cannot be verified, because it may be an anchor
        that contradicts the log. Raises `AnchorFailed` if the target is not available.
        """
        place = self._target(target)
        self._ensure_outside(place)
        content = place.read()
        if content.strip() and key_file is None:
            self._ensure_key(place)
        key = load_signing_key(key_file or self._signing_key_file())
        known = read_anchors(place.name, content, [key.public_key(), *self._configured_keys()])
        if known.problems:
            remedy = "set audit.anchor_public_key_file to the public keys of its signers, or use a new target"
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
        """Return the anchors at these targets, or at the target in the settings; empty without a target.

        Raises `ConfigurationError` without a public key to verify them, and `AnchorFailed` if a target is not
        available.
        """
        named = [text for text in targets or (self.settings.anchor,) if text]
        if not named:
            return []
        keys = [key for path in public_keys for key in load_public_keys(path)] or self._known_keys()
        places = [self._target(text) for text in named]
        return [read_anchors(place.name, place.read(), keys) for place in places]

    def public_key(self, key_file: Path | None = None) -> str:
        """Return the public key of the signing key, in PEM."""
        return public_key_text(load_signing_key(key_file or self._signing_key_file()).public_key())

    def _target(self, text: str | None) -> AnchorTarget:
        named = text or self.settings.anchor
        if not named:
            options = {"key": "audit.anchor", "value": None}
            default = Remedy("config.set", options=options, text="Set a default target")
            raise ConfigurationError("audit.anchor", "no target for anchors; pass one", (default,))
        return open_target(named, mirrors=self.mirrors, token_variable=self.settings.anchor_token_variable)

    def _ensure_outside(self, place: AnchorTarget) -> None:
        if isinstance(place, FileTarget) and place.path.resolve().is_relative_to(self.directory.resolve()):
            problem = f"{place.name} is beside the log; an attacker would remove both, so name another place"
            raise ConfigurationError("audit.anchor", problem)

    def _ensure_key(self, place: AnchorTarget) -> None:
        """Raise `ConfigurationError` if the signing key is missing although the target has anchors.

        A key is created only for a target without anchors, because a new key could not verify existing
        anchors.
        """
        path = Path(self.settings.anchor_key_file or self.directory / "anchor.key")
        if not path.exists():
            problem = (
                f"{path} is missing, and {place.name} is not empty; restore the key, or use a new target"
            )
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


def create_signing_key(path: Path) -> None:
    """Write a new private key (0600) unless one exists; of two concurrent callers one creates it."""
    if path.exists():
        return
    key = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # a link, not a rename: a key that signed anchors is never replaced
            path.hardlink_to(draft)
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def load_signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a PEM file that no other user can read. Raises `ConfigurationError`."""
    content = read_key_file(path, "audit.anchor_key_file")
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except TypeError as error:
        problem = f"{path} is encrypted; decrypt it when you pass it: --key <(openssl pkey -in {path})"
        raise ConfigurationError("audit.anchor_key_file", problem) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationError("audit.anchor_key_file", f"{path} is not a private key; {_FORM}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError("audit.anchor_key_file", f"{path} is not an Ed25519 key; {_FORM}")
    return key


def load_public_keys(path: Path) -> list[Ed25519PublicKey]:
    """Return the public keys in a PEM file: several, if the key was replaced. Raises `ConfigurationError`."""
    setting = "audit.anchor_public_key_file"
    try:
        content = path.read_bytes()
        parts = (part + _PEM_END + b"\n" for part in content.split(_PEM_END)[:-1])
        keys = [serialization.load_pem_public_key(part) for part in parts]
    except OSError as error:
        raise ConfigurationError(setting, f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(setting, f"{path} is not a public key") from error
    found = [key for key in keys if isinstance(key, Ed25519PublicKey)]
    if not found or len(found) < len(keys):
        raise ConfigurationError(setting, f"{path} should hold Ed25519 public keys in PEM, and nothing else")
    return found


def public_key_text(key: Ed25519PublicKey) -> str:
    """Return the key in PEM."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form).decode("ascii")


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of the key, in hexadecimal."""
    form = serialization.PublicFormat.Raw
    return sha256(key.public_bytes(serialization.Encoding.Raw, form)).hexdigest()


def anchor_line(anchor: Anchor, key: Ed25519PrivateKey) -> str:
    """Return the anchor as a signed line, without the line feed."""
    statement = {
        "type": _TYPE,
        "log": anchor.log,
        "events": anchor.tip.rows,
        "hash": anchor.tip.hash,
        "time": anchor.time,
    }
    payload = json.dumps(statement, separators=(",", ":"))
    signature = b64encode(key.sign(payload.encode())).decode("ascii")
    line = {"payload": payload, "key": fingerprint(key.public_key()), "signature": signature}
    return json.dumps(line, separators=(",", ":"))


def read_anchors(source: str, content: bytes, keys: Sequence[Ed25519PublicKey]) -> AnchorSet:
    """Return the anchors in `content` that one of the keys signed, and the problems of all other lines."""
    known = {fingerprint(key): key for key in keys}
    anchors: list[Anchor] = []
    problems: list[str] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        found = _anchor_in(line, known)
        if isinstance(found, Anchor):
            anchors.append(found)
        else:
            problems.append(f"line {number}: {found}")
    if len(problems) > _PROBLEMS_NAMED:
        more = f"and {len(problems) - _PROBLEMS_NAMED} more lines that are not valid anchors"
        problems = [*problems[:_PROBLEMS_NAMED], more]
    return AnchorSet(source, tuple(anchors), tuple(problems))


def _anchor_in(line: bytes, keys: dict[str, Ed25519PublicKey]) -> Anchor | str:
    try:
        fields = json.loads(line)
        payload, name = str(fields["payload"]).encode(), str(fields["key"])
        signature = b64decode(str(fields["signature"]), validate=True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return "not an anchor"
    key = keys.get(name)
    if key is None:
        return f"signed with another key ({name[:16]!a})"
    try:
        key.verify(signature, payload)
    except InvalidSignature:
        return "the signature is not valid"
    return _stated(payload)


def _stated(payload: bytes) -> Anchor | str:
    """Return the anchor in a signed payload, or the reason why the payload is not an anchor.

    The type is checked, because the key may also sign other texts.
    """
    try:
        fields: dict[str, Any] = json.loads(payload)
        if fields["type"] != _TYPE:
            return "a signed statement of another type"
        log, events, last, time = (fields[name] for name in ("log", "events", "hash", "time"))
        datetime.fromisoformat(time)
        plain = _TIME.fullmatch(time) and all(_HASH.fullmatch(text) for text in (log, last))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "a signed statement that cannot be read"
    if not plain or type(events) is not int or not 1 <= events <= _MOST_EVENTS:
        return "a signed statement that cannot be read"
    return Anchor(log, Tip(events, last), time)
