"""Scripts: how rules match, how they count, and the errors of invalid scripts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import ConfigurationError, ModelRefused
from cleveragents.models.model.attachment import Attachment
from cleveragents.models.model.budget import Price
from cleveragents.models.model.conversation import Message, MessageRole, Usage
from cleveragents.models.ports import ModelFacts, ModelRequest
from cleveragents.models.script import ScriptRunner
from cleveragents.models.script_document import load_script, read_script
from cleveragents.models.scripted_model import ScriptedModel, scripted_facts, scripted_usage
from tests.attached_files import PNG


def scripting(text: str) -> ScriptRunner:
    return ScriptRunner(read_script(text, "script.yaml"))


def said(script: ScriptRunner, *messages: Message, model: str = "m") -> str | None:
    answer = script.answer(messages or (Message(MessageRole.USER, "hello"),), model=model)
    return None if answer is None else answer.text


def test_the_first_rule_that_fits_answers() -> None:
    script = scripting("rules: [{when: {user: h}, reply: {text: a}}, {reply: {text: b}}]")
    assert said(script) == "a"
    assert said(script, Message(MessageRole.USER, "x")) == "b"


def test_only_a_rule_without_conditions_matches_an_empty_conversation() -> None:
    assert scripting("rules: [{when: {user: h}, reply: {text: a}}]").answer([], model="m") is None
    assert scripting("rules: [{reply: {text: a}}]").answer([], model="m") is not None


def test_conditions_hold_together() -> None:
    script = scripting("rules: [{when: {user: h, first_user: once, model: ^gpt}, reply: {text: a}}]")
    conversation = (Message(MessageRole.USER, "once upon"), Message(MessageRole.USER, "hello"))
    assert said(script, *conversation, model="gpt-x") == "a"
    assert said(script, *conversation, model="other") is None
    assert said(script, *reversed(conversation), model="gpt-x") is None


def test_a_condition_on_a_tool_result_needs_one_as_the_last_message() -> None:
    script = scripting("rules: [{when: {answer: found}, reply: {text: a}}]")
    answer = Message(MessageRole.TOOL, "not found", request_id="1")
    assert said(script, answer) == "a"
    assert said(script, answer, Message(MessageRole.USER, "found")) is None


def test_rules_that_count_requests_let_others_answer() -> None:
    script = scripting("rules: [{skip: 1, times: 2, every: 2, reply: {text: rare}}, {reply: {text: usual}}]")
    expected = ["usual", "rare", "usual", "rare", "usual", "usual", "usual"]
    assert [said(script) for _ in expected] == expected
    script.forget()
    assert [said(script) for _ in expected] == expected


def test_an_unmatched_group_is_filled_with_nothing() -> None:
    script = scripting("rules: [{when: {user: 'a(?P<more>b)?'}, reply: {text: '<${more}>${other}'}}]")
    assert said(script, Message(MessageRole.USER, "a")) == "<>${other}"


def test_a_long_text_comes_in_large_pieces() -> None:
    answer = scripting("rules: [{reply: {text: 'ab ', repeat: 30000}}]").answer([], model="m")
    assert answer is not None
    pieces = answer.pieces()
    assert len(pieces) == 22
    assert "".join(pieces) == "ab " * 30_000


def test_unreported_usage_is_counted_by_bytes() -> None:
    script = scripting("rules: [{reply: {text: abcdefgh, calls: [{tool: t, raw: '{}'}]}}]")
    found = script.answer([], model="m")
    assert found is not None
    assert scripted_usage(found, [Message(MessageRole.USER, "é" * 8)]) == Usage(2, 3, 0)


def test_facts_are_those_of_the_script() -> None:
    script = read_script("facts: {input_price: 1, output_price: 2, cached_price: 0.5}\nrules: []", "s")
    assert scripted_facts("x", script) == ModelFacts("x", 128_000, 8_192, Price(10**6, 2 * 10**6, 500_000))
    assert scripted_facts("x", read_script("rules: []", "s")).price is None
    seeing = scripted_facts("x", read_script("facts: {image_tokens: 3, pdf_tokens: 5}\nrules: []", "s"))
    assert (seeing.image_tokens, seeing.pdf_tokens) == (3, 5)


def test_a_rule_matches_the_type_of_an_attachment() -> None:
    rules = "rules: [{when: {attached: image/png}, reply: {text: seen}}, {reply: {text: blind}}]"
    model = ScriptedModel("s", read_script(f"facts: {{image_tokens: 3}}\n{rules}", "s"))
    plain = ModelRequest(messages=(), max_output_tokens=1)
    shown = replace(plain, attachments=(Attachment.of("a", PNG),))
    answers = [asyncio.run(model.reply(one)).message.text for one in (shown, plain)]
    assert answers == ["seen", "blind"]
    assert model.count_tokens(shown) == model.count_tokens(plain) + 3


def test_a_request_that_no_rule_fits_is_shown_its_last_message() -> None:
    model = ScriptedModel("scripted/s", read_script("rules: []", "s"))
    for messages, shown in (([Message(MessageRole.USER, "hello")], "'hello'"), ([], "''")):
        with pytest.raises(ModelRefused, match=f"no rule of the script matches; the last message is {shown}"):
            asyncio.run(model.reply(ModelRequest(messages=messages, max_output_tokens=1)))


def test_delays_are_slept(tmp_path: Path) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    text = "rules: [{reply: {text: a b c, delay_seconds: 5, piece_seconds: 2}}]"
    model = ScriptedModel("scripted/s", read_script(text, "s"), sleep=sleep)
    asyncio.run(model.reply(ModelRequest(messages=[], max_output_tokens=1)))
    assert slept == [5, 2, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rules: [", "line 1"),
        ("- a", "starts with `rules:`"),
        ("rules:\n  - replay: {}", "line 2: unknown key 'replay'; did you mean 'reply'?"),
        (
            "rules:\n  - reply: {text: 5}\n    wen: {}\n    turns: [{calls: [{tol: x}]}]\nold: 1",
            "line 2: 'text' should be a valid string; line 3: unknown key 'wen'; did you mean 'when'?; "
            "line 4: 'tool' is missing; line 4: unknown key 'tol'; did you mean 'tool'?; "
            "line 5: unknown key 'old'; known: version, facts, rules",
        ),
        ("rules:\n  - when: {}", "line 2: 'rules' needs either `reply` or `turns`"),
        ("rules:\n  - reply: {}\n    turns: []", "needs either `reply` or `turns`"),
        ("rules:\n  - when: {user: '('}\n    reply: {}", "line 2: 'user' is not a regular expression"),
        ("rules:\n  - reply: {fault: {status: 200}}", "'status' should be greater than or equal to 400"),
        ("rules:\n  - reply:\n      calls:\n        - {}", "line 4: 'tool' is missing"),
        ("version: 2\nrules: []", "line 1: 'version' should be 1"),
        ("facts: {}", "not a script"),
    ],
)
def test_an_invalid_script_names_the_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_script(text, "script.yaml")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("script.yaml: ")


def test_a_script_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_script(tmp_path / "none.yaml")
