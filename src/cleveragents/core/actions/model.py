"""Actions: templates of plans. What is wanted, by which steps or actors, and when it counts as done.

An action whose phases are plain tool steps needs no model. `render` is pure: the same arguments give the same
steps, in any process.

Checks: commands whose exit code says whether a result is good enough.

Invariants: what must hold whatever a plan does. Those about paths are enforced; all are told to actors.

`never touch migrations/, *.lock` forbids changes, `never delete tests/` only that files go: a pattern that
ends in `/` means all below it, one without any `/` a name in every directory, others are paths from the root,
with `*`, `?` and `**`. They are people's sentences, so `enforcement` says what is made of each. A sentence
with a condition or an exception is left to readers: by its words alone it might forbid the opposite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import TypeAlias

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
    "in_a_line",
    "is_action_name",
    "step_problems",
]


BUILTIN_NAMESPACE = "builtin"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?/[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")

REVIEW = "review"
"""The name under which the reviewer's verdict is kept among the checks."""
_LONGEST_LINE = 200

TouchedPaths: TypeAlias = Iterable[str] | Mapping[str, Difference] | Mapping[str, FileState | None]
"""Paths that are about to change; or that did, with what has become of each."""
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
    """Whether it is `namespace/name`, of small letters, digits and hyphens."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call; as part of an action a template, as `render` returns it ready to be made.

    `expect_exit` are the exit codes with which a command counts as done. With `shell`, the argument `command`
    is a script; a rendered step has `argv` instead. `continue_on_failure`: the steps after it run anyway.
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
        """The step with its references filled in."""
        templates = dict(self.arguments)
        script = templates.pop("command") if self.shell else None
        ready = {key: filled(item, values) for key, item in templates.items()}
        if self.shell:
            ready["argv"] = shell_argv(str(script), values)
        return replace(self, arguments=ready, shell=False)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a plan of this action may spend; None is no bound of the action's own."""

    seconds: float | None = None
    steps: int | None = None
    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """How a sandbox is furnished before it is used: a command, through the shell.

    The `paths` it makes are kept and given to other sandboxes whose `key` files have the same content.
    """

    command: str
    key: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A command, through the shell, in the sandbox's root. Required ones must pass before an apply."""

    name: str
    command: str
    required: bool = True
    timeout_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Action:
    """An action, complete and consistent: `InvalidAction` when a step names an argument that does not exist.

    `execute_actor` and `steps` exclude each other. `profile` can only tighten what the user chose.
    `document` is the text it was read from: a plan that keeps it is not changed by who changes the action.
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
    budget: Budget = Budget()
    setup: Setup | None = None
    include: tuple[str, ...] = ()
    document: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        problems = [
            f"step {number}: {problem}"
            for number, step in enumerate(self.steps, start=1)
            for _, problem in step_problems(step.arguments, step.shell, self.arguments)
        ]
        if problems:  # guard: what was accepted can be rendered
            raise InvalidAction(self.name, tuple(problems))

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    def parse(self, pairs: Sequence[str], rest: Sequence[str] = ()) -> FrozenObject:
        """The values of a command line: `name=value` each, and what stood after `--`. `InvalidArguments`."""
        return parsed(self.name, self.arguments, pairs, rest)

    def bind(self, arguments: Mapping[str, JsonValue]) -> FrozenObject:
        """A value for every argument, defaults included. `InvalidArguments`."""
        return bound(self.name, self.arguments, arguments)

    def render(self, arguments: Mapping[str, JsonValue]) -> tuple[Step, ...]:
        """The tool calls to be made with these arguments. `InvalidArguments`."""
        values = self.bind(arguments)
        return tuple(step.rendered(values) for step in self.steps)


def step_problems(
    template: Mapping[str, JsonValue], shell: bool, arguments: Sequence[Argument]
) -> list[tuple[Place, str]]:
    """What is wrong with what a step gives to its tool, and where in it."""
    names = [argument.name for argument in arguments]
    lists = [argument.name for argument in arguments if argument.type is ArgumentType.LIST]
    problems: list[tuple[Place, str]] = []
    if shell and not isinstance(template.get("command"), str):
        problems.append(((), "a shell step needs its script as text: with: {command: …}"))
    if shell and "argv" in template:
        problems.append((("argv",), "a shell step has a script, `command`, and no argv"))
    for key, item in template.items():
        script = shell and key == "command"
        found = template_problems(item, names, lists, script=script)
        problems += [((key, *place), problem) for place, problem in found]
    return problems


class CheckVerdict(str, Enum):
    """What came of a check. Only PASSED is a pass; one that did not run, or on the wrong files, is not."""

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
    """How long it took, for who hears of it at once; it is not kept."""

    @property
    def is_review(self) -> bool:
        """Whether a reviewer said it, whose actor is the command."""
        return self.name == REVIEW and not self.required

    def is_check_of(self, tree: str) -> bool:
        """Whether a command said it of that tree. A reviewer is none, though a command be spelt like it."""
        return self.tree == tree and not self.is_review


def in_a_line(details: str) -> str:
    """How a run that did not pass ended, and the last line that it printed, which mostly says why."""
    how, _, printed = details.strip().partition("\n")
    last = printed.strip().rpartition("\n")[2].strip()
    if not last:
        return how
    return f"{how}: {last}" if len(last) <= _LONGEST_LINE else f"{how}: {last[:_LONGEST_LINE]}…"


@dataclass(frozen=True, slots=True)
class Invariant:
    """One of them. Of `patterns` nothing may be changed, of `kept` nothing may go; both are empty where it
    says nothing about paths that a program could check."""

    text: str
    patterns: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Invariant:
        """What the text forbids, sentence by sentence: every word of one that looks like a path."""
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
        """Whether a program sees to any of it."""
        return bool(self.patterns or self.kept)

    @property
    def enforcement(self) -> str:
        """Whether a program sees to it, and to what of it."""
        said = [f"no change of {', '.join(self.patterns)}"] if self.patterns else []
        said += [f"{', '.join(self.kept)} may not be deleted, moved or renamed"] if self.kept else []
        return f"enforced: {'; '.join(said)}" if said else "only told to actors"

    def forbids(self, path: str) -> bool:
        """Whether that file may not be changed."""
        return _matched(self.patterns, path)

    def keeps(self, path: str) -> bool:
        """Whether that file may not go."""
        return _matched(self.kept, path)


def broken_by(invariants: Iterable[str], touched: TouchedPaths) -> str | None:
    """The first invariant that a change of these paths breaks, and by which; None if all hold.

    That a file is gone is known only where it is said what has become of it.
    """
    parsed = [Invariant.parse(text) for text in invariants]
    gone = frozenset(_gone(touched))
    for path in touched:
        for invariant in parsed:
            if invariant.forbids(path):
                return f"{path} was changed, and that is forbidden: {invariant.text}"
            if path in gone and invariant.keeps(path):
                return f"{path} was deleted, and that is forbidden: {invariant.text}"
    return None


def _gone(touched: TouchedPaths) -> Iterator[str]:
    if isinstance(touched, Mapping):
        for path, state in touched.items():
            if (state.after if isinstance(state, Difference) else state) is None:
                yield path


def _paths(part: str, verbs: list[str]) -> list[str]:
    """The paths in a part of a sentence; none where it is about something in a file, not the file."""
    words = [word for word in (word.strip(_QUOTES) for word in part.split()) if word]
    place = next((n for n, word in enumerate(words) if _PREPOSITION.fullmatch(word)), len(words))
    head, rest = words[:place], words[place:]
    found = [word for word in head if _WRITTEN_AS_PATH.fullmatch(word)]
    said = [word for word in head if not _FILLER.fullmatch(word)]
    if found or said:
        # One word alone is a name, as in `never touch Dockerfile`; what is written may be text.
        alone = not rest and len(said) == 1 and "write" not in verbs and _INVARIANT_NAME.fullmatch(said[0])
        return found or (said if alone else [])
    return [word for word in rest if _WRITTEN_AS_PATH.fullmatch(word)] or _bare(rest)


def _bare(words: list[str]) -> list[str]:
    """`files in migrations`: the one word that is left."""
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
