"""Edits that a model writes as code blocks in its answer, for models that do not call tools well.

An answer may hold blocks of four forms. The path of the file is above each block or in it:

- definitions: code whose functions and classes replace those of the same name (see `definition_merge`);
- a whole file, if the file is new, has no definitions or conflict markers, or the block has all of them;
- `<<<<<<< SEARCH`, `=======`, `>>>>>>> REPLACE`: an exact replacement;
- a unified diff.

Small models forget the path or invent one, so a block of code without a known path goes to the shown file
that has its definitions, if there is exactly one. A block that cannot be applied is reported and changes
nothing; the other blocks are applied.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import NamedTuple

from pydantic import Field

from cleveragents.context.model.code import is_test
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.policy import Capability
from cleveragents.plans.tools.definition_merge import MergeRefused, elision_in, merge_definitions, names_in
from cleveragents.tools.files.exact_edit import ExactEdit
from cleveragents.tools.files.text_files import ensure_no_mask, read_text, uses_crlf
from cleveragents.tools.ports import SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = [
    "Block",
    "BlockEdits",
    "MergeRefused",
    "blocks_in",
    "ensure_parses",
    "files_in",
    "is_protected",
    "paths_in",
]

_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_SEARCH, _DIVIDER, _REPLACED = (
    re.compile(rf"{sign}{{5,9}} ?{word}")
    for sign, word in (("<", "SEARCH"), ("=", "[ \\t]*$"), (">", "REPLACE"))
)
# A file may contain other markers as text; those of a merge name the plan.
_OURS, _THEIRS = "<" * 7 + " plan ", ">" * 7 + " "
_HUNK = re.compile(r"^@@[^\n]*$", re.MULTILINE)
_BETWEEN_WORDS = re.compile(r"[\s`*'\"()<>\[\]{},;:=|]+")
_PATH_WORD = re.compile(r"[\w@+./-]+")
_ENDING = re.compile(r"\.[A-Za-z]\w{0,9}$")
_NAMES = frozenset({"Makefile", "Dockerfile", "Justfile", "Rakefile", "Gemfile", "Procfile", "LICENSE"})
_HEADING = re.compile(r"[#\s>-]*(?:(?:file|path|filename)\s*:)?", re.IGNORECASE)
_CHANGE = r"(?:add|change|update|edit|extend|rewrite|rename|move|remove|delete|create|write|put|correct)"
_DECIDE_TESTS = frozenset({"conftest.py", "pytest.ini", "tox.ini", "sitecustomize.py", "usercustomize.py"})
_PATH_COMMENT = re.compile(r"\s{0,9}(?:#|//|--)\s{0,9}([\w@+./-]{1,300})\s{0,9}")
_LONGEST_PATH = 300
_MARK = "\ufeff"
_MOST_FILES = 50
_NOT_CODE = frozenset({"sh", "bash", "shell", "console", "zsh", "text", "txt", "output", "plaintext", "log"})
_EXTENSIONS = {
    "python": "py",
    "javascript": "js",
    "typescript": "ts",
    "golang": "go",
    "rust": "rs",
    "ruby": "rb",
    **{own: own for own in ("py", "js", "jsx", "ts", "tsx", "go", "rs", "java", "rb", "c", "cpp")},
}
_MOST_BLOCKS = 50
_HEADER_LINES = 3


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an answer, as it was written in `raw`.

    `path` is empty if the lines above the block name no path. `explicit`: the path stands alone, so it may
    name a new file; a path in a sentence or in a comment names an existing file only. `raw` begins at the
    path.
    """

    path: str
    language: str
    body: str
    raw: str
    closed: bool = True
    explicit: bool = True

    @property
    def replacements(self) -> list[tuple[str, str]]:
        """The texts to replace and their replacements, of a SEARCH/REPLACE block or a diff; else empty."""
        return _replacements(self.body.split("\n")) or (_hunks(self.body) if self.is_diff else [])

    @property
    def is_diff(self) -> bool:
        return self.language in ("diff", "patch") or self.body.startswith(("--- ", "diff --git "))


def blocks_in(text: str) -> list[Block]:
    """Return the blocks of an answer, in order. Takes linear time: an answer may be long and hostile."""
    lines = text.split("\n")
    found: list[Block] = []
    at = above = 0
    while at < len(lines) and len(found) < _MOST_BLOCKS:
        fence, search = _OPENING.match(lines[at]), _SEARCH.match(lines[at])
        if fence is None and search is None:
            at += 1
            continue
        info = fence[2].strip() if fence else ""
        ending = _closing(fence[1]) if fence else _REPLACED.match
        end = next((line for line in range(at + 1, len(lines)) if ending(lines[line])), len(lines))
        head = _heading(lines, above, at)
        named = paths_in(info)
        path, explicit = (named[-1], True) if named else (head.path, head.explicit)
        comment = [] if explicit else _path_comment(lines[at + 1 : end])
        path = comment[-1] if comment else path
        block = Block(
            path=path,
            language="" if paths_in(info) else info.split(" ")[0].lower(),
            body="\n".join(lines[at + 1 : end] if fence else lines[at : end + 1]) + "\n",
            raw="\n".join(lines[at if named or comment else head.line : end + 1]).strip(),
            closed=end < len(lines),
            explicit=explicit,
        )
        of_diff = _diff_path(block)
        found.append(replace(block, path=of_diff, explicit=True) if of_diff else block)
        at = above = end + 1
    return found


def _path_comment(body: Sequence[str]) -> list[str]:
    """Return the path in the first line of a block, if the line is a comment with nothing else: `# a.py`."""
    found = _PATH_COMMENT.fullmatch(body[0]) if body else None
    return paths_in(found[1]) if found else []


def _closing(ticks: str) -> Callable[[str], object]:
    return lambda line: (bare := line.strip()).startswith(ticks) and not bare.strip(ticks[0])


def paths_in(text: str) -> list[str]:
    """Return the words of a text that look like paths of files, in order."""
    found = []
    for word in _BETWEEN_WORDS.split(text):
        path = word.rstrip(".!?/").removeprefix("./")
        if 1 < len(path) <= _LONGEST_PATH and _PATH_WORD.fullmatch(path) and not path.startswith("//"):
            name = path.rpartition("/")[2]
            if name in _NAMES or _ENDING.search(name):
                found.append(path)
    return found


class _Heading(NamedTuple):
    """The path above a block, and the line it is in."""

    path: str
    line: int
    explicit: bool


def _heading(lines: Sequence[str], first: int, block: int) -> _Heading:
    """Return the path nearest to the block, in the last lines above it that are not blank."""
    above = [line for line in range(max(first, block - 3 * _HEADER_LINES), block) if lines[line].strip()]
    for line in reversed(above[-_HEADER_LINES:]):
        named = paths_in(lines[line])
        if named:
            alone = _HEADING.sub("", lines[line], count=1).strip(" `*:_")
            return _Heading(named[-1], line, alone.removeprefix("./") == named[-1])
    return _Heading("", block, explicit=False)


def _replacements(lines: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    sides: tuple[list[str], list[str]] | None = None
    side = 0
    for line in lines:
        if _SEARCH.match(line):
            sides, side = ([], []), 0
        elif sides is not None and side == 0 and _DIVIDER.match(line):
            side = 1
        elif sides is not None and side == 1 and _REPLACED.match(line):
            found.append(("\n".join(sides[0]), "\n".join(sides[1])))
            sides = None
        elif sides is not None:
            sides[side].append(line)
    return found


def _diff_path(block: Block) -> str:
    if not block.is_diff:
        return ""
    named = re.findall(r"^\+\+\+ (?:b/)?(\S+)", block.body, re.MULTILINE)
    return named[0] if named and named[0] != "/dev/null" else ""


def _hunks(diff: str) -> list[tuple[str, str]]:
    """Return each hunk of a diff as the lines it replaces and their replacement."""
    parts = _HUNK.split(diff)[1:] or ["\n".join(_without_head(diff.splitlines()))]
    return [(_side(part, "-"), _side(part, "+")) for part in parts]


def _without_head(lines: Sequence[str]) -> Iterator[str]:
    return (line for line in lines if not line.startswith(("--- ", "+++ ", "diff ", "index ")))


def _side(hunk: str, sign: str) -> str:
    """Return one side of a hunk. A line without a sign is context: models forget the space."""
    kept = []
    for line in _without_head(hunk.strip("\n").splitlines()):
        if line[:1] in ("-", "+"):
            kept += [line[1:]] if line[0] == sign else []
        elif not line.startswith("\\"):
            kept.append(line.removeprefix(" "))
    return "\n".join(kept)


class BlockEditsArguments(Arguments):
    text: str = Field(max_length=200_000, description="the answer with its code blocks")
    shown: str = Field(
        default="",
        max_length=1_000_000,
        description="what the model was shown; a block that is copied from it is not applied",
    )
    goal: str = Field(default="", description="the goal; existing tests are changed only if it asks for it")


class BlockEditsResult(Result):
    changed: list[str] = Field(description="the changed files, each with what was changed")
    left_out: list[str] = Field(description="blocks without a file, unchanged code, changes of tests")
    problems: list[str] = Field(description="the blocks that were not applied, with the reason")


class BlockEdits(TypedTool[BlockEditsArguments, BlockEditsResult]):
    name = "edit_blocks"
    description = "Applies the code blocks of an answer to the files they name."
    capability = Capability.EDIT
    writes = True
    arguments = BlockEditsArguments
    result = BlockEditsResult

    def needs(self, arguments: BlockEditsArguments, files: SandboxFiles) -> Capability:
        known = files_in(arguments.shown, files)
        for block in blocks_in(arguments.text):
            with suppress(MergeRefused, CleverAgentsError):
                path = _target(block, files, known)
                if path is not None and not files.exists(path):
                    return Capability.CREATE
        return Capability.EDIT

    def run(self, arguments: BlockEditsArguments, workplace: Workplace) -> BlockEditsResult:
        files, shown = workplace.files, arguments.shown
        known = files_in(shown, files)
        changed, problems, left, same = [], [], [], []
        for block in blocks_in(arguments.text):
            try:
                path = _target(block, files, known)
                if path is None:
                    left.append("a block without the path of a file above it")
                    continue
                if block.raw in shown and not _is_current(block, path, files):  # guard: a file makes no edits
                    raise MergeRefused("the block is copied from a file or from output that you were shown")
                done = _apply(block, path, files, arguments.goal)
                if done is None:
                    left.append(f"{path}: existing tests stay as they are")
                elif done:
                    changed.append(f"{path}: {done}")
                else:
                    same.append(path)
            except (MergeRefused, CleverAgentsError) as refused:
                problems.append(f"{block.path or 'a block'}: {refused}")
        left += [f"{path}: the block is the same as the file" for path in dict.fromkeys(same)]
        return BlockEditsResult(changed=changed, left_out=left, problems=problems)


def files_in(text: str, files: SandboxFiles) -> list[str]:
    """Return the files that a text names, in order, each once."""
    found: list[str] = []
    for path in dict.fromkeys(paths_in(text)):
        with suppress(CleverAgentsError):
            if files.kind(path) == "file":
                found.append(path)
        if len(found) == _MOST_FILES:
            break
    return found


def is_protected(path: str, old: str | None, goal: str) -> bool:
    """Return whether the file is a test, or decides which tests run, and the goal does not ask to change it.

    "The tests in test_names.py must pass" names a test without asking to change it. A new test file is not
    protected, because it cannot affect other tests. A new `conftest.py` is protected.
    """
    name = PurePosixPath(path).name
    decides = name in _DECIDE_TESTS
    if not goal or not (decides or (old is not None and is_test(path))):
        return False
    asked = rf"\b{_CHANGE}\b[^.!?\n]{{0,80}}?(?<![\w.-]){re.escape(name)}"
    return re.search(asked, goal, re.IGNORECASE) is None


def _is_current(block: Block, path: str, files: SandboxFiles) -> bool:
    return files.exists(path) and read_text(files, path)[0].strip() == block.body.strip()


def _target(block: Block, files: SandboxFiles, known: Sequence[str]) -> str | None:
    """Return the file that a block is for; None for a block that is no edit."""
    path = block.path
    if path and files.kind(path) == "file":
        return path if block.explicit else _owner(block, files, known) or path
    if path:
        there = [one for one in known if one.endswith(f"/{path}") or path.endswith(f"/{one}")]
        if len(there) == 1:
            return there[0]
    if not (path and block.explicit):
        return None if block.language in _NOT_CODE else _owner(block, files, known)
    owner = _owner(block, files, known)
    if owner is None and block.replacements:
        raise MergeRefused("there is no such file")
    return owner or path


def _owner(block: Block, files: SandboxFiles, known: Sequence[str]) -> str | None:
    """Return the only shown file that has a definition of the block, perhaps as a method or a nested
    function.
    """
    extension = _EXTENSIONS.get(block.language) or PurePosixPath(block.path).suffix.lstrip(".")
    names = set(names_in(f"block.{extension}", block.body)) if extension else set()
    if not names:
        return None
    owners = [
        path
        for path in known
        if path.endswith(f".{extension}")
        and names & set(names_in(path, read_text(files, path)[0], nested=True))
    ]
    return owners[0] if len(owners) == 1 else None


def _apply(block: Block, path: str, files: SandboxFiles, goal: str) -> str | None:
    """Apply the block to the file, and return a note about the change. The note is empty if the file already
    has this content; None if the file is a protected test, which is not changed.
    """
    if not block.closed:  # guard: half a file is never written
        raise MergeRefused("the block is not closed; answer in fewer words")
    old = read_text(files, path)[0] if files.exists(path) else None
    new, done = _edited_as_in_file(block, path, old)
    if new == old:
        return ""
    # A conflict in a test is resolved by the whole file, of which only the marked places may change.
    resolves = _unmarked(old or "") is not None and not block.replacements
    if is_protected(path, old, goal) and not resolves:  # guard: no check passes because its test changed
        return None
    ensure_parses(path, old, new)
    ensure_no_mask(path, old or "", new)
    files.write(path, new.encode("utf-8"))
    return done


def _edited_as_in_file(block: Block, path: str, old: str | None) -> tuple[str, str]:
    """Return the new content, with the line endings and the byte order mark of the old content."""
    if old is None or block.replacements:
        return _edited(block, path, old)
    mark, text = (_MARK, old[1:]) if old.startswith(_MARK) else ("", old)
    crlf = uses_crlf(text)
    plain = text.replace("\r\n", "\n")
    if "\r" in plain or (crlf and text.count("\n") != text.count("\r\n")):
        raise MergeRefused("the file has mixed line endings; use a SEARCH/REPLACE block")
    new, done = _edited(replace(block, body=block.body.replace("\r\n", "\n")), path, plain)
    return mark + (new.replace("\n", "\r\n") if crlf else new), done


def _edited(block: Block, path: str, old: str | None) -> tuple[str, str]:
    if block.replacements:
        text = old or ""
        for before, after in block.replacements:
            if before.strip() or text:
                text = ExactEdit(before.rstrip("\n"), after.rstrip("\n"), 1, "file").apply(path, text).text
            else:
                text = after
        return text, f"{len(block.replacements)} replaced"
    body = block.body
    if old is None:
        return body, "created"
    unmarked = _unmarked(old)
    if unmarked is not None:
        if not _keeps(unmarked, body.splitlines()):  # guard: a part of the file would replace all of it
            raise MergeRefused("the file has a conflict; write the whole file, and change only marked places")
        return body, "resolved"
    if names_in(path, body):
        merged = merge_definitions(path, old, body)
        parts = [f"replaced {', '.join(merged.replaced)}"] if merged.replaced else []
        parts += [f"added {', '.join(merged.added)}"] if merged.added else []
        return merged.text, "; ".join(parts) or "imports"
    omitted = elision_in(body)
    if omitted:  # guard: a file with a hole would replace a whole one
        raise MergeRefused(f"the file is incomplete: {omitted!r}; write all of its lines")
    if names_in(path, old):  # guard: statements alone would replace a file of functions
        raise MergeRefused("the block has no function or class, but the file has; write the whole definition")
    return body, "written"


def _unmarked(text: str) -> list[list[str]] | None:
    """Return the lines before, between and after the places with conflict markers; None if there are no such
    places.
    """
    rest: list[list[str]] = [[]]
    inside = False
    for line in text.splitlines():
        inside = inside or line.startswith(_OURS)
        if not inside:
            rest[-1].append(line)
        elif line.startswith(_THEIRS):
            inside = False
            rest.append([])
    return rest if len(rest) > 1 and not inside else None


def _keeps(parts: list[list[str]], lines: list[str]) -> bool:
    """Return whether the lines begin with the first part, end with the last, and have the others between
    them, each in one piece and in order.
    """
    first, *between, last = parts
    begin, end = len(first), len(lines) - len(last)
    if begin > end or lines[:begin] != first or lines[end:] != last:
        return False
    for part in between:
        places = range(begin, end - len(part) + 1)
        found = next((place for place in places if lines[place : place + len(part)] == part), None)
        if found is None:
            return False
        begin = found + len(part)
    return True


def ensure_parses(path: str, old: str | None, new: str) -> None:
    """Raise `MergeRefused` if a Python file would no longer compile."""
    if not path.endswith(".py"):
        return
    try:
        ast.parse(new)
    except (SyntaxError, ValueError, RecursionError) as error:
        if old is None or _parses(old):
            raise MergeRefused(f"the file would not compile: {error}") from None


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True
