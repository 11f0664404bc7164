"""CleverAgents: many AI agent plans at once on real repositories, and nothing lost."""

from cleveragents import moved

__all__ = ["__version__"]
__version__ = "0.1.0"

moved.install()
