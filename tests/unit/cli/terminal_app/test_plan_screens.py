"""The terminal app's screens of a plan and its review: actions, stale views, hostile text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from cleveragents import Client, Limits, PlanRequest, connect
from cleveragents.api.plans.detail_views import FileDiffView
from cleveragents.api.plans.views import ApprovalView, SubPlanView
from cleveragents.cli.terminal_app import plan_actions, plan_screen
from cleveragents.cli.terminal_app.client_screen import visible
from cleveragents.cli.terminal_app.dialogs import ActionDialog, PickDialog
from cleveragents.cli.terminal_app.diff_view import FileDiff, coloured, rows_of
from cleveragents.cli.terminal_app.messages import PlanChanged
from cleveragents.cli.terminal_app.plan_actions import ACTIONS, PlanActions
from cleveragents.cli.terminal_app.plan_screen import PlanScreen
from cleveragents.cli.terminal_app.review_screen import ReviewScreen
from cleveragents.cli.terminal_app.transcript import OutputLog
from cleveragents.core.errors import (
    ApplyConflict,
    PlanError,
    RequestRefused,
    ResultChanged,
    ServerUnreachable,
    StaleFile,
)
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.cli_bench import paint_shop, use_home
from tests.terminal_bench import text_of

QUICK = ("worker.poll_seconds=0.02", "sandbox.isolation=off", "worker.cancel_grace_seconds=1.0")
ESCAPE = "\x1b]0;owned\x07\x1b[31m[bold red]\u202e"

Script = Callable[[Pilot[None]], Awaitable[None]]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    root = paint_shop(tmp_path / "shop")
    (root / "many.txt").write_text("".join(f"{number}\n" for number in range(1, 31)))
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def client(repository: Path) -> Iterator[Client]:
    with connect(settings=QUICK) as made:
        yield made


def command(client: Client, script: str, **more: Any) -> str:
    """Return a plan that ran a command and came to rest."""
    wanted = {"profile": "full-auto", "apply": "review", **more}
    request = PlanRequest(action="builtin/command", arguments={"argv": ["sh", "-c", script]}, **wanted)
    return client.plans.wait(client.plans.create(request).id, timeout=60).id


def replacement(client: Client) -> str:
    """Return a plan that waits for the approval of its first call."""
    arguments = {"pattern": "colour", "replacement": "color"}
    request = PlanRequest(action="builtin/replace", arguments=arguments, profile="manual")
    return client.plans.wait(client.plans.create(request).id, timeout=60).id


def scripted(client: Client, folder: Path, *rules: dict[str, Any], **more: Any) -> str:
    """Return a plan of actors that came to rest; the model follows these rules."""
    path = folder / "script.yaml"
    path.write_text(json.dumps({"version": 1, "rules": [*rules, strategizes(STEPS), reviews(accept())]}))
    wanted = {"goal": "Count", "model": f"scripted/{path}", "profile": "trusted", "apply": "review", **more}
    return client.plans.wait(client.plans.create(PlanRequest(**wanted)).id, timeout=60).id


STEPS = steps({"title": "make it", "instructions": "make it"})


def using(screen: Screen[None], script: Script, size: tuple[int, int] = (100, 40)) -> None:
    """Show a screen in an app, and let the script use it."""

    async def main() -> None:
        app: App[None] = App()
        async with app.run_test(size=size, notifications=True) as pilot:
            await app.push_screen(screen)
            await script(pilot)

    asyncio.run(main())


async def until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    """Return as soon as the condition holds; the timeout of the test ends it otherwise."""
    while not true():
        await pilot.pause(0.01)


async def dialog(pilot: Pilot[None]) -> ActionDialog:
    await until(pilot, lambda: isinstance(pilot.app.screen, ActionDialog) and pilot.app.screen.is_mounted)
    await pilot.pause()
    assert isinstance(pilot.app.screen, ActionDialog)
    return pilot.app.screen


def notices(pilot: Pilot[None]) -> str:
    return "\n".join(one.message for one in pilot.app._notifications)


def test_a_call_is_approved_only_on_the_dialog_that_shows_it(client: Client) -> None:
    plan_id = replacement(client)
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("A")  # no result yet: no such action
        assert pilot.app.screen is screen
        await pilot.press("a")
        shown = await dialog(pilot)
        assert "replacement: color" in text_of(shown)
        await pilot.press("escape")
        assert client.plans.get(plan_id).state is PlanState.WAITING
        await pilot.press("a")
        await dialog(pilot)
        await pilot.press("y")
        await until(pilot, lambda: "approved: call 1" in notices(pilot))  # it disappears after five seconds
        await until(pilot, lambda: screen.plan and screen.plan.status is PlanStatus.READY)

    using(screen, script)
    assert client.plans.get(plan_id).calls[0].approval == "granted"


def test_a_call_is_denied_with_a_reason(client: Client) -> None:
    plan_id = replacement(client)
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("n")
        await dialog(pilot)
        await pilot.press(*"use make", "enter")
        await until(pilot, lambda: screen.plan and screen.plan.state is PlanState.ERRORED)

    using(screen, script)
    assert client.plans.get(plan_id).calls[0].reason == "use make"


def test_a_stale_approval_is_refused_and_asked_again(client: Client, tmp_path: Path) -> None:
    one, two = (answer(call("command", argv=["touch", name])) for name in ("a.txt", "b.txt"))
    plan_id = scripted(client, tmp_path, executes(one, two, says("done")), profile="manual")
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("a")
        assert "touch a.txt" in text_of(await dialog(pilot))
        client.plans.approve(plan_id, call=1)
        client.plans.wait(plan_id, timeout=60)
        await pilot.press("y")
        await until(pilot, lambda: "call 1 is not pending" in notices(pilot))
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert "touch b.txt" in text_of(await dialog(pilot))

    using(screen, script)
    assert [one.approval for one in client.plans.get(plan_id).calls] == ["granted", None]


def test_one_hunk_is_accepted_and_applied(client: Client, repository: Path) -> None:
    plan_id = command(client, "sed -i -e s/^2$/two/ -e s/^28$/last/ many.txt; echo 1 > made.txt")
    screen = ReviewScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("space")  # made.txt is created: only as a whole
        await until(pilot, lambda: "press f" in notices(pilot).lower())
        await pilot.press("f")
        await until(pilot, lambda: screen.plan and len(screen.plan.changes) == 1)
        await pilot.press("n", "n", "space")
        await until(pilot, lambda: "[ ] left out: hunk 2 of 2" in text_of(screen))
        assert "to be applied: 1 file" in text_of(screen)
        await pilot.press("A")
        assert "left out: made.txt" in text_of(await dialog(pilot))
        await pilot.press("y")
        await until(pilot, lambda: "applied to 1 file" in notices(pilot))
        await until(pilot, lambda: screen.plan and screen.plan.state is PlanState.APPLIED)
        assert "to be applied" not in text_of(screen)
        assert "applied: 1 file" in text_of(screen)

    using(screen, script)
    lines = (repository / "many.txt").read_text().splitlines()
    assert (lines[1], lines[27]) == ("two", "28")
    assert not (repository / "made.txt").exists()


def test_a_result_that_changes_during_the_review_is_announced(client: Client) -> None:
    plan_id = command(client, "echo one > made.txt; echo two > more.txt")
    screen = ReviewScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("f")  # a verdict of the user changes the result, too
        await until(pilot, lambda: "[ ]" in text_of(screen))
        assert "has changed" not in notices(pilot)
        client.plans.review(plan_id, reject=["more.txt"])
        screen.reload()
        await until(pilot, lambda: "The result has changed" in notices(pilot))

    using(screen, script)


def test_a_conflict_with_the_repository_is_resolved_and_applied(client: Client, repository: Path) -> None:
    plan_id = command(client, "sed -i s/colour/color/ README.md")
    (repository / "README.md").write_text("By hand.\n")
    with pytest.raises(ApplyConflict):
        client.plans.apply(plan_id)
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("v")
        assert "By hand." in text_of(await dialog(pilot))
        await pilot.press("o")
        await until(pilot, lambda: "resolved" in notices(pilot))
        await until(pilot, lambda: screen.plan and screen.plan.in_the_way is None)
        await pilot.press("A")
        await dialog(pilot)
        await pilot.press("y")
        await until(pilot, lambda: "applied to 1 file" in notices(pilot))

    using(screen, script)
    assert "color" in (repository / "README.md").read_text()


def test_a_conflict_of_another_result_is_not_resolved(client: Client, repository: Path) -> None:
    plan_id = command(client, "sed -i s/colour/color/ README.md; echo 1 > made.txt")
    (repository / "README.md").write_text("By hand.\n")
    with pytest.raises(ApplyConflict):
        client.plans.apply(plan_id)
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("v")
        await dialog(pilot)
        client.plans.review(plan_id, reject=["made.txt"])
        await pilot.press("o")
        await until(pilot, lambda: "has changed since you saw it" in notices(pilot))

    using(screen, script)
    plan = client.plans.get(plan_id)
    assert (plan.in_the_way is None, plan.left_out) == (False, ("made.txt",))


def test_a_comment_on_a_removed_line_is_sent_with_the_request_for_changes(
    client: Client, tmp_path: Path
) -> None:
    again = answer(call("edit", path="README.md", old="Paint", new="The colour of it."))
    asked = {"first_user": "Changes to your result are requested"}
    resolved = answer(call("answer_comment", comment=1, resolution="resolved", reason="is back"))
    first = answer(call("edit", path="README.md", old="The colour of it.", new="Paint"))
    rules = [executes(again, resolved, says("done"), when=asked), executes(first, says("done"))]
    plan_id = scripted(client, tmp_path, *rules)
    screen = ReviewScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("m")
        await until(pilot, lambda: "Move to a line" in notices(pilot))
        await pilot.press("down", "m")
        assert "README.md:1 (before the change)" in text_of(await dialog(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "the comment is empty" in text_of(pilot.app.screen))
        await pilot.press(*"keep it", "enter")
        await until(pilot, lambda: "1. open: README.md:1" in text_of(screen))
        with pytest.raises(StaleFile, match=r"README\.md has changed"):
            screen.actions.comment("README.md", 1, blob="0" * 40).choices[0].act({"text": "x"}, print)
        await pilot.press("g")
        await dialog(pilot)
        await pilot.press(*"now", "enter")
        await until(pilot, lambda: "changes requested" in notices(pilot))

    using(screen, script)
    client.plans.wait(plan_id, timeout=60)
    (comment,) = client.plans.comments(plan_id).items
    assert (comment.side, comment.text, comment.state.value) == ("before", "keep it", "resolved")


@pytest.mark.parametrize("width", [100, 60])
def test_escapes_of_models_and_files_are_shown_as_text(client: Client, tmp_path: Path, width: int) -> None:
    write = answer(call("write", path="new.py", content=f"x = 1  # {ESCAPE}\n"), text=f"thinking {ESCAPE}")
    goal = f"Count {ESCAPE}"
    plan_id = scripted(client, tmp_path, executes(write, says(f"done {ESCAPE}")), goal=goal)
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan and "thinking" in text_of(screen))
        shown = text_of(screen)
        assert "[bold red]" in shown
        await pilot.press("d")
        await until(pilot, lambda: isinstance(pilot.app.screen, ReviewScreen))
        await until(pilot, lambda: "x = 1" in text_of(pilot.app.screen))
        shown += text_of(pilot.app.screen)
        assert not {*"\x1b\x07\u202e"} & {*shown}

    using(screen, script, (width, 40))


def test_a_burst_of_changes_is_read_a_few_times(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_id = command(client, "echo hello > new.txt")
    screen = PlanScreen(client, plan_id)
    reads: list[None] = []
    read = screen.read
    monkeypatch.setattr(screen, "read", lambda: [reads.append(None), read()][1])

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        client.plans.discard(plan_id)
        before = len(reads)
        for _ in range(1000):
            screen.post_message(PlanChanged(plan_id))
        await until(pilot, lambda: screen.plan and screen.plan.status is PlanStatus.DISCARDED)
        assert not screen.offers("apply")
        assert len(reads) - before < 20

    using(screen, script)


def test_a_larger_budget_is_refused_and_accepted_in_place(client: Client, tmp_path: Path) -> None:
    rule = executes(answer(call("write", path="a.txt", content="1\n")), says("done"))
    plan_id = scripted(client, tmp_path, rule, limits=Limits(steps=1))
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("b")
        shown = await dialog(pilot)
        shown.query_one("#max_steps").focus()
        await pilot.press("end", "x", "enter")
        await until(pilot, lambda: "'1x'" in text_of(shown))
        await pilot.press("backspace", "0", "0", "enter")
        await until(pilot, lambda: screen.plan and screen.plan.status is PlanStatus.READY)

    using(screen, script)


def test_files_that_cannot_be_shown_say_why(client: Client) -> None:
    script = (
        "head -c 2000 /dev/zero > a.bin; seq 100000 > large.txt; chmod +x README.md; git rm -q src/paint.py"
    )
    plan_id = command(client, script)
    files = {file.path: file for file in client.plans.diff(plan_id).files}
    said = {path: " ".join(row.text for row in rows_of(file, (), "show")) for path, file in files.items()}
    assert said["a.bin"].startswith("Binary file, created.")
    assert said["large.txt"] == "Too large to show: 100,000 changed lines. Show them with `show`."
    assert said["README.md"] == "No changed lines: the file was changed."
    assert "colour = 1" in said["src/paint.py"]
    rows = rows_of(files["src/paint.py"], (), "show")
    assert any(row.pieces for row in coloured("src/paint.py", rows, dark=True))
    assert coloured("a.unknown", rows, dark=True) == rows


def test_controls_become_visible() -> None:
    assert visible("a\tb\nc\x1b[31m") == "a   b\nc\\x1b[31m"
    assert FileDiff("diff").row is None


def test_the_name_of_a_large_file_cannot_control_the_terminal() -> None:
    name = "a\x1b]0;owned\x07\nb.txt"
    file = FileDiffView(
        path=name, change="created", added=9, removed=0, before=None, after=None,
        accepted=True, binary=False, hunks=(), truncated=True,
    )  # fmt: skip
    diff, screen = FileDiff("diff"), Screen[None]()

    async def script(pilot: Pilot[None]) -> None:
        await screen.mount(diff)
        diff.show(rows_of(file, (), f"agents plan diff X '{name}'"))
        await pilot.pause()
        assert "a\\x1b]0;owned\\x07\\nb.txt" in text_of(screen)
        assert "\x1b" not in text_of(screen)

    using(screen, script, size=(200, 10))


def test_no_key_of_an_action_approves_a_call_for_longer() -> None:
    assert not {action.key for action in ACTIONS} & {"y", *plan_actions._SCOPE_KEYS.values()}


ASKS = """\
name: tests/asks-twice
type: graph
state:
  colour: {type: string}
  size: {type: string}
entry: colour
nodes:
  colour: {type: human, question: "Which colour?", choices: [red, blue], output: colour, next: size}
  size: {type: human, question: "Which size?", output: size, next: write}
  write: {type: tool, tool: write, with: {path: told.txt, content: "${colour} ${size}"}, next: end}
"""


def told(
    client: Client, plan_id: str, name: str, values: dict[str, str] | None = None, choice: int = 0
) -> str:
    """Return the message of an action, taken as its dialog does."""
    question = PlanActions(client, plan_id).question(name)
    return question.choices[choice].act({"text": "", **(values or {})}, lambda line: None)


def test_results_are_applied_undone_and_discarded(client: Client, repository: Path) -> None:
    plan_id = command(client, "echo hello > new.txt; echo hello > b.txt", checks=["true"])
    question = PlanActions(client, plan_id).question("apply")
    assert "check true: passed, required" in question.lines
    client.plans.review(plan_id, reject=["b.txt"])
    with pytest.raises(ResultChanged):
        question.choices[0].act({}, lambda line: None)
    assert told(client, plan_id, "apply") == f"applied to 1 file of {repository}"
    assert told(client, plan_id, "undo") == f"undone in 1 file of {repository}"
    with pytest.raises(PlanError, match="reject is not possible now"):
        told(client, plan_id, "reject")
    assert told(client, command(client, "echo hello > new.txt"), "reject") == "discarded"


def test_running_plans_are_paused_resumed_and_cancelled(client: Client) -> None:
    request = PlanRequest(action="builtin/command", arguments={"argv": ["sleep", "99"]}, profile="full-auto")
    plan_id = client.plans.create(request).id
    assert told(client, plan_id, "pause") == "the plan pauses"
    assert client.plans.wait(plan_id, timeout=60).status is PlanStatus.PAUSED
    assert told(client, plan_id, "resume") == "the plan continues"
    assert told(client, plan_id, "cancel", {"text": "too slow"}) == "the plan is cancelled"
    assert client.plans.wait(plan_id, timeout=60).error == "cancelled: too slow"


def test_questions_are_answered_by_a_key_or_a_text(client: Client) -> None:
    request = PlanRequest(goal="ask", actor_yaml=ASKS, profile="full-auto", apply="review")
    plan_id = client.plans.wait(client.plans.create(request).id, timeout=60).id
    assert [choice.label for choice in PlanActions(client, plan_id).question("answer").choices] == [
        "red",
        "blue",
    ]
    assert told(client, plan_id, "answer", choice=1) == "answered"
    client.plans.wait(plan_id, timeout=60)
    with pytest.raises(RequestRefused, match="empty"):
        told(client, plan_id, "answer")
    assert told(client, plan_id, "answer", {"text": "large"}) == "answered"
    client.plans.wait(plan_id, timeout=60)
    assert client.plans.file(plan_id, "told.txt").content == "blue large"


def test_a_decision_is_chosen_and_corrected(client: Client, tmp_path: Path) -> None:
    plan_id = scripted(
        client, tmp_path, executes(answer(call("write", path="a.txt", content="1\n")), says("done"))
    )
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickDialog))
        await pilot.pause()
        await pilot.press("down", "enter")
        assert "superseded:" in text_of(await dialog(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: "the guidance is empty" in text_of(pilot.app.screen))
        await pilot.press(*"slower", "enter")
        await until(pilot, lambda: screen.plan and screen.plan.corrections)

    using(screen, script)
    assert PlanActions(client, plan_id).correction(None).title == "Add guidance?"


def test_an_unknown_plan_is_reported(client: Client) -> None:
    for screen in (PlanScreen(client, "7QX2"), ReviewScreen(client, "7QX2")):

        async def script(pilot: Pilot[None], screen: Any = screen) -> None:
            await until(pilot, lambda: "7QX2" in notices(pilot))
            assert "cannot be read" in text_of(screen)
            await pilot.press("escape")
            assert pilot.app.screen is not screen

        using(screen, script)


def test_a_comment_on_the_old_number_of_an_unchanged_line_is_shown_at_this_line(client: Client) -> None:
    plan_id = command(client, "sed -i 1iPaint README.md")
    client.plans.comment(plan_id, "why", path="README.md", line=1, side="before")
    (file,) = client.plans.diff(plan_id).files
    rows = rows_of(file, client.plans.comments(plan_id).items, "show")
    (place,) = [place for place, row in enumerate(rows) if row.text.startswith("1. open: README.md:1")]
    assert (rows[place - 1].kind, rows[place - 1].old) == ("context", 1)


def test_outdated_comments_and_other_files_are_shown(client: Client, tmp_path: Path) -> None:
    plan_id = command(client, "sed -i s/colour/color/ README.md src/paint.py")
    client.plans.comment(plan_id, "why", path="README.md", line=1)
    sandbox = Path(str(client.plans.get(plan_id).sandbox))
    (sandbox / "README.md").write_text("Other\n")
    client.plans.capture(plan_id)
    screen = ReviewScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        assert "1. open, outdated: README.md:1" in text_of(screen)
        await pilot.press("n", "n", "n")
        await until(pilot, lambda: "color = 1" in text_of(screen))
        await pilot.press("tab", "up")
        await until(pilot, lambda: "+ Other" in text_of(screen))
        await pilot.press("space")
        await until(pilot, lambda: "[ ] M +1 -1 README.md" in text_of(screen))
        await pilot.press("enter")
        await until(pilot, lambda: screen.query_one(FileDiff).has_focus)
        await pilot.press("end", "pageup", "home", "space")
        await until(pilot, lambda: "[x] M +1 -1 README.md" in text_of(screen))
        await pilot.resize_terminal(60, 30)
        assert "apply" in text_of(screen).lower()

    using(screen, script)


class Altered:
    """A client of which some methods of `plans` are replaced."""

    def __init__(self, client: Client, **methods: Callable[..., Any]) -> None:
        self._client = client
        self._methods = methods

    @property
    def plans(self) -> Any:
        own = self._methods

        class Plans:
            def __getattr__(plans, name: str) -> Any:
                return own.get(name) or getattr(self._client.plans, name)

        return Plans()


def test_a_key_that_is_pressed_twice_approves_nothing(client: Client) -> None:
    plan_id = replacement(client)
    scopes = ApprovalView(
        call=1,
        scopes=("once", "plan", "project"),
        pattern="make *",
        exact=None,
        project_scope="here",
        problem=None,
    )
    approved: list[dict[str, Any]] = []
    altered: Any = Altered(
        client,
        get=lambda name: replace(client.plans.get(name), approval=scopes),
        approve=lambda name, **how: approved.append(how),
    )
    screen = PlanScreen(altered, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("a", "a", "a")
        shown = await dialog(pilot)
        await pilot.press("a")
        assert pilot.app.screen is shown
        assert len(pilot.app.screen_stack) == 3
        assert "Approve `make *` in here" in text_of(shown)
        assert not approved
        await pilot.press("l", "l")
        await until(pilot, lambda: pilot.app.screen is screen)

    using(screen, script)
    assert approved == [{"call": 1, "scope": "project", "pattern": "make *"}]


def test_lost_output_is_reported_once_and_read_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_screen, "_LOOK_SECONDS", 0.01)
    plan_id = command(client, "echo hello > new.txt; echo said")
    tries: list[int] = []

    def output(name: str, **how: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise ServerUnreachable("http://here", "gone")
        return client.plans.output(name, **how)

    altered: Any = Altered(client, output=output)
    screen = PlanScreen(altered, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        log = screen.query_one(OutputLog)
        await until(pilot, lambda: log.lines)
        assert notices(pilot).count("http://here") == 1
        await pilot.resize_terminal(60, 30)
        await until(pilot, lambda: "said" in "".join(line.text for line in log.lines))

    using(screen, script)


def test_a_plan_is_commented_on_and_its_sub_plan_opened(client: Client) -> None:
    plan_id, other = command(client, "echo hello > new.txt"), command(client, "true")
    part = SubPlanView(
        name="a part", part="1", id=other, phase=None, state=None, needs=(), merged=False, why=None,
        waits_for=None, error=None, status="merged",
    )  # fmt: skip
    altered: Any = Altered(client, get=lambda name: replace(client.plans.get(name), sub_plans=(part,)))
    screen = PlanScreen(altered, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("m")
        await dialog(pilot)
        await pilot.press("o", "ctrl+j", "k", "enter")
        await until(pilot, lambda: "comment 1 added" in notices(pilot))
        await until(pilot, lambda: pilot.app.screen is screen)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, PickDialog))
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: getattr(pilot.app.screen, "plan_id", None) == other)

    using(screen, script)
    assert client.plans.comments(plan_id).items[0].text == "o\nk"


def test_a_verdict_on_a_hunk_that_has_changed_is_refused(client: Client) -> None:
    plan_id = command(client, "sed -i s/colour/color/ README.md")
    screen = ReviewScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        (Path(str(client.plans.get(plan_id).sandbox)) / "README.md").write_text("Other\n")
        client.plans.capture(plan_id)
        await pilot.press("space")
        await until(pilot, lambda: "no hunk" in notices(pilot))
        await until(pilot, lambda: "+ Other" in text_of(screen))
        client.plans.review(plan_id, reject=["README.md"])
        screen.post_message(PlanChanged(plan_id))
        await until(pilot, lambda: "[ ] M +1 -1 README.md" in text_of(screen))

    using(screen, script)
    assert client.plans.get(plan_id).changes == ()


def rewrite(client: Client, plan_id: str, text: str) -> None:
    """Change the result of a plan, as another person may."""
    (Path(str(client.plans.get(plan_id).sandbox)) / "README.md").write_text(text)
    client.plans.capture(plan_id)


def test_only_the_diff_that_is_shown_is_applied(client: Client, repository: Path) -> None:
    plan_id = command(client, "sed -i s/colour/color/ README.md")
    screen = ReviewScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        rewrite(client, plan_id, "Other\n")
        await pilot.press("A")
        await until(pilot, lambda: "has changed since you saw it" in notices(pilot))
        await until(pilot, lambda: "+ Other" in text_of(screen))
        assert pilot.app.screen is screen
        await pilot.press("A")
        await dialog(pilot)
        rewrite(client, plan_id, "Another\n")
        await pilot.press("y")
        await until(pilot, lambda: "+ Another" in text_of(screen))
        await pilot.pause(0.3)
        assert pilot.app.screen is screen  # the new diff is read before the next question
        await pilot.press("A")
        await dialog(pilot)
        await pilot.press("y")
        await until(pilot, lambda: "applied to 1 file" in notices(pilot))

    using(screen, script)
    assert (repository / "README.md").read_text() == "Another\n"


def test_a_result_that_changed_after_its_review_is_reviewed_again(client: Client) -> None:
    plan_id = command(client, "sed -i s/colour/color/ README.md")
    screen = PlanScreen(client, plan_id)

    async def script(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen.plan)
        await pilot.press("d")
        await until(pilot, lambda: "+ The color" in text_of(pilot.app.screen))
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        rewrite(client, plan_id, "Other\n")
        await pilot.press("A")
        await until(pilot, lambda: "has changed since you saw it" in notices(pilot))
        await until(pilot, lambda: isinstance(pilot.app.screen, ReviewScreen))
        await until(pilot, lambda: "+ Other" in text_of(pilot.app.screen))
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen)
        await pilot.press("A")
        await dialog(pilot)

    using(screen, script)
    assert client.plans.get(plan_id).state is PlanState.COMPLETE
