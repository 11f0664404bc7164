"""The output of failed checks, as small models see it: the first failure, and the names of the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cleveragents.tools.tool_results import first_failure, passed_tests

TESTS = """\
import unittest


class SizeTest(unittest.TestCase):
    def test_first(self):
        self.assertEqual(1, 2, "one is not two")

    def test_second(self):
        self.assertEqual(3, 4, "three is not four")

    def test_third(self):
        self.assertEqual(5, 5)
"""


def _output(directory: Path, *arguments: str) -> str:
    (directory / "test_size.py").write_text(TESTS)
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


def test_pytest_shows_its_first_failure_and_the_names_of_all(tmp_path: Path) -> None:
    output = _output(
        tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "test_size.py"
    )
    short = first_failure(output)
    assert "one is not two" in short
    assert "three is not four" not in short.split("short test summary")[0]
    assert "FAILED test_size.py::SizeTest::test_second" in short
    assert "2 failed, 1 passed" in short


def test_unittest_shows_its_first_failure_and_the_count(tmp_path: Path) -> None:
    short = first_failure(_output(tmp_path, "-m", "unittest", "test_size"))
    assert "one is not two" in short
    assert "three is not four" not in short
    assert "FAILED (failures=2)" in short


def test_other_output_stays_as_it_is() -> None:
    one = "____ test_first ____\nassert 1 == 2\n=== 1 failed in 0.1s ==="
    for output in ("", "src/names.py:1: error: missing return\n" * 3, one):
        assert first_failure(output) == output


def test_passed_tests_are_counted(tmp_path: Path) -> None:
    pytest_output = _output(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_size.py")
    assert passed_tests(f"exit code 1\n{pytest_output}") == 1
    assert passed_tests(f"exit code 1\n{_output(tmp_path, '-m', 'unittest', 'test_size')}") == 1
    assert passed_tests("exit code 2\nERROR test_size.py\n1 error in 0.10s\n") == 0


def test_a_run_that_was_stopped_passed_no_test() -> None:
    assert passed_tests("exit code 124\n.") == 0
    assert passed_tests("took longer than 60 s\n.") == 0
    assert "Perhaps a loop never ends" in first_failure("exit code 124\n.")


def test_output_of_other_programs_has_no_count() -> None:
    assert passed_tests("exit code 1\nmake: *** [test] Error 1") is None
    assert passed_tests("exit code 1\nHTTP 124") is None
