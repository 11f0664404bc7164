"""Rendering: arguments become values, elements and parameters, and never code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.actions.arguments import Argument, ArgumentType
from cleveragents.core.actions.model import Action, Step
from cleveragents.core.errors import InvalidAction
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.template import shell_argv

ARGUMENTS = (
    Argument("text", ArgumentType.STRING, default="t"),
    Argument("count", ArgumentType.INTEGER, default=3),
    Argument("ratio", ArgumentType.NUMBER, default=0.5),
    Argument("flag", ArgumentType.BOOLEAN, default=True),
    Argument("files", ArgumentType.LIST, default=("a", "b c")),
)


def rendered(template: JsonValue, **values: JsonValue) -> JsonValue:
    action = Action("a/b", arguments=ARGUMENTS, steps=(Step("tool", {"x": template}),))
    return action.render(values)[0].arguments["x"]


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("plain", "plain"),
        ("${text}", "t"),
        ("${count}", 3),
        ("${flag}", True),
        ("${files}", ("a", "b c")),
        ("n=${count}, ${flag}, ${ratio}!", "n=3, true, 0.5!"),
        (["x", "${files}", "${count}"], ("x", "a", "b c", 3)),
        ([["${files}"]], (("a", "b c"),)),
        ({"k": {"${text}": "${text}"}}, {"k": {"${text}": "t"}}),
        ("$${text}", "${text}"),
        ("$$${text}", "$${text}"),
        ("$text $ {text}", "$text $ {text}"),
        (7, 7),
        (None, None),
    ],
)
def test_references_are_filled_in(template: JsonValue, value: JsonValue) -> None:
    assert rendered(template) == value


def test_an_empty_list_leaves_no_element() -> None:
    assert rendered(["ls", "${files}"], files=[]) == ("ls",)


def test_substituted_values_are_not_expanded_again() -> None:
    assert rendered(["${text}", "-${text}"], text="${count} $${x}") == ("${count} $${x}", "-${count} $${x}")


def test_a_rendered_step_keeps_what_else_it_says() -> None:
    step = Step("command", {"argv": ["${text}"]}, "list", True, (0, 1))
    (ready,) = Action("a/b", arguments=ARGUMENTS, steps=(step,)).render({"text": "ls"})
    assert ready == Step("command", {"argv": ("ls",)}, "list", True, (0, 1))


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("${txt}", "there is no argument 'txt'; did you mean ${text}?"),
        ("${}", "there is no argument ''"),
        ("${HOME}", "$${"),
        ("${text", "is not closed"),
        (["-${files}"], "files is a list, so ${files} must be a list element by itself"),
        ({"deep": [{"x": "${nope}"}]}, "no argument 'nope'"),
    ],
)
def test_an_action_that_could_not_be_rendered_cannot_be_made(template: JsonValue, problem: str) -> None:
    with pytest.raises(InvalidAction) as refused:
        Action("a/b", arguments=ARGUMENTS, steps=(Step("tool"), Step("tool", {"x": template})))
    assert problem in str(refused.value)
    assert "step 2: " in str(refused.value)


@pytest.mark.parametrize("arguments", [{}, {"command": 3}, {"command": "ls", "argv": ["ls"]}])
def test_a_shell_step_has_a_script_and_nothing_else_to_run(arguments: dict[str, JsonValue]) -> None:
    with pytest.raises(InvalidAction, match="shell step"):
        Action("a/b", steps=(Step("command", arguments, shell=True),))


@given(st.lists(st.text()), st.text())
def test_values_arrive_in_an_argv_as_they_are(files: list[str], text: str) -> None:
    clean = [file.replace("\0", "") for file in files]
    argv = rendered(["x", "${files}", "${text}"], files=clean, text=text.replace("\0", ""))
    assert argv == ("x", *clean, text.replace("\0", ""))


HOSTILE = [
    "plain",
    "two words",
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "\"'\"'; touch pwned #",
    "a\nb\ttouch pwned",
    "*",
    "-n",
    "\\",
    "$HOME ${HOME}",
    "E\ntouch pwned\n",
    "ünïcode",
]


def run(script: str, directory: Path, **values: JsonValue) -> str:
    step = Step("command", {"command": script, "directory": "."}, shell=True)
    arguments = tuple(
        Argument(name, ArgumentType.LIST if isinstance(value, list) else ArgumentType.STRING)
        for name, value in values.items()
    )
    (ready,) = Action("a/b", arguments=arguments, steps=(step,)).render(values)
    assert not ready.shell
    assert set(ready.arguments) == {"argv", "directory"}
    argv = ready.arguments["argv"]
    assert isinstance(argv, tuple)
    done = subprocess.run(
        argv, cwd=directory, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    return done.stdout


@pytest.mark.parametrize(
    ("script", "shape"),
    [
        ("printf '%s|' ${x} end", "{}|end|"),
        ("printf '%s|' \"${x}\" end", "{}|end|"),
        ("printf '%s|' 'a ${x} b' end", "a {} b|end|"),
        ("printf '%s|' pre${x}\"post ${x}\"", "pre{}post {}|"),
        ("printf '%s|' \\' \\\" ${x} 'it'\\''s'", "'|\"|{}|it's|"),
    ],
)
@pytest.mark.parametrize("value", HOSTILE)
def test_a_script_sees_the_value_itself_in_any_quotes(
    tmp_path: Path, script: str, shape: str, value: str
) -> None:
    assert run(script, tmp_path, x=value) == shape.replace("{}", value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "script",
    [
        "cat <<E\n${x}\nE",
        "echo `echo ${x}`",
        'echo "$(echo ${x})"',
        "# don't\necho 'a ${x} b'",
        "echo $'it\\'s ${x}'",
        "echo $((1 + 1)) ${x} # ${x}",
        "case ${x} in a) ;; esac",
    ],
)
@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_never_executed_however_strange_the_script(
    tmp_path: Path, script: str, value: str
) -> None:
    run(script, tmp_path, x=value)
    assert list(tmp_path.iterdir()) == []


def test_a_list_in_a_script_expands_to_words_and_in_quotes_to_one(tmp_path: Path) -> None:
    files = ["a b", "*", "c"]
    assert run("printf '%s|' ${files}", tmp_path, files=files) == "a b|*|c|"
    assert run("printf '%s|' \"${files}\"", tmp_path, files=files) == "a b * c|"
    assert run("printf '%s|' 'x' ${files}", tmp_path, files=[]) == "x|"


def test_a_script_has_its_own_variables_and_more_than_nine_parameters(tmp_path: Path) -> None:
    many = [str(number) for number in range(12)]
    assert (
        run("v=1; printf '%s|' $${v} ${m} ${x}", tmp_path, m=many, x="end")
        == "1|" + "|".join([*many, "end"]) + "|"
    )


def test_a_script_without_references_is_left_as_it_is() -> None:
    assert shell_argv("echo $1 '$x'", {}) == ("sh", "-c", "echo $1 '$x'", "sh")
