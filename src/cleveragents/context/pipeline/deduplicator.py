"""Each place once, with all that was said of it.

Two strategies that found the same lines agree. Lines that partly overlap become one place that has both;
lines within others stay a place of their own, because a method is another place than its class.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.context.model.code import Span
from cleveragents.context.model.context import ContextFragment
from cleveragents.context.model.context_answer import Candidate, Finding

__all__ = ["MergedPlaces"]

_Key = tuple[str, Span | None, str]


class MergedPlaces:
    """`Deduplicator`. Immutable."""

    def merge(self, fragments: Sequence[ContextFragment]) -> Sequence[Candidate]:
        merged: dict[_Key, list[Finding]] = {}
        for fragment in fragments:
            key = (fragment.path, fragment.span, fragment.text)
            merged.setdefault(key, []).append(
                Finding(fragment.strategy, fragment.signal, float(fragment.score))
            )
        by_path: dict[tuple[str, str], list[tuple[Span, list[Finding]]]] = {}
        candidates: list[Candidate] = []
        for (path, span, text), findings in merged.items():
            if span is None:
                candidates.append(Candidate(path, None, _best(findings), text))
            else:
                by_path.setdefault((path, text), []).append((span, findings))
        for (path, text), spans in by_path.items():
            candidates.extend(
                Candidate(path, span, _best(findings), text) for span, findings in _joined(spans)
            )
        return candidates


def _joined(spans: list[tuple[Span, list[Finding]]]) -> list[tuple[Span, list[Finding]]]:
    """Spans that partly overlap become one. `around` holds those that may still do so, each within the
    last."""
    done: list[tuple[Span, list[Finding]]] = []
    around: list[tuple[Span, list[Finding]]] = []
    for span, findings in sorted(spans, key=lambda one: (one[0].first, -one[0].last)):
        while around and around[-1][0].last < span.first:
            done.append(around.pop())
        joined, said = span, findings
        while around and around[-1][0].last < joined.last:  # guard: neither has all of the other's lines
            earlier, others = around.pop()
            joined, said = Span(earlier.first, joined.last), others + said
        around.append((joined, said))
    return done + around


def _best(findings: list[Finding]) -> tuple[Finding, ...]:
    """Of each signal of each strategy its best word."""
    best: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.strategy, finding.signal)
        if key not in best or finding.score > best[key].score:
            best[key] = finding
    return tuple(best.values())
