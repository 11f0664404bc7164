"""Features for learned rankings: signals, ranks, leads, and properties of the question.

A tree sees one candidate at a time, so its features contain the comparison with the other candidates of the
question: the rank of the candidate in each signal, its distance to the best other candidate, and in how many
signals it is among the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cleveragents.context.model.question import read_question

__all__ = ["candidate_features", "question_features", "within_groups"]

Matrix = NDArray[np.float32]


def question_features(text: str) -> Matrix:
    """Return the properties of a question: what it contains, and how long its parts are."""
    question = read_question(text)
    counts = (
        len(question.title.split()),
        len(question.prose.split()),
        len(question.code.split()),
        len(question.trace.split()),
        len(question.frames),
        len(question.errors),
        len(question.paths),
        len(question.dotted),
        len(question.identifiers),
        len(question.ticked),
    )
    return np.asarray([math.log1p(count) for count in counts], dtype=np.float32)


def candidate_features(signals: Matrix, question: Matrix) -> Matrix:
    """Return a row of features for each candidate of one question; `signals` has a row for each."""
    count = len(signals)
    ranks = _rank_shares(signals)
    columns = [
        signals,
        ranks,
        _leads(signals),
        (ranks >= 1).sum(axis=1, keepdims=True),
        (ranks >= 1 / 3).sum(axis=1, keepdims=True),
        (signals > 0).sum(axis=1, keepdims=True),
        np.full((count, 1), math.log1p(count)),
        np.repeat(question[None, :], count, axis=0),
    ]
    return np.hstack(columns).astype(np.float32)


def within_groups(signals: Matrix, groups: Sequence[Sequence[int]]) -> Matrix:
    """Return, for each signal, the rank and the share of each row within its group, such as a file."""
    found = np.zeros((len(signals), 2 * signals.shape[1]), dtype=np.float32)
    for rows in groups:
        part = signals[list(rows)]
        highest = part.max(axis=0)
        shares = np.divide(part, highest, out=np.zeros_like(part), where=highest > 0)
        found[list(rows)] = np.hstack([_rank_shares(part), shares])
    return found


def _rank_shares(signals: Matrix) -> Matrix:
    """Return 1 / rank of each candidate in each signal; equal values share a rank, 0 has none."""
    shares = np.zeros_like(signals)
    for column in range(signals.shape[1]):
        values = signals[:, column]
        higher = len(values) - np.searchsorted(np.sort(values), values, side="right")
        shares[:, column] = np.where(values > 0, 1 / (1 + higher), 0)
    return shares


def _leads(signals: Matrix) -> Matrix:
    """Return the distance of each candidate to the best other candidate, in each signal."""
    if len(signals) < 2:
        return signals.copy()
    ordered = np.sort(signals, axis=0)
    best, second = ordered[-1], ordered[-2]
    found: Matrix = signals - np.where(signals >= best, second, best)
    return found
