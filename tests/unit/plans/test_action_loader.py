"""Actions in YAML: read correctly, or refused with every mistake, its line and its remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.actions.arguments import Argument, ArgumentType
from cleveragents.core.actions.model import Budget, Check, Setup, Step
from cleveragents.core.errors import InvalidAction
from cleveragents.plans.actions.builtins import builtin_actions
from cleveragents.plans.actions.loader import load_action

WHOLE = """\
name: team/format
description: |
  Formats the code.
arguments:
  path: {type: string, description: what to format, default: "."}
  files: {type: list, rest: true, default: []}
  since: {type: string, default: 2024-01-01}
strategize: {}
execute:
  steps:
    - tool: command
      with: {argv: ["ruff", "format", "${path}", "${files}"]}
      name: format
      continue_on_failure: true
      expect_exit: [0, 1]
    - tool: command
      shell: true
      with: {command: "ls ${path} > list"}
checks:
  - {name: tests, command: "pytest -q", required: false, timeout_seconds: 60}
  - {name: types, command: mypy}
invariants: ["The public API stays as it is."]
definition_of_done: Everything is formatted.
profile: supervised
budget: {seconds: 600, steps: 100}
sandbox:
  setup: {command: "python -m venv .venv", key: [requirements.txt], paths: [.venv]}
  include: [".env.test"]
"""
SMALL = "name: a/b\nexecute: {steps: [{tool: command, with: {argv: [ls]}}]}\n"


def problems(text: str | bytes, **options: object) -> list[str]:
    with pytest.raises(InvalidAction) as refused:
        load_action(text, "file.yaml", **options)
    assert refused.value.source == "file.yaml"
    return list(refused.value.problems)


def changed(old: str, new: str) -> str:
    assert old in WHOLE
    return WHOLE.replace(old, new, 1)


def test_reads_every_field_of_an_action() -> None:
    action = load_action(WHOLE, "file.yaml", tools=["command"])
    assert action.name == "team/format"
    assert action.namespace == "team"
    assert action.description == "Formats the code."
    assert action.arguments == (
        Argument("path", ArgumentType.STRING, "what to format", "."),
        Argument("files", ArgumentType.LIST, "", (), rest=True),
        Argument("since", ArgumentType.STRING, "", "2024-01-01"),
    )
    first, second = action.steps
    assert first == Step(
        "command", {"argv": ("ruff", "format", "${path}", "${files}")}, "format", True, (0, 1)
    )
    assert second.shell
    assert action.checks == (Check("tests", "pytest -q", False, 60), Check("types", "mypy"))
    assert action.invariants == ("The public API stays as it is.",)
    assert action.definition_of_done == "Everything is formatted."
    assert action.profile == "supervised"
    assert action.budget == Budget(600, 100)
    assert action.setup == Setup("python -m venv .venv", ("requirements.txt",), (".venv",))
    assert action.include == (".env.test",)
    assert load_action(action.document, "again") == action


def test_reads_a_minimal_action() -> None:
    action = load_action(SMALL.encode("utf-8-sig").replace(b"\n", b"\r\n"), "file.yaml")
    assert action.steps == (Step("command", {"argv": ("ls",)}),)
    assert (action.profile, action.setup, action.budget) == (None, None, Budget())
    assert (
        load_action("name: a/b\nexecute: {actor: x/y}\nstrategize: {actor: x/z}", "f").execute_actor == "x/y"
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("description", "descriptoin", "line 2: unknown key 'descriptoin'; did you mean 'description'?"),
        ("profile:", "zzz:", "line 24: unknown key 'zzz'; known here: name, description"),
        ('default: "."', "dfault: .", "line 5: unknown key 'dfault'; did you mean 'default'?"),
        ("strategize: {}", "strategize: {actr: a/b}", "line 8: unknown key 'actr'; did you mean 'actor'?"),
        ("strategize: {}", "strategize: {actor: x.yml}", "line 8: 'x.yml' is a file; use the name of"),
        ("required: false", "requird: false", "line 20: unknown key 'requird'; did you mean 'required'?"),
        ("steps: 100", "stepz: 100", "line 25: unknown key 'stepz'; did you mean 'steps'?"),
        ("include:", "inclde:", "line 28: unknown key 'inclde'; did you mean 'include'?"),
        ("paths:", "pats:", "line 27: unknown key 'pats'; did you mean 'paths'?"),
        ("- tool: command", "- tol: command", "line 11: 'tool' is missing; for example: tool: command"),
        ("name: tests, ", "", "line 20: 'name' is missing; for example: name: tests"),
        ("name: team/format", "", "line 2: 'name' is missing; for example: name: team/format"),
        ("name: team/format", "name: Team/Format", "line 1: 'Team/Format' is not a valid name"),
        ("type: string", "type: strng", "line 5: 'type' should be 'string', 'integer'"),
        ('default: "."', "default: 3", "line 5: the default must be a string: 3 is not text"),
        ('default: "."', "default: null", "line 5: the default is empty; give a string, or omit"),
        (
            "type: list, rest",
            "type: path, rest",
            "line 6: 'files' takes the rest, so its type",
        ),
        (
            "since: {type: string",
            "since: {rest: true, type: list",
            "line 7: only one argument",
        ),
        ("since:", "Since:", "line 7: 'Since' is not a valid argument name"),
        ("${path}", "${pth}", "line 12: there is no argument 'pth'; did you mean ${path}?"),
        ('"ruff"', '"x${files}"', "line 12: files is a list, so ${files} must be a list element"),
        ("tool: command", "tool: comand", "line 11: unknown tool 'comand'; did you mean 'command'?"),
        ("tool: command", "tool: zzz", "line 11: unknown tool 'zzz'; known: command, replace"),
        ("shell: true", "shell: 1", "line 17: 'shell' should be true or false"),
        ('{command: "ls', '{script: "ls', "line 18: a shell step needs a script"),
        ("- tool: command\n      shell", "- tool: replace\n      shell", "line 17: only the tool 'command'"),
        ("[0, 1]", "[300]", "line 15: entry 1 of 'expect_exit' should be less than or equal to 255"),
        ("[0, 1]", "[]", "line 15: 'expect_exit' is empty"),
        ("[0, 1]", "0", "line 15: 'expect_exit' should be a list"),
        ("steps:\n", "actor: a/b\n  steps:\n", "line 9: give either `steps` or `actor`"),
        ("timeout_seconds: 60", "timeout_seconds: 0", "line 20: 'timeout_seconds' should be greater than 0"),
        ("timeout_seconds: 60", "timeout_seconds: soon", "line 20: 'timeout_seconds' should be a number"),
        ("name: types", "name: tests", "line 21: two checks are named 'tests'"),
        ("command: mypy", "command: 3", "line 21: 'command' should be text; put it in quotes"),
        ("command: mypy", "command: ''", "line 21: 'command' is empty"),
        ("profile: supervised", "profile: superviced", "line 24: unknown profile 'superviced'; did you"),
        ("profile: supervised", "profile: zzz", "line 24: unknown profile 'zzz'; known: manual"),
        ("steps: 100", "steps: many", "line 25: 'steps' should be a whole number"),
        ("steps: 100", "steps: 0", "line 25: 'steps' should be greater than or equal to 1"),
        ("[.venv]", "[../venv]", "line 27: '../venv' leads outside"),
        ("[requirements.txt]", "[/etc/passwd]", "line 27: '/etc/passwd' leads outside"),
        ("strategize: {}", "strategize: []", "line 8: 'strategize' should be a mapping"),
        ("budget: {seconds: 600, steps: 100}", "budget: 3", "line 25: 'budget' should be a mapping"),
        ("checks:\n", "checks:\n  - ls\n", "line 20: entry 1 of 'checks' should be a mapping"),
    ],
)
def test_names_a_mistake_with_its_line_and_remedy(old: str, new: str, problem: str) -> None:
    found = problems(changed(old, new), tools=["command", "replace"])
    assert any(line.startswith(problem) for line in found), found


def test_does_not_check_tools_that_are_unknown() -> None:
    assert load_action(SMALL.replace("command", "anything"), "f").steps[0].tool == "anything"


def test_reports_every_mistake_in_the_order_of_the_lines() -> None:
    text = changed("description", "descriptoin").replace("${path}", "${pth}", 1).replace("mypy", "3")
    text = text.replace("supervised", "superviced")
    assert [line.partition(":")[0] for line in problems(text)] == ["line 2", "line 12", "line 21", "line 24"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the file is empty; begin it with `name: namespace/name`"),
        (b"# nothing\n", "the file is empty"),
        (b"- a\n- b\n", "not a mapping"),
        (b"just text", "not a mapping"),
        (b"---\n...\n", "not a mapping"),
        (b"a: 1\nb: 2\na: 3\n", "line 3: 'a' is given twice (first on line 1); keep one"),
        (b"a:\n\tb: 1\n", "line 2: YAML does not allow tabs here"),
        (b"a: 1\n---\nb: 2\n", "line 2: a second document begins here"),
        (b"a: &x [1]\nb: *x\n", "line 1: anchors and aliases (&name, *name) are not supported"),
        (b"a: &x\n  - *x\n", "line 1: anchors and aliases"),
        (
            b"a: *.py\n",
            "line 1: anchors and aliases (&name, *name) are not supported; write the value out, or q",
        ),
        (b"a: !!python/object:os.system x\n", "line 1: the tag tag:yaml.org,2002:python/object:os.system"),
        (b"a: !!set {x}\n", "line 1: the tag"),
        (b"\x7fELF\x00\x01", "the file is binary"),
        (b"a: 1\nb: \xff\n", "line 2: not UTF-8 text"),
        (b"a: 1\nb: \x07\n", "line 2: the character U+0007 is not allowed in YAML"),
        (b"[" * 60_000, "line 1: nested deeper than 16 levels"),
        (b"a: " + b"x" * 70_000, "the file is larger than 64 KiB"),
        (b"1: 2\n", "line 1: a key must be text; put quotes around '1'"),
        (b"? [a]\n: 2\n", "line 1: a key must be text; put quotes around the sequence"),
        (b"a: .inf\n", "line 1: '.inf' is not a valid float; quote it if it is text"),
        (b"a: !!int x\n", "line 1: 'x' is not a valid int"),
        (b"%YAML 1.1\n---\na: yes\n", "line 3: 'yes' is not a valid bool"),
        (b"a: " + b"9" * 5000, "line 1: '999999"),
        (b"a: 'x\n", "line 1: the text that begins here has no closing quote; add it"),
        (b"a: b: c\n", "line 1: a colon and a space inside a text; put the text in quotes"),
    ],
)
def test_refuses_other_yaml_with_a_sentence(text: bytes, problem: str) -> None:
    found = problems(text)
    assert found[0].startswith(problem), found
    assert len(str(found)) < 500


def test_does_not_expand_an_alias_bomb() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert all("anchors" in problem for problem in problems("\n".join(lines)))


def test_reads_numbers_and_booleans_as_yaml_1_2() -> None:
    text = SMALL.replace("[ls]", "[0x1f, 0o17, 1_000, 2.5, true, FALSE, null, yes, on, 007, 1e3]")
    argv = load_action(text, "f").steps[0].arguments["argv"]
    assert argv == (31, 15, 1000, 2.5, True, False, None, "yes", "on", 7, 1000.0)


def test_refuses_invalid_unicode_in_text_and_bytes() -> None:
    assert problems("a: \udcff")[0].startswith("line 1: not UTF-8")


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200), st.sampled_from(WHOLE.split("\n"))))
def test_accepts_or_refuses_any_text(text: str | bytes) -> None:
    try:
        told: tuple[str, ...] = ("an action",) if load_action(text, "f") else ()
    except InvalidAction as error:
        told = error.problems
    assert all(told)
    assert told


@given(st.data())
def test_reports_cut_or_swapped_lines_in_a_sentence(data: st.DataObject) -> None:
    lines = WHOLE.splitlines()
    first = data.draw(st.integers(0, len(lines) - 1))
    second = data.draw(st.integers(0, len(lines) - 1))
    lines[first], lines[second] = lines[second], lines[first][: data.draw(st.integers(0, 30))]
    told: tuple[str, ...] = ()
    try:
        load_action("\n".join(lines), "f", tools=["command"])
    except InvalidAction as error:
        told = error.problems
    assert all(problem.startswith(("line ", "it is")) for problem in told)


def test_built_in_actions_run_a_command_reach_goals_and_replace_text() -> None:
    command, goal, _, replace = builtin_actions()
    (step,) = command.render(command.parse([], ["ruff", "format", "."]))
    assert step == Step(
        "command", {"argv": ("ruff", "format", "."), "directory": ".", "timeout_seconds": 600}
    )
    (step,) = replace.render(replace.parse(["pattern=a", "replacement="]))
    assert step == Step("replace", {"pattern": "a", "replacement": "", "glob": "**/*", "regex": False})
    assert goal.parse(["goal=mend it"]) == {"goal": "mend it"}
    assert (goal.strategize_actor, goal.execute_actor, goal.review_actor) == (
        "builtin/strategist",
        "builtin/executor",
        "builtin/reviewer",
    )
    names = [action.name for action in builtin_actions()]
    assert names == ["builtin/command", "builtin/goal", "builtin/goals", "builtin/replace"]
