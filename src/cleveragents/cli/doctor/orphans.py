"""Orphans, as checks of `agents doctor`, and their fixes.

A survey changes nothing. Each orphan it finds carries a fix, unless the orphan holds changes, is locked or
belongs to another user or state. A fix repeats the checks of the survey before it acts, because time has
passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cleveragents.cli.doctor.checks import DoctorCheck, DoctorVerdict
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.redaction import redact_text

__all__ = ["NotRemoved", "Orphan", "Survey", "findings_of"]

_FIX = "`agents doctor --fix`"
_MOST_ROWS = 20
_MOST_MENTIONED = 3


class NotRemoved(Exception):
    """The orphan was kept, because the check before its fix found a reason. The message is this reason."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """An orphan, with its fix or with advice.

    `fix` returns a text about the fix, or an empty string if nothing was left to do. It raises `NotRemoved`
    if the orphan must stay. If `fix` is None, `advice` is for the user. An orphan that is not `amiss` is
    reported without a warning.
    """

    what: str
    fix: Callable[[], str] | None = None
    advice: str | None = None
    amiss: bool = True


Survey = Callable[[], Sequence[Orphan]]


def findings_of(name: str, survey: Survey, *, fix: bool) -> Iterator[DoctorCheck]:
    """Yield a check for each orphan that the survey finds, after fixing it if `fix` is set. If there is no
    orphan, yield one passed check.
    """
    try:
        found = survey()
    except (CleverAgentsError, OSError) as error:
        yield DoctorCheck(
            name, DoctorVerdict.FAIL, redact_text(str(error)), "fix this, then run `agents doctor` again"
        )
        return
    if not any(left.amiss for left in found):
        mentioned = [left.what for left in found[:_MOST_MENTIONED]]
        more = [f"and {len(found) - _MOST_MENTIONED} more"] if len(found) > _MOST_MENTIONED else []
        yield DoctorCheck(name, DoctorVerdict.OK, "; ".join(["no orphans", *mentioned, *more]))
        return
    # All orphans are fixed, even those beyond the shown rows.
    rows = [_fixed(name, left) if fix else _shown(name, left) for left in found]
    told = [row for row in rows if row is not None]
    yield from told[:_MOST_ROWS]
    if len(told) > _MOST_ROWS:
        yield DoctorCheck(name, told[-1].verdict, f"and {len(told) - _MOST_ROWS} more", told[-1].remedy)


def _shown(name: str, left: Orphan) -> DoctorCheck:
    verdict = DoctorVerdict.WARN if left.amiss else DoctorVerdict.OK
    return DoctorCheck(name, verdict, left.what, left.advice if left.fix is None else _FIX)


def _fixed(name: str, left: Orphan) -> DoctorCheck | None:
    if left.fix is None:
        return _shown(name, left)
    try:
        done = left.fix()
    except NotRemoved as why:
        return DoctorCheck(name, DoctorVerdict.WARN, f"{left.what}: {why}", left.advice)
    except (CleverAgentsError, OSError) as error:
        problem = redact_text(f"{left.what}: {error}")
        return DoctorCheck(name, DoctorVerdict.FAIL, problem, f"fix this, then run {_FIX} again")
    return DoctorCheck(name, DoctorVerdict.FIXED, done) if done else None
