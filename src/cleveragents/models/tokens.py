"""Token estimates that err on the high side.

Only a provider knows its tokenizer. No token is shorter than a byte, so the number of bytes is a safe upper
bound. But prose takes a quarter of that bound, so it would leave three quarters of a context window unused.
The estimate is therefore a compromise. Each kind of character is charged at the rate of a verbose tokenizer:
digits and punctuation one token each, rare scripts and emoji by their bytes, words one token for every three
letters, and long mixed strings almost one token per character. Prose and source code are estimated at less
than twice their real count, base64 slightly above it. No estimate exceeds the byte bound.

Some artificial texts take more than their estimate (random letters separated by spaces, very rare
characters). `Estimator` corrects this: once a provider reports a higher count, all later estimates for that
model are raised.
"""

from __future__ import annotations

import json
import re

from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.tool import ToolSpec
from cleveragents.models.ports import ModelFacts, ModelRequest

__all__ = ["Estimator", "estimate_request", "estimate_text"]

_MESSAGE = 8
"""Overhead of a message: its role and its delimiters."""
_TOOL = 16
"""Overhead of a tool. Providers convert schemas to their own format, which is usually shorter."""
_REQUEST = 16

# One group per kind of ASCII text. A long run without spaces may be a name, a path, base64, a hash or a key.
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
"""Average characters per part below which a string counts as random. Names have longer parts."""
_LONG_WORD = 12


# A conversation is counted again with every call, and only its end is new. The key is a hash and a length, so
# that no text is kept in memory.
_known: dict[tuple[int, int], int] = {}
_KNOWN_BOUND = 16_384
# The tools of a run are immutable and the same in every call. Holding a tool keeps its id unique.
_known_tools: dict[int, tuple[ToolSpec, int]] = {}
_TOOLS_BOUND = 1024
_encoder = json.JSONEncoder(ensure_ascii=False, default=thaw)


def estimate_text(text: str) -> int:
    """Return an estimate of the tokens in a text: at most its bytes, and meant to be at least any provider's
    count.
    """
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
    """Return an estimate of the tokens in the texts of a request: messages, tool calls, tools and schema."""
    total = _REQUEST
    for message in request.messages:
        total += _MESSAGE + estimate_text(message.text)
        for asked in message.requests:
            total += _MESSAGE + estimate_text(asked.tool) + _estimate_json(asked.arguments)
        for thought in message.thoughts:
            total += _MESSAGE + _estimate_json(thought.block)
    for tool in request.tools:
        total += _estimate_tool(tool)
    if request.schema is not None:
        # Some providers also receive the schema as text.
        total += _TOOL + 2 * _estimate_json(request.schema)
    return total


class Estimator:
    """Estimates the tokens of requests to one model and learns from its reported counts.

    Any thread may use it. If two threads learn at once, one update may be lost; the next call repeats it.
    """

    def __init__(self, facts: ModelFacts) -> None:
        self._facts = facts
        self._factor = 1.0

    def count(self, request: ModelRequest) -> int:
        """Return the estimate for a request: its texts, raised by the largest underestimate seen so far, and
        the most that its attachments take. Raises `RequestRefused` for an attachment that the model does not
        take.
        """
        texts = int(estimate_request(request) * self._factor) + 1
        return texts + self._facts.attachment_tokens(request.attachments)

    def learn(self, request: ModelRequest, counted: int) -> None:
        """Raise later estimates if the model counted more tokens than estimated. A request with attachments
        teaches nothing about texts.
        """
        if not request.attachments:
            self._factor = max(self._factor, counted / estimate_request(request))  # guard: it only grows


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
    return 0 if kind == "space" else 1  # a single space belongs to the next word


def _mixed(length: int, piece: str) -> int:
    parts = [(match.end() - match.start(), match.group()) for match in _PARTS.finditer(piece)]
    if length < _SCRAMBLED * len(parts):
        digits = sum(character.isdigit() for character in piece)
        return max(-(-4 * length // 5), digits + (length - digits) // 2)
    return sum(_word(size) if part.isalpha() else 1 + size // 4 for size, part in parts)


def _word(length: int) -> int:
    """Return the tokens of a word. Letters beyond the usual length of a word count double."""
    usual = min(length, _LONG_WORD)
    return -(-usual // 3) + -(-2 * (length - usual) // 3)


def _weight(character: str) -> int:
    """Return the tokens of a non-ASCII character, by its script and its number of bytes."""
    point = ord(character)
    if 0x400 <= point < 0x460:  # Russian, which all tokenizers encode well
        return 1
    if point < 0x800:
        return 2
    if point >= 0x10000:
        return 4
    if 0x3040 <= point < 0xA000 or 0xAC00 <= point < 0xD7B0 or 0x2000 <= point < 0x2C00:
        return 2  # Chinese, Japanese, Korean; typographic symbols
    return 3
