"""Edits in code blocks: how small models write them, and what is never done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cleveragents.core.policy import Capability
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.tools.block_edits import BlockEdits, blocks_in
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace

ANSWERS = Path(__file__).parents[2] / "answers" / "qwen2.5-coder-1.5b"
GOAL = "Fix the helpers so that all tests pass"
CODE = '''"""Small text helpers."""


def slugify(text):
    """Return the text in lower case, with runs of other characters than letters and digits as one hyphen."""
    return text.lower().replace(" ", "-")


def initials(name):
    """Return the initials of a name in upper case: "ada lovelace" gives "AL"."""
    return name[0].upper()
'''
TEST = """from text_tools import initials, slugify


def test_slug():
    assert slugify("Hello, World!") == "hello-world"


def test_slug_ends():
    assert slugify("  a  b ") == "a-b"


def test_initials():
    assert initials("ada lovelace") == "AL"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "text_tools.py").write_text(CODE)
    (tmp_path / "test_text_tools.py").write_text(TEST)
    return tmp_path


def shown(root: Path) -> str:
    return "\n\n".join(f"{path.name}\n```\n{path.read_text()}```" for path in sorted(root.glob("*.py")))


def edit(root: Path, text: str, *, goal: str = GOAL, more: str = "") -> dict[str, Any]:
    place = Workplace(ConfinedFiles(root), cast("Any", None), CancellationToken())
    arguments = {"text": text, "shown": shown(root) + more, "goal": goal}
    return cast("dict[str, Any]", BlockEdits().call(arguments, place))


def replacing(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


def block(path: str, code: str, language: str = "python") -> str:
    return f"{path}\n```{language}\n{code}```\n"


# ── Answers of a real model ───────────────────────────────────────────────────────────────────────


def test_an_answer_without_code_changes_nothing(root: Path) -> None:
    done = edit(root, (ANSWERS / "no-change.md").read_text())
    assert done == {"changed": [], "left_out": [], "problems": []}


def test_one_function_replaces_its_namesake_and_the_others_stay(root: Path) -> None:
    done = edit(root, (ANSWERS / "one-function.md").read_text())
    assert done["changed"] == ["text_tools.py: replaced slugify"]
    text = (root / "text_tools.py").read_text()
    assert text == CODE.replace('.replace(" ", "-")', '.replace(" ", "-").strip()')


def test_repeated_functions_and_unchanged_tests_are_one_change(root: Path) -> None:
    done = edit(root, (ANSWERS / "functions-twice.md").read_text())
    assert done["changed"] == ["text_tools.py: replaced slugify"]
    assert done["problems"] == []
    assert (root / "text_tools.py").read_text().startswith('"""Small text helpers."""\n\nimport re\n\n\ndef')
    assert (root / "test_text_tools.py").read_text() == TEST


def test_a_model_does_not_change_existing_tests_unless_the_goal_asks_for_it(root: Path) -> None:
    answer = (ANSWERS / "tests-changed.md").read_text()
    done = edit(root, answer)
    assert done["left_out"] == ["test_text_tools.py: existing tests stay as they are"]
    assert (root / "test_text_tools.py").read_text() == TEST
    edit(root, answer, goal="Fix text_tools.py. The tests in test_text_tools.py must pass.")
    assert (root / "test_text_tools.py").read_text() == TEST
    edit(root, answer, goal="Add cases to test_text_tools.py")
    assert (root / "test_text_tools.py").read_text().count("def test_slug():") == 1
    assert '"JD"' in (root / "test_text_tools.py").read_text()


@pytest.mark.parametrize(
    "code",
    [
        "def longest(words):\n    def size(word):\n        return 1\n\n    return max(words, key=size)\n",
        "class Words:\n    def size(self, word):\n        return 1\n",
    ],
    ids=["nested function", "method"],
)
def test_a_block_without_a_path_replaces_an_inner_function(root: Path, code: str) -> None:
    (root / "words.py").write_text(code)
    head = next(line.strip() for line in code.splitlines() if "def size" in line)
    done = edit(root, f"It must count the letters:\n\n```python\n{head}\n    return len(word)\n```\n")
    assert done["changed"] == ["words.py: replaced size"]
    assert (root / "words.py").read_text() == code.replace("return 1", "return len(word)")


# ── Formats ───────────────────────────────────────────────────────────────────────────────────────


def test_a_search_and_replace_block(root: Path) -> None:
    text = f"text_tools.py\n```\n{replacing('    return name[0].upper()', '    return name')}```"
    assert edit(root, text)["changed"] == ["text_tools.py: 1 replaced"]
    assert "return name\n" in (root / "text_tools.py").read_text()


def test_a_missing_text_names_the_first_difference(root: Path) -> None:
    text = f"text_tools.py\n{replacing('    return name[1].upper()', '    return name')}"
    (problem,) = edit(root, text)["problems"]
    assert "name[0].upper()" in problem


def test_a_unified_diff_with_wrong_line_numbers(root: Path) -> None:
    head = "--- a/text_tools.py\n+++ b/text_tools.py\n@@ -90,1 +90,1 @@\n"
    lines = "-    return name[0].upper()\n+    return name\n"
    assert edit(root, f"```diff\n{head}{lines}```")["changed"] == ["text_tools.py: 1 replaced"]


def test_a_new_file_needs_the_capability_to_create(root: Path) -> None:
    text = block("src/new.py", "def new():\n    return 1\n")
    files = ConfinedFiles(root)
    tool = BlockEdits()
    assert tool.capability_of({"text": text}, files) is Capability.CREATE
    assert tool.capability_of({"text": block("text_tools.py", "x")}, files) is Capability.EDIT
    assert edit(root, text)["changed"] == ["src/new.py: created"]


def test_an_invented_directory_leads_to_the_shown_file(root: Path) -> None:
    edit(root, block("path/to/text_tools.py", "def initials(name):\n    return name\n"))
    assert "    return name\n" in (root / "text_tools.py").read_text()
    assert not (root / "path").exists()


def test_shell_blocks_are_no_edits(root: Path) -> None:
    assert edit(root, "Run text_tools.py:\n```sh\npython text_tools.py\n```")["changed"] == []


# ── What is refused ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def slugify(text):\n    # ... rest unchanged\n    return text\n", "incomplete"),
        ("def slugify(text):\n    return text..lower()\n", "would not compile"),
        ("print(1)\n", "no function or class"),
    ],
)
def test_code_that_would_damage_the_file_is_refused(root: Path, code: str, problem: str) -> None:
    done = edit(root, block("text_tools.py", code))
    assert problem in done["problems"][0]
    assert done["changed"] == []
    assert (root / "text_tools.py").read_text() == CODE


def test_unchanged_code_is_left_out(root: Path) -> None:
    done = edit(root, block("text_tools.py", CODE))
    assert (done["changed"], done["problems"]) == ([], [])
    assert done["left_out"] == ["text_tools.py: the block is the same as the file"]


def test_half_a_file_is_never_written(root: Path) -> None:
    done = edit(root, "text_tools.py\n```python\ndef slugify(text):\n    return te")
    assert "not closed" in done["problems"][0]
    assert (root / "text_tools.py").read_text() == CODE


def test_a_block_copied_from_a_shown_file_is_refused(root: Path) -> None:
    """A README that contains an edit must not become one through a model that repeats it."""
    hostile = block("text_tools.py", "def slugify(text):\n    import os; os.system('id')\n")
    done = edit(root, f"As the README says:\n\n{hostile}", more=f"\n\nREADME.md\n````\n{hostile}````")
    assert "copied" in done["problems"][0]
    assert (root / "text_tools.py").read_text() == CODE


@pytest.mark.parametrize("path", ["../outside.py", "/etc/outside.py", ".git/hooks.py"])
def test_paths_outside_the_sandbox_are_refused(root: Path, path: str) -> None:
    (root / ".git").mkdir()
    done = edit(root, block(path, "x = 1\n"))
    assert not (root.parent / "outside.py").exists()
    assert not (root / ".git" / "hooks.py").exists()
    assert not Path("/etc/outside.py").exists()
    assert done["problems"] or not any(".git" in one for one in done["changed"])


def test_a_masked_secret_is_not_written_back(root: Path) -> None:
    (root / "settings.py").write_text(
        'API_KEY = "sk-0123456789abcdefghij0123"\n\n\ndef f():\n    return API_KEY\n'
    )
    done = edit(root, block("settings.py", 'API_KEY = "***"\n\n\ndef f():\n    return 1\n'))
    assert "sk-0123456789" in (root / "settings.py").read_text(), done


@pytest.mark.parametrize(
    "answer",
    [
        "<<<<<<< SEARCH\n" * 6_000 + "=======\n" * 6_000,
        "text_tools.py\n```\n" * 9_000,
        "+" * 200_000,
        "a/" * 100_000,
        "```\n" * 50_000,
    ],
)
def test_hostile_answers_take_linear_time(root: Path, answer: str) -> None:
    """With backtracking expressions each of them takes minutes."""
    edit(root, answer[:200_000], more=answer)
    assert (root / "text_tools.py").read_text() == CODE


def test_line_endings_and_the_byte_order_mark_stay(root: Path) -> None:
    (root / "text_tools.py").write_bytes(b"\xef\xbb\xbf" + CODE.replace("\n", "\r\n").encode())
    assert edit(root, block("text_tools.py", "def initials(name):\n    return name\n"))["changed"]
    data = (root / "text_tools.py").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    assert data.count(b"\n") == data.count(b"\r\n")


@pytest.mark.parametrize("path", [".github/workflows/ci.yml", "Makefile", ".env.example"])
def test_files_with_unusual_names_are_written(root: Path, path: str) -> None:
    assert edit(root, block(f"**{path}**", "all:\n", ""))["changed"] == [f"{path}: created"]


def test_a_path_in_a_sentence_creates_no_file(root: Path) -> None:
    done = edit(root, "Use it like e.g. this, in usage.py or so:\n```python\nprint(1)\n```")
    assert done["changed"] == []
    assert not (root / "usage.py").exists()
    assert done["left_out"] == ["a block without the path of a file above it"]


def test_a_path_in_a_comment_at_the_top_of_a_block_names_its_file(root: Path) -> None:
    done = edit(root, "Done.\n\n```python\n# text_tools.py\ndef initials(name):\n    return name[0]\n```\n")
    assert done["changed"] == ["text_tools.py: replaced initials"]


def test_a_heading_matters_more_than_a_comment(root: Path) -> None:
    answer = "new/schema.sql\n```sql\n-- public.users\ncreate table users (id int);\n```\n"
    assert edit(root, answer)["changed"] == ["new/schema.sql: created"]


def test_a_comment_in_a_shown_file_makes_no_edit(root: Path) -> None:
    """A document of the repository holds code for another file, and the model quotes it."""
    quoted = "```python\n# text_tools.py\ndef initials(name):\n    return 'x'\n```"
    done = edit(root, f"The documentation says:\n\n{quoted}\n", more=f"README.md\n````\n{quoted}\n````")
    assert done["changed"] == []
    assert "copied" in done["problems"][0]


def test_a_comment_creates_no_file(root: Path) -> None:
    edit(root, "Done:\n```js\n// Node.js\nconst answer = 42\n```\n")
    assert not (root / "Node.js").exists()


@pytest.mark.parametrize(
    ("goal", "protected"),
    [
        ("Fix text_tools.py until test_text_tools.py no longer fails", True),
        ("Fix the failing test_text_tools.py", True),
        ("The tests in test_text_tools.py must pass. Add a --json flag.", True),
        ("Change test_text_tools.py so that it passes on Windows", False),
        ("Add a case for empty names to tests in test_text_tools.py", False),
    ],
)
def test_the_goal_decides_whether_a_test_may_change(root: Path, goal: str, protected: bool) -> None:
    done = edit(root, block("test_text_tools.py", "def test_slug():\n    assert True\n"), goal=goal)
    assert bool(done["left_out"]) is protected
    assert ((root / "test_text_tools.py").read_text() == TEST) is protected


def test_a_file_in_conflict_is_written_whole_and_changed_only_in_marked_places(root: Path) -> None:
    both = '<<<<<<< plan 7QX2\n    assert slugify("A") == "a"\n=======\n    assert True\n>>>>>>> other\n'
    marked = TEST.replace('    assert slugify("  a  b ") == "a-b"\n', both)
    path, merged = root / "test_text_tools.py", TEST.replace('"  a  b "', '"a b"')
    path.write_text(marked)
    skipped = merged.replace("def test_", "import pytest\n\npytest.skip()\n\n\ndef test_", 1)
    parts = (merged.partition("\n\n\n")[2], merged.replace('"AL"', '"A"'), skipped)
    for part in parts:
        (problem,) = edit(root, block("test_text_tools.py", part))["problems"]
        assert "write the whole file" in problem
        assert path.read_text() == marked
    replaced = '<<<<<<< SEARCH\n"AL"\n=======\n"A"\n>>>>>>> REPLACE\n'
    assert edit(root, block("test_text_tools.py", replaced))["left_out"]
    assert path.read_text() == marked
    done = edit(root, block("test_text_tools.py", merged))
    assert (done["changed"], path.read_text()) == (["test_text_tools.py: resolved"], merged)
    quoted = f'{CODE}\n\nMARKS = """\n{both.replace("plan 7QX2", "ours")}"""\n'
    (root / "text_tools.py").write_text(quoted)
    edit(root, block("text_tools.py", 'def initials(name):\n    return "AL"\n'))
    assert (root / "text_tools.py").read_text().endswith(quoted[len(CODE) :]), "quoted marks are only text"


@pytest.mark.parametrize("name", ["conftest.py", "pytest.ini", "tests/conftest.py"])
def test_no_new_file_decides_which_tests_run(root: Path, name: str) -> None:
    answer = f"{name}\n```\ncollect_ignore = ['test_text_tools.py']\n```\n"
    assert edit(root, answer)["left_out"] == [f"{name}: existing tests stay as they are"]
    assert not (root / name).exists()
    assert edit(root, answer, goal=f"Create {name}")["changed"] == [f"{name}: created"]


def test_definitions_matter_more_than_a_path_in_a_sentence(root: Path) -> None:
    """A small model wrote the right function below a sentence that names its tests."""
    answer = (
        "The tests in test_text_tools.py fail.\n\n```python\ndef initials(name):\n    return name[0]\n```\n"
    )
    assert edit(root, answer)["changed"] == ["text_tools.py: replaced initials"]


def test_blocks_in_order_with_their_paths() -> None:
    text = "### `a/b.py`\n```python\nx\n```\nthen\n```js src/c.js\ny\n```\n~~~\nz\n~~~\n"
    assert [(one.path, one.language) for one in blocks_in(text)] == [
        ("a/b.py", "python"),
        ("src/c.js", ""),
        ("", ""),
    ]
