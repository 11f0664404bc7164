"""Write `docs/man/agents.1`, the manual page, from the help of all commands: `python -m tools.man_page`.

Wheels install the page as `share/man/man1/agents.1`. A test compares the file with the commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from cleveragents import __version__
from cleveragents.cli.commands import cli

__all__ = ["PAGE", "man_page"]

PAGE = Path(__file__).parents[1] / "docs" / "man" / "agents.1"


def man_page() -> str:
    """Return the manual page: the root command, then one section for each command."""
    lines = [f'.TH AGENTS 1 "" "cleveragents {__version__}" "CleverAgents"']
    root = click.Context(cli, info_name="agents", **cli.context_settings)
    lines += [".SH NAME", f"agents \\- {_escaped(cli.get_short_help_str(200).rstrip('.'))}"]
    lines += [".SH SYNOPSIS", ".B agents", "[OPTIONS] COMMAND [ARGS]..."]
    lines += [".SH DESCRIPTION", *_paragraphs(cli.help or ""), *_options(root)]
    for context in _below(root):
        lines += [f'.SH "{_escaped(context.command_path)}"', *_usage(context)]
        lines += [*_paragraphs(context.command.help or ""), *_options(context)]
    lines += [".SH EXIT STATUS", *_paragraphs(cli.epilog or "")]
    return "\n".join(lines) + "\n"


def _below(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of each command, groups before their commands."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield inner
        yield from _below(inner)


def _usage(context: click.Context) -> list[str]:
    pieces = context.command.collect_usage_pieces(context)
    return [f".B {_escaped(context.command_path)}", _escaped(" ".join(pieces)), ".PP"]


def _paragraphs(help_text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those after `\\b` keep their lines."""
    for paragraph in re.split(r"\n\s*\n", help_text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            yield from (".PP", ".nf", *map(_escaped, lines[1:]), ".fi")
        else:
            yield from (".PP", _escaped(" ".join(lines)))


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.params:  # --help is not one of them: every command has it
        record = parameter.get_help_record(context)
        if record is not None:
            names, text = record
            yield from (".TP", f"\\fB{_escaped(names)}\\fR", _escaped(text))


def _escaped(text: str) -> str:
    """Return the text for roff: no backslash, hyphen or first character has a meaning of its own."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(man_page(), encoding="utf-8")
