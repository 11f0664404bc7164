"""Command rules: patterns of command lines that a person allowed in advance, and how they match.

A rule compares lists of arguments. It is a fixed beginning of the command line; a final `*` stands for any
further arguments. A shell script matches only if it is one plain command: a script with any character that
a shell interprets matches no rule. So a rule never covers a second command, a redirection or a substitution.

A rule that would allow anything (`sh *`, `python *`, `sudo *`) is refused. Such a command line can only be
allowed exactly, without `*`.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cleveragents.core.errors import RequestRefused
from cleveragents.core.json_value import JsonValue

__all__ = ["CommandRule", "RuleSuggestion", "argv_of", "suggest_rule"]

_MASK = "***"
_MOST_CHARACTERS = 1_000
# Only these characters mean themselves in every shell. Quotes are removed by `shlex` as a shell does, because
# nothing between them is special either.
_PLAIN_SCRIPT = re.compile(r"[A-Za-z0-9 _./:=,+@'\"-]+")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9 _./:=,+@-]*")
# The version of a program, and the form of a build: `python3.13t`, `python3-dbg`, `python.exe`.
_VERSION = re.compile(r"([0-9][0-9.]*(td?|d?m?))?(-dbg)?(\.exe)?$")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHELLS = _names("ash bash busybox csh dash fish ksh mksh pwsh rbash sh tcsh toybox zsh")
_INTERPRETERS = _SHELLS | _names(
    "bpython ipython java julia lua node nodejs osascript perl php ptpython pypy python pythonw r rscript "
    "ruby tclsh ts-node tsx"
)
"""Programs that run the code in their arguments. After the name of a script, arguments go to that script."""

_LAUNCHERS = _names(
    ". alias at awk batch builtin bwrap chroot chrt command crontab dbus-run-session doas docker ed emacs "
    "emacsclient entr env eval ex exec expect find flock gawk gdb ionice ltrace m4 mawk nawk nc netcat "
    "nice nsenter parallel perf pkexec podman prlimit rsync runuser screen script sed setpriv setsid socat "
    "source ssh start-stop-daemon stdbuf strace su sudo systemd-run taskset timeout tmux trap unshare "
    "valgrind vi view vim vimdiff gvim nvim rvim watch xargs xterm"
)
"""Programs that can run any other program, or any code, named in their arguments."""

_TOOLBOXES = _names(
    "apt apt-get bazel brew bun bundle cargo cmake composer conda deno dotnet gh git go gradle gradlew hatch "
    "helm hg just kubectl make meson mix mvn mvnw ninja npm pdm pip pipenv pipx pnpm poetry rake rye sbt svn "
    "systemctl task terraform uv yarn"
)
"""Programs whose first argument, a sub-command or target, decides what they do."""

_RUNNERS = frozenset(
    {
        ("bun", "exec"),
        ("bun", "run"),
        ("bun", "x"),
        ("bundle", "exec"),
        ("bunx",),
        ("busybox",),
        ("conda", "run"),
        ("coverage", "run"),
        ("deno", "run"),
        ("deno", "task"),
        ("go", "run"),
        ("hatch", "run"),
        ("npm", "exec"),
        ("npm", "run"),
        ("npm", "run-script"),
        ("npm", "x"),
        ("npx",),
        ("nohup",),
        ("pdm", "run"),
        ("pipenv", "run"),
        ("pipx", "run"),
        ("pnpm", "dlx"),
        ("pnpm", "exec"),
        ("pnpm", "run"),
        ("poetry", "run"),
        ("rye", "run"),
        ("time",),
        ("toybox",),
        ("uv", "run"),
        ("uv", "tool", "run"),
        ("uvx",),
        ("yarn", "dlx"),
        ("yarn", "exec"),
        ("yarn", "run"),
    }
)
"""Beginnings that run the command after them."""

_EVALUATORS = frozenset(
    {
        ("deno", "eval"),
        ("deno", "repl"),
        ("git", "bisect", "run"),
        ("git", "filter-branch"),
        ("git", "rebase"),
        ("git", "submodule", "foreach"),
    }
)
"""Beginnings whose further arguments can be code, or a command for a shell."""

_RUNS_CODE = _names(
    "IPython asyncio bpython cProfile code coverage debugpy pdb profile ptpython runpy timeit trace"
)
"""Modules of Python that run the code in their arguments."""


class CommandRule(Struct, frozen=True):
    """The command lines that begin with `words`; without `more`, only the command line `words` itself."""

    words: tuple[str, ...]
    more: bool = False

    @staticmethod
    def parse(text: str) -> CommandRule:
        """Return the rule with this text, such as `pytest *`. Raises `RequestRefused` with the reason if the
        text is malformed, or the rule would allow anything.
        """
        stripped = text.strip()
        fixed, more = (stripped[:-1], True) if re.search(r"(^|\s)\*$", stripped) else (stripped, False)
        try:
            words = tuple(shlex.split(fixed))
        except ValueError as error:
            raise RequestRefused(f"the rule {text!r} is malformed: {error}", "pattern") from None
        if any("*" in word and shlex.quote(word) not in fixed for word in words):
            problem = "`*` is only possible at the end, after a space; quote it to mean the character"
            raise RequestRefused(f"the rule {text!r} is malformed: {problem}", "pattern")
        rule = CommandRule(words, more)
        rule.ensure_safe()
        return rule

    def ensure_safe(self) -> None:
        """Raise `RequestRefused` with the reason if the rule would allow anything."""
        problem = _problem(self)
        if problem is not None:  # guard: a rule that allows anything is no rule
            raise RequestRefused(f"cannot allow `{self}`: {problem}", "pattern")

    def matches(self, argv: Sequence[str]) -> bool:
        """Return whether the rule covers this command line."""
        begins = tuple(argv[: len(self.words)]) == self.words
        return begins and (self.more or len(argv) == len(self.words))

    def __str__(self) -> str:
        return shlex.join(self.words) + (" *" if self.more else "")


class RuleSuggestion(Struct, frozen=True):
    """The rules that fit a call: a narrow rule with `*`, and the exact command line. `problem` is the reason
    if one or both are missing.
    """

    rule: CommandRule | None = None
    exact: CommandRule | None = None
    problem: str | None = None


def argv_of(arguments: Mapping[str, JsonValue]) -> tuple[str, ...] | None:
    """Return the command line of a call of the tool `command`; None if no rule can match the call, because it
    is a shell script that is more than one plain command.
    """
    argv, script = arguments.get("argv"), arguments.get("script")
    if isinstance(argv, tuple | list) and argv:
        words = tuple(str(word) for word in argv)
        # A text for a shell in one of the arguments is shell text as well
        shell = _program(words[0]) in _SHELLS
        return None if shell and not all(map(_PLAIN_WORD.fullmatch, words[1:])) else words
    if not isinstance(script, str) or not _PLAIN_SCRIPT.fullmatch(script):  # guard: one plain command only
        return None
    try:
        words = tuple(shlex.split(script))
    except ValueError:
        return None
    # An assignment before a command changes what the command does
    return words if words and "=" not in words[0] else None


def suggest_rule(arguments: Mapping[str, JsonValue]) -> RuleSuggestion:
    """Return the rules that a person can choose for a call of the tool `command` with these arguments."""
    argv = argv_of(arguments)
    if argv is None:
        return RuleSuggestion(problem="a shell script with special characters cannot be allowed in advance")
    exact = CommandRule(argv)
    problem = _problem(exact)
    if problem is not None:
        return RuleSuggestion(problem=problem)
    rule = CommandRule(_beginning(argv), more=True)
    problem = _problem(rule)
    return RuleSuggestion(rule if problem is None else None, exact, problem)


def _beginning(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the shortest beginning of the command line that identifies the action of the program, such as
    `git status`.
    """
    runner = _runner(argv)
    if runner and len(argv) > runner:
        return (*argv[:runner], *_beginning(argv[runner:]))
    program = _program(argv[0])
    if program in _INTERPRETERS:
        return argv[: 3 if argv[1:2] == ("-m",) else 2]
    count = 2 if program in _TOOLBOXES else 1
    while count < len(argv) and _can_become_runner(argv[:count]):
        count += 1
    return argv[:count]


def _problem(rule: CommandRule) -> str | None:
    """Return why a rule with these words is refused, or None."""
    words = rule.words
    if not words or not words[0]:
        return "the rule names no program"
    if "=" in words[0]:
        return "the rule begins with a variable; name the program first"
    if sum(map(len, words)) > _MOST_CHARACTERS:
        return f"the rule has more than {_MOST_CHARACTERS} characters"
    if not all(word.isprintable() for word in words):  # guard: a rule is what a person reads
        return "the rule contains line breaks or invisible characters"
    if any(_MASK in word for word in words):
        return "the rule contains a masked secret"
    if argv_of({"argv": words}) is None:
        return "the rule passes a script with special characters to a shell"
    return _breadth(words) if rule.more else None


def _breadth(words: tuple[str, ...]) -> str | None:
    """Return why any further arguments after these words would allow anything, or None."""
    runner = _runner(words)
    if runner:
        rest = words[runner:]
        if not rest or rest[0].startswith("-"):
            return f"`{shlex.join(words[:runner])}` can run any program; name the program it runs"
        return _breadth(rest)
    program, second = _program(words[0]), words[1] if len(words) > 1 else ""
    if any((program, *words[1:])[: len(one)] == one for one in _EVALUATORS):
        return "the arguments can be any command or code; allow the exact command instead"
    if program in _LAUNCHERS:
        return f"`{words[0]}` runs any program or code in its arguments; allow the exact command instead"
    if program in _INTERPRETERS:
        module = words[2] if second == "-m" and len(words) > 2 else ""
        named = bool(module and module not in _RUNS_CODE) or _is_script(second)
        return None if named else f"`{words[0]}` runs any code; name a script or allow the exact command"
    if program in _TOOLBOXES and (not second or second.startswith("-")):
        return f"`{words[0]}` has many commands; name one, as in `{words[0]} {_example(program)} *`"
    if _can_become_runner(words):
        return f"a command of `{shlex.join(words)}` can run any program; name a command that cannot"
    return None


def _is_script(word: str) -> bool:
    """Return whether the first argument of an interpreter is the path of a script file. Paths below `/dev`
    and `/proc` do not count: their content differs from run to run.
    """
    parts = posixpath.normpath(word).split("/")
    outside = parts[0] in ("", "..") and not {"dev", "proc"}.isdisjoint(parts)
    return bool(word) and not word.startswith("-") and not outside


def _can_become_runner(words: tuple[str, ...]) -> bool:
    """Return whether further arguments can make the words run any program, as `foreach` after
    `git submodule` does.
    """
    known = (_program(words[0]), *words[1:])
    for runner in _RUNNERS | _EVALUATORS:
        same = len(posixpath.commonprefix([known, runner]))
        if 0 < same < len(runner) and (same == len(known) or known[same].startswith("-")):
            return True
    return False


def _runner(words: tuple[str, ...]) -> int:
    """Return the number of first words that only run the command after them; 0 if there are none."""
    known = (_program(words[0]), *words[1:3])
    return next((count for count in (3, 2, 1) if known[:count] in _RUNNERS), 0)


def _program(word: str) -> str:
    """Return the name of the program without its directory and version: `python` of `/usr/bin/python3.11`."""
    name = posixpath.basename(word).lower()
    return _VERSION.sub("", name) or name


def _example(program: str) -> str:
    return {"git": "status", "make": "test", "npm": "run test"}.get(program, "COMMAND")
