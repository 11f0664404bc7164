"""The commands of the prompt: `/plan`, `/apply` and others, and `!` for a shell command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from cleveragents.api.plans.request import PlanRequest
from cleveragents.cli.terminal_app.board import PlanBoard, PlanChosen
from cleveragents.cli.terminal_app.information import Information
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.cli.terminal_app.conversation import ConversationPane

__all__ = ["COMMANDS", "PromptCommand", "run_command"]

_MOST_FILES = 15


@dataclass(frozen=True, slots=True)
class PromptCommand:
    """A command of the prompt. `run` gets the conversation and the text after the name."""

    name: str
    help: str
    run: Callable[[ConversationPane, str], None]


def run_command(pane: ConversationPane, text: str) -> None:
    """Run `/NAME ARGUMENT` or `!COMMAND`. A text that names no command returns to the prompt."""
    if text.startswith("!"):
        _shell(pane, text)
        return
    name, _, argument = text[1:].partition(" ")
    found = next((one for one in COMMANDS if one.name == name), None)
    if found is None:
        pane.say(f"Unknown command /{name}. /help lists the commands.", severity="warning")
        pane.prompt.restore(text)
        return
    found.run(pane, argument.strip())


def _help(pane: ConversationPane, argument: str) -> None:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for name, text in [*_KEYS, ("", ""), *((f"/{one.name}", one.help) for one in COMMANDS)]:
        table.add_row(Text(name), Text(text))
    pane.app.push_screen(Information("Commands and keys", table))


_KEYS = (
    ("Enter", "send; Ctrl-J starts a new line; arrows recall earlier texts"),
    ("@", "complete the name of a file"),
    ("!COMMAND", "run a command as a plan, in a sandbox; review its changes"),
    ("Esc", "stop the answer, or pause the running plan of this session"),
    ("F1", "show this help"),
    ("F2", "move between the board and the prompt"),
    ("Shift-A", "in a plan: apply its result; the last line lists the other keys"),
    ("Ctrl-P", "command palette with all actions and themes"),
    ("Ctrl-C", "twice: quit; plans continue. With selected text: copy it"),
)


def _new(pane: ConversationPane, argument: str) -> None:
    pane.call_later(pane.start_new)


def _sessions(pane: ConversationPane, argument: str) -> None:
    if argument:
        pane.open(argument)
        return

    def read() -> None:
        found = pane.client.conversations.list(limit=20).items
        lines = [f"{one.id}  {one.turns} turns  {one.title}" for one in found]
        shown = "\n".join([*lines, "", "Open one with /sessions ID; the end of the id is enough."])
        pane.call_later(pane.app.push_screen, Information("Sessions", shown if found else "No sessions yet."))

    pane.work(read)


def _plan(pane: ConversationPane, argument: str) -> None:
    if not argument:
        pane.say("Name the goal: /plan GOAL", severity="warning")
        pane.prompt.restore("/plan ")
        return
    pane.send(f"/plan {argument}")


def _attach(pane: ConversationPane, argument: str) -> None:
    from cleveragents.cli.conversation.attachments import attached_files

    def read() -> None:
        pane.call_later(pane.attach, attached_files([argument]))

    if argument:
        pane.work(read, failed=partial(pane.prompt.restore, f"/attach {argument}"))
    else:
        pane.detach()


def _shell(pane: ConversationPane, text: str) -> None:
    command = text[1:].strip()
    if not command:
        pane.say("Name a command: !COMMAND runs it in a sandbox.", severity="warning")
        return
    resource, repository = pane.place
    request = PlanRequest(
        action="builtin/command",
        arguments={"argv": ["sh", "-c", command]},
        repository=repository,
        resource=resource,
        apply="review",
    )

    def create() -> None:
        plan = pane.client.plans.create(request)
        pane.say(f"Plan {plan.id} is started. Review its result when it is ready.")
        pane.post_message(PlanChosen(plan.id))

    pane.work(create, failed=lambda: pane.prompt.restore(text))


def _choose(pane: ConversationPane, argument: str, fits: Callable[[PlanSummary], bool], purpose: str) -> None:
    """Open the plan that the argument names, or the only fitting plan of the session or of the board."""
    if argument:

        def read() -> None:
            pane.post_message(PlanChosen(pane.client.plans.summary(argument).id))

        pane.work(read)
        return
    plans = [plan for plan in pane.screen.query_one(PlanBoard).plans.values() if fits(plan)]
    started = () if pane.session is None else pane.session.plans
    found = [plan for plan in plans if plan.id in started] or plans
    if len(found) == 1:
        pane.post_message(PlanChosen(found[0].id))
    elif found:
        pane.say(f"{len(found)} plans {purpose}. Choose one on the board, or name it.", severity="warning")
    else:
        pane.say(f"No plans {purpose}.", severity="warning")


def _apply(pane: ConversationPane, argument: str) -> None:
    _choose(pane, argument, _has_result, "have a result to apply")


def _has_result(plan: PlanSummary) -> bool:
    return plan.needs == "review" or (plan.needs is not None and plan.phase is Phase.APPLY)


def _undo(pane: ConversationPane, argument: str) -> None:
    _choose(pane, argument, lambda plan: plan.state is PlanState.APPLIED, "can be undone")


def _open(pane: ConversationPane, argument: str) -> None:
    _choose(pane, argument, lambda plan: plan.needs is not None, "need you")


def _plans(pane: ConversationPane, argument: str) -> None:
    pane.screen.query_one(PlanBoard).focus()


def _model(pane: ConversationPane, argument: str) -> None:
    if argument:
        pane.call_later(pane.start_new, model=argument)
        pane.say(f"The next message starts a new session with {argument}.")
        return

    def read() -> None:
        known = [one.model for one in pane.client.models.list().items if one.key != "missing"]
        now = pane.request.model or "the default model"
        lines = [
            f"This session uses {now}.",
            "",
            *known,
            "",
            "/model NAME starts a session with it.",
        ]
        pane.call_later(pane.app.push_screen, Information("Models", "\n".join(lines)))

    pane.work(read)


def _budget(pane: ConversationPane, argument: str) -> None:
    from cleveragents.cli.conversation.budget import budget_facts, typed_limits

    known = pane.session
    if known is None:
        if argument:
            pane.say("There is no session yet. Send a message first.", severity="warning")
            pane.prompt.restore(f"/budget {argument}")
        else:
            pane.say("The session has spent nothing yet.")
        return

    def read() -> None:
        view = pane.client.conversations.get(known.id)
        facts = budget_facts(view).items()
        lines = [
            f"Session {view.id}",
            *(f"{name.ljust(12)} {fact}" for name, fact in facts),
            "",
            "/budget USD raises the limit; or `50000 tokens`, `20 steps`, `10m time`.",
            "Plans have budgets of their own: open a plan to see and raise its budget.",
        ]
        pane.call_later(pane.app.push_screen, Information("Budget", "\n".join(lines)))

    def call() -> None:
        view = pane.client.conversations.raise_budget(known.id, typed_limits(argument))
        pane.call_later(pane.know, view)
        spent = ", ".join(f"{name} {fact}" for name, fact in budget_facts(view).items())
        pane.say(f"The budget is raised: {spent}. Enter on an empty prompt continues an unfinished turn.")

    if argument:
        pane.work(call, failed=partial(pane.prompt.restore, f"/budget {argument}"))
    else:
        pane.work(read)


def _context(pane: ConversationPane, argument: str) -> None:
    if not argument:
        pane.say("Name what to look for: /context QUESTION", severity="warning")
        pane.prompt.restore("/context ")
        return
    resource, repository = pane.place

    def read() -> None:
        place = None if resource is not None else Path(repository)
        found = pane.client.context.ask(
            argument, resource=resource, repository=place, fragments=False, rerank=False
        )
        lines = [f"{one.path}  {one.score:.2f}" for one in found.ranking[:_MOST_FILES]]
        shown = "\n".join(lines) or "No file matches."
        pane.call_later(pane.app.push_screen, Information("Relevant files", shown))

    pane.say("Searching…")
    pane.work(read)


def _compact(pane: ConversationPane, argument: str) -> None:
    known = pane.session
    if known is None:
        pane.say("Nothing to summarise.")
        return

    def call() -> None:
        found = pane.client.conversations.compact(known.id)
        last = found.compacted
        pane.say(f"Turns up to {last} are summarised." if last else "Nothing to summarise.")

    pane.work(call)


def _fork(pane: ConversationPane, argument: str) -> None:
    known = pane.session
    if known is None:
        pane.say("There is no session to copy yet.")
        return

    def copy() -> None:
        pane.call_later(pane.open, pane.client.conversations.fork(known.id).id)

    pane.work(copy)


def _rename(pane: ConversationPane, argument: str) -> None:
    known = pane.session
    if known is None:
        pane.say("There is no session to rename yet.")
        return
    if not argument:
        pane.say(f"This session is named {known.title}. Name the new title: /rename TITLE")
        pane.prompt.restore("/rename ")
        return

    def call() -> None:
        named = pane.client.conversations.rename(known.id, argument)
        pane.call_later(pane.know, named)
        pane.say(f"This session is named {named.title}.")

    pane.work(call, failed=partial(pane.prompt.restore, f"/rename {argument}"))


def _init(pane: ConversationPane, argument: str) -> None:
    pane.say(
        "Quit, run `agents init` in a shell, then start agents again: it asks for the key of a provider."
    )


def _theme(pane: ConversationPane, argument: str) -> None:
    pane.app.action_change_theme()


def _quit(pane: ConversationPane, argument: str) -> None:
    pane.app.exit()


COMMANDS = (
    PromptCommand("help", "show the commands and keys", _help),
    PromptCommand("plan", "GOAL: start a plan", _plan),
    PromptCommand("plans", "go to the board", _plans),
    PromptCommand("open", "[PLAN]: open a plan that needs you", _open),
    PromptCommand("apply", "[PLAN]: review a result and apply it", _apply),
    PromptCommand("undo", "[PLAN]: open an applied plan to undo it", _undo),
    PromptCommand("budget", "[USD]: show the budget, or raise it", _budget),
    PromptCommand("model", "[NAME]: list models, or start a session with one", _model),
    PromptCommand("context", "QUESTION: find the relevant files", _context),
    PromptCommand("attach", "[FILE]: attach an image or PDF to the next message, or detach all", _attach),
    PromptCommand("new", "start a new session", _new),
    PromptCommand("sessions", "[ID]: list sessions, or open one", _sessions),
    PromptCommand("fork", "copy the session and continue the copy", _fork),
    PromptCommand("rename", "TITLE: change the title of the session", _rename),
    PromptCommand("compact", "summarise old turns for later prompts", _compact),
    PromptCommand("init", "set up a provider and a model", _init),
    PromptCommand("theme", "choose colours", _theme),
    PromptCommand("quit", "leave; plans continue", _quit),
)
