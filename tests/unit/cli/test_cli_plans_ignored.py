"""What a plan made and will not be applied, from end to end: no check passes on it, and the user is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import ran
from tests.plan_bench import new_repository

pytestmark = pytest.mark.usefixtures("commands_are_forked")
FILES = {".gitignore": "gen.py\ncache-*/\n", "README.md": "Read me.\n"}
PLAN = "echo 'x = 1' > gen.py; echo 'import gen' > main.py; mkdir cache-1; touch cache-1/x"


class User:
    """Somebody at a command line, in a repository of their own."""

    def __init__(self, home: Path) -> None:
        self.root = new_repository(home / "repository", FILES)
        kept = {name: text for name, text in os.environ.items() if not name.startswith("CLEVERAGENTS_")}
        self._environment = kept | {"HOME": str(home), "CLEVERAGENTS_STATE_DIRECTORY": str(home / "state")}

    def agents(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cleveragents", *words]
        ended = ran(command, cwd=self.root, env=self._environment, timeout=120)
        return subprocess.CompletedProcess(command, *ended)

    def run(self, check: str, *options: str) -> subprocess.CompletedProcess[str]:
        action = ("--action", "builtin/command", "--check", check, *options)
        return self.agents("run", *action, "--", "sh", "-c", PLAN)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_a_check_that_needs_an_ignored_file_fails_and_nothing_is_applied(user: User) -> None:
    ran = user.run("python3 main.py", "--yes")
    assert ran.returncode == 3, ran.stderr
    assert "not applied because git ignores them: gen.py, cache-1/; checks ran without them\n" in ran.stderr
    assert "check python3 main.py: failed" in ran.stderr
    assert sorted(path.name for path in user.root.iterdir()) == [".git", *FILES]


def test_show_and_apply_list_ignored_files(user: User) -> None:
    ran = user.run("! test -e gen.py")
    sentence = "not applied because git ignores them: gen.py, cache-1/; checks ran without them"
    assert ran.returncode == 3
    assert f"{sentence}\n" in ran.stderr
    plan = ran.stderr.split()[1].rstrip(":")
    account = json.loads(user.agents("plan", "show", plan, "--format", "json").stdout)
    assert account["ignored"] == ["gen.py", "cache-1/"]
    assert sentence in user.agents("plan", "show", plan).stdout
    applied = user.agents("plan", "apply", plan)
    assert applied.returncode == 0, applied.stderr
    assert f"{sentence}\n" in applied.stderr
    assert not (user.root / "gen.py").exists()
    assert (user.root / "main.py").exists()
