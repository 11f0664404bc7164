"""A check of the vocabulary: docs, messages, docstrings, comments and test names are plain English.

`HABITS` lists the worst habits. `ALLOWED` says how many places each area may have; the numbers only shrink.
`python -m tests.architecture.test_vocabulary [AREA…]` prints every place, and the count of each area.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
GENERATED = ("docs/reference/api.md", "docs/reference/python-api.md")  # written from docstrings
# Commits up to this one keep their subjects.
SUBJECTS_SINCE = "9cb6f22869545c32734afbe53e9b334af1fd3a07"
LONGEST_SUBJECT = 72

# A sentence begins the text, or follows punctuation, a list marker, a heading marker or a table border.
_BEGIN = r"(?:^|(?<=[.!?:;]\s)|(?<=[-*#|]\s))[*_\"'(]*"
HABITS = {
    "opens with a pronoun": rf"{_BEGIN}(?:Who|Whoever|Whose|Whom|What|Whatever|Nobody|Somebody)\b"
    r"(?![^.!?]*\?)",
    "nobody in particular": r"(?i)\b(?:whoever|whosoever|somebody|nobody|anybody|everybody)\b",
    "leave, for approval": r"(?i)\b(?:gives?|gave|given|needs?|needed|asks?|asked|grants?|granted|without"
    r"|waits?)(?: for)? leave\b|\bleave (?:for (?!it\b)|(?:is|was) given)",
    "is told": r"(?i)\b(?:is|are|was|were|be|been|being) told\b",
    "mend, for fix": r"(?i)(?<![-_`])\bmend(?:s|ed|ing)?\b",
    "brings along, for trusted config": r"(?i)\b(?:brings?|brought|bringing) along\b",
    "in whose name, for principal": r"(?i)\bin (?:whose|his|her|their|your) name\b",
    "lent, for passthrough": r"(?i)\b(?:lent|lends?|lending)\b",
    "lanes, for concurrency limit": r"(?i)\blanes?\b",
    "under way, for running": r"(?i)\bunder way\b",
    "leftovers, for orphans": r"(?i)\bleftovers?\b|\bputs? aside\b",
    "in the way, for conflict": r"(?i)\bstands? in the way\b|\bis to become of\b",
    "not wanted, for discarded": r"(?i)\b(?:is|are|was|were) not wanted\b",
    "so many, for a number": r"(?i)\bso (?:many|much) (?:at once|in all|more)\b|\bat once at most\b",
    "word by word, for output": r"(?i)\bword by word\b",
    "heard of, for last seen": r"(?i)\bheard of\b|\bended lately\b",
}
PATTERNS = {habit: re.compile(pattern) for habit, pattern in HABITS.items()}
JAVASCRIPT = re.compile(
    r"(?P<comment>(?:^[ \t]*//[^\n]*\n?)+|(?<!:)//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`)",
    re.MULTILINE | re.DOTALL,
)

# Old words that have to stay: names that are stored or documented.
ALLOWED = {
    "src/jobs": 2,  # `lanes`, a documented field
    "src/plans": 1,  # `mend-`, a stored name of runs
}


@dataclass(frozen=True)
class Text:
    """A docstring, comment, message, paragraph or test name, and the line where it begins."""

    path: str
    line: int
    words: str

    @property
    def area(self) -> str:
        """A package (`src/plans`), a folder of docs or tests (`tests/unit/plans`) or a page of the root."""
        folders = self.path.replace("src/cleveragents", "src", 1).split("/")[:-1]
        deep = 3 if folders[:2] == ["tests", "unit"] else 2
        return "/".join(folders[:deep]) or self.path


def test_every_area_keeps_to_the_vocabulary() -> None:
    found = _offenders()
    counts = Counter(text.area for text, _ in found)
    over = {area for area, count in counts.items() if count > ALLOWED.get(area, 0)}
    places = [_place(text, habits) for text, habits in found if text.area in over]
    sums = [f"{area}: {counts[area]} places, {ALLOWED.get(area, 0)} allowed" for area in sorted(over)]
    assert not over, "\n".join(["Rewrite these sentences in plain English:", *places, *sums])


@pytest.mark.parametrize(
    ("sentence", "habit"),
    [
        ("Who asks first is served.", "opens with a pronoun"),
        ("The plan ends. What is left stays.", "opens with a pronoun"),
        ("- Nobody reads this.", "opens with a pronoun"),
        ("A lock for whoever comes later.", "nobody in particular"),
        ("The call needs leave for a command.", "leave, for approval"),
        ("Give leave once.", "leave, for approval"),
        ("The worker is told.", "is told"),
        ("Two rounds mended the check.", "mend, for fix"),
        ("A repository brings along hooks.", "brings along, for trusted config"),
        ("The user in whose name the request acts.", "in whose name, for principal"),
    ],
)
def test_finds_a_habit(sentence: str, habit: str) -> None:
    assert habit in _habits(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "What happens after a crash?",
        "Read on. Who may approve a request?",
        "We recommend `doctor --fix`; `--mend` is its old name.",
        "Leave the sandbox as it is, then leave the page.",
        "Return what the caller passed, and the user who asked.",
    ],
)
def test_accepts_plain_english(sentence: str) -> None:
    assert _habits(sentence) == []


def test_reads_docstrings_comments_and_messages_of_python() -> None:
    source = '"""Who\nreads."""\n\n# One\n# comment.\nsay(f"{x!r:>{y}} is told " "to go", "word", "a b")\n'
    assert [(text.line, text.words) for text in _python("x.py", source)] == [
        (1, "Who reads."),
        (4, "One comment."),
        (6, "… is told to go"),
        (6, "a b"),
    ]


def test_reads_comments_and_strings_of_the_page() -> None:
    source = "// One\n// comment.\nsay('needs leave', 'word');\n/* is told */ say(`whoever ${x} is`);\n"
    assert [(text.line, text.words) for text in _javascript("x.js", source)] == [
        (1, "One comment."),
        (3, "needs leave"),
        (4, "is told"),
        (4, "whoever … is"),
    ]


def test_reads_prose_but_not_code_of_a_document() -> None:
    source = "# What is it?\n\nUse `--mend`\nonce.\n\n```\nis told\n```\n\n- one\n- two\n"
    assert [(text.line, text.words) for text in _markdown("x.md", source)] == [
        (1, "# What is it?"),
        (3, "Use … once."),
        (10, "- one"),
        (11, "- two"),
    ]


def test_reads_names_of_tests_and_scenarios() -> None:
    source = "def test_who_asks_is_told() -> None:\n    call()\n\n  Scenario: A job ends\n    Given a job\n"
    assert [(text.line, text.words) for text in _names("test_x.py", source)] == [
        (1, "Who asks is told"),
        (4, "A job ends"),
    ]


def test_subjects_of_commits_are_short() -> None:
    if _git("cat-file", "-e", f"{SUBJECTS_SINCE}^{{commit}}").returncode:
        pytest.skip(f"no commit {SUBJECTS_SINCE[:8]} here: a shallow clone, or no git repository")
    log = _git("log", "--no-merges", "--format=%h %s", f"{SUBJECTS_SINCE}..HEAD")
    assert log.returncode == 0, log.stderr
    assert _too_long(log.stdout.splitlines()) == []


def test_finds_a_long_subject() -> None:
    assert _too_long(["1a2b3c4d " + "x" * 72, "2b3c4d5e " + "x" * 73]) == ["2b3c4d5e " + "x" * 73]


def _too_long(log: list[str]) -> list[str]:
    return [line for line in log if len(line.partition(" ")[2]) > LONGEST_SUBJECT]


def _offenders() -> list[tuple[Text, list[str]]]:
    return [(text, habits) for text in _texts() if (habits := _habits(text.words))]


def _place(text: Text, habits: list[str]) -> str:
    return f"{text.path}:{text.line}: [{'; '.join(habits)}] {text.words[:200]}"


def _habits(words: str) -> list[str]:
    return [habit for habit, pattern in PATTERNS.items() if pattern.search(words)]


def _texts() -> Iterator[Text]:
    readers = [
        (_python, "src/**/*.py"),
        (_javascript, "src/**/js/**/*.js"),
        (_markdown, "docs/**/*.md"),
        *((_markdown, page) for page in PAGES),
        (_names, "tests/**/test_*.py"),
        (_names, "features/*.feature"),
    ]
    for reader, pattern in readers:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if name not in GENERATED:
                yield from reader(name, path.read_text(encoding="utf-8"))


def _python(path: str, source: str) -> Iterator[Text]:
    """Yield docstrings, comments and strings with a space, by line."""
    found = [*_literals(path, ast.parse(source)), *_comments(path, source)]
    yield from sorted(found, key=lambda text: text.line)


def _literals(path: str, node: ast.AST) -> Iterator[Text]:
    if isinstance(node, ast.JoinedStr):
        words = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        yield Text(path, node.lineno, _plain(words))
    elif isinstance(node, ast.Constant):
        words = _plain(node.value) if isinstance(node.value, str) else ""
        if " " in words:
            yield Text(path, node.lineno, words)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _literals(path, child)


def _comments(path: str, source: str) -> Iterator[Text]:
    """Yield comments; those on lines that follow each other are one text."""
    begin, last, words = 0, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        alone = not token.line[: token.start[1]].strip()
        if words and not (alone and token.start[0] == last + 1):
            yield Text(path, begin, _plain(words))
            words = ""
        begin = begin if words else token.start[0]
        last, words = token.start[0], f"{words} {token.string.lstrip('#')}"
    if words:
        yield Text(path, begin, _plain(words))


def _javascript(path: str, source: str) -> Iterator[Text]:
    for found in JAVASCRIPT.finditer(source):
        comment, string = found["comment"], found["string"]
        words = re.sub(r"//|/\*+|\*+/|^\s*\*", " ", comment) if comment else string[1:-1]
        words = _plain(re.sub(r"\$\{[^}]*\}|<[^>]*>", "…", words))
        if comment or " " in words:
            yield Text(path, source.count("\n", 0, found.start()) + 1, words)


def _markdown(path: str, source: str) -> Iterator[Text]:
    """Yield paragraphs, list items, table rows and headings, with `…` for code; fenced code is left out."""
    begin, words, fenced = 0, "", False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        if words and (fence or fenced or not line.strip() or re.match(r"\s*([-*#|]|\d+\.)", line)):
            yield Text(path, begin, _plain(re.sub(r"`[^`]*`", "…", words)))
            words = ""
        fenced ^= fence
        if not (fence or fenced) and line.strip():
            begin = begin if words else number
            words = f"{words} {line}"


def _names(path: str, source: str) -> Iterator[Text]:
    named = re.compile(r"^ *(?:async )?def test_(\w+)|^ *Scenario(?: Outline)?: (.+)$", re.MULTILINE)
    for found in named.finditer(source):
        words = found[1].replace("_", " ").capitalize() if found[1] else found[2]
        yield Text(path, source.count("\n", 0, found.start()) + 1, words)


def _plain(words: str) -> str:
    return " ".join(words.split())


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    offenders = [
        (text, habits) for text, habits in _offenders() if text.area in (sys.argv[1:] or [text.area])
    ]
    lines = [_place(text, habits) for text, habits in offenders]
    counts = sorted(Counter(text.area for text, _ in offenders).items())
    sys.stdout.write("\n".join([*lines, *(f'    "{area}": {count},' for area, count in counts), ""]))
