"""The commands of the prompt: `/plan`, `/apply` and others, and `!` for a shell command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.api.plans.request import PlanRequest
from cleveragents.cli.terminal_app.board import PlanBoard, PlanChosen
from cleveragents.cli.terminal_app.information import Information
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanSummary
    from cleveragents.cli.terminal_app.conversation import ConversationPane

__all__ = ["COMMANDS", "PromptCommand", "run_command"]

_MOST_FILES = 15


@dataclass(frozen=True, slots=True)
class PromptCommand:
    """A command of the prompt. `run` gets the conversation and the text after the name."""

    name: str
    help: str
    run: Callable[[ConversationPane, str], None]


def run_command(talk: ConversationPane, text: str) -> None:
    """Run `/NAME ARGUMENT` or `!COMMAND`. A text that names no command returns to the prompt."""
    if text.startswith("!"):
        _shell(talk, text)
        return
    name, _, argument = text[1:].partition(" ")
    found = next((one for one in COMMANDS if one.name == name), None)
    if found is None:
        talk.say(f"Unknown command /{name}. /help lists the commands.", severity="warning")
        talk.prompt.restore(text)
        return
    found.run(talk, argument.strip())


def _help(talk: ConversationPane, argument: str) -> None:
    lines = [f"/{one.name.ljust(9)} {one.help}" for one in COMMANDS]
    lines += ["", *_KEYS]
    talk.app.push_screen(Information("Commands and keys", "\n".join(lines)))


_KEYS = (
    "Enter      send; Ctrl-J starts a new line; arrows recall earlier texts",
    "@          complete the name of a file",
    "!COMMAND   run a command as a plan, in a sandbox; review its changes",
    "Esc        stop the answer, or pause the running plan of this session",
    "F2         move between the board and the prompt",
    "Ctrl-P     command palette with all actions and themes",
    "Ctrl-C     twice: quit; plans continue",
)


def _new(talk: ConversationPane, argument: str) -> None:
    talk.call_later(talk.start_new)


def _sessions(talk: ConversationPane, argument: str) -> None:
    if argument:
        talk.open(argument)
        return

    def read() -> None:
        found = talk.client.conversations.list(limit=20).items
        lines = [f"{one.id}  {one.turns} turns  {one.title}" for one in found]
        shown = "\n".join([*lines, "", "Open one with /sessions ID; the end of the id is enough."])
        talk.call_later(talk.app.push_screen, Information("Sessions", shown if found else "No sessions yet."))

    talk.work(read)


def _plan(talk: ConversationPane, argument: str) -> None:
    if not argument:
        talk.say("Name the goal: /plan GOAL", severity="warning")
        talk.prompt.restore("/plan ")
        return
    talk.send(f"/plan {argument}")


def _attach(talk: ConversationPane, argument: str) -> None:
    from cleveragents.cli.conversation.attachments import attached_files

    def read() -> None:
        talk.call_later(talk.attach, attached_files([argument]))

    if argument:
        talk.work(read)
    else:
        talk.detach()


def _shell(talk: ConversationPane, text: str) -> None:
    command = text[1:].strip()
    if not command:
        talk.say("Name a command: !COMMAND runs it in a sandbox.", severity="warning")
        return
    resource, repository = talk.place
    request = PlanRequest(
        action="builtin/command",
        arguments={"argv": ["sh", "-c", command]},
        repository=repository,
        resource=resource,
        apply="review",
    )

    def create() -> None:
        plan = talk.client.plans.create(request)
        talk.say(f"Plan {plan.id} is started. Review its result when it is ready.")
        talk.post_message(PlanChosen(plan.id))

    talk.work(create, failed=lambda: talk.prompt.restore(text))


def _choose(talk: ConversationPane, argument: str, fits: Callable[[PlanSummary], bool], purpose: str) -> None:
    """Open the plan that the argument names, or the only fitting plan of the session or of the board."""
    if argument:

        def read() -> None:
            talk.post_message(PlanChosen(talk.client.plans.summary(argument).id))

        talk.work(read)
        return
    plans = [plan for plan in talk.screen.query_one(PlanBoard).plans.values() if fits(plan)]
    started = () if talk.talk is None else talk.talk.plans
    found = [plan for plan in plans if plan.id in started] or plans
    if len(found) == 1:
        talk.post_message(PlanChosen(found[0].id))
    elif found:
        talk.say(f"{len(found)} plans {purpose}. Choose one on the board, or name it.", severity="warning")
    else:
        talk.say(f"No plans {purpose}.", severity="warning")


def _apply(talk: ConversationPane, argument: str) -> None:
    _choose(talk, argument, _has_result, "have a result to apply")


def _has_result(plan: PlanSummary) -> bool:
    return plan.needs == "review" or (plan.needs is not None and plan.phase is Phase.APPLY)


def _undo(talk: ConversationPane, argument: str) -> None:
    _choose(talk, argument, lambda plan: plan.state is PlanState.APPLIED, "can be undone")


def _open(talk: ConversationPane, argument: str) -> None:
    _choose(talk, argument, lambda plan: plan.needs is not None, "need you")


def _plans(talk: ConversationPane, argument: str) -> None:
    talk.screen.query_one(PlanBoard).focus()


def _model(talk: ConversationPane, argument: str) -> None:
    if argument:
        talk.call_later(talk.start_new, model=argument)
        talk.say(f"The next message starts a new session with {argument}.")
        return

    def read() -> None:
        known = [one.model for one in talk.client.models.list().items if one.key != "missing"]
        now = talk.request.model or "the default model"
        lines = [
            f"This session uses {now}.",
            "",
            *known,
            "",
            "/model NAME starts a session with it.",
        ]
        talk.call_later(talk.app.push_screen, Information("Models", "\n".join(lines)))

    talk.work(read)


def _budget(talk: ConversationPane, argument: str) -> None:
    known = talk.talk
    if known is None:
        talk.say("The session has spent nothing yet.")
        return

    def read() -> None:
        view = talk.client.conversations.get(known.id)
        spent = "unknown" if view.usd is None else f"${view.usd:.4f}"
        limits = view.limits
        lines = [
            f"Session {view.id}",
            f"model calls  {view.model_calls}{_of(limits.steps)}",
            f"tokens       {view.tokens:,}{_of(limits.tokens)}",
            f"cost         {spent}{_of(limits.usd)}",
            "",
            "Plans have budgets of their own: open a plan to see and raise its budget.",
        ]
        talk.call_later(talk.app.push_screen, Information("Budget", "\n".join(lines)))

    talk.work(read)


def _of(limit: float | None) -> str:
    return "" if limit is None else f" of {limit:,}"


def _context(talk: ConversationPane, argument: str) -> None:
    if not argument:
        talk.say("Name what to look for: /context QUESTION", severity="warning")
        talk.prompt.restore("/context ")
        return
    resource, repository = talk.place

    def read() -> None:
        place = None if resource is not None else Path(repository)
        found = talk.client.context.ask(
            argument, resource=resource, repository=place, fragments=False, rerank=False
        )
        lines = [f"{one.path}  {one.score:.2f}" for one in found.ranking[:_MOST_FILES]]
        shown = "\n".join(lines) or "No file matches."
        talk.call_later(talk.app.push_screen, Information("Relevant files", shown))

    talk.say("Searching…")
    talk.work(read)


def _compact(talk: ConversationPane, argument: str) -> None:
    known = talk.talk
    if known is None:
        talk.say("Nothing to summarise.")
        return

    def call() -> None:
        found = talk.client.conversations.compact(known.id)
        last = found.compacted
        talk.say(f"Turns up to {last} are summarised." if last else "Nothing to summarise.")

    talk.work(call)


def _fork(talk: ConversationPane, argument: str) -> None:
    known = talk.talk
    if known is None:
        talk.say("There is no session to copy yet.")
        return

    def copy() -> None:
        talk.call_later(talk.open, talk.client.conversations.fork(known.id).id)

    talk.work(copy)


def _init(talk: ConversationPane, argument: str) -> None:
    talk.say(
        "Quit, run `agents init` in a shell, then start agents again: it asks for the key of a provider."
    )


def _theme(talk: ConversationPane, argument: str) -> None:
    talk.app.action_change_theme()


def _quit(talk: ConversationPane, argument: str) -> None:
    talk.app.exit()


COMMANDS = (
    PromptCommand("help", "show the commands and keys", _help),
    PromptCommand("plan", "GOAL: start a plan", _plan),
    PromptCommand("plans", "go to the board", _plans),
    PromptCommand("open", "[PLAN]: open a plan that needs you", _open),
    PromptCommand("apply", "[PLAN]: review a result and apply it", _apply),
    PromptCommand("undo", "[PLAN]: open an applied plan to undo it", _undo),
    PromptCommand("budget", "show what the session has spent", _budget),
    PromptCommand("model", "[NAME]: list models, or start a session with one", _model),
    PromptCommand("context", "QUESTION: find the relevant files", _context),
    PromptCommand("attach", "[FILE]: attach an image or PDF to the next message, or detach all", _attach),
    PromptCommand("new", "start a new session", _new),
    PromptCommand("sessions", "[ID]: list sessions, or open one", _sessions),
    PromptCommand("fork", "copy the session and continue the copy", _fork),
    PromptCommand("compact", "summarise old turns for later prompts", _compact),
    PromptCommand("init", "set up a provider and a model", _init),
    PromptCommand("theme", "choose colours", _theme),
    PromptCommand("quit", "leave; plans continue", _quit),
)
