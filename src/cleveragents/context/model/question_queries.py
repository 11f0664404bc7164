"""What to search for: the terms of each part of a question, and of all of it with its parts weighed.

A term that is said often weighs more than one said once, but not as many times as much. In the weighed whole
the title counts twice and code less than prose, because code shows how somebody came to the problem and
prose says what it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from cleveragents.context.model.code_terms import count_terms, terms_of, words_of
from cleveragents.context.model.question import Question

__all__ = ["COMMON_WORDS", "queries_of", "query_terms"]

_MOST_TERMS = 600
_LEAST_TERMS = 3

_COMMON = (
    "a about above actual after again against all also although am an and any are as at be because been "
    "before behavior behaviour being below between both bug but by call can code complete could currently "
    "describe description did do does doing done down during each eg else etc even example expected few "
    "file first following for from further get gets got had has have having he hello here hi how however "
    "i ie if in instead into is issue it its just last like line make makes may me might minimal more "
    "most must my need new no nor not now of off on once one only or other our out outcome over own per "
    "please problem python recent report reproduce reproduction result results same second see seem seems "
    "shall she should since so some steps still such summary than thank thanks that the their them then "
    "there these they think this those through to too traceback two under unless until up us use used "
    "uses using verifiable version versions very via vs want was way we well were what when where whether "
    "which while who whom whose why will with work working works would you your"
)
COMMON_WORDS = frozenset(_COMMON.split())
"""Words of questions as such, whatever they are about."""

_PARTS = (("title", 2.0), ("prose", 1.0), ("code", 0.5), ("trace", 0.25), ("ticked", 1.0))


def query_terms(text: str) -> Counter[str]:
    """How often each term stands in `text`, common words left out."""
    words = Counter(word for word in words_of(text) if word.lower() not in COMMON_WORDS)
    counts = count_terms(words)
    return Counter({term: count for term, count in counts.items() if term not in COMMON_WORDS})


def queries_of(question: Question) -> dict[str, dict[str, float]]:
    """For each part, and for `full` and `weighed`, how much each of its terms is wanted."""
    # Who asks in three words means each of them.
    terms = query_terms if len(query_terms(question.text)) >= _LEAST_TERMS else terms_of
    counted = {
        "title": terms(question.title),
        "prose": terms(question.prose),
        "code": terms(question.code),
        "trace": terms(question.trace),
        "ticked": terms("\n".join(question.ticked)),
        "errors": terms("\n".join(question.errors)),
    }
    full: Counter[str] = Counter()
    for part in ("title", "prose", "code", "trace"):
        full.update(counted[part])
    weighed: dict[str, float] = {}
    for part, weight in _PARTS:
        for term, count in counted[part].items():
            weighed[term] = weighed.get(term, 0.0) + weight * (1 + math.log(count))
    kept = frozenset(sorted(weighed, key=lambda term: (-weighed[term], term))[:_MOST_TERMS])
    queries = {part: _damped(counts) for part, counts in counted.items()}
    queries["full"] = _damped(full)
    queries["weighed"] = {term: math.sqrt(weight) for term, weight in weighed.items()}
    return {
        name: {term: weight for term, weight in query.items() if term in kept}
        for name, query in queries.items()
    }


def _damped(counts: Mapping[str, int]) -> dict[str, float]:
    return {term: 1 + math.log(count) for term, count in counts.items()}
