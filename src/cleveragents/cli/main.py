"""The entry point: `agents`.

Importing click takes as long as starting three interpreters, so this module contains the output of `--help`
and `--version` as text; a test compares both texts with click's output. Everything else goes through
`commands`. `failure.report` prints all errors, so a mistake of the user never shows a traceback.
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

  Run many AI agent plans in parallel on real repositories, and lose nothing.

  Without a command, open the terminal app.

  Example:
    agents
    agents run "Add a --json flag to the export command" --check "pytest -q"
    agents run --action builtin/command -- sed -i s/colour/color/ README.md
    agents ask "Where is the session cookie signed?"
    agents demo
    agents --set log.level=debug doctor
    agents --server https://agents.example plan list

Options:
  -V, --version    Show the version and exit.
  --set KEY=VALUE  Override a setting for this command; may be repeated. List
                   settings with `agents config list`.
  --server URL     Server to use. Default: server.address. `local` means this
                   machine.
  --continue       Continue the latest session of this repository.
  --plain          Talk line by line instead of in the terminal app.
  -h, --help       Show this message and exit.

Commands:
  init        Set up a provider, its key and a default model, and test them.
  run         Run a goal or an action as a plan, in a sandbox.
  ask         Ask a question about a repository, and print the answer.
  session     Talk with an assistant about a repository.
  context     Find the code relevant to a question.
  plan        Show, review, apply and undo plans.
  action      Create, list and delete actions: plan templates.
  actor       List, check, graph and run actors.
  tool        List, describe and try the tools of actions.
  mcp         Add, list, test and remove MCP servers, or run as one.
  acp         Work in an editor that speaks the Agent Client Protocol.
  model       List, describe and test language models.
  cost        Show the costs of model calls by day, project, model or actor.
  policy      List, add and revoke rules that approve commands in advance.
  trust       Trust the config files of the repository at PATH.
  project     Manage projects, their members and their concurrency limits.
  resource    Manage the repositories that users of a server may run plans on.
  gc          Remove the sandboxes of ended plans.
  serve       Serve the page and the HTTP API, and run plans.
  worker      Run a worker for the plans of a server.
  user        Manage users of the server, their roles and tokens.
  login       Log in to a server with a token.
  logout      Remove the token of a server.
  backup      Back up the state, also while plans run.
  demo        Run a demonstration, offline and in a temporary directory.
  jobs        List, inspect and cancel jobs.
  events      Follow, verify and anchor the audit log.
  config      Show and change settings.
  completion  Print the completion script of a shell: bash, zsh or fish.
  doctor      Check the installation and the state of this machine.

  Exit codes: 0 ok, 1 failed, 2 usage, 3 needs a person, 75 try again, 130
  interrupted.
"""


def run() -> None:
    """Run the command line of this process and exit with its code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the stream was closed by the caller: `agents … >&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # escape what the terminal cannot encode
    try:
        code = _answer(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:  # before a command began, or during its last message
        sys.stderr.write("interrupted\n")
        code = 130
    except BrokenPipeError:
        _give_up_stdout()  # the reader closed the pipe
        code = 141  # as in the shell: 128 + SIGPIPE
    except OSError as error:
        _give_up_stdout()
        sys.stderr.write(f"error: cannot write the output: {error.strerror}\n")
        code = 1
    # Everything is closed. The system frees the rest faster than the collector.
    gc.freeze()
    sys.exit(code)


def _give_up_stdout() -> None:
    # Redirects stdout, or the interpreter reports an error at shutdown.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(arguments: list[str]) -> int:
    if arguments in (["--help"], ["-h"]) and "_AGENTS_COMPLETE" not in os.environ:
        sys.stdout.write(HELP)
        return 0
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"cleveragents {__version__}\n")
        return 0
    # Objects made while modules load are not garbage; searching for some every 700 objects costs time.
    # Long-running commands lower the threshold again.
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
