"""Read a text file, or a part of it."""

from __future__ import annotations

from pydantic import Field

from cleveragents.core.policy import Capability
from cleveragents.tools.files.text_files import fingerprint, looks_binary, uses_crlf
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool

__all__ = ["TOOL", "ReadArguments", "ReadResult", "ReadTool"]

_DEFAULT_LINES = 2000
_MOST_LINES = 100_000
# About the size of a model's context.
_CHARACTERS_LIMIT = 200_000


class ReadArguments(Arguments):
    path: str = Field(description="the file, relative to the sandbox's root")
    offset: int = Field(default=1, ge=1, description="the first line to read, counted from 1")
    limit: int = Field(
        default=_DEFAULT_LINES, ge=1, le=_MOST_LINES, description="the maximum number of lines"
    )
    line_numbers: bool = Field(default=False, description="start each line with its number and a tab")


class ReadResult(Result):
    path: str
    content: str = Field(description="empty for a binary file")
    total_lines: int
    truncated: bool = Field(description="whether the file has more than `content`")
    note: str = Field(description="a remark on the content; may be empty")
    encoding: str = Field(description="utf-8, binary, or unknown (invalid bytes are shown as \\xNN)")
    line_endings: str = Field(description="lf, crlf, mixed or none")
    size_bytes: int
    sha256: str = Field(
        description="the sha256 of the whole file, for `expected_sha256` of `write` and `edit`"
    )


class ReadTool(TypedTool[ReadArguments, ReadResult]):
    name = "read"
    description = "Reads lines of a text file. Also returns how many lines the file has."
    capability = Capability.READ
    arguments = ReadArguments
    result = ReadResult

    def run(self, arguments: ReadArguments, workplace: Workplace) -> ReadResult:
        data = workplace.files.read(arguments.path)
        if looks_binary(data):
            text, encoding = "", "binary"
            content, note = "", f"a binary file of {len(data)} bytes"
            truncated, lines = True, []
        else:
            text, encoding = _decoded(data)
            lines = text.split("\n")
            if lines[-1] == "":
                lines.pop()
            content, note = _excerpt(lines, text.endswith("\n"), arguments)
            truncated = bool(note) or arguments.offset > 1
        return ReadResult(
            path=arguments.path,
            content=content,
            total_lines=len(lines),
            truncated=truncated,
            note=note,
            encoding=encoding,
            line_endings=_line_endings(text),
            size_bytes=len(data),
            sha256=fingerprint(data),
        )


def _decoded(data: bytes) -> tuple[str, str]:
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("utf-8", "backslashreplace"), "unknown"


def _excerpt(lines: list[str], ends_with_newline: bool, arguments: ReadArguments) -> tuple[str, str]:
    """Return the requested lines within the limit, and a note if more follow."""
    begin = arguments.offset - 1
    end = min(begin + arguments.limit, len(lines))
    if lines and begin >= len(lines):
        return "", f"the file has only {len(lines)} lines"
    pieces: list[str] = []
    room = _CHARACTERS_LIMIT
    for number in range(begin, end):
        closing = "\n" if number + 1 < len(lines) or ends_with_newline else ""
        piece = (f"{number + 1}\t" if arguments.line_numbers else "") + lines[number] + closing
        if len(piece) > room and pieces:
            return "".join(pieces), f"no room for more; continue with offset {number + 1}"
        if len(piece) > room:
            return piece[:room], f"line {number + 1} is cut after {room} characters of {len(piece)}"
        pieces.append(piece)
        room -= len(piece)
    note = f"lines {end + 1} to {len(lines)} follow" if end < len(lines) else ""
    return "".join(pieces), note


def _line_endings(text: str) -> str:
    if "\n" not in text:
        return "none"
    if uses_crlf(text):
        return "crlf"
    return "mixed" if "\r\n" in text else "lf"


TOOL = ReadTool()
