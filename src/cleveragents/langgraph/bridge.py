"""Published import path of `actors.bridge.bridge`."""

from __future__ import annotations

from cleveragents.actors.bridge.bridge import Cleanup, Graph, RxPyLangGraphBridge

__all__ = ["Cleanup", "Graph", "RxPyLangGraphBridge"]
