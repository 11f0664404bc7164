"""The pure functions of a plan's page: lines, pairs of lines, graph layout, texts of events."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from cleveragents.plans.model.status import PlanStatus


def computed(page: Page, module: str, expression: str, given: Any = None) -> Any:
    """Return the value of the expression; `m` is the module, `given` the argument."""
    script = (
        f"async (given) => {{ const m = await import('/static/js/plan/{module}'); return {expression}; }}"
    )
    return page.evaluate(script, given)


def lines(page: Page, *pieces: tuple[str, str], most: int = 100) -> list[list[str]]:
    run = """(() => { const held = new m.Lines(given.most);
        for (const [kind, text] of given.pieces) held.add(kind, text);
        return held.lines.map((line) => [line.kind, line.text]); })()"""
    found: list[list[str]] = computed(
        page, "ansi.js", run, {"pieces": [list(one) for one in pieces], "most": most}
    )
    return found


def test_output_has_no_escape_sequences(page: Page) -> None:
    said = "\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x1b]8;;\x07 \x1b(B\x07done\n"
    assert lines(page, ("output", said)) == [["output", "red link done"]]


def test_a_line_that_comes_in_pieces_is_one_line_and_a_rewritten_one_is_what_was_written_last(
    page: Page,
) -> None:
    assert lines(page, ("output", "one "), ("output", "two\nthree")) == [
        ["output", "one two"],
        ["output", "three"],
    ]
    assert lines(page, ("output", "10 %\r"), ("output", "90 %\r\ndone\n")) == [
        ["output", "90 %"],
        ["output", "done"],
    ]


def test_output_of_another_kind_starts_a_new_line(page: Page) -> None:
    assert lines(page, ("output", "half"), ("model", "I think")) == [["output", "half"], ["model", "I think"]]


def test_only_the_last_lines_are_kept(page: Page) -> None:
    assert lines(page, ("output", "".join(f"{n}\n" for n in range(10))), most=3) == [
        ["output", "7"],
        ["output", "8"],
        ["output", "9"],
    ]


def hunk(*said: str) -> list[dict[str, Any]]:
    """Lines from `+new`, `-old` and ` same`."""
    kinds = {"+": "add", "-": "remove", " ": "context"}
    return [{"kind": kinds[one[0]], "text": one[1:]} for one in said]


def test_removed_lines_stand_beside_their_replacements(page: Page) -> None:
    rows = computed(
        page,
        "diff_rows.js",
        "m.sideBySide(given).map(({left, right}) => [left?.text ?? null, right?.text ?? null])",
        hunk(" a", "-b", "-c", "+B", " d", "+e"),
    )
    assert rows == [["a", "a"], ["b", "B"], ["c", None], ["d", "d"], [None, "e"]]


def test_the_changed_part_of_a_line_is_marked(page: Page) -> None:
    parts = computed(
        page, "diff_rows.js", "[...m.changedParts(given).values()]", hunk("-total = 1 + x", "+total = 20 + x")
    )
    assert parts == [["total = ", "1", " + x"], ["total = ", "20", " + x"]]


def test_lines_that_have_nothing_in_common_are_not_compared(page: Page) -> None:
    assert computed(page, "diff_rows.js", "m.changedParts(given).size", hunk("-abc", "+xyz")) == 0


def laid(page: Page, nodes: str, edges: list[tuple[str, str]]) -> dict[str, Any]:
    given = {"nodes": [{"name": one} for one in nodes], "edges": [{"from": a, "to": b} for a, b in edges]}
    found: dict[str, Any] = computed(page, "graph_layout.js", "m.laidOut(given.nodes, given.edges)", given)
    return found


def test_every_edge_of_a_graph_leads_to_the_right_but_those_that_lead_back(page: Page) -> None:
    found = laid(
        page, "sabce", [("s", "a"), ("s", "b"), ("a", "c"), ("b", "c"), ("c", "e"), ("c", "a"), ("s", "e")]
    )
    at = {node["name"]: node["x"] for node in found["nodes"]}
    back = [(edge["from"], edge["to"]) for edge in found["edges"] if edge["back"]]
    assert back == [("c", "a")]
    assert all(at[edge["from"]] < at[edge["to"]] for edge in found["edges"] if not edge["back"])


def test_no_two_nodes_overlap_and_all_are_inside(page: Page) -> None:
    found = laid(
        page, "sabcde", [("s", one) for one in "abcd"] + [(one, "e") for one in "abcd"] + [("e", "e")]
    )
    boxes = [(n["x"], n["y"], n["x"] + n["width"], n["y"] + n["height"]) for n in found["nodes"]]
    for place, (left, top, right, bottom) in enumerate(boxes):
        assert min(left, top) >= 0
        assert right <= found["width"]
        assert bottom <= found["height"]
        for other in boxes[place + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_an_edge_to_a_node_that_is_not_there_is_left_out(page: Page) -> None:
    assert laid(page, "ab", [("a", "b"), ("b", "ghost")])["edges"][0]["to"] == "b"


def event(position: int, kind: str, subject: str = "p", **facts: Any) -> dict[str, Any]:
    return {
        "position": position,
        "type": kind,
        "subject": subject,
        "facts": facts,
        "time": "2026-01-01T12:00:00Z",
    }


def test_a_plan_is_stopping_until_its_job_has_ended(page: Page) -> None:
    """Field report 30 (OpenHands#5817): the interface said stopped while the agent ran on."""
    asked = [event(1, "job.claimed", "j"), event(2, "job.cancel_requested", "j")]
    moved = [*asked, event(3, "plan.moved", phase="execute", state="cancelled")]
    ended = [*moved, event(4, "job.cancelled", "j")]
    found = [
        computed(page, "event_text.js", "m.isStopping(given, false)", some)
        for some in ([], asked, moved, ended)
    ]
    assert found == [False, True, True, False]


def test_a_plan_whose_job_has_ended_is_stopping_until_it_does_not_run_itself(page: Page) -> None:
    """Field report 30 (OpenHands#5817): the interface said stopped while the agent ran on."""
    events = [event(1, "job.cancel_requested", "j"), event(2, "job.cancelled", "j")]
    assert computed(page, "event_text.js", "m.isStopping(given, true)", events) is True
    resumed = [*events, event(3, "job.claimed", "k")]
    assert computed(page, "event_text.js", "m.isStopping(given, true)", resumed) is False


def test_a_plan_whose_processes_still_run_never_shows_as_cancelled(page: Page) -> None:
    """Field report 30 (OpenHands#5817): the interface said stopped while the agent ran on."""
    plan = {"phase": "execute", "state": "cancelled", "status": "cancelled"}
    word, tone, note = computed(page, "plan_text.js", "m.statusOf(given, true)", plan)
    assert (word, tone) == ("running", "run")
    assert note.startswith("Stopping")
    assert computed(page, "plan_text.js", "m.statusOf(given, false)", plan) == ["cancelled", "off", ""]


def test_every_plan_status_has_a_tone_and_a_group(page: Page) -> None:
    statuses = [{"status": status.value} for status in PlanStatus]
    badges = computed(page, "plan_text.js", "given.map((plan) => m.statusOf(plan))", statuses)
    assert [badge[0] for badge in badges] == [status.value for status in PlanStatus]
    toneless = [word for word, tone, _ in badges if tone == "off"]
    assert toneless == ["undone", "discarded", "cancelled"]
    groups = computed(page, "../groups.js", "given.map((plan) => m.groupOf(plan))", statuses)
    by_group: dict[str, set[str]] = {}
    for status, group in zip(PlanStatus, groups, strict=True):
        by_group.setdefault(group, set()).add(status.value)
    assert by_group == {
        "needs": {"waiting", "paused", "blocked", "failed"},
        "review": {"ready"},
        "running": {"planning", "running", "applying"},
        "waiting": {"queued"},
        "done": {"unchanged", "merged", "applied", "undone", "discarded", "cancelled"},
    }


def test_a_plan_with_a_pending_apply_or_undo_job_says_so(page: Page) -> None:
    shown = "m.statusOf({ status: given.status }, false, { what: given.what, state: given.state })"
    apply = {"what": "apply", "status": "ready"}
    assert computed(page, "plan_text.js", shown, {**apply, "state": "submitted"}) == ["applying", "run", ""]
    assert computed(page, "plan_text.js", shown, {**apply, "state": "failed"}) == ["ready", "good", ""]
    undo = {"what": "undo", "status": "applied", "state": "claimed"}
    assert computed(page, "plan_text.js", shown, undo) == ["applied", "done", "Undoing …"]


def test_the_explanation_of_a_status_keeps_the_names_of_models(page: Page) -> None:
    explained = "m.explanationOf({ status: 'failed', meaning: given })"
    assert computed(page, "plan_text.js", explained, "failed: no key for openai/gpt: set one") == (
        "no key for openai/gpt: set one"
    )
    assert computed(page, "plan_text.js", explained, "failed") == ""


def test_a_denied_call_is_not_shown_as_approved(page: Page) -> None:
    events = [
        event(1, "approval.given", number=1, tool="command", state="asked", approval="denied", by="admin"),
        event(2, "approval.given", number=2, tool="command", state="asked", approval="granted", by="admin"),
        event(3, "approval.given", number=3, tool="command", approval="granted", rule="r" * 4),
    ]
    found = computed(page, "event_text.js", "m.timelineOf(given)", events)
    assert [(one["what"], one["more"], one["tone"]) for one in found] == [
        ("denied", "call 1 · by admin", "bad"),
        ("approved", "call 2 · by admin", "good"),
        ("approved by a rule", "call 3 · rule rrrr", "good"),
    ]


def test_both_events_of_a_call_are_one_entry_of_the_timeline(page: Page) -> None:
    events = [
        event(1, "plan.moved", phase="execute", state="queued", was="strategize/complete"),
        event(2, "tool_call.started", number=1, tool="read", state="started"),
        event(3, "tool_call.ended", number=1, tool="read", state="ended"),
        event(4, "tool_call.started", number=2, tool="edit", state="started"),
    ]
    found = computed(page, "event_text.js", "m.timelineOf(given)", events)
    assert [one.get("heading") or (one["what"], one["tone"]) for one in found] == [
        "execute",
        ("read", "off"),
        ("edit", "run"),
    ]


def test_events_are_kept_once_and_in_order(page: Page) -> None:
    run = "m.joined(m.joined(given.a, given.b), given.c).map((one) => one.position)"
    given = {
        "a": [event(5, "x"), event(7, "x")],
        "b": [event(3, "x"), event(5, "x")],
        "c": [event(9, "x")],
    }
    assert computed(page, "load.js", run, given) == [3, 5, 7, 9]


def test_every_module_says_what_it_is_for_and_is_small() -> None:
    root = Path(__file__).parents[2] / "src/cleveragents/server/web/static/js/plan"
    for module in sorted(root.glob("*.js")):
        text = module.read_text()
        assert text.startswith("// "), module.name
        assert text.count("\n") <= 400, module.name
        assert "innerHTML" not in text, module.name
        assert "eval(" not in text, module.name


COMMANDS = [
    "sed -i s/a/b/ file.py",
    "  ls   -l\t-a  ",
    "sh -c 'echo \"hi\" > x.txt'",
    "echo \"a b\"c' d'\"\" '' e",
    r'a\ b "c\"d" "e\n" \\ \'',
    "",
]


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_is_split_as_a_shell_splits_it_and_joined_to_what_splits_alike(
    page: Page, text: str
) -> None:
    split = computed(page, "../shlex.js", "m.splitWords(given)", text)
    assert split["words"] == shlex.split(text)
    assert split["problem"] is None
    joined = computed(page, "../shlex.js", "m.joinWords(given)", split["words"])
    assert shlex.split(joined) == split["words"]
    again = computed(page, "../shlex.js", "m.splitWords(given).words", joined)
    assert again == split["words"]


@pytest.mark.parametrize("text", ["echo 'a", 'echo "a', "echo a\\"])
def test_a_command_that_is_not_finished_says_so(page: Page, text: str) -> None:
    assert computed(page, "../shlex.js", "m.splitWords(given).problem", text)


def test_unquoted_shell_characters_are_reported(page: Page) -> None:
    named = "[...m.splitWords(given).unheeded].join('')"
    assert computed(page, "../shlex.js", named, "ls *.py | wc > x") == "*|>"
    assert computed(page, "../shlex.js", named, "grep 'a|b' \\*.py") == ""


def test_where_a_result_goes_is_read_from_the_resource_without_who_logs_in(page: Page) -> None:
    found = "m.remoteOf({ resource: given })"
    assert computed(page, "place.js", found, "/srv/shop#1") is None
    far = {"url": "ssh://git.example/shop.git", "branch": "main", "target": "main"}
    assert computed(page, "place.js", found, "ssh://git@git.example/shop.git#main") == far
    assert computed(page, "place.js", found, "git+ssh://git.example/shop.git#main") == far
    asked = "m.remoteOf({ resource: given, branch: 'agents/red' }).target"
    assert computed(page, "place.js", asked, "ssh://git.example/shop.git#main") == "agents/red"


def test_an_out_of_date_check_does_not_count_as_passed(page: Page) -> None:
    told = "given.map((one) => [m.hasPassed(one), m.verdictOf(one)])"
    checks = [{"verdict": "passed", "stale": stale} for stale in (False, True)]
    assert computed(page, "plan_text.js", told, checks) == [[True, "passed"], [False, "passed, out of date"]]


def test_an_undone_plan_has_no_tick_at_apply(page: Page) -> None:
    marks = computed(page, "plan_text.js", "m.phaseMarks(given)", {"phase": "apply", "state": "undone"})
    assert marks == [["strategize", "done"], ["execute", "done"], ["apply", "undone"]]


def test_a_restarted_plan_has_the_same_request(page: Page) -> None:
    request = {
        "arguments": {"goal": "Paint it\nred"},
        "checks": ["sh test.sh", "true"],
        "profile": "trusted",
        "invariants": ["no blue"],
        "max_parallel": 2,
        "model": "scripted/x",
        "actor": "mine/painter",
        "limits": {"picodollars": 500_000_000_000, "tokens": 9000, "steps": 7, "seconds": 60},
        "apply": "review",
    }
    plan = {"action": "builtin/goal", "goal": "Paint it", "resource_name": "shop", "request": request}
    assert computed(page, "../views/plan_draft.js", "m.bodyOf(m.draftOf(given))", plan) == {
        "goal": "Paint it\nred",
        "resource": "shop",
        "actor": "mine/painter",
        "model": "scripted/x",
        "profile": "trusted",
        "checks": ["sh test.sh", "true"],
        "invariants": ["no blue"],
        "limits": {"usd": 0.5, "tokens": 9000, "steps": 7, "seconds": 60},
        "apply": "review",
        "max_parallel": 2,
    }


def drawn_markdown(page: Page, text: str) -> str:
    """Return the HTML of the text, as the page draws it."""
    run = """(async () => { const { html, render } = await import('/static/js/ui.js');
        const box = document.createElement('div');
        render(html`<${m.Markdown} text=${given} />`, box);
        for (let tries = 0; tries < 200 && !box.querySelector('.p-markdown'); tries++) {
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
        return box.innerHTML; })()"""
    return str(computed(page, "markdown.js", run, text))


def test_markdown_is_drawn_as_elements(page: Page) -> None:
    text = "# Title\n\nIt is **bold** and `code`.\n\n- one\n- two\n\n```python\nprint(1)\n```\n"
    drawn = drawn_markdown(page, f"{text}\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    for element in ("<h3>Title</h3>", "<strong>bold</strong>", "<code>code</code>", "<li>one</li>"):
        assert element in drawn
    assert "<td>2</td>" in drawn
    assert "<pre><code>print(1)</code></pre>" in drawn


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)> <script>alert(1)</script>",
        "[x](javascript:alert(1)) ![y](javascript:alert(1))",
        "<a href='javascript:alert(1)'>x</a>\n\n<iframe src=//evil></iframe>",
        "[x](data:text/html,<script>alert(1)</script>)",
    ],
)
def test_html_and_scripts_in_markdown_stay_text(page: Page, text: str) -> None:
    drawn = drawn_markdown(page, text)
    assert not any(f"<{name}" in drawn for name in ("img", "script", "iframe", "a ", "object")), drawn


@pytest.mark.parametrize(
    "text", ["> " * 3000 + "x", "x " * 50_000, "*a_" * 5000, "_" * 60_000, "a." * 30_000 + "@"]
)
def test_text_that_is_too_deep_or_too_long_is_shown_as_it_is(page: Page, text: str) -> None:
    assert computed(page, "markdown.js", "m.split(given)", text) is None
    assert computed(page, "markdown.js", "m.split('fine').then((found) => found.length)") == 1
