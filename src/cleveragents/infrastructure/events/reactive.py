"""Published import path of `events.reactive`."""

from __future__ import annotations

from cleveragents.events.reactive import ReactiveEventBus

__all__ = ["ReactiveEventBus"]
