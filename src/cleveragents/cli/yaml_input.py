"""YAML files given to a command, and their mistakes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cleveragents.cli.output import progress

__all__ = ["STDIN", "print_problems", "yaml_content"]

STDIN = "standard input"

_SHOWN_PROBLEMS = 20


def yaml_content(file: Path) -> tuple[bytes, str]:
    """Return the content of the file, up to a limit, and its name for messages. The file `-` is standard
    input.
    """
    from cleveragents.config.yaml.document import SIZE_LIMIT_BYTES
    from cleveragents.core.errors import ConfigurationError

    limit = SIZE_LIMIT_BYTES + 1
    if str(file) == "-":
        return sys.stdin.buffer.read(limit), STDIN
    try:
        if not file.is_file():
            raise ConfigurationError(str(file), "is not a file; name a YAML file, or - for standard input")
        with file.open("rb") as opened:
            return opened.read(limit), str(file)
    except OSError as error:
        raise ConfigurationError(str(file), f"cannot be read: {error.strerror}") from None


def print_problems(verdict: str, problems: Sequence[str]) -> None:
    """Print the verdict, and below it each problem on a line, up to a limit."""
    progress(f"error: {verdict}")
    for problem in problems[:_SHOWN_PROBLEMS]:
        progress(f"  {problem}")
    if len(problems) > _SHOWN_PROBLEMS:
        progress(f"  … and {len(problems) - _SHOWN_PROBLEMS} more")
