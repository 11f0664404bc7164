"""The values of variables passed to an agent never appear in its output, whatever their names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cleveragents.core.errors import ToolRefused
from cleveragents.core.text.redaction import KnownSecrets, redact_content_text, redact_text
from cleveragents.plans.model.plan import PlanState
from cleveragents.processes.guard_process import OutputTail
from cleveragents.processes.passthrough import NO_SECRETS, SecretMask, mask_for
from tests.acp_bench import SessionBench, steps
from tests.agent_bench import agent_bench
from tests.plan_bench import PlanBench

VALUE = "correct-horse-battery"
KEPT = "an-ordinary-staple"
ECHO = "import os, sys; v = os.environ['MY_AGENT_KEY']; print('it is', v); print(v, file=sys.stderr)"


def told(mask: SecretMask, *chunks: bytes) -> tuple[bytes, str]:
    heard: list[bytes] = []
    tail = OutputTail(1000, heard.append, mask)
    for chunk in chunks:
        tail.append(chunk)
    tail.close()
    return b"".join(heard), tail.finish()[0]


@pytest.mark.parametrize("value", ["s3cr3t-väluе", "aaaaaaab", "abcabcabd"])
def test_a_value_is_masked_wherever_the_output_is_cut(value: str) -> None:
    said = f"aaa {value}{value} abcabc {value[:5]}!".encode()
    expected = f"aaa *** abcabc {value[:5]}!"
    for first in range(len(said) + 1):
        for second in range(first, len(said) + 1):
            heard, kept = told(SecretMask([value]), said[:first], said[first:second], said[second:])
            assert heard.decode() == kept == expected


def test_a_value_within_a_longer_secret_hides_all_of_it_wherever_the_output_is_cut() -> None:
    mask, said = SecretMask(["pat-0123456789"]), b"use glpat-0123456789abcdefghij, password=x now\n"
    assert mask.text(said.decode()) == "use ***, password=x now\n"
    for first in range(len(said) + 1):
        heard, kept = told(mask, said[:first], said[first:])
        assert heard.decode() == kept == "use ***, password=x now\n"
    letter = [bytes([byte]) for byte in said]
    assert told(mask, *letter)[1] == "use ***, password=x now\n"


def test_values_that_overlap_are_masked_wherever_the_output_is_cut() -> None:
    mask, said = SecretMask(["secret-onetwo", "two-secret"]), b"x secret-onetwo-secret y"
    for first in range(len(said) + 1):
        assert told(mask, said[:first], said[first:]) == (b"x *** y", "x *** y")


@pytest.mark.parametrize("text", ["-----BEGIN PRIVATE KEY-----\n", "https://me:", 'password = "', "x" * 9000])
def test_output_without_a_value_comes_out_as_it_is_however_long_it_is(text: str) -> None:
    said = text.encode() + b"word " * 10_000 + b"x" * 60_000
    tail = OutputTail(1_000_000, mask=SecretMask([VALUE]))
    for start in range(0, len(said), 4096):
        tail.append(said[start : start + 4096])
        assert len(tail._masked._text) < 30_000
    assert tail.finish()[0] == said.decode()


def test_a_possible_start_of_a_secret_is_shown_at_the_end_but_most_of_one_is_not() -> None:
    assert told(SecretMask([VALUE]), b"so ", b"corr") == (b"so corr", "so corr")
    assert told(SecretMask([VALUE]), b"so ", VALUE[:-1].encode()) == (b"so ***", "so ***")
    open_still = OutputTail(1000, mask=SecretMask([VALUE]))
    open_still.append(b"corr")
    assert open_still.finish() == ("corr", 0)
    open_still.append(VALUE[4:].encode())
    assert open_still.finish() == ("***", 0)


def test_a_value_is_found_within_json_and_line_by_line() -> None:
    value = 'first line of a "key"\nsecond line of the key\nshort\n'
    mask = SecretMask([value])
    assert mask.text(json.dumps({"x": value})) == '{"x": "***"}'
    assert mask.text("> second line of the key\r\n> short") == "> ***\r\n> short"
    assert mask.value({"a": [value.strip(), 1, None]}) == {"a": ["***", 1, None]}


def test_short_and_common_values_are_not_secrets() -> None:
    secrets = KnownSecrets()
    given = {"SHORT": "12345", "HOME": "/home/somebody", "LC_ALL": "C.UTF-8-like", "MY_KEY": "123456"}
    assert mask_for(given, given, secrets).text("12345 /home/somebody C.UTF-8-like 123456!") == (
        "12345 /home/somebody C.UTF-8-like ***!"
    )
    assert NO_SECRETS.text("x") == "x"


def test_a_setting_variable_is_masked_in_output_but_not_in_files() -> None:
    secrets = KnownSecrets()
    given = {"MY_MODEL": "some-model-of-mine", "MY_WORD": "some-word-of-mine"}
    mask = mask_for(given, given, secrets)
    assert mask.text("some-model-of-mine some-word-of-mine") == "*** ***"
    assert redact_content_text("some-model-of-mine some-word-of-mine") == "some-model-of-mine ***"


@pytest.mark.parametrize("fails", [False, True])
def test_the_value_is_in_no_output_no_record_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    value = f"{VALUE}-{fails}"
    monkeypatch.setenv("MY_AGENT_KEY", value)
    code = f"{ECHO}; open('mine.txt', 'w').write('x'); sys.exit({7 * fails})"
    with agent_bench(tmp_path) as bench:
        plan = bench.given("", argv=(sys.executable, "-c", code), environment=("MY_AGENT_KEY",))
        assert plan.state is (PlanState.ERRORED if fails else PlanState.COMPLETE)
        (call,) = bench.calls(plan)
        assert "it is ***" in str(call.error if fails else call.result)
        assert value not in f"{call} {plan} {bench.said}"
        assert bytes(bench.output).count(b"***") == 2
        bench.container.close()
    held = [file for file in tmp_path.rglob("*") if file.is_file() and value.encode() in file.read_bytes()]
    assert held == []


def test_a_secret_is_masked_in_updates_requests_terminals_and_errors(
    plans: PlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_AGENT_KEY", KEPT)
    bench, heard = SessionBench(plans), bytearray()
    sessions = bench.sessions(on_output=heard.extend)
    request = {**steps(("betray", "MY_AGENT_KEY")), "environment": ("MY_AGENT_KEY",)}
    with pytest.raises(
        ToolRefused, match=r"refused to continue; its last message: .*it was \*\*\*"
    ) as refused:
        bench.talk(request, sessions=sessions)
    recorded = " ".join(f"{call.arguments} {call.result} {call.error}" for call in bench.calls())
    shown = " ".join(update.text for update in bench.told)
    for text in (recorded, shown, heard.decode(), str(refused.value)):
        assert KEPT not in text
        assert "***" in text
    assert heard.decode() == "***\n***\n"
    assert "it is ***, you see" in shown
    assert "use ***" in shown
    assert "curl ***" in shown
    assert "send ***" in recorded
    # The agent's own files are not masked.
    assert bench.text("mine.txt") == KEPT
    assert redact_text(KEPT) == "***"
