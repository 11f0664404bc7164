"""What was left over, as checks of `agents doctor`, and how it is mended.

A survey looks and changes nothing. What it finds carries the one step that mends it, if that is ours to do:
never for what is dirty, locked or another's. The step looks again before it acts, because time has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cleveragents.cli.doctor.checks import DoctorCheck, DoctorVerdict
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.redaction import redact_text

__all__ = ["NotRemoved", "Orphan", "Survey", "findings_of"]

_MEND = "`agents doctor --mend`"
_MOST_ROWS = 20
_MOST_MENTIONED = 3


class NotRemoved(Exception):
    """It was not mended, after a second look; says why."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that was left over.

    `mend` returns what it did, or nothing if there was nothing left to do; `NotRemoved`. It is None where
    nothing is ours to do, and `advice` says what a person can. What is not `amiss` is only mentioned.
    """

    what: str
    mend: Callable[[], str] | None = None
    advice: str | None = None
    amiss: bool = True


Survey = Callable[[], Sequence[Orphan]]


def findings_of(name: str, survey: Survey, *, mend: bool) -> Iterator[DoctorCheck]:
    """A check for everything that the survey finds, mended if asked for; one if it finds nothing."""
    try:
        found = survey()
    except (CleverAgentsError, OSError) as error:
        yield DoctorCheck(
            name, DoctorVerdict.FAIL, redact_text(str(error)), "mend that, then run `agents doctor` again"
        )
        return
    if not any(left.amiss for left in found):
        mentioned = [left.what for left in found[:_MOST_MENTIONED]]
        more = [f"and {len(found) - _MOST_MENTIONED} more"] if len(found) > _MOST_MENTIONED else []
        yield DoctorCheck(name, DoctorVerdict.OK, "; ".join(["none is left over", *mentioned, *more]))
        return
    # Mended is everything, however much of it is shown.
    rows = [_mended(name, left) if mend else _shown(name, left) for left in found]
    told = [row for row in rows if row is not None]
    yield from told[:_MOST_ROWS]
    if len(told) > _MOST_ROWS:
        yield DoctorCheck(name, told[-1].verdict, f"and {len(told) - _MOST_ROWS} more", told[-1].remedy)


def _shown(name: str, left: Orphan) -> DoctorCheck:
    verdict = DoctorVerdict.WARN if left.amiss else DoctorVerdict.OK
    return DoctorCheck(name, verdict, left.what, left.advice if left.mend is None else _MEND)


def _mended(name: str, left: Orphan) -> DoctorCheck | None:
    if left.mend is None:
        return _shown(name, left)
    try:
        done = left.mend()
    except NotRemoved as why:
        return DoctorCheck(name, DoctorVerdict.WARN, f"{left.what}: {why}", left.advice)
    except (CleverAgentsError, OSError) as error:
        problem = redact_text(f"{left.what}: {error}")
        return DoctorCheck(name, DoctorVerdict.FAIL, problem, f"mend that, then run {_MEND} again")
    return DoctorCheck(name, DoctorVerdict.MENDED, done) if done else None
