"""How many tokens a model will read: an estimate that is meant to be too high, never too low.

Only a provider knows its tokenizer. What is certain for all in use is that no token is shorter than a byte,
so the bytes of a text are a bound; but they are four times what prose takes, and a context window guarded by
that would be three quarters unused. The compromise: each kind of character is charged what a wordy tokenizer
takes for it (digits and punctuation one by one, rare scripts and emoji by their bytes), words by their
letters, a token for every three, and what is too long and too mixed for a word almost by its letters. Prose
and source code come out at less than twice what they take, base64 a little above it. No estimate exceeds the
bound.

Text can be made up that takes more still (letters drawn by lot, parted by spaces; characters of the rarest
kind). A provider says afterwards what it counted; so a model that was once found to take more is charged
more from then on: `Estimator`.
"""

from __future__ import annotations

import json
import re

from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.tool import ToolSpec
from cleveragents.models.ports import ModelRequest

__all__ = ["Estimator", "estimate_request", "estimate_text"]

_MESSAGE = 8
"""Around each message: who speaks, where it begins and ends."""
_TOOL = 16
"""Around each tool; providers write schemas in a form of their own, most of them a shorter one."""
_REQUEST = 16

# Each kind of ASCII. Long runs without a space may be names and paths, or base64, hashes and keys.
_PIECES = re.compile(
    r"""
      (?P<mixed> [A-Za-z0-9+/_-]{24,}=* )
    | (?P<word> [A-Z]?[a-z]+ | [A-Z]+ )
    | (?P<rule> ([-=*\#_~./])\4{3,} )
    | (?P<blank> [ ]{2,} | \t{2,} )
    | (?P<space> [ ](?=[A-Za-z]) )
    | (?P<other> [\x00-\x7f] )
    """,
    re.VERBOSE,
)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|([-=*#_~./])\1{3,}|.")
_SCRAMBLED = 3.0
"""Characters to a part: names have more, what is drawn by lot has fewer."""
_LONG_WORD = 12


# A conversation is counted again with every call, and only its end is new. Keyed by what tells texts apart
# well enough for an estimate, so that no text is held.
_known: dict[tuple[int, int], int] = {}
_KNOWN_BOUND = 16_384
# Tools are the same ones in every call of a run, and cannot change; while one is held, no other has its id.
_known_tools: dict[int, tuple[ToolSpec, int]] = {}
_TOOLS_BOUND = 1024
_encoder = json.JSONEncoder(ensure_ascii=False, default=thaw)


def estimate_text(text: str) -> int:
    """Tokens of the text: at most its bytes, and meant to be at least what any provider counts."""
    key = (hash(text), len(text))
    found = _known.get(key)
    if found is None:
        if len(_known) >= _KNOWN_BOUND:
            _known.clear()
        found = _known[key] = _estimate(text)
    return found


def _estimate(text: str) -> int:
    if text.isascii():
        return min(_ascii(text), len(text))
    charged = _ascii(text) + sum(_weight(character) for character in text if character >= "\x80")
    return min(charged, len(text.encode("utf-8", "surrogatepass")))


def estimate_request(request: ModelRequest) -> int:
    """Tokens of everything that is sent: messages, their requests, tools, the schema."""
    total = _REQUEST
    for message in request.messages:
        total += _MESSAGE + estimate_text(message.text)
        for asked in message.requests:
            total += _MESSAGE + estimate_text(asked.tool) + _estimate_json(asked.arguments)
    for tool in request.tools:
        total += _estimate_tool(tool)
    if request.schema is not None:
        # Some providers are told the schema in words as well.
        total += _TOOL + 2 * _estimate_json(request.schema)
    return total


class Estimator:
    """Counts for one model, and learns from it. Any thread may use it: a lesson that two learn at once may
    be learnt by one of them only, and comes again with the next call."""

    def __init__(self) -> None:
        self._factor = 1.0

    def count(self, request: ModelRequest) -> int:
        """At least what `estimate_request` says, and as much more as the model once took."""
        return int(estimate_request(request) * self._factor) + 1

    def learn(self, request: ModelRequest, counted: int) -> None:
        """The model counted so many: what is taken too low once is not taken too low again."""
        self._factor = max(self._factor, counted / estimate_request(request))  # guard: it only ever grows


def _estimate_tool(tool: ToolSpec) -> int:
    known = _known_tools.get(id(tool))
    if known is not None:
        return known[1]
    if len(_known_tools) >= _TOOLS_BOUND:
        _known_tools.clear()
    words = estimate_text(tool.name) + estimate_text(tool.description)
    total = _TOOL + words + _estimate_json(tool.input_schema)
    _known_tools[id(tool)] = (tool, total)
    return total


def _estimate_json(value: JsonValue) -> int:
    return estimate_text(_encoder.encode(value))


def _ascii(text: str) -> int:
    total = 0
    for match in _PIECES.finditer(text):
        length = match.end() - match.start()
        total += _charge(str(match.lastgroup), length, match.group())
    return total


def _charge(kind: str, length: int, piece: str) -> int:
    if kind == "word":
        return _word(length)
    if kind == "mixed":
        return _mixed(length, piece)
    if kind == "rule":
        return 1 + length // 4
    if kind == "blank":
        return 1 + length // 8
    return 0 if kind == "space" else 1  # one space is part of the word that follows


def _mixed(length: int, piece: str) -> int:
    parts = [(match.end() - match.start(), match.group()) for match in _PARTS.finditer(piece)]
    if length < _SCRAMBLED * len(parts):
        digits = sum(character.isdigit() for character in piece)
        return max(-(-4 * length // 5), digits + (length - digits) // 2)
    return sum(_word(size) if part.isalpha() else 1 + size // 4 for size, part in parts)


def _word(length: int) -> int:
    """What has more letters than words have is no word, and takes more."""
    usual = min(length, _LONG_WORD)
    return -(-usual // 3) + -(-2 * (length - usual) // 3)


def _weight(character: str) -> int:
    """Of one character that is not ASCII, by how many bytes it has and which script it belongs to."""
    point = ord(character)
    if 0x400 <= point < 0x460:  # Russian, which all tokenizers know well
        return 1
    if point < 0x800:
        return 2
    if point >= 0x10000:
        return 4
    if 0x3040 <= point < 0xA000 or 0xAC00 <= point < 0xD7B0 or 0x2000 <= point < 0x2C00:
        return 2  # Chinese, Japanese, Korean; typographic signs
    return 3
