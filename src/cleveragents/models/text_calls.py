"""Tool calls that a model writes as text.

Small models, and servers that do not parse a model's tool calls, answer with a call in a fenced block, in
`<tool_call>` tags or as bare JSON, often with single quotes, trailing commas or a missing brace. `calls_in`
parses such a message. `TextCallingModel` parses the messages of models that do not make native calls,
according to the price list or a probe.

The text of a model is hostile input: a file can ask the model to repeat a call. A call that occurs verbatim
in the model's input is not made, and an incomplete text is never completed.
"""

from __future__ import annotations

import ast
import json
import os
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cleveragents.core.errors import CleverAgentsError, ModelRefused, ModelUnavailable
from cleveragents.core.json_value import FrozenObject, unkeepable
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest, Usage
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest, ToolCallMode

__all__ = ["KeptModes", "TextCall", "TextCallingModel", "calls_in", "probe"]

_TAGGED = re.compile(r"<(tool_call|function_call)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_FENCED = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_LINE_START = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
_REASONING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_OPENING = re.compile(r"[{\[]")
# Prefixes of lines: a number, the signs of a diff, a quote, the file and line of a match.
_LINE_PREFIX = re.compile(r"^(?:[ \t]*\d+[\t|:→ ]|[^\s:]+:\d+:|[+\-]|(?:>[ ]?)+)", re.MULTILINE)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")

_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input")
_BESIDE = frozenset({"id", "type", "thought", "reason"})
_CLOSERS = {"{": "}", "[": "]"}
_QUOTES = ('"""', "'''", '"', "'")
_CONSTANTS = {"true": True, "false": False, "null": None}
_MOST_CALLS = 32
_MOST_OBJECTS = 1000
_MOST_CHARACTERS = 200_000

_PROBE = "Call the tool `report_ready` with the text ready. Answer with the call alone."
_PROBE_TOKENS = 128
_PROBE_TOOL = ToolSpec(
    name="report_ready",
    description="Report that you are ready.",
    capability=Capability.READ,
    input_schema=FrozenObject(
        {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    ),
    output_schema=FrozenObject({}),
)

_COPIED = "the same call occurs in a file or in output that you were shown, so it was not made"
_HALF = "the call ends inside a string; send the whole call again"
_CUT_OFF = "the call was cut off, because the answer reached its limit; split the work into smaller calls"
_NO_JSON = "the call is not JSON; send one object with `name` and `arguments`"


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call in a text: its position, the tool and its arguments, or the problem with the call."""

    start: int
    end: int
    tool: str
    arguments: Mapping[str, Any]
    problem: str | None = None


def calls_in(text: str, tools: Sequence[str], *, cut_off: bool = False) -> list[TextCall]:
    """Return the tool calls in the text of a model, in order. `tools` are the names of the tools that the
    model may call.

    A call to a tool that is not in `tools` counts only if the text is clearly meant as a call: in tags, or as
    an object that has only a name and arguments.
    """
    if len(text) > _MOST_CHARACTERS:
        return []
    # Drafts in the reasoning of a model are no calls.
    text = _REASONING.sub(lambda thought: " " * len(thought.group()), text)
    every = (
        (tagged, call)
        for start, end, tagged in _regions(text)
        for call in _calls_within(text[start:end], start, cut_off and end == len(text))
    )
    meant = (call for tagged, call in every if tagged or call.tool in tools or call.problem is None)
    return list(islice(meant, _MOST_CALLS))


def _regions(text: str) -> list[tuple[int, int, bool]]:
    """Return the parts of the text that may hold calls, in order: tagged parts, fenced parts and bare
    objects.
    """
    tagged = list(_TAGGED.finditer(text))
    fenced = [
        match
        for match in _FENCED.finditer(text)
        # Tags in a fence, or a fence in tags, are one call.
        if not _is_within(match.start(), tagged) and not _has_within(match, tagged)
    ]
    framed = sorted([*tagged, *fenced], key=lambda match: match.start())
    starts = [*(match.start() for match in framed), len(text)]
    found = [(*match.span(2), True) for match in tagged] + [(*match.span(1), False) for match in fenced]
    covered = 0
    for match in _LINE_START.finditer(text):
        start = match.end()
        if start >= covered and not _is_within(start, framed):
            end = starts[bisect_right(starts, start - 1)] if start < len(text) else start
            covered = start + _extent(text[start:end], 0)[0]
            found.append((start, covered, False))
    return sorted(found)


def _is_within(place: int, matches: Sequence[re.Match[str]]) -> bool:
    before = bisect_right(matches, place, key=lambda match: match.start()) - 1
    return before >= 0 and place < matches[before].end()


def _has_within(outer: re.Match[str], matches: Sequence[re.Match[str]]) -> bool:
    first = bisect_right(matches, outer.start(), key=lambda match: match.start())
    return first < len(matches) and matches[first].start() < outer.end()


def _calls_within(region: str, offset: int, cut_off: bool) -> Iterator[TextCall]:
    """Yield the calls of one region: objects, or lists of them, one after the other."""
    place = 0
    for _ in range(_MOST_OBJECTS):
        opening = _OPENING.search(region, place)
        if opening is None:
            return
        place = opening.start()
        stop, closers, in_string = _extent(region, place)
        written = region[place:stop]
        half = in_string or (cut_off and bool(closers))
        # Half a text is never completed: half a file would be written.
        value = _UNREADABLE if half else _parsed(written + closers)
        if value is not _UNREADABLE:
            for tool, arguments, problem in _named(value):
                yield TextCall(offset + place, offset + stop, tool, arguments, problem)
        elif name := _name_hint(written):
            problem = _NO_JSON if not half else _CUT_OFF if cut_off else _HALF
            yield TextCall(offset + place, offset + stop, name, {}, problem)
        place = stop


def _extent(text: str, start: int) -> tuple[int, str, bool]:
    """Return the end of the object, its missing braces, and whether it ends inside a string."""
    open_: list[str] = []
    quote = ""
    place = start
    while place < len(text):
        if quote:
            if text[place] == "\\":
                place += 2
                continue
            if text.startswith(quote, place):
                place += len(quote)
                quote = ""
                continue
        else:
            quote = next((mark for mark in _QUOTES if text.startswith(mark, place)), "")
            if quote:
                place += len(quote)
                continue
            sign = text[place]
            if sign in _CLOSERS:
                open_.append(_CLOSERS[sign])
            elif open_ and sign == open_[-1]:
                open_.pop()
                if not open_:
                    return place + 1, "", False
        place += 1
    return len(text), "".join(reversed(open_)), bool(quote)


_UNREADABLE = object()


def _parsed(written: str) -> Any:
    """Return the value, read as JSON, else as JSON with trailing commas, else as a Python literal."""
    for source in (written, _TRAILING_COMMA.sub(r"\1", written)):
        try:
            return json.loads(source, strict=False, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    try:
        tree = ast.parse(written, mode="eval")
        for node in ast.walk(tree):
            parts = getattr(node, "values", None) or getattr(node, "elts", None) or []
            parts[:] = [_constant(part) for part in parts]
        return ast.literal_eval(tree)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _UNREADABLE


def _constant(part: ast.expr) -> ast.expr:
    """Return the Python constant for a JSON constant (`true`, `false`, `null`); other parts unchanged."""
    if isinstance(part, ast.Name) and part.id in _CONSTANTS:
        return ast.Constant(_CONSTANTS[part.id])
    return part


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _named(value: Any) -> Iterator[tuple[str, Mapping[str, Any], str | None]]:
    """Yield the calls of a parsed value: the tool, its arguments, the problem."""
    if isinstance(value, dict):
        several = value.get("tool_calls")
        value = several if isinstance(several, list) else [value]
    for one in value if isinstance(value, list) else ():
        call = _named_one(one)
        if call is not None:
            yield call


def _named_one(value: Any) -> tuple[str, Mapping[str, Any], str | None] | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        return None
    name_key = next((key for key in _NAMES if isinstance(value.get(key), str) and value[key]), None)
    arguments_key = next((key for key in _ARGUMENTS if key in value), None)
    if name_key is None or arguments_key is None or set(value) - {name_key, arguments_key} - _BESIDE:
        return None
    name, arguments = value[name_key], value[arguments_key]
    if isinstance(arguments, str):
        arguments = _parsed(arguments) if arguments.strip() else {}
    if not isinstance(arguments, dict) or not all(isinstance(key, str) for key in arguments):
        return name, {}, "the arguments must be one JSON object"
    problem = unkeepable(arguments)
    if problem is not None:  # guard: no checkpoint could keep it
        return name, {}, f"the arguments contain {problem}; remove it"
    return name, arguments, None


_CALL_START = re.compile(r"""\{\s*["'](?:name|tool|tool_name|function|action|type|id)["']\s*:""")
_NAME_HINT = re.compile(r"""["'](?:name|tool|tool_name)["']\s*:\s*["']([\w.-]{1,64})["']""")


def _name_hint(written: str) -> str:
    """Return the name of the tool in a call that cannot be parsed; empty if there is none."""
    match = _NAME_HINT.search(written[:500])
    return match.group(1) if match else ""


def _problem(call: TextCall, shown: Collection[str]) -> str | None:
    """Return why the call must not be made, or None. `shown` are the calls in the model's input."""
    if call.problem is not None:
        return call.problem
    if _meaning(call) in shown:  # guard: a file makes no calls, however it is written or escaped
        return _COPIED
    return None


def _shown_calls(messages: Sequence[Message], tools: Sequence[str]) -> frozenset[str]:
    """Return the calls in the model's input, in the canonical form of `_meaning`."""
    found: set[str] = set()
    for message in messages:
        if message.role is MessageRole.ASSISTANT:
            continue
        text = message.text[-_MOST_CHARACTERS:]
        unescaped = text.replace("\\n", "\n").replace('\\"', '"')
        for variant in {text, _LINE_PREFIX.sub("", text), unescaped, _LINE_PREFIX.sub("", unescaped)}:
            found |= {_meaning(call) for call in calls_in(variant, tools)}
            # A call may stand inside a line, or end with it without its braces.
            for match in islice(_CALL_START.finditer(variant), _MOST_OBJECTS):
                rest = variant[match.start() :]
                for part in (rest, rest.partition("\n")[0]):
                    found |= {_meaning(call) for call in islice(_calls_within(part, 0, False), 1)}
    return frozenset(found)


def _meaning(call: TextCall) -> str:
    return json.dumps([call.tool, call.arguments], sort_keys=True, default=str)


def _without(text: str, calls: Sequence[TextCall]) -> str:
    """Return the text around the calls, without their tags and fences."""
    for start, end in sorted({(call.start, call.end) for call in calls}, reverse=True):
        text = text[:start] + text[end:]
    text = re.sub(r"</?(tool_call|function_call)>", "", text)
    text = re.sub(r"^[ \t]*```[\w-]*[ \t]*\n\s*(```[ \t]*$|\Z)", "", text, flags=re.MULTILINE)
    return text.strip()


class KeptModes:
    """The probed modes of models, in a JSON file, by server and name.

    Any thread and any process may use it. Of two concurrent writers, the later one wins. If a mode is lost,
    or the file cannot be read or written, the model is only probed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, name: str, server: str) -> ToolCallMode | None:
        """Return the mode of a model on `server`; None if it was not probed."""
        try:
            return ToolCallMode(self._read()[_key(name, server)])
        except (KeyError, ValueError):
            return None

    def keep(self, name: str, server: str, mode: ToolCallMode) -> None:
        """Store the mode of a model on `server`."""
        modes = self._read() | {_key(name, server): mode.value}
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}-{threading.get_ident()}")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.touch(mode=0o600)
            beside.write_text(json.dumps(modes, indent=1), encoding="utf-8")
            beside.replace(self._path)

    def _read(self) -> dict[str, Any]:
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return known if isinstance(known, dict) else {}


def _key(name: str, server: str) -> str:
    """Return the key of a model. The address is hashed, because it may hold a password."""
    return f"{sha256(server.encode()).hexdigest()[:16]} {name}"


async def probe(model: Model) -> tuple[ToolCallMode, Usage | None]:
    """Ask the model for one small tool call; return the mode in which it answered and the tokens it used.

    If the server refuses requests with tools, the model makes no calls. Raises the errors of `Model.reply`.
    """
    try:
        reply = await model.reply(_probe_request())
    except ModelRefused as refused:
        if "tool" not in str(refused).lower():  # guard: a rejected key says nothing about tools
            raise
        return ToolCallMode.NONE, None
    if reply.message.requests:
        return ToolCallMode.NATIVE, reply.usage
    made = calls_in(reply.message.text, [_PROBE_TOOL.name])
    return (ToolCallMode.TEXT if made else ToolCallMode.NONE), reply.usage


def _probe_request() -> ModelRequest:
    return ModelRequest(
        messages=(Message(MessageRole.USER, _PROBE),), tools=(_PROBE_TOOL,), max_output_tokens=_PROBE_TOKENS
    )


class TextCallingModel:
    """A model whose tool calls in text are treated like native calls, if its mode is `text`.

    A model of unknown mode is probed when it first writes a call as text, if the reservation of that answer
    has enough left for the probe; `keep` stores the result. Any number of calls may run concurrently.
    """

    def __init__(
        self,
        model: Model,
        mode: ToolCallMode | None,
        keep: Callable[[ToolCallMode], None] | None = None,
    ) -> None:
        self._model = model
        self._mode = mode
        self._keep = keep

    @property
    def facts(self) -> ModelFacts:
        return self._model.facts

    def count_tokens(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        reply = await self._model.reply(request, on_token)
        if not request.tools or self._mode in (ToolCallMode.NATIVE, ToolCallMode.NONE):
            return reply
        if request.tools[0] is _PROBE_TOOL:  # guard: a probe sees what the model itself wrote
            return reply
        message = reply.message
        if message.requests:
            if self._mode is None:
                self._learn(ToolCallMode.NATIVE)
            return reply
        tools = [tool.name for tool in request.tools]
        calls = calls_in(message.text, tools, cut_off=reply.cut_off)
        if calls and self._mode is None:
            reply = await self._probed(request, reply)
        if not calls or self._mode is not ToolCallMode.TEXT:
            return reply
        shown = _shown_calls(request.messages, tools)
        requests = tuple(
            ToolRequest(f"text_{number}", call.tool, call.arguments, _problem(call, shown))
            for number, call in enumerate(calls)
        )
        return replace(reply, message=replace(message, text=_without(message.text, calls), requests=requests))

    async def _probed(self, request: ModelRequest, reply: ModelReply) -> ModelReply:
        """Probe the mode, if the reservation of the reply has room; return the reply with the probe's tokens.

        The tokens of the probe are added to the usage of the reply.
        """
        used, price = reply.usage, self.facts.price
        if used is None:
            return reply
        more = Usage(self._model.count_tokens(_probe_request()), _PROBE_TOKENS)
        reserved = Usage(self._model.count_tokens(request), request.max_output_tokens)
        costs_more = price is not None and price.of(used) + price.worst(more) > price.worst(reserved)
        if (
            used.total + more.total > reserved.total or costs_more
        ):  # guard: a budget is not exceeded by a probe
            return reply
        try:
            mode, took = await probe(self._model)
        except (ModelUnavailable, ModelRefused) as failed:
            # The answer is paid for and stays; a probe of unknown cost counts at the worst case.
            return replace(reply, usage=None) if failed.charged else reply
        except CleverAgentsError:
            return reply
        self._learn(mode)
        return replace(reply, usage=Usage.sum([used, took or Usage()]))

    def _learn(self, mode: ToolCallMode) -> None:
        self._mode = mode
        if self._keep is not None:
            self._keep(mode)
