"""Command rules match whole arguments, and none of them allows anything."""

from __future__ import annotations

import pytest

from cleveragents.core.command_rule import CommandRule, argv_of, suggest_rule
from cleveragents.core.errors import RequestRefused


def argv(*words: str) -> dict[str, tuple[str, ...]]:
    return {"argv": words}


@pytest.mark.parametrize(
    ("pattern", "command", "matches"),
    [
        ("pytest *", "pytest", True),
        ("pytest *", "pytest -q tests", True),
        ("pytest *", "pytest-3 -q", False),
        ("pytest *", "./pytest -q", False),
        ("pytest -q", "pytest -q", True),
        ("pytest -q", "pytest -q tests", False),
        ("pytest -q", "pytest", False),
        ("git status *", "git status --short", True),
        ("git status *", "git -c core.pager=evil status", False),
        ("git status *", "git status-evil", False),
        ("git status *", "git", False),
        ("ls '*'", "ls '*'", True),
        ("ls '*'", "ls a", False),
    ],
)
def test_a_rule_matches_whole_arguments(pattern: str, command: str, matches: bool) -> None:
    import shlex

    rule = CommandRule.parse(pattern)
    assert rule.matches(shlex.split(command)) is matches
    assert CommandRule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    "script",
    [
        "pytest; rm -r x", "pytest & id", "pytest | sh", "pytest < x", "pytest > x", "pytest $HOME",
        "pytest `id`", "pytest $(id)", "(pytest)", "{ pytest; }", "pytest\nid", "pytest\rid",
        "pytest *", "pytest a?", "pytest [a]", "pytest ~", "pytest \\; id", "pytest #x", "! pytest",
        "pytest ';'", 'pytest "$HOME"', "pytest '", "pytest ä", "A=b pytest", "PATH=. pytest -q", "",
        " ", "pytest\x00", "pytest %1", "pytest ^x",
    ],
)  # fmt: skip
def test_no_rule_matches_shell_text_with_special_characters(script: str) -> None:
    assert argv_of({"script": script}) is None
    assert suggest_rule({"script": script}).rule is None
    assert suggest_rule({"script": script}).exact is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("pytest -q tests", ("pytest", "-q", "tests")),
        ("pytest  -k 'a and b'", ("pytest", "-k", "a and b")),
        ('pytest --x="a b"', ("pytest", "--x=a b")),
    ],
)
def test_a_script_of_one_plain_command_matches_its_arguments(script: str, words: tuple[str, ...]) -> None:
    assert argv_of({"script": script}) == words


def test_a_shell_text_in_an_argument_is_no_command_line() -> None:
    assert argv_of(argv("sh", "-c", "pytest; id")) is None
    assert argv_of(argv("/bin/bash", "-lc", "pytest | sh")) is None
    assert argv_of(argv("bash", "run.sh", "fast")) == ("bash", "run.sh", "fast")
    # No shell reads these arguments.
    assert argv_of(argv("grep", "a|b", "x y")) == ("grep", "a|b", "x y")


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("pytest -q tests", "pytest *"),
        ("git status --short", "git status *"),
        ("npm run test -- -x", "npm run test *"),
        ("npm test", "npm test *"),
        ("make test", "make test *"),
        ("python -m pytest -q", "python -m pytest *"),
        ("python3.11 -m pytest", "python3.11 -m pytest *"),
        ("python manage.py migrate", "python manage.py *"),
        ("uv run pytest -q", "uv run pytest *"),
        ("uv run python -m pytest -q", "uv run python -m pytest *"),
        ("poetry run git status -s", "poetry run git status *"),
        ("./run tests", "./run *"),
        ("cargo test --all", "cargo test *"),
        ("bash ci.sh fast", "bash ci.sh *"),
        ("bash dev/ci.sh fast", "bash dev/ci.sh *"),
        ("busybox ls -l", "busybox ls *"),
        ("busybox sh ci.sh fast", "busybox sh ci.sh *"),
        ("deno test -A", "deno test *"),
        ("bun run test -x", "bun run test *"),
        ("coverage report -m", "coverage report *"),
        ("coverage run tests.py -v", "coverage run tests.py *"),
        ("git submodule status -q", "git submodule status *"),
        ("uv tool list -v", "uv tool list *"),
        ("md5sum x", "md5sum *"),
    ],
)
def test_a_suggestion_keeps_the_sub_command(command: str, pattern: str) -> None:
    suggestion = suggest_rule(argv(*command.split()))
    assert (str(suggestion.rule), str(suggestion.exact)) == (pattern, command)
    assert suggestion.rule == CommandRule.parse(pattern)


@pytest.mark.parametrize(
    "command",
    [
        "python -c pass", "python -", "sudo id", "env A=b id", "xargs rm", "find . -delete",
        "git -c a=b status", "make -f x", "uv run --with x y", "timeout 9 id", "docker run x",
        "perl -e 1", "node -e 1", "python -m timeit 1", "ssh host", "uv run python -c 1", "npx",
        "/usr/bin/env python", "nohup sudo id", "bash -c id", "awk 1", "busybox sh -c id", "deno eval 1",
        "git submodule foreach id", "git submodule --quiet foreach id", "git bisect run id", "nvim x",
        "git rebase -x id main", "python -m IPython x", "coverage run -m pytest", "toybox sh -c id",
        "bash /dev/stdin", "bash ../../dev/fd/0", "sh /proc/self/fd/0", "python3.13t -c 1",
    ],
)  # fmt: skip
def test_a_command_that_runs_anything_has_only_an_exact_rule(command: str) -> None:
    suggestion = suggest_rule(argv(*command.split()))
    assert str(suggestion.exact) == command
    assert suggestion.rule is None
    assert suggestion.problem


@pytest.mark.parametrize(
    "pattern",
    [
        "sh *", "bash *", "/bin/bash *", "python *", "python3.12 *", "env *", "sudo *", "xargs *",
        "git *", "npm *", "make *", "uv run *", "uv run python *", "python -m *", "python -c *",
        "bash -c *", "git -c *", "*", " ", "", "A=b pytest *", "pytest '", "py* -q", "* pytest",
        "pytest *x", "pytest * -q", "PYTHON *", "npm run -- *", "sh -c 'a; b'", "pytest 'a\nb'",
        "curl ***", "pytest " + "x" * 1001, "busybox *", "busybox sh *", "deno *", "deno eval *",
        "deno run *", "bun x *", "bunx *", "npm x *", "npm run-script *", "python3.13t *", "python3.13td *",
        "python3-dbg *", "python3.6dm *", "python.exe *", "Python3.12.exe *", "bash.exe *",
        "bash /dev/stdin *", "bash //dev/fd/0 *",
        "git submodule *", "git submodule --quiet *", "git submodule foreach *", "git bisect *",
        "git bisect run *", "coverage *", "coverage run *", "uv tool *", "go run *", "python -m coverage *",
        "vimdiff *", "uv run python3-dbg *",
    ],
)  # fmt: skip
def test_a_rule_that_would_allow_anything_is_refused(pattern: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        CommandRule.parse(pattern)
    assert refused.value.where == "pattern"


def test_the_refusal_says_why_and_what_is_possible() -> None:
    with pytest.raises(RequestRefused, match=r"cannot allow `sudo \*`: .*allow the exact command instead"):
        CommandRule.parse("sudo *")
    with pytest.raises(RequestRefused, match=r"name one, as in `git status \*`"):
        CommandRule.parse("git *")
    assert CommandRule.parse("sudo id").matches(["sudo", "id"])
