"""How much an agent may say and ask for in one session, and how long we are patient with it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SessionBounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """`start_seconds`: until it is ready, which may include fetching itself; `cancel_seconds`: to end its
    turn once it is told to. `messages` and `bytes_` are all that it may say, `requests` what it may ask for
    at once, `turn_seconds` how long one request waits for those before it, `terminals` how many it may have
    open; `shown` how much of what it does is let be seen."""

    start_seconds: float = 60.0
    cancel_seconds: float = 0.5
    messages: int = 100_000
    bytes_: int = 256 << 20
    requests: int = 64
    turn_seconds: float = 10.0
    terminals: int = 32
    shown: int = 5_000
