"""Model servers on this machine: Ollama, LM Studio and llama.cpp, found at their usual ports on loopback."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["PORTS", "LocalModelServer", "find_local_servers", "models_at"]

PORTS: Mapping[str, int] = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
_SECONDS = 1.0
_MOST_BYTES = 1 << 20
_MOST_MODELS = 200
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class LocalModelServer:
    """A server of this machine that speaks OpenAI's protocol, and its models."""

    name: str
    base_url: str
    models: tuple[str, ...]


def find_local_servers(ports: Mapping[str, int] = PORTS) -> list[LocalModelServer]:
    """Return the servers that answer on loopback and have a model. Takes at most a few seconds."""
    found = []
    for name, port in ports.items():
        base_url = f"http://127.0.0.1:{port}/v1"
        models = models_at(base_url)
        if models:
            found.append(LocalModelServer(name, base_url, tuple(models)))
    return found


def models_at(base_url: str) -> Sequence[str]:
    """Return the names of the models at this address; empty if no such server answers in time.

    The answer is not trusted: its size and the names are bounded. Proxies are not used, redirects are not
    followed.
    """
    import httpx

    try:
        with (
            httpx.Client(timeout=_SECONDS, trust_env=False, follow_redirects=False) as client,
            client.stream("GET", f"{base_url}/models") as response,
        ):
            if response.status_code != 200:
                return ()
            content = b""
            for piece in response.iter_bytes():
                content += piece
                if len(content) > _MOST_BYTES:
                    return ()
        answer = json.loads(content)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        return ()
    listed = answer.get("data") if isinstance(answer, dict) else None
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    names = [entry.get("id") for entry in entries[:_MOST_MODELS]]
    return [name for name in names if isinstance(name, str) and _is_sound(name)]


def _is_sound(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable() and " " not in name
