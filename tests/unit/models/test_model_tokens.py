"""Token estimates: above the counts of tokenizers, and far below the bytes.

`COUNTED` holds the counts of a byte-pair vocabulary of 72,000 entries, smaller than any in use today.
"""

from __future__ import annotations

import base64
import random
import string

import pytest

from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest
from cleveragents.models.ports import ModelFacts, ModelRequest
from cleveragents.models.tokens import Estimator, estimate_request, estimate_text

COUNTED = [
    (
        "The keeper of the house walked through the long corridor every evening, and lit one lamp after "
        "the other until the whole place was bright again.",
        28,
    ),
    (
        "def settle(self, permit: Permit, verdict: Verdict, now: float) -> bool:\n"
        "    with self._lock:\n        if permit.generation is None:\n            return False\n"
        "        circuit = self._circuits[permit.name]\n        circuit.settled += 1\n    return True\n",
        63,
    ),
    ('{"id": 4711, "name": "user-12", "tags": ["a", "b"], "nested": {"ratio": 0.25, "ok": true}}', 40),
    ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 43),
    ("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9eyJzdWIiOiIxMjM0NTY3ODkwIn0", 46),
    ("src/cleveragents/changes/execution_context.py", 12),
    ("在花园里散步的人每天都在思考。", 22),
    ("むかしあるところにおじいさんがいました。", 22),
    ("그는 매일 아침 일찍 일어났다.", 20),
    ("Он каждый день гулял по саду.", 17),
    ("Κάθε μέρα περπατούσε στον κήπο.", 34),
    ("كان يمشي في الحديقة كل يوم", 22),
    ("הוא הלך בגן בכל יום", 22),
    ("वह हर दिन बगीचे में टहलता था", 35),
    ("เขาเดินในสวนทุกวัน", 17),
    ("ის ყოველდღე სეირნობდა ბაღში", 51),
    ("Während der Überschwemmung beförderte die Gesellschaft außergewöhnlich viele Fahrgäste.", 31),
    ("Ngày nào ông ấy cũng đi dạo trong vườn.", 25),
    ("😀🎉👩\u200d👩\u200d👧\u200d👦🇩🇪🏳️\u200d🌈🧑🏽\u200d🚀", 50),
    ("┌──────┬─────┐\n│ a    │ b   │\n└──────┴─────┘\n", 31),
    ("→ ≤ … — “x” ‘y’ • ✓ ∑ ≠", 16),
    ("                x = 1\n                y = 2\n", 12),
    ("\t\t\tif (a) {\n\t\t\t\treturn;\n\t\t\t}\n", 12),
    ("!@#$%^&*()_+-=[]{}|;':,./<>?", 18),
    ("----------------------------------------\n", 2),
]


@pytest.mark.parametrize(("text", "counted"), COUNTED, ids=lambda value: str(value)[:12])
def test_an_estimate_is_at_least_the_counted_tokens(text: str, counted: int) -> None:
    assert estimate_text(text) >= counted


@pytest.mark.parametrize("text", [text for text, _ in COUNTED], ids=lambda value: value[:12])
def test_no_estimate_exceeds_the_bytes(text: str) -> None:
    assert estimate_text(text) <= len(text.encode())


def test_prose_and_code_are_estimated_at_less_than_twice() -> None:
    for text, counted in COUNTED[:2]:
        assert estimate_text(text) < 2 * counted


def test_base64_counts_almost_one_token_per_letter() -> None:
    encoded = base64.b64encode(random.Random(1).randbytes(3000)).decode()
    assert estimate_text(encoded) >= 0.74 * len(encoded)


def test_digits_are_counted_one_by_one() -> None:
    assert estimate_text("0123456789" * 10) == 100
    assert estimate_text("2026 07") == 7


def test_a_name_in_code_is_not_taken_for_base64() -> None:
    assert estimate_text("src/cleveragents/models/catalogue.py") <= 25


def test_a_random_word_takes_more_tokens_than_a_long_word() -> None:
    drawn = "".join(random.Random(1).choice(string.ascii_lowercase) for _ in range(60))
    assert estimate_text(drawn) >= 36


def test_a_lone_surrogate_is_estimated() -> None:
    assert estimate_text("\ud800") >= 1


def test_the_whole_request_is_counted() -> None:
    plain = ModelRequest(messages=[Message(MessageRole.USER, "hello there")], max_output_tokens=1)
    asked = Message(MessageRole.ASSISTANT, "", (ToolRequest("1", "read", {"path": "some/file.txt"}),))
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tool = ToolSpec("read", "Reads a file.", Capability.READ, schema, {})
    more = [
        ModelRequest(messages=[*plain.messages, asked], max_output_tokens=1),
        ModelRequest(messages=plain.messages, tools=[tool], max_output_tokens=1),
        ModelRequest(messages=plain.messages, schema=schema, max_output_tokens=1),
    ]
    for request in more:
        assert estimate_request(request) >= estimate_request(plain) + 10


def test_an_underestimated_model_gets_higher_estimates() -> None:
    estimator = Estimator(ModelFacts("m", 1, 1))
    request = ModelRequest(messages=[Message(MessageRole.USER, "hello " * 50)], max_output_tokens=1)
    first = estimator.count(request)
    estimator.learn(request, 3 * first)
    assert estimator.count(request) >= 3 * first
    estimator.learn(request, 1)
    assert estimator.count(request) >= 3 * first


def test_more_texts_than_are_remembered_are_estimated_the_same() -> None:
    before = estimate_text("the same text as before")
    for number in range(20_000):
        estimate_text(f"text {number}")
    assert estimate_text("the same text as before") == before


def test_more_tools_than_are_remembered_are_estimated_each_by_itself() -> None:
    def tool(number: int) -> ToolSpec:
        schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(number % 7)}}
        return ToolSpec(f"t{number % 7}", "does it", Capability.READ, schema, {})

    def counted(spec: ToolSpec) -> int:
        return estimate_request(ModelRequest(messages=(), tools=(spec,), max_output_tokens=1))

    expected = [counted(tool(number)) for number in range(7)]
    assert expected == sorted(set(expected))
    # Each is freed before the next one is created, so that some reuse the memory address of another.
    assert all(counted(tool(number)) == expected[number % 7] for number in range(3000))
    kept = tool(3)
    assert counted(kept) == counted(kept) == expected[3]
