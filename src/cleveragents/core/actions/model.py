"""Actions, checks and invariants.

An action is a template of a plan: its goal, its steps or actors, and its checks. An action whose phases are
plain tool steps needs no model. `render` is pure: the same arguments give the same steps in any process.

A check is a command whose exit code decides whether a result is good enough.

An invariant must hold whatever a plan does. Invariants about paths are enforced, and actors see all of them.
`never touch migrations/, *.lock` forbids changes, `never delete tests/` only forbids that files disappear. A
pattern that ends in `/` matches everything below a directory of that name. A pattern without `/` matches a
name in every directory. Other patterns are paths from the root with `*`, `?` and `**`. Invariants are
sentences written by people, so `enforcement` describes the enforced part. A sentence with a condition or an
exception is not enforced, because the rule without the condition could forbid the opposite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from cleveragents.core.actions.arguments import Argument, ArgumentType, bound, parsed
from cleveragents.core.change import Difference, FileState
from cleveragents.core.errors import InvalidAction
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.text.template import Place, filled, shell_argv, template_problems

__all__ = [
    "BUILTIN_NAMESPACE",
    "REVIEW",
    "Action",
    "Budget",
    "Check",
    "CheckRun",
    "CheckVerdict",
    "Invariant",
    "Setup",
    "Step",
    "TouchedPaths",
    "broken_by",
    "failure_line",
    "is_action_name",
    "step_problems",
]


BUILTIN_NAMESPACE = "builtin"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?/[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")

REVIEW = "review"
"""The name of the reviewer's verdict among the checks."""
_LONGEST_LINE = 200

TouchedPaths: TypeAlias = Iterable[str] | Mapping[str, Difference] | Mapping[str, FileState | None]
"""Paths that are about to change, or changed paths with their new state."""
_REMOVAL = r"delete|remove|rename|move"
_VERB = rf"(?:touch|change|edit|modify|write|alter|{_REMOVAL})"
_FORBIDS = re.compile(
    r"\b(?:never|do not|don['’]t|must not|mustn['’]t|may not)\s+"
    rf"(?P<verbs>{_VERB}(?:\s*(?:,|/|\bor\b|\band\b)\s*{_VERB})*)\s+(?P<rest>\S.*)",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"[.!]+(?:\s+|$)|[;\n]\s*")
_SEPARATORS = re.compile(r"\s*(?:,|\band\b|\bor\b)\s*")
_OTHERWISE = re.compile(
    r"(?<!\S)(?:except|excepting|but|unless|outside|without|only|if|when|whenever|while|until|before|after|other|"
    r"besides|beyond|apart|always|instead|can|should|keep|use|run|update)(?![\w./*-])",
    re.IGNORECASE,
)
_PREPOSITION = re.compile("in|under|below|inside|within|of|at|to|from|into|for", re.IGNORECASE)
_FILLER = re.compile(
    f"{_PREPOSITION.pattern}|the|an?|any|all|every|our|my|this|that|these|those|its?|them|named|called|"
    "(?:any|every|some)thing|files?|director(?:y|ies)|folders?|dirs?|paths?|contents?",
    re.IGNORECASE,
)
_WRITTEN_AS_PATH = re.compile(r"(?=.*[\w*])[\w.*?/@+-]*[./*][\w.*?/@+-]*")
_INVARIANT_NAME = re.compile(r"[\w@+-]+")
_QUOTES = "`'\"()“”‘’:"


def is_action_name(name: str) -> bool:
    """Return whether the text is `namespace/name` in lower-case letters, digits and hyphens."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call. In an action, its arguments are templates; `render` returns it with the values filled
    in.

    `expect_exit` lists the exit codes that count as success. With `shell`, the argument `command` is a
    script; in a rendered step, it is replaced by `argv`. With `continue_on_failure`, later steps run even if
    this step fails.
    """

    tool: str
    arguments: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    name: str | None = None
    continue_on_failure: bool = False
    expect_exit: tuple[int, ...] = (0,)
    shell: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", FrozenObject(self.arguments))

    def rendered(self, values: Mapping[str, JsonValue]) -> Step:
        """Return the step with its references substituted."""
        templates = dict(self.arguments)
        script = templates.pop("command") if self.shell else None
        ready = {key: filled(item, values) for key, item in templates.items()}
        if self.shell:
            ready["argv"] = shell_argv(str(script), values)
        return replace(self, arguments=ready, shell=False)


class Budget(Struct, frozen=True):
    """The spending limits of an action; None means that the action sets no limit."""

    seconds: float | None = None
    steps: int | None = None
    tokens: int | None = None
    usd: float | None = None


class Setup(Struct, frozen=True):
    """A shell command that prepares a sandbox before it is used.

    The `paths` it creates are cached and reused for sandboxes whose `key` files have the same content.
    """

    command: str
    key: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class Check(Struct, frozen=True):
    """A shell command in the root of the sandbox. Required checks must pass before an apply."""

    name: str
    command: str
    required: bool = True
    timeout_seconds: float = 600.0


_NO_LIMITS = Budget()


@dataclass(frozen=True, slots=True)
class Action:
    """A complete and consistent action. Raises `InvalidAction` if a step refers to an unknown argument.

    `execute_actor` and `steps` exclude each other. `profile` can only restrict the profile that the user
    chose, never extend it. `document` is the source text: a plan keeps it, so later changes to the action do
    not affect the plan.
    """

    name: str
    description: str = ""
    arguments: tuple[Argument, ...] = ()
    strategize_actor: str | None = None
    execute_actor: str | None = None
    review_actor: str | None = None
    steps: tuple[Step, ...] = ()
    checks: tuple[Check, ...] = ()
    invariants: tuple[str, ...] = ()
    definition_of_done: str = ""
    profile: str | None = None
    budget: Budget = _NO_LIMITS
    setup: Setup | None = None
    include: tuple[str, ...] = ()
    document: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        problems = [
            f"step {number}: {problem}"
            for number, step in enumerate(self.steps, start=1)
            for _, problem in step_problems(step.arguments, step.shell, self.arguments)
        ]
        if problems:  # guard: an accepted action can be rendered
            raise InvalidAction(self.name, tuple(problems))

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    def parse(self, pairs: Sequence[str], rest: Sequence[str] = ()) -> FrozenObject:
        """Return the values of a command line: `name=value` pairs, and the words after `--`.

        Raises `InvalidArguments`.
        """
        return parsed(self.name, self.arguments, pairs, rest)

    def bind(self, arguments: Mapping[str, JsonValue]) -> FrozenObject:
        """Return a value for every argument, including defaults. Raises `InvalidArguments`."""
        return bound(self.name, self.arguments, arguments)

    def render(self, arguments: Mapping[str, JsonValue]) -> tuple[Step, ...]:
        """Return the tool calls for these arguments. Raises `InvalidArguments`."""
        values = self.bind(arguments)
        return tuple(step.rendered(values) for step in self.steps)


def step_problems(
    template: Mapping[str, JsonValue], shell: bool, arguments: Sequence[Argument]
) -> list[tuple[Place, str]]:
    """Return the problems in the arguments of a step, and their places."""
    names = [argument.name for argument in arguments]
    lists = [argument.name for argument in arguments if argument.type is ArgumentType.LIST]
    problems: list[tuple[Place, str]] = []
    if shell and not isinstance(template.get("command"), str):
        problems.append(((), "a shell step needs a script, written as text: with: {command: …}"))
    if shell and "argv" in template:
        problems.append((("argv",), "a shell step takes a script in `command`, not argv"))
    for key, item in template.items():
        script = shell and key == "command"
        found = template_problems(item, names, lists, script=script)
        problems += [((key, *place), problem) for place, problem in found]
    return problems


class CheckVerdict(str, Enum):
    """The outcome of a check.

    Only PASSED counts as passed. A check that did not run, or that ran on other files, has not passed.
    """

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One run of a check on one tree."""

    plan_id: str
    name: str
    command: str
    required: bool
    verdict: CheckVerdict
    details: str
    tree: str
    ended_at: datetime
    seconds: float | None = field(default=None, compare=False)
    """The duration, for live output; it is not stored."""

    @property
    def is_review(self) -> bool:
        """Whether this is the verdict of a reviewer, whose actor is the command."""
        return self.name == REVIEW and not self.required

    def is_check_of(self, tree: str | None) -> bool:
        """Return whether this is the result of a check on this tree; False if the tree is unknown.

        A reviewer never counts, whatever its name.
        """
        return self.tree == tree and not self.is_review


def failure_line(details: str) -> str:
    """Return one line about a failed run: how it ended, and the last line of its output, which usually has
    the reason.
    """
    how, _, printed = details.strip().partition("\n")
    last = printed.strip().rpartition("\n")[2].strip()
    if not last:
        return how
    return f"{how}: {last}" if len(last) <= _LONGEST_LINE else f"{how}: {last[:_LONGEST_LINE]}…"


class Invariant(Struct, frozen=True):
    """One invariant.

    Files that match `patterns` may not change; files that match `kept` may not disappear. Both are empty if
    the text has no path that a program can check.
    """

    text: str
    patterns: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Invariant:
        """Return the invariant with the rules that its text contains. Each sentence that forbids something is
        searched for words that look like paths.
        """
        patterns: list[str] = []
        kept: list[str] = []
        for sentence in _SENTENCES.split(text):
            found = _FORBIDS.search(sentence)
            if found is None or _OTHERWISE.search(sentence):
                continue
            verbs = re.findall(r"\w+", found["verbs"].lower())
            only_removal = all(re.fullmatch(rf"{_REMOVAL}|or|and", verb) for verb in verbs)
            named = [path for part in _SEPARATORS.split(found["rest"]) for path in _paths(part, verbs)]
            (kept if only_removal else patterns).extend(named)
        return cls(text, tuple(patterns), tuple(kept))

    @property
    def enforced(self) -> bool:
        """Whether any part of the invariant is enforced."""
        return bool(self.patterns or self.kept)

    @property
    def enforcement(self) -> str:
        """A description of the enforced parts."""
        said = [f"{', '.join(self.patterns)} may not be changed"] if self.patterns else []
        said += [f"{', '.join(self.kept)} may not be deleted, moved or renamed"] if self.kept else []
        return f"enforced: {'; '.join(said)}" if said else "not enforced, only part of the actors' prompt"

    def forbids(self, path: str) -> bool:
        """Return whether this file may not change."""
        return _matched(self.patterns, path)

    def keeps(self, path: str) -> bool:
        """Return whether this file may not disappear."""
        return _matched(self.kept, path)


def broken_by(invariants: Iterable[str], touched: TouchedPaths) -> str | None:
    """Return a text with the first invariant that a change of these paths breaks, and the path; None if all
    hold.

    A deletion is only detected if `touched` includes the new states.
    """
    parsed = [Invariant.parse(text) for text in invariants]
    gone = frozenset(_gone(touched))
    for path in touched:
        for invariant in parsed:
            if invariant.forbids(path):
                return f"{path} was changed, which an invariant forbids: {invariant.text}"
            if path in gone and invariant.keeps(path):
                return f"{path} was deleted, which an invariant forbids: {invariant.text}"
    return None


def _gone(touched: TouchedPaths) -> Iterator[str]:
    if isinstance(touched, Mapping):
        for path, state in touched.items():
            if (state.after if isinstance(state, Difference) else state) is None:
                yield path


def _paths(part: str, verbs: list[str]) -> list[str]:
    """Return the paths in a part of a sentence; none if that part is about content in a file, not about the
    file itself.
    """
    words = [word for word in (word.strip(_QUOTES) for word in part.split()) if word]
    place = next((n for n, word in enumerate(words) if _PREPOSITION.fullmatch(word)), len(words))
    head, rest = words[:place], words[place:]
    found = [word for word in head if _WRITTEN_AS_PATH.fullmatch(word)]
    said = [word for word in head if not _FILLER.fullmatch(word)]
    if found or said:
        # A single word is a name, as in `never touch Dockerfile`; after `write` it may be text.
        alone = not rest and len(said) == 1 and "write" not in verbs and _INVARIANT_NAME.fullmatch(said[0])
        return found or (said if alone else [])
    return [word for word in rest if _WRITTEN_AS_PATH.fullmatch(word)] or _bare(rest)


def _bare(words: list[str]) -> list[str]:
    """Return the only word that is left without filler words, such as `migrations` in `files in migrations`;
    else empty.
    """
    said = [word for word in words if not _FILLER.fullmatch(word)]
    return said if len(said) == 1 and _INVARIANT_NAME.fullmatch(said[0]) else []


def _matched(patterns: tuple[str, ...], path: str) -> bool:
    return any(_expression(pattern).fullmatch(path) is not None for pattern in patterns)


def _expression(pattern: str) -> re.Pattern[str]:
    rooted = pattern.lstrip("/")
    anywhere = "/" not in rooted.rstrip("/") and not pattern.startswith("/")
    body = "".join(_translated(piece) for piece in re.split(r"(\*\*/?|\*|\?)", rooted.rstrip("/")))
    return re.compile(("(?:.*/)?" if anywhere else "") + body + "(?:/.*)?", re.DOTALL)


def _translated(piece: str) -> str:
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return wild.get(piece, re.escape(piece))
