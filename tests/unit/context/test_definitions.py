"""The ranking of definitions, its reasons, and questions that have nothing to do with the code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.model.code import LineSpan
from cleveragents.context.model.context import (
    Candidate,
    Finding,
    RankedDefinition,
    RankedPlace,
    Ranking,
)
from cleveragents.context.pipeline.definitions import is_related, rank_definitions, with_definitions
from cleveragents.context.pipeline.ranking import FusedScorer
from cleveragents.context.pipeline.renderings import ShownCode
from cleveragents.context.search.fusion_weights import fusion_weights
from cleveragents.context.search.question_search import QuestionSearch, shared_search
from cleveragents.testing.code_index import MemorySnapshot
from tests.strategy_bench import FILES

SIGNED = "Where is the session cookie signed?"
SESSIONS = '''"""Sessions in cookies."""


class SessionInterface:
    """The interface of all sessions."""

    def get_cookie_name(self, app):
        """Return the name of the session cookie."""
        return app.config["SESSION_COOKIE_NAME"]

    def get_cookie_domain(self, app):
        """Return the domain of the session cookie."""
        return app.config["SESSION_COOKIE_DOMAIN"]

    def should_set_cookie(self, app, session):
        """Return whether the session cookie is set."""
        return session.modified


class SecureCookieSessionInterface(SessionInterface):
    """The default session interface."""

    salt = "cookie-session"

    def get_signing_serializer(self, app):
        if not app.secret_key:
            return None
        return Serializer([app.secret_key], salt=self.salt)

    def open_session(self, app, request):
        """Open the session of the cookie."""
        return self.get_signing_serializer(app).loads(request.cookies)

    def save_session(self, app, session, response):
        """Save the session in the cookie."""
        response.set_cookie(self.get_cookie_name(app), session)
'''
APP = "def handle(request):\n    return request.session\n"


def looked(question: str, files: Mapping[str, str]) -> tuple[MemorySnapshot, QuestionSearch]:
    code = MemorySnapshot(files, CodePlace(Path("/nowhere")))
    return code, shared_search(code, question)


def names(question: str, files: Mapping[str, str], *paths: str) -> list[str]:
    _code, look = looked(question, files)
    return [one.name for one in rank_definitions(look, [(path, 1.0) for path in paths])]


def test_a_method_is_found_by_a_word_of_its_name_in_another_form() -> None:
    found = names(SIGNED, {"sessions.py": SESSIONS}, "sessions.py")
    methods = [name for name in found if not name.endswith("Interface")]
    assert methods[0] == "SecureCookieSessionInterface.get_signing_serializer"
    assert len(found) == len(set(found)) == 8


def test_definitions_are_ordered_by_score_and_give_their_reasons() -> None:
    _code, look = looked(SIGNED, {"sessions.py": SESSIONS, "app.py": APP})
    found = rank_definitions(look, [("sessions.py", 1.0), ("app.py", 0.2)])
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1.0
    assert found[-1].path == "app.py"
    signing = next(one for one in found if one.name.endswith("get_signing_serializer"))
    assert signing.reasons == ("name matches signing", "has words of the question")
    assert (signing.kind, signing.span) == ("method", LineSpan(25, 28))


@pytest.mark.parametrize(
    ("question", "first", "reason"),
    [
        ("SessionInterface.should_set_cookie returns None", "SessionInterface.should_set_cookie", "named"),
        (
            'it fails\n\n  File "/x/lib/sessions.py", line 32, in open_session\n    return x\nKeyError: 1\n',
            "SecureCookieSessionInterface.open_session",
            "stack trace",
        ),
        (
            "it fails\n\nlib/sessions.py:36: KeyError\n",
            "SecureCookieSessionInterface.save_session",
            "stack trace",
        ),
    ],
)
def test_a_definition_that_the_question_names_is_first(question: str, first: str, reason: str) -> None:
    _code, look = looked(question, {"lib/sessions.py": SESSIONS})
    best = rank_definitions(look, [("lib/sessions.py", 1.0)])[0]
    assert best.name == first
    assert reason in best.reasons[0]


def test_texts_and_empty_files_have_no_definitions() -> None:
    assert names(SIGNED, {"README.md": "# Session\n", "empty.py": ""}, "README.md", "empty.py") == []


def test_the_scorer_ranks_definitions_and_their_places_alike() -> None:
    code = MemorySnapshot({"sessions.py": SESSIONS}, CodePlace(Path("/nowhere")))
    said = (Finding("keyword", "chunk", 3.0),)
    candidates = [
        Candidate("sessions.py", None, (Finding("keyword", "file_full", 1.0),)),
        Candidate("sessions.py", LineSpan(24, 28), said),
        Candidate("sessions.py", LineSpan(1, 3), said),
        Candidate("decision", None, said, "we sign cookies"),
    ]
    shown = ShownCode(code, code.files, print)
    ranking = FusedScorer(fusion_weights()).rank(SIGNED, candidates, shown)
    scores = {one.span: one.score for one in ranking.definitions}
    assert {place.span: place.score for place in ranking.places if place.span in scores} == scores
    assert next(one for one in ranking.places if one.span == LineSpan(25, 28)).findings == said
    kept = [(one.path, one.span) for one in ranking.places if one.span not in scores]
    assert set(kept) == {("sessions.py", LineSpan(1, 3)), ("decision", None)}
    assert ranking.is_related


def test_lines_within_a_definition_give_way_to_it() -> None:
    definition = RankedDefinition("a.py", LineSpan(10, 20), "f", "function", 0.5)
    inside = RankedPlace("a.py", LineSpan(9, 20), 0.9, (Finding("keyword", "chunk", 1.0),))
    beside = RankedPlace("b.py", LineSpan(9, 20), 0.4)
    assert with_definitions((inside, beside), (definition,)) == (
        RankedPlace("a.py", LineSpan(10, 20), 0.5, inside.findings),
        beside,
    )


@pytest.mark.parametrize(
    ("question", "related"),
    [
        ("Where is the next backoff of a retry computed?", True),
        ("How do I bake a chocolate cake?", False),
        ("Kubernetes pods are evicted\n\nThe scheduler drains nodes, see `kubectl cordon`.", False),
        ("chocolate cake\n\nsee src/kite/wire.py", True),
    ],
)
def test_a_question_about_something_else_is_recognised(question: str, related: bool) -> None:
    _code, look = looked(question, FILES)
    assert is_related(look) is related


@pytest.mark.parametrize(
    ("question", "related"),
    [
        ("Where does the accountant of our branch in Lisbon compute the levy called tax?", True),
        (
            "Which accountant in Lisbon knows the prices of our branch this year?",
            True,
        ),  # the name of the file
        ("Which accountant in Lisbon bakes a chocolate cake for our branch?", False),
    ],
)
def test_a_question_with_a_word_of_a_name_is_related(question: str, related: bool) -> None:
    code, look = looked(
        question, {"src/prices.py": "def tax(net):\n    return net * 0.19\n", "README.md": "# Shop\n"}
    )
    assert not is_related(look)
    found = [Candidate("src/prices.py", None, (Finding("keyword", "file_full", 1.0),))]
    ranking = FusedScorer(fusion_weights()).rank(question, found, ShownCode(code, code.files, print))
    assert ranking.is_related is related


def test_common_words_of_a_short_question_are_no_evidence() -> None:
    code, look = looked("How do I bake bread?", {"app.py": "def do_teardown():\n    return 1\n" * 9})
    assert not is_related(look)
    found = [Candidate("app.py", None, (Finding("keyword", "file_full", 1.0),))]
    ranking = FusedScorer(fusion_weights()).rank(
        "How do I bake bread?", found, ShownCode(code, code.files, print)
    )
    assert not ranking.is_related
    assert not any("name matches" in reason for one in ranking.definitions for reason in one.reasons)


def test_nothing_is_ranked_without_findings() -> None:
    code = MemorySnapshot({}, CodePlace(Path("/nowhere")))
    assert FusedScorer(fusion_weights()).rank(SIGNED, [], code) == Ranking()
