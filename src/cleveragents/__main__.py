"""`python -m cleveragents` is the same program as `agents`."""

from cleveragents.cli.main import run

__all__: list[str] = []

if __name__ == "__main__":
    run()
