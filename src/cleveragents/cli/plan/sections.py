"""Sections of `agents plan show`: sub-plans, changes, calls and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from cleveragents.api.format import on_one_line
from cleveragents.api.plans.changes import lines_of
from cleveragents.api.plans.details import arguments_text, verdict_text
from cleveragents.cli.output import Output, printable
from cleveragents.core.actions.model import failure_line
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.family import short_of

__all__ = [
    "first_line",
    "in_short",
    "show_call",
    "show_calls",
    "show_changes",
    "show_checks",
    "show_sub_plans",
]

Row = dict[str, JsonValue]

_CALL_COLUMNS = ["number", "tool", "state", "changed", "what"]

_REVIEW = "review"


def show_calls(output: Output, account: Mapping[str, JsonValue]) -> None:
    """Print the calls, a line each."""
    rows = [
        row | ({"what": f"{row['what']}: {first_line(row['error'])}"} if row["error"] else {})
        for row in _rows_in(account["calls"])
    ]
    _section(output, "calls", rows, _CALL_COLUMNS, cut="what", spare="changed")


def show_checks(output: Output, account: Mapping[str, JsonValue]) -> None:
    """Print the results of the checks."""
    checks = [in_short(row) for row in _rows_in(account["checks"])]
    _section(output, "checks", checks, ["name", "verdict", "required", "what"], cut="what", spare="required")


def show_sub_plans(output: Output, account: Mapping[str, JsonValue]) -> None:
    """Print the sub-plans, their conflicts and the corrections."""
    rows = [
        row
        | {
            "sub-plan": None if row["id"] is None else short_of(str(row["id"])),
            "state": row["status"],
            "needs": ", ".join(str(need) for need in _items_in(row["needs"])),
        }
        for row in _rows_in(account["sub_plans"])
    ]
    _section(output, "sub-plans", rows, ["sub-plan", "state", "name", "needs"], cut="name", spare="needs")
    open_ones = [
        row | {"between": f"{short_of(str(account['id']))} and {_other_side(row)}"}
        for row in _rows_in(account["conflicts"])
    ]
    _section(output, "open conflicts", open_ones, ["path", "kind", "between"], cut="path")
    corrections = [
        row | {"guidance": on_one_line(str(row["guidance"]))} for row in _rows_in(account["corrections"])
    ]
    _section(output, "corrections", corrections, ["number", "decision", "guidance"], cut="guidance")


def _other_side(conflict: Mapping[str, JsonValue]) -> str:
    return short_of(str(conflict["sub_plan"])) or "the repository"


def show_changes(output: Output, account: Mapping[str, JsonValue]) -> None:
    rows = [row | {"lines": lines_of(row)} for row in _rows_in(account["changes"])]
    left_out = [{"change": "left out", "path": path} for path in _items_in(account["left_out"])]
    _section(output, "changes", [*rows, *left_out], ["change", "lines", "path"])


def _section(
    output: Output,
    title: str,
    rows: Sequence[Row],
    columns: list[str],
    *,
    cut: str | None = None,
    spare: str | None = None,
) -> None:
    if rows:
        output.title(title)
        output.table(rows, columns, empty="", cut=[cut] if cut else [], spare=[spare] if spare else [])


def show_call(output: Output, row: Row) -> None:
    if output.machine_readable:
        output.record(row)
        return
    result = dict(row["result"]) if isinstance(row["result"], Mapping) else {}
    printed = result.pop("output", None)
    if isinstance(seconds := result.get("seconds"), float):
        result["seconds"] = round(seconds, 2)
    said = {"number": row["number"], "tool": row["tool"], "what": arguments_text(row["arguments"])}
    names = ("state", "approval", "error", "started", "ended", "changed", "changeset")
    said |= {name: row[name] for name in names if row[name] is not None}
    said |= {"error": first} if (first := first_line(row["error"])) else {}
    output.record(said | result)
    if printed:
        _show_text(output, "output", str(printed))
    if first != (row["error"] or None):
        _show_text(output, "error", str(row["error"]))


def _show_text(output: Output, title: str, text: str) -> None:
    output.title(title)
    for line in text.splitlines():
        click.echo(f"  {printable(line)}")


def first_line(text: JsonValue) -> str | None:
    """Return the first line of an error, which names the failure. The details are shown with the call."""
    return str(text).partition("\n")[0] if text else None


def in_short(row: Mapping[str, JsonValue]) -> Row:
    """Return a call or a check with its essential facts in one text."""
    if "arguments" in row:
        told = arguments_text(row["arguments"])
        return dict(row) | {"what": f"{told}: {first_line(row['error'])}" if row["error"] else told}
    details = str(row["details"])
    # The first line of a reviewer is its summary; for a command it is the exit, and the output tells why.
    told = details.strip().partition("\n")[0] if row["name"] == _REVIEW else failure_line(details)
    return dict(row) | {
        "verdict": verdict_text(row),
        "what": told if row["verdict"] != "passed" else "",
    }


def _rows_in(value: JsonValue) -> list[Row]:
    return [dict(item) for item in _items_in(value) if isinstance(item, Mapping)]


def _items_in(value: JsonValue) -> list[JsonValue]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
