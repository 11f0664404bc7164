"""What strategies found, made fit to be believed: whose it is, that it is there, and that it is legible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from cleveragents.context.model.context import ContextFragment, StrategyReport
from cleveragents.context.pipeline.renderings import printable
from cleveragents.core.text.redaction import redact_content_text, redact_text

__all__ = ["believed", "retold"]

_LONGEST_LABEL: Final = 500
_LONGEST_TEXT: Final = 20_000
_MOST_TEXTS: Final = 100


def believed(
    reports: Iterable[StrategyReport], paths: Collection[str], note: Callable[[str], None]
) -> list[ContextFragment]:
    """The fragments that name a file that is there, or bring a text of their own; each under the name of the
    strategy that really found it."""
    kept: list[ContextFragment] = []
    for report in reports:
        missing, texts = 0, 0
        for fragment in report.fragments:
            if fragment.path in paths:
                kept.append(_of(fragment, report.name, fragment.path, ""))
            elif not fragment.text.strip():
                missing += 1
            elif len(fragment.text) > _LONGEST_TEXT or texts == _MOST_TEXTS:
                note(f"{report.name} brought texts that are too long or too many; some are left out")
            else:
                texts += 1
                label = printable(fragment.path[:_LONGEST_LABEL]) or report.name
                text = redact_content_text(fragment.text)
                kept.append(_of(replace(fragment, span=None), report.name, label, text))
        if missing:
            note(f"{report.name} named {missing} places that are not there")
    return kept


def retold(reports: Sequence[StrategyReport]) -> tuple[StrategyReport, ...]:
    """The reports as an answer keeps them: without texts, which are shown where they are chosen."""
    return tuple(
        replace(
            report,
            error=None if report.error is None else printable(redact_text(report.error)),
            fragments=tuple(_of(one, report.name, one.path, "") for one in report.fragments),
        )
        for report in reports
    )


def _of(fragment: ContextFragment, strategy: str, path: str, text: str) -> ContextFragment:
    if (fragment.strategy, fragment.path, fragment.text) == (strategy, path, text):
        return fragment
    return replace(fragment, strategy=strategy, path=path, text=text)
