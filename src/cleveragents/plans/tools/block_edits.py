"""Edits that a model writes as code blocks in its answer, for models that do not call tools well.

An answer may hold blocks of four forms. The path of the file is above each block or in it:

- definitions: code whose functions and classes replace those of the same name (see `definition_merge`);
- a whole file, if the file is new, has no definitions, or the block has all of them;
- `<<<<<<< SEARCH`, `=======`, `>>>>>>> REPLACE`: an exact replacement;
- a unified diff.

Small models forget the path or invent one, so a block of code without a known path goes to the shown file
that has its definitions, if there is exactly one. A block that cannot be applied is reported and changes
nothing; the other blocks are applied.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from pydantic import Field

from cleveragents.context.model.code import is_test
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.policy import Capability
from cleveragents.plans.tools.definition_merge import MergeRefused, elision_in, merge_definitions, names_in
from cleveragents.tools.files.exact_edit import ExactEdit
from cleveragents.tools.files.text_files import ensure_no_mask, read_text
from cleveragents.tools.ports import SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["Block", "BlockEdits", "blocks_in"]

_FENCE = re.compile(
    r"^[ \t]{0,3}(?P<ticks>`{3,}|~{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)"
    r"(?P<end>^[ \t]{0,3}(?P=ticks)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_REPLACE = re.compile(
    r"^<{5,9} ?SEARCH[^\n]*\n(?P<old>.*?)^={5,9}[ \t]*\n(?P<new>.*?)^>{5,9} ?REPLACE",
    re.MULTILINE | re.DOTALL,
)
_PATH = re.compile(r"(?<![\w/.-])(?:[\w@+-][\w@+.-]*/)*[\w@+-][\w@+.-]*\.[A-Za-z]\w{0,7}\b")
_HUNK = re.compile(r"^@@[^\n]*$", re.MULTILINE)
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
    """One block of an answer. `path` is empty if none was written; `raw` is the block as it was written."""

    path: str
    language: str
    body: str
    raw: str
    closed: bool = True

    @property
    def replacements(self) -> list[tuple[str, str]]:
        """The texts to replace and their replacements, of a SEARCH/REPLACE block or a diff; else empty."""
        found = [(match["old"], match["new"]) for match in _REPLACE.finditer(self.body)]
        return found or (_hunks(self.body) if self.is_diff else [])

    @property
    def is_diff(self) -> bool:
        return self.language in ("diff", "patch") or bool(re.match(r"(?:--- |diff --git )", self.body))


def blocks_in(text: str) -> list[Block]:
    """Return the blocks of an answer, in order."""
    found, above = [], 0
    for match in _FENCE.finditer(text):
        info = match["info"].strip()
        header = [line for line in text[above : match.start()].splitlines() if line.strip()][-_HEADER_LINES:]
        path = _path_in(info) or _header_path(header)
        language = "" if path and path == _path_in(info) else info.split(" ")[0].lower()
        start = text.rfind(header[-1], 0, match.start()) if header and path else match.start()
        block = Block(path, language, match["body"], text[start : match.end()].strip(), bool(match["end"]))
        found.append(replace(block, path=_diff_path(block) or block.path))
        above = match.end()
    for match in () if found else _REPLACE.finditer(text):  # SEARCH/REPLACE without a fence
        header = text[: match.start()].splitlines()[-_HEADER_LINES:]
        found.append(Block(_header_path(header), "", match.group(), match.group()))
    return found[:_MOST_BLOCKS]


def _path_in(text: str) -> str:
    paths = _PATH.findall(text)
    return paths[-1] if paths else ""


def _header_path(lines: Sequence[str]) -> str:
    """Return the path in the lines above a block that is nearest to the block."""
    return next((path for line in reversed(lines) if (path := _path_in(line))), "")


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
    text: str = Field(max_length=1_000_000, description="the answer with its code blocks")
    shown: str = Field(
        default="", description="what the model was shown; a block that is copied from it is not applied"
    )
    goal: str = Field(
        default="", description="the goal; existing tests are changed only if it names their file"
    )


class BlockEditsResult(Result):
    changed: list[str] = Field(description="the changed files, each with what was changed")
    left_out: list[str] = Field(description="changes of existing tests, which are not made")
    problems: list[str] = Field(description="the blocks that were not applied, with the reason")


class BlockEdits(TypedTool[BlockEditsArguments, BlockEditsResult]):
    name = "edit_blocks"
    description = "Applies the code blocks of an answer to the files they name."
    capability = Capability.EDIT
    writes = True
    arguments = BlockEditsArguments
    result = BlockEditsResult

    def needs(self, arguments: BlockEditsArguments, files: SandboxFiles) -> Capability:
        known = list(dict.fromkeys(_PATH.findall(arguments.shown)))
        for block in blocks_in(arguments.text):
            with suppress(MergeRefused, CleverAgentsError):
                path = _target(block, files, known)
                if path is not None and not files.exists(path):
                    return Capability.CREATE
        return Capability.EDIT

    def run(self, arguments: BlockEditsArguments, workplace: Workplace) -> BlockEditsResult:
        files, shown = workplace.files, arguments.shown
        known = list(dict.fromkeys(_PATH.findall(shown)))
        changed, problems, left, same = [], [], [], []
        for block in blocks_in(arguments.text):
            try:
                path = _target(block, files, known)
                if path is None:
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
        if not changed and same:
            named = ", ".join(dict.fromkeys(same))
            problems.append(f"{named}: the block is the same as the file, so nothing was changed")
        return BlockEditsResult(changed=changed, left_out=left, problems=problems)


def _is_protected(path: str, old: str | None, goal: str) -> bool:
    return bool(goal) and old is not None and is_test(path) and PurePosixPath(path).name not in goal


def _is_current(block: Block, path: str, files: SandboxFiles) -> bool:
    return files.exists(path) and read_text(files, path)[0].strip() == block.body.strip()


def _target(block: Block, files: SandboxFiles, known: Sequence[str]) -> str | None:
    """Return the file that a block is for; None for a block that is no edit."""
    path = block.path
    if path and files.kind(path) == "file":
        return path
    if path:
        ending = [one for one in known if one.endswith(f"/{path}") or path.endswith(f"/{one}")]
        there = [one for one in ending if files.kind(one) == "file"]
        if len(there) == 1:
            return there[0]
    if block.language in _NOT_CODE or not block.closed:
        if path and block.language not in _NOT_CODE:
            raise MergeRefused("the block is not closed: half a file is never written; answer in fewer words")
        return None
    owner = _owner(block, files, known)
    if owner is not None or not path:
        return owner
    if block.replacements:
        raise MergeRefused("there is no such file")
    return path


def _owner(block: Block, files: SandboxFiles, known: Sequence[str]) -> str | None:
    """Return the only shown file that has a definition of the block."""
    extension = _EXTENSIONS.get(block.language) or PurePosixPath(block.path).suffix.lstrip(".")
    names = set(names_in(f"block.{extension}", block.body)) if extension else set()
    if not names:
        return None
    owners = [
        path
        for path in known
        if path.endswith(f".{extension}")
        and files.kind(path) == "file"
        and names & set(names_in(path, read_text(files, path)[0]))
    ]
    return owners[0] if len(owners) == 1 else None


def _apply(block: Block, path: str, files: SandboxFiles, goal: str) -> str | None:
    """Change the file as the block says, and return a note on what was done. The note is empty if the file
    already has this content; None if the file is a protected test, which is not changed.
    """
    if not block.closed:  # guard: half a file is never written
        raise MergeRefused("the block is not closed; answer in fewer words")
    old = read_text(files, path)[0] if files.exists(path) else None
    new, done = _edited(block, path, old)
    if new == old:
        return ""
    if _is_protected(path, old, goal):  # guard: a check must not pass because its test was changed
        return None
    _ensure_parses(path, old, new)
    ensure_no_mask(path, old or "", new)
    files.write(path, new.encode("utf-8"))
    return done


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


def _ensure_parses(path: str, old: str | None, new: str) -> None:
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
