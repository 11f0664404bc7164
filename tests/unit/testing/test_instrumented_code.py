"""The first import of a module creates its code with probes: in any thread, and in several concurrently."""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import slipcover.slipcover
from slipcover import Slipcover
from slipcover.branch import preinstrument

from tests import instrumented_code
from tests.observable_lock import TellingLock


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there are no probes in the code")
def test_concurrent_instrumentation_keeps_slipcovers_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first is running, and ends after it, unless it has to wait."""
    real = slipcover.slipcover.probe
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    went_on, left = threading.Event(), threading.Event()
    made: dict[Path, CodeType] = {}

    def make(source: Path) -> None:
        source.write_text("x = 1\n")
        made[source] = instrumented_code._make(source)[0]

    other = threading.Thread(target=make, args=(second,))

    class Maker(Slipcover):
        def instrument(self, code: CodeType, parent: CodeType | None = None) -> CodeType:
            if code.co_filename == str(first):
                other.start()
                assert went_on.wait(60)
            else:
                went_on.set()
                assert left.wait(60)
            done: CodeType = super().instrument(code, parent)
            return done

    monkeypatch.setattr(instrumented_code, "Slipcover", Maker)
    monkeypatch.setattr(instrumented_code, "_making", TellingLock(went_on), raising=False)
    monkeypatch.setattr(slipcover.slipcover, "probe", real)  # unchanged; restored in any case
    make(first)
    left.set()
    other.join(60)
    assert slipcover.slipcover.probe is real
    assert all(instrumented_code._SIGNAL in code.co_consts for code in made.values())
    assert len(made) == 2


SOURCE = """\
def sign(number):
    try:
        if number < 0:
            return -1
    finally:
        number = 0
    return 1
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there are no probes in the code")
def test_reports_lines_and_branches_once_like_slipcover(tmp_path: Path) -> None:
    source = tmp_path / "signs.py"
    source.write_text(SOURCE)
    counting, theirs = Slipcover(branch=True), Slipcover(branch=True)
    own: dict[str, Any] = {}
    exec(instrumented_code._with_probes(counting, instrumented_code._make(source)[0]), own)
    other: dict[str, Any] = {}
    exec(theirs.instrument(compile(preinstrument(ast.parse(SOURCE)), str(source), "exec")), other)

    def told(number: int) -> tuple[set[object], set[object]]:
        assert own["sign"](number) == other["sign"](number)
        return counting._get_newly_seen()[str(source)], theirs._get_newly_seen()[str(source)]

    ours, expected = told(1)
    assert ours == expected
    assert ours > {3, 6, 7, (3, 6)}
    assert told(1)[0] == set()
    assert told(-1)[0] == {4, (3, 4), 6}  # the other copy of the `finally` block
    assert told(-1)[0] == told(1)[0] == set()
