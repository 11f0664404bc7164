"""Strategies based on names and places: symbols, mentions, imports, tests, history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cleveragents.context.context_parts import PastCommit
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.question import read_question
from cleveragents.context.search.question_search import strengths
from cleveragents.context.strategies import history, imports, mentions, symbols, tests
from cleveragents.testing.code_index import FakeCommitHistory
from tests.strategy_bench import FILES, Always, ask, ground_of, paths_by, retrieved


def test_a_name_leads_to_where_it_is_defined() -> None:
    found = ask(symbols.make, "RetryPolicy waits too long")
    assert paths_by(found, "top_title") == ["src/kite/policy.py"]
    place = next(fragment for fragment in found if fragment.signal == "place")
    assert (place.path, place.span) == ("src/kite/policy.py", LineSpan(6, 10))


def test_capitals_count_in_names() -> None:
    assert paths_by(ask(symbols.make, "the `retrypolicy` waits"), "top_title") == []


def test_a_constant_is_a_name_too() -> None:
    assert paths_by(ask(symbols.make, "DEFAULT_BACKOFF is wrong"), "variable_title") == ["src/kite/policy.py"]


def test_files_that_use_a_rare_name_are_found() -> None:
    found = ask(symbols.make, "`open_socket` fails")
    assert set(paths_by(found, "use")) == {"src/kite/wire.py", "src/kite/session.py"}


def test_names_are_compared_by_their_words() -> None:
    found = ask(symbols.make, "requests are sent twice")
    assert paths_by(found, "words")[0] == "src/kite/session.py"


def test_a_path_matches_with_any_prefix() -> None:
    for mention in ("src/kite/wire.py", "kite/wire.py", "/home/me/kite/wire.py:12", "C:\\x\\kite\\wire.py"):
        assert paths_by(ask(mentions.make, f"see {mention} please"), "path") == ["src/kite/wire.py"], mention


def test_a_path_in_the_title_is_what_is_asked_for() -> None:
    found = ask(mentions.make, "tests/test_wire.py fails\n\nas does src/kite/policy.py")
    assert paths_by(found, "path_title") == ["tests/test_wire.py"]
    assert set(paths_by(found, "path")) == {"tests/test_wire.py", "src/kite/policy.py"}


def test_another_package_with_such_a_file_is_not_meant() -> None:
    found = ask(
        mentions.make, 'it fails\n\n  File "/usr/lib/python3/site-packages/numpy/utils.py", line 3, in f\n'
    )
    assert paths_by(found, "frame") == []


def test_the_innermost_frame_of_ours_counts_most() -> None:
    trace = (
        "it fails\n\nTraceback (most recent call last):\n"
        '  File "/x/site-packages/kite/session.py", line 9, in send_request\n    wire.open_socket(url)\n'
        '  File "/x/site-packages/kite/wire.py", line 6, in open_socket\n    socket.create(url)\n'
        '  File "/usr/lib/python3.11/socket.py", line 800, in create\nOSError: no route\n'
    )
    found = ask(mentions.make, trace)
    assert paths_by(found, "frame") == ["src/kite/wire.py", "src/kite/session.py"]
    assert paths_by(found, "frame_last") == ["src/kite/wire.py"]
    line = next(fragment for fragment in found if fragment.signal == "line")
    assert (line.path, line.span) == ("src/kite/wire.py", LineSpan(1, 6))


def test_a_frame_beyond_the_end_of_a_file_is_ignored() -> None:
    found = ask(mentions.make, 'x\n\n  File "kite/wire.py", line 900, in f\n')
    assert paths_by(found, "line") == []
    assert paths_by(found, "frame") == ["src/kite/wire.py"]


def test_a_dotted_name_is_a_module() -> None:
    found = ask(mentions.make, "kite.policy.RetryPolicy.next_backoff is odd, kite.Session too")
    assert paths_by(found, "module") == ["src/kite/policy.py"]


def test_a_message_is_found_where_it_is_written() -> None:
    found = ask(mentions.make, "it stops\n\nValueError: too many attempts for one request\n")
    assert paths_by(found, "message")[0] == "src/kite/policy.py"
    assert paths_by(found, "message_place")[0] == "src/kite/policy.py"


def test_an_option_is_found_in_the_literal() -> None:
    found = ask(mentions.make, "what does --cookie-limit do")
    assert paths_by(found, "literal") == ["web/src/cookieJar.ts"]


def test_an_import_is_followed_to_the_definition() -> None:
    question = "odd\n\n```python\nfrom kite import Session, RetryPolicy as Policy\n```\n"
    found = paths_by(ask(imports.make, question), "taken")
    assert set(found) == {"src/kite/session.py", "src/kite/policy.py"}


def test_a_module_by_another_name_is_the_same_module() -> None:
    question = "odd\n\n```python\nimport kite as k\nk.RetryPolicy().next_backoff(1)\n```\n"
    assert paths_by(ask(imports.make, question), "named") == ["src/kite/policy.py"]


def test_imports_of_a_relevant_file_are_relevant() -> None:
    found = ask(imports.make, "Session keeps cookies between requests")
    assert {"src/kite/wire.py", "src/kite/policy.py"} <= set(paths_by(found, "neighbour"))


def test_relative_imports_of_scripts_are_followed() -> None:
    found = ask(imports.make, "CookieJar store of the cookie header")
    assert "web/src/parse.ts" in paths_by(found, "neighbour")


def test_files_that_import_each_other_end() -> None:
    circle = {
        "a/__init__.py": "from .b import *\nfrom .c import missing\n",
        "a/b.py": "from .c import *\nfrom a import *\n",
        "a/c.py": "from .b import *\nfrom ..... import x\n",
    }
    assert paths_by(ask(imports.make, "a.thing and a.missing", ground_of(circle)), "named")


def test_files_that_all_import_each_other_end_soon() -> None:
    stars = "".join(f"from .m{number} import *\n" for number in range(30))
    crowd = {f"a/m{number}.py": stars for number in range(30)} | {"a/__init__.py": stars, "a/z.py": "x = 1\n"}
    assert paths_by(ask(imports.make, "a.thing", ground_of(crowd)), "named") == ["a/__init__.py"]


def test_a_package_with_hundreds_of_files_is_not_searched() -> None:
    many = {f"a/m{number}.py": f"x{number} = 1\n" for number in range(100)}
    many["a/__init__.py"] = "".join(f"from .m{number} import *\n" for number in range(100))
    near = paths_by(ask(imports.make, "a.x3", ground_of(many)), "named")
    far = paths_by(ask(imports.make, "a.x99", ground_of(many)), "named")
    assert (near, far) == (["a/m3.py"], ["a/__init__.py"])


def test_a_test_leads_to_what_it_exercises() -> None:
    found = ask(tests.make, "patience grows with every failure")
    assert paths_by(found, "namesake")[0] == "src/kite/policy.py"
    assert paths_by(found, "imported")[0] == "src/kite/policy.py"


def test_without_tests_the_strategy_finds_nothing() -> None:
    files = {path: text for path, text in FILES.items() if "tests/" not in path}
    assert ask(tests.make, "patience grows", ground_of(files)) == []


def _commit(number: int, message: str, *paths: str) -> PastCommit:
    return PastCommit(
        f"{number:040}", datetime(2026, 1, 9, tzinfo=UTC) - timedelta(days=number), message, paths
    )


HISTORY = FakeCommitHistory(
    [
        _commit(1, "fix: socket is closed twice", "src/kite/wire.py", "src/kite/gone.py"),
        _commit(2, "feat: backoff of a retry grows", "src/kite/policy.py", "src/kite/utils.py"),
        _commit(3, "chore: everything", *(f"f{number}" for number in range(40))),
        _commit(4, "merge"),
    ]
)


def test_a_commit_like_the_question_leads_to_its_files() -> None:
    found = ask(history.make, "backoff of a retry is too short", ground_of(history=HISTORY))
    for signal in ("nearest_title", "nearest_weighed", "told_weighed"):
        assert set(paths_by(found, signal)[:2]) == {"src/kite/policy.py", "src/kite/utils.py"}, signal
    assert paths_by(found, "latest")[0] == "src/kite/wire.py"
    assert "src/kite/gone.py" not in paths_by(found, "latest")


def test_files_that_changed_with_a_likely_one_are_found() -> None:
    found = ask(history.make, "next_backoff of RetryPolicy", ground_of(history=HISTORY))
    assert paths_by(found, "together")[0] == "src/kite/utils.py"


def test_a_repository_without_history_finds_nothing() -> None:
    assert ask(history.make, "backoff", ground_of()) == []
    assert retrieved(history.make, "backoff", ground_of(history=HISTORY), Always()) == []


def test_the_chunk_of_a_function_that_is_named_counts_more_than_one_that_only_uses_its_words() -> None:
    files = {
        "a.py": "def next_backoff():\n    return 1\n",
        "b.py": "def other():\n    # next backoff, the next backoff and the next backoff\n    return 2\n",
    }
    question = "`next_backoff` is the next backoff of the other one"
    assert paths_by(ask(symbols.make, question, ground_of(files)), "chunks")[0] == "a.py"


def test_a_method_counts_more_when_its_class_is_named() -> None:
    files = {
        "a.py": "class Alpha:\n    def run(self):\n        return 'queue of jobs'\n",
        "b.py": "class Beta:\n    def run(self):\n        return 'queue of jobs'\n",
    }
    assert (
        paths_by(ask(symbols.make, "the queue of jobs in Beta hangs", ground_of(files)), "chunks")[0]
        == "b.py"
    )


def test_the_confidence_of_a_name_depends_on_form_and_position() -> None:
    question = read_question(
        "Policy breaks run\n\nthe `limit` and maxWait, then open() of Session\n\n```\nx.y(z_z)\n```\n"
    )
    names = {
        "title": ["Policy", "run"],
        "ticked": ["limit"],
        "prose": ["maxWait", "open", "Session", "then"],
        "code": ["z_z"],
        "trace": [],
    }
    assert strengths(question, names) == pytest.approx(
        {"Policy": 0.5, "run": 0.3, "limit": 0.7, "maxWait": 0.7, "open": 0.49, "Session": 0.49, "z_z": 0.4}
    )
