"""The data that strategies share about one question, and its lifetime."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.search.question_search import shared_search
from cleveragents.context.strategies import keyword
from cleveragents.core.errors import Closed, SourceChanged
from cleveragents.testing.code_index import MemorySnapshot
from tests.strategy_bench import FILES, ask, ground_of


def _snapshot() -> MemorySnapshot:
    return MemorySnapshot(FILES, CodePlace(Path("/nowhere")))


def test_callers_with_the_same_question_share_one() -> None:
    code = _snapshot()
    assert shared_search(code, "backoff") is shared_search(code, "backoff")
    assert shared_search(code, "backoff") is not shared_search(code, "socket")
    assert shared_search(code, "backoff") is not shared_search(_snapshot(), "backoff")


def test_shared_data_is_released_with_the_snapshot() -> None:
    ground = ground_of()
    ask(keyword.make, "backoff of a retry", ground)
    kept = weakref.ref(shared_search(ground.code, "backoff of a retry"))
    code = weakref.ref(ground.code)
    del ground
    gc.collect()
    assert (kept(), code()) == (None, None)


def test_a_snapshot_that_is_asked_much_keeps_the_latest_questions() -> None:
    code = _snapshot()
    first = weakref.ref(shared_search(code, "one"))
    shared_search(code, "two")
    assert first() is not None
    shared_search(code, "three")
    gc.collect()
    assert first() is None


def test_a_user_that_outlives_the_snapshot_gets_closed() -> None:
    code = _snapshot()
    look = shared_search(code, "backoff")
    del code
    gc.collect()
    with pytest.raises(Closed):
        _ = look.code


def test_each_part_is_worked_out_once_however_many_ask() -> None:
    look = shared_search(_code := _snapshot(), "backoff")
    begun = threading.Barrier(8)
    counted: list[int] = []
    answers: list[object] = []

    def work() -> object:
        counted.append(1)
        return object()

    def asker() -> None:
        begun.wait(30)
        answers.append(look.once("part", work))

    threads = [threading.Thread(target=asker) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(counted) == 1
    assert len(set(map(id, answers))) == 1
    assert len(answers) == 8


def test_failed_calls_are_retried() -> None:
    look = shared_search(_code := _snapshot(), "backoff")

    def fail() -> int:
        raise ValueError

    with pytest.raises(ValueError):
        look.once("part", fail)
    assert look.once("part", lambda: 3) == 3


def test_a_text_that_is_gone_is_empty() -> None:
    class Changed(MemorySnapshot):
        def text(self, path: str) -> str:
            raise SourceChanged(path)

    code = Changed(FILES, CodePlace(Path("/nowhere")))
    assert shared_search(code, "x").text("src/kite/wire.py") == ""
    whole = _snapshot()
    assert shared_search(whole, "x").text("no/such.py") == ""
    assert shared_search(whole, "x").text("src/kite/wire.py") == FILES["src/kite/wire.py"]
