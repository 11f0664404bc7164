"""What an anchor states about the audit log, and which anchors a verification is given.

The head attests the log on this machine, and with its key an attacker can attest another log. An anchor is
the same statement, signed and kept outside the machine: the number of events, the hash of the last, and the
time. As each hash covers all events before it, one anchor covers the log from its first event on.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.events.chain import Tip

__all__ = ["Anchor", "AnchorSet"]


@dataclass(frozen=True, slots=True)
class Anchor:
    """At `time`, the log whose first event has the hash `log` ended with `tip`."""

    log: str
    tip: Tip
    time: str


@dataclass(frozen=True, slots=True)
class AnchorSet:
    """The anchors at `source` with a valid signature, and what is wrong with other lines there."""

    source: str
    anchors: tuple[Anchor, ...]
    problems: tuple[str, ...] = ()
