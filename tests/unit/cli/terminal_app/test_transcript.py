"""The recorded output of a plan as the app reads it: piece by piece, without secrets."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from cleveragents.api.plans.detail_views import OutputView
from cleveragents.cli.terminal_app.transcript import Entry, Transcript

NOW = datetime(2026, 11, 15, tzinfo=UTC)
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9" * 2


class Recording:
    """The output of a plan that grows."""

    def __init__(self) -> None:
        self.pieces: list[OutputView] = []

    def add(self, text: str, kind: str = "model") -> None:
        number = len(self.pieces) + 1
        self.pieces.append(OutputView(plan_id="P", number=number, kind=kind, text=text, time=NOW))

    def output(self, plan_id: str, *, after: int, limit: int) -> list[OutputView]:
        return self.pieces[after : after + limit]


def test_a_long_answer_is_masked_in_linear_time() -> None:
    recording: Any = Recording()
    transcript, seconds = Transcript("P"), list[float]()
    for _ in range(20):
        began = time.thread_time()
        for _ in range(50):
            recording.add("word " * 40)
            assert transcript.read(recording)[1].endswith("word ")
        seconds.append(time.thread_time() - began)
    assert min(seconds[-5:]) < 4 * seconds[1], "late pieces cost as much as early ones"
    recording.add("done\n", "progress")
    (answer, end), said = transcript.read(recording)
    assert (answer, end, said) == (Entry("model", "word " * 40_000), Entry("progress", "done"), "")


def test_no_part_of_a_secret_is_shown_while_it_arrives() -> None:
    recording: Any = Recording()
    transcript = Transcript("P")
    for letter in f"Use {TOKEN} now, or password=hunter2! ":
        recording.add(letter)
        _, said = transcript.read(recording)
        assert "ghp" not in said
        assert "hun" not in said
    assert said == "Use *** now, or password=*** "
    recording.add("", "output")
    entries, said = transcript.read(recording)
    assert (entries, said) == ([Entry("model", "Use *** now, or password=*** ")], "")


def test_the_json_of_a_strategist_is_shown_as_prose() -> None:
    recording: Any = Recording()
    transcript = Transcript("P")
    answers = [
        '{"summary": "Two.", "decisions": [{"question": "Where?", "choice": "a.py"}, 3], "steps": ["b"]}',
        '```json\n{"verdict": "accept", "findings": []}\n```',
        '{"name": "read_file"}',
        "[1, 2]",
    ]
    for answer in answers:
        recording.add(f"{answer} ")
        recording.add("next\n", "progress")
    entries, _ = transcript.read(recording)
    shown = [entry.text.strip() for entry in entries if entry.kind == "model"]
    assert shown == [
        "Two.\n\nDecisions:\n\n- Where? → a.py\n\nSteps:\n\n- b",
        "accept",
        '{"name": "read_file"}',
        "[1, 2]",
    ]


def test_the_last_answer_of_a_plan_at_rest_is_an_entry() -> None:
    recording: Any = Recording()
    transcript = Transcript("P")
    recording.add('{"verdict": "accept", "findings": []}')
    assert transcript.read(recording)[0] == []
    assert transcript.read(recording, at_rest=True) == ([Entry("model", "accept")], "")
    assert transcript.read(recording, at_rest=True) == ([], "")
    recording.add("It was resumed. ")
    assert transcript.read(recording) == ([], "It was resumed. ")
