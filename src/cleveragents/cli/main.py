"""The entry point: `agents`.

A program that is asked for its help or its version should answer before anyone notices, and importing click
alone takes as long as starting three interpreters. So those two answers are here, ready; a test compares them
with click's. Everything else goes through `commands`, and whatever goes wrong there ends in one place,
`failure.report`, so that a mistake of the user's never shows as a trace-back.
"""

from __future__ import annotations

import gc
import os
import sys
from io import TextIOWrapper

from cleveragents import __version__

__all__ = ["run"]

_YOUNG_OBJECTS = 200_000

HELP = """\
Usage: agents [OPTIONS] COMMAND [ARGS]...

  Runs many AI agent plans at once on real repositories, and loses nothing.

  Example:
    agents run "Add a --json flag to the export command" --check "pytest -q"
    agents run --action builtin/command -- sed -i s/colour/color/ README.md
    agents demo
    agents --set log.level=debug doctor
    agents --server https://agents.example plan list

Options:
  -V, --version    Show the version and exit.
  --set KEY=VALUE  Override a setting for this command; may be repeated. `agents
                   config list` shows them all.
  --server URL     Have a server do it, instead of this machine
                   (server.address); `local` means this machine.
  -h, --help       Show this message and exit.

Commands:
  run       Reach a goal, or run an action, as a plan: sandboxed, reviewed,
            applied or not.
  context   Find what of a repository matters for a question, within a budget of
            tokens.
  plan      Look at plans, review what they changed, apply or undo it.
  action    Create, list and delete templates of plans.
  actor     List, check, graph and run actors: who thinks, and how.
  tool      List, describe and try the tools that actions can call.
  mcp       Add, list, test and remove MCP servers, or be one.
  model     List language models, describe one, try one out.
  trust     Trust what the repository at PATH brings along.
  project   Manage projects: their members, and how many of their plans run at
            once.
  resource  Say which repositories the users of a server may run plans on.
  gc        Remove the sandboxes of plans that ended.
  serve     Serve the page and the HTTP API, and run plans.
  worker    Run plans of a server, as one more worker.
  user      Add users of the server, give them roles and tokens.
  login     Log in to a server, with a token.
  logout    Forget the token of a server.
  backup    Copy all that is kept, while work goes on.
  demo      Show it all at work, offline, without touching your state.
  jobs      List, inspect and cancel jobs.
  events    Follow, verify and anchor the audit log.
  config    Show and change settings.
  doctor    Check that everything needed is there and sound.

  Exit codes: 0 ok, 1 failed, 2 usage, 3 needs a human, 75 try again, 130
  interrupted.
"""


def run() -> None:
    """Runs the command line of this process and exits with its code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with it closed: `agents … >&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show it all shows the rest
    try:
        code = _answer(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:  # before a command began, or while it was told how one ended
        sys.stderr.write("interrupted\n")
        code = 130
    except BrokenPipeError:
        _give_up_stdout()  # the reader had enough
        code = 141  # as the shell says it: 128 + SIGPIPE
    except OSError as error:
        _give_up_stdout()
        sys.stderr.write(f"error: cannot write the output: {error.strerror}\n")
        code = 1
    # Everything is closed. What is left are modules, which the system takes back faster than we could.
    gc.freeze()
    sys.exit(code)


def _give_up_stdout() -> None:
    # Points it elsewhere, or the interpreter complains while it shuts down.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(arguments: list[str]) -> int:
    if arguments in (["--help"], ["-h"]) and "_AGENTS_COMPLETE" not in os.environ:
        sys.stdout.write(HELP)
        return 0
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"cleveragents {__version__}\n")
        return 0
    # What is made while modules load is no rubbish; looking for some every 700 objects takes its time. Who
    # stays for long has the collector look more often.
    gc.set_threshold(_YOUNG_OBJECTS)
    from cleveragents.cli.invocation import invoke
    from cleveragents.config.logging import guard_terminals

    with guard_terminals():
        return invoke(arguments)


def __getattr__(name: str) -> object:
    if name == "cli":
        from cleveragents.cli.commands import cli

        return cli
    raise AttributeError(name)
