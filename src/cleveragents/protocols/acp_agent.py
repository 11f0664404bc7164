"""An agent of the Agent Client Protocol: an editor's prompts become turns about the repository it has open.

| protocol | CleverAgents |
|---|---|
| session | a conversation about one repository; `session/load` replays it |
| prompt | a turn of the conversation; or an answer to, or a comment on, a plan that is not finished |
| plan | the plans that the turn starts |
| permission request | the approval of one call, or the apply of one version of a result |
| diff | the changes of a plan that is ready for review |
| cancel | stop of the turn, or pause of its plan; both can be continued |

Nothing is approved or applied unless the editor selects the option that says so. Without an answer, the plan
keeps waiting, and any other surface can decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from acp import helpers, schema
from acp.exceptions import RequestError

from cleveragents import __version__
from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.api.plans.request import Limits
from cleveragents.core.errors import (
    CleverAgentsError,
    Fault,
    InvalidRequest,
    RequestRefused,
    ResultChanged,
)
from cleveragents.core.text.control_characters import escape_controls
from cleveragents.core.text.redaction import redact_known_text, redact_text
from cleveragents.protocols.acp_updates import (
    attachments_in,
    call_update,
    changed_files,
    goal_in,
    phases_of,
    report_of,
)
from cleveragents.protocols.agent_requests import only_resource

if TYPE_CHECKING:
    from acp.agent.connection import AgentSideConnection

    from cleveragents.api.client import Client
    from cleveragents.api.conversations.client import Attachment, ConversationView
    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.detail_views import OutputView
    from cleveragents.api.plans.views import ApprovalView, PlanView

__all__ = ["AcpOptions", "PlanAgent"]

P = ParamSpec("P")
T = TypeVar("T")

VERSION = 1
_LOOK_SECONDS = 0.3
_MOST_SESSIONS = 200
_REPLAYED_TURNS = 20
_COMMANDS = {
    "apply": "Apply the result of the last plan to your files",
    "plan": "Start a plan with this goal",
    "resume": "Continue the last plan",
}


@dataclass(frozen=True, slots=True)
class AcpOptions:
    """Options of the user who starts the agent, for its sessions. `usd` limits each session. `far`: the
    sessions are on a server, and `resource` is the resource of each session, by default the only one.
    """

    model: str | None = None
    profile: str | None = None
    usd: float | None = None
    resource: str | None = None
    far: bool = False


@dataclass(eq=False)
class _Session:
    """A session that the editor has open. Not thread-safe: use it on the loop of its agent.

    `root` is the directory of the files whose diffs the editor shows. `question` is the name of the last
    question that the editor showed.
    """

    id: str
    root: Path
    busy: bool = False
    question: str | None = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class PlanAgent:
    """The agent. Not thread-safe: use it on one loop. Calls of the client run in threads."""

    def __init__(self, client: Client, options: AcpOptions) -> None:
        self._client = client
        self._options = options
        self._open: dict[str, _Session] = {}
        self._unused: set[str] = set()
        self._editor: AgentSideConnection | None = None

    def on_connect(self, conn: Any) -> None:
        """Keep the connection to the editor."""
        self._editor = conn

    # ── Sessions ──────────────────────────────────────────────────────────────────────────────────

    async def initialize(self, protocol_version: int, **more: Any) -> schema.InitializeResponse:
        """Return the version and the capabilities, which are the same for every editor."""
        return schema.InitializeResponse(
            protocol_version=VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True, image=True),
                session_capabilities=schema.SessionCapabilities(list=schema.SessionListCapabilities()),
            ),
            auth_methods=[],
            agent_info=schema.Implementation(name="cleveragents", title="CleverAgents", version=__version__),
        )

    async def new_session(self, cwd: str, **more: Any) -> schema.NewSessionResponse:
        """Start a session in a directory."""
        self._ensure_directory(cwd)
        made = await _asked(self._created, cwd)
        self._unused.add(made.id)
        self._remember(made, cwd)
        await self._offer_commands(made.id, more)
        return schema.NewSessionResponse(session_id=made.id)

    async def load_session(self, cwd: str, session_id: str, **more: Any) -> schema.LoadSessionResponse:
        """Open a stored session, and send its turns and the reports of their plans."""
        self._ensure_directory(cwd)
        found = await _asked(self._known, session_id)
        session = self._remember(found, cwd)
        before = str(max(0, found.turns - _REPLAYED_TURNS))
        turns = (await _asked(self._client.conversations.turns, found.id, after=before)).items
        last = {plan_id: turn.number for turn in turns for plan_id in turn.plans}
        for turn in turns:
            await self._send(session_id, helpers.update_user_message_text(turn.question))
            if turn.answer:
                await self._say(session_id, turn.answer)
            for plan_id in turn.plans:
                if last[plan_id] == turn.number:
                    await self._report_of(session, plan_id)
        await self._offer_commands(session_id, more)
        return schema.LoadSessionResponse()

    async def list_sessions(self, cwd: str | None = None, **more: Any) -> schema.ListSessionsResponse:
        """Return the newest sessions, of the repository around one directory if it is given."""

        def look() -> list[schema.SessionInfo]:
            found = []
            for one in self._client.conversations.list(limit=_MOST_SESSIONS).items:
                root = self._root(one, cwd or str(Path.cwd()))
                if not one.turns or not (cwd is None or Path(cwd).is_relative_to(root)):
                    continue
                title, moment = one.title[:200], one.updated.isoformat()
                place = cwd or str(root)
                found.append(schema.SessionInfo(session_id=one.id, cwd=place, title=title, updated_at=moment))
            return found

        return schema.ListSessionsResponse(sessions=await _asked(look))

    async def cancel(self, session_id: str, **more: Any) -> None:
        """Stop the running turn, or pause its plan."""
        session = self._open.get(session_id)
        if session is not None and session.busy:
            session.cancelled.set()

    async def close(self) -> None:
        """Delete the sessions that the editor opened and that have no turns."""
        for session_id in self._unused:
            with suppress(RequestError):
                await _asked(self._client.conversations.delete, session_id, only_unused=True)

    def _created(self, cwd: str) -> ConversationView:
        options = self._options
        resource = options.resource
        if options.far and resource is None:
            resource = only_resource(self._client, "--resource")
        request = ConversationRequest(
            repository=cwd,
            resource=resource,
            model=options.model,
            profile=options.profile,
            limits=Limits(usd=options.usd),
        )
        return self._client.conversations.create(request)

    def _known(self, session_id: str) -> ConversationView:
        found = self._client.conversations.get(session_id)
        if found.id != session_id:  # guard: an editor names a session by its whole id
            raise RequestRefused(f"there is no session {session_id}", "sessionId")
        return found

    def _root(self, found: ConversationView, cwd: str) -> Path:
        """Return the directory of a session's files; for a session on a server, the directory of the
        editor.
        """
        return Path(cwd if self._options.far else found.resource)

    def _ensure_directory(self, cwd: str) -> None:
        if not Path(cwd).is_absolute() or not Path(cwd).is_dir():
            raise RequestError(-32602, f"cwd is not an absolute path of a directory: {cwd[:200]}")

    def _remember(self, found: ConversationView, cwd: str) -> _Session:
        while len(self._open) >= _MOST_SESSIONS:  # guard: bounded memory; the database has the rest
            idle = next((key for key, one in self._open.items() if not one.busy), None)
            if idle is None:
                raise RequestError(-32603, "too many sessions at once")
            del self._open[idle]
        return self._open.setdefault(found.id, _Session(found.id, self._root(found, cwd)))

    async def _offer_commands(self, session_id: str, more: dict[str, Any]) -> None:
        commands = [schema.AvailableCommand(name=name, description=text) for name, text in _COMMANDS.items()]
        await self._send(session_id, helpers.update_available_commands(commands))
        if more.get("mcp_servers"):
            told = "The editor's MCP servers are not used. Add them to your own MCP servers."
            await self._send(session_id, helpers.update_agent_thought_text(told))

    # ── Turns ─────────────────────────────────────────────────────────────────────────────────────

    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> schema.PromptResponse:
        """Answer, and send the progress of the plans until they rest. Raises `RequestError`."""
        session = self._open.get(session_id)
        if session is None:
            session = self._remember(await _asked(self._known, session_id), str(Path.cwd()))
        if session.busy:  # guard: one turn at a time
            raise RequestError(-32600, "a turn of this session is running; cancel it first")
        session.busy = True
        session.cancelled.clear()
        try:
            text, attached = await _asked(goal_in, prompt), await _asked(attachments_in, prompt)
            for plan_id, seen in await self._begun(session, text, attached):
                await self._carried_out(session, plan_id, seen)
        finally:
            session.busy = False
        return schema.PromptResponse(stop_reason="cancelled" if session.cancelled.is_set() else "end_turn")

    async def _carried_out(self, session: _Session, plan_id: str, seen: int) -> None:
        """Send the progress of a plan until no worker runs it and no decision of the person continues it.
        Pause the plan if the editor has cancelled the turn that started it.
        """
        if session.cancelled.is_set():
            await self._paused(session.id, plan_id)
        while not session.cancelled.is_set():
            seen = await self._followed(session, plan_id, seen)
            if session.cancelled.is_set():
                return
            plan = await _asked(self._client.plans.get, plan_id)
            await self._send(session.id, phases_of(plan))
            if not await self._decided(session, plan):
                return

    async def _begun(self, session: _Session, text: str, attached: list[Attachment]) -> list[tuple[str, int]]:
        """Return the plans that the prompt starts or continues, with the numbers of their last output."""
        found = await _asked(self._client.conversations.get, session.id)
        command = _command_of(text)
        plan = None if command == "plan" else await self._last_plan(found)
        if plan is None and command in ("apply", "resume"):  # guard: a command is not a prompt
            return await self._without_plan(session, found, command)
        if plan is None or (command not in ("apply", "resume") and _is_for_assistant(found, plan)):
            return await self._take_turn(session, found, text, attached)
        if attached:  # guard: no part of a prompt is ignored
            raise RequestError(-32602, "this goes to a plan, which takes no images and PDFs: send text")
        plans, seen = self._client.plans, await _asked(self._seen, plan.id)
        if command == "apply":
            return [(plan.id, seen)]
        if command == "resume":
            await _asked(plans.resume, plan.id)
        elif plan.needs == "question":
            question = _question_of(plan)
            if session.question != question:  # guard: an answer is for the question that the person saw
                await self._say(session.id, "Your answer was not sent: the question has changed.")
            else:
                await _asked(plans.answer, plan.id, text, question=question)
        elif not plan.at_rest or plan.needs == "approval":
            await _asked(plans.comment, plan.id, text)
            await self._say(session.id, "Stored as a comment. The plan is not finished yet.")
        else:
            await _asked(plans.revise if "revise" in plan.can else plans.correct, plan.id, text)
        return [(plan.id, seen)]

    async def _without_plan(
        self, session: _Session, found: ConversationView, command: str
    ) -> list[tuple[str, int]]:
        """Continue the last turn after `/resume`, if it was not answered; else say that there is no plan."""
        if command == "resume" and found.state is not None and found.state.resumable:
            return await self._take_turn(session, found, None)
        await self._say(session.id, f"There is no plan to {command} yet. Send a goal to start one.")
        return []

    async def _last_plan(self, found: ConversationView) -> PlanView | None:
        """Return the last plan of the session; None if there is none, or if it was deleted."""
        if not found.plans:
            return None
        with suppress(RequestError):
            return await _asked(self._client.plans.get, found.plans[-1])
        return None

    async def _take_turn(
        self,
        session: _Session,
        found: ConversationView,
        text: str | None,
        attached: Sequence[Attachment] = (),
    ) -> list[tuple[str, int]]:
        """Send the prompt as a turn, or continue the last turn: without a prompt, or with the same one after
        a crash. Send the answer as it arrives. Return the plans of the turn. With a model that calls no
        tools, every prompt starts a plan.
        """
        conversations = self._client.conversations
        if text is not None and not found.calls_tools and _command_of(text) != "plan":
            text = f"/plan {text}"
        last = (await _asked(conversations.turns, found.id, after=str(max(0, found.turns - 1)))).items
        same = bool(last) and last[-1].question == text and last[-1].state.value == "interrupted"
        # guard: a repeated prompt does not start a second plan after a crash
        if same or text is None:
            await _asked(conversations.resume, found.id)
        else:
            await _asked(conversations.send, found.id, text, attachments=attached)
        self._unused.discard(found.id)
        stopping = asyncio.ensure_future(self._stopped(session))
        pieces = conversations.watch(found.id)
        try:
            while (piece := await _asked(next, pieces, None)) is not None:
                said = redact_known_text(piece.text)
                if piece.kind == "model":
                    await self._send(session.id, helpers.update_agent_message_text(said))
                elif piece.kind == "progress":
                    await self._send(session.id, helpers.update_agent_thought_text(f"{said}\n"))
        finally:
            stopping.cancel()
        turn = await _asked(conversations.wait, found.id)
        await self._say(session.id, f"\n\n{turn.error or ''}")
        new = [one for one in turn.plans if one not in found.plans]
        return [(one, 0 if one in new else await _asked(self._seen, one)) for one in turn.plans]

    async def _stopped(self, session: _Session) -> None:
        """Stop the running turn when the editor cancels."""
        await session.cancelled.wait()
        await _asked(self._client.conversations.stop, session.id)

    async def _followed(self, session: _Session, plan_id: str, seen: int) -> int:
        """Send the output and the calls of a plan until it rests or the editor cancels, which pauses it."""
        session_id, calls = session.id, _Calls(plan_id)
        while True:
            rests = await _asked(lambda: self._client.plans.summary(plan_id).at_rest)
            pieces = await _asked(self._output, plan_id, seen)
            for piece in pieces:
                seen = piece.number
                if piece.kind in ("model", "progress"):
                    said = redact_known_text(piece.text if piece.kind == "model" else f"{piece.text}\n")
                    await self._send(session_id, helpers.update_agent_thought_text(said))
            if pieces or rests:
                for update in await _asked(calls.new, self._client):
                    await self._send(session_id, update)
            if rests and not pieces:
                return seen
            if await _is_set(session.cancelled, 0 if pieces else _LOOK_SECONDS):
                await self._paused(session_id, plan_id)
                return seen

    async def _paused(self, session_id: str, plan_id: str) -> None:
        try:
            await _asked(self._client.plans.pause, plan_id)
        except RequestError as error:  # it ended in the meantime, or waits
            await self._say(session_id, str(error))
            return
        await self._say(session_id, f"Paused plan `{plan_id}`. Send guidance, or /resume, to continue it.")

    def _seen(self, plan_id: str) -> int:
        """Return the number of the last output of a plan."""
        return max((one.number for one in self._output(plan_id, 0)), default=0)

    def _output(self, plan_id: str, after: int) -> tuple[OutputView, ...]:
        found: list[OutputView] = []
        while page := self._client.plans.output(plan_id, after=after):
            found += page
            after = page[-1].number
        return tuple(found)

    # ── Decisions of a person ─────────────────────────────────────────────────────────────────────

    async def _decided(self, session: _Session, plan: PlanView) -> bool:
        """Ask the person about a plan at rest, if an editor can. Return whether the plan continues."""
        await self._report(session, plan)
        if plan.needs == "approval" and plan.approval is not None:
            return await self._approved(session, plan, plan.approval)
        if plan.needs == "review" and "apply" in plan.can:
            await self._applied(session, plan)
        return False

    async def _approved(self, session: _Session, plan: PlanView, approval: ApprovalView) -> bool:
        plans, call, rule = self._client.plans, approval.call, approval.pattern or approval.exact
        pending = await _asked(plans.call, plan.id, call)
        places = {"plan": approval.plan_scope, "project": approval.project_scope}
        longer = {str(scope): scope for scope in approval.scopes if scope in places}
        options = [_option("approve", "Approve", "allow_once")]
        for name in longer:
            text = escape_controls(f"Approve `{rule}` in {places[name]}")
            options.append(_option(name, text, "allow_always"))
        options.append(_option("deny", "Deny", "reject_once"))
        chosen = await self._permitted(session, call_update(plan.id, pending), options)
        # Only for the call that the person saw: another one that waits by now is not approved.
        if chosen == "approve":
            await _asked(plans.approve, plan.id, call=call)
        elif chosen == "deny":
            await _asked(plans.deny, plan.id, call=call)
        elif chosen is not None:
            await _asked(plans.approve, plan.id, call=call, scope=longer[chosen], pattern=rule)
        return chosen is not None

    async def _applied(self, session: _Session, plan: PlanView) -> None:
        shown = await _asked(changed_files, self._client, plan, session.root)
        update = helpers.start_tool_call(
            f"{plan.id}-apply-{plan.version}-{plan.tree}",
            f"Apply {plan.files_changed} changed files",
            kind="edit",
            status="pending",
            content=shown,
        )
        await self._send(session.id, update)
        options = [_option("apply", "Apply", "allow_once"), _option("later", "Not now", "reject_once")]
        chosen = await self._permitted(session, update, options)
        if chosen != "apply":  # guard: only a person applies
            await self._say(session.id, "Not applied. Send changes that you want, or /apply.")
            return
        done = await _asked(_applied_as_seen, self._client.plans, plan)
        if done is None:
            await self._say(session.id, "Nothing was applied: the result changed after you saw it.")
            current = await _asked(self._client.plans.get, plan.id)
            if "apply" in current.can:
                await self._applied(session, current)
            return
        await self._say(session.id, f"Plan `{plan.id}`: {done.meaning}.")

    async def _permitted(
        self, session: _Session, call: schema.ToolCallStart, options: list[schema.PermissionOption]
    ) -> str | None:
        """Return the id of the option that the person selects. None if the request was cancelled, failed, or
        was answered with anything else.
        """
        shown = schema.ToolCallUpdate(**call.model_dump(exclude={"session_update", "field_meta"}))
        editor = self._connected()
        asking = asyncio.ensure_future(
            editor.request_permission(session_id=session.id, tool_call=shown, options=options)
        )
        stopped = asyncio.ensure_future(session.cancelled.wait())
        try:
            await asyncio.wait({asking, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() or session.cancelled.is_set():  # guard: a cancelled turn decides nothing
                return None
            outcome = asking.result().outcome
        except (RequestError, ConnectionError, ValueError):
            return None
        finally:
            asking.cancel()
            stopped.cancel()
        chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else None
        known = {option.option_id for option in options}
        return chosen if chosen in known else None  # guard: an unknown option decides nothing

    async def _report_of(self, session: _Session, plan_id: str) -> None:
        with suppress(RequestError):  # deleted meanwhile
            await self._report(session, await _asked(self._client.plans.get, plan_id))

    async def _report(self, session: _Session, plan: PlanView) -> None:
        await self._say(session.id, report_of(plan))
        session.question = _question_of(plan)

    async def _say(self, session_id: str, text: str) -> None:
        await self._send(session_id, helpers.update_agent_message_text(f"{text}\n\n"))

    async def _send(self, session_id: str, update: Any) -> None:
        await self._connected().session_update(session_id=session_id, update=update)

    def _connected(self) -> AgentSideConnection:
        if self._editor is None:
            raise RequestError(-32603, "not connected")
        return self._editor


def _option(key: str, name: str, kind: Any) -> schema.PermissionOption:
    return schema.PermissionOption(option_id=key, name=name, kind=kind)


class _Calls:
    """The calls of a plan that the editor knows. Used by one turn."""

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self._ended = 0

    def new(self, client: Client) -> list[Any]:
        """Return the updates of calls since the last time. A call in progress is sent again."""
        updates = []
        after: str | None = str(self._ended)
        while after is not None:
            page = client.plans.calls(self._plan_id, after=after)
            for call in page.items:
                updates.append(call_update(self._plan_id, call))
                if call.ended is not None and call.number == self._ended + 1:
                    self._ended = call.number
            after = page.next
        return updates


def _is_for_assistant(found: ConversationView, plan: PlanView) -> bool:
    """Return whether a prompt goes to the assistant, not to the last plan: the plan needs no answer, and the
    assistant can send the prompt to the plan.
    """
    if plan.needs in ("question", "approval") or not plan.at_rest:
        return False
    return found.calls_tools or not {"revise", "correct"} & set(plan.can)


def _applied_as_seen(plans: Plans, plan: PlanView) -> PlanView | None:
    """Apply only the result that the person saw; return None if it has changed since."""
    try:
        return plans.apply(plan.id, version=plan.version, tree=plan.tree)
    except ResultChanged:
        return None


def _command_of(text: str) -> str:
    """Return the name of the command that a prompt begins with; empty if there is none."""
    return text.split(maxsplit=1)[0][1:] if text.startswith("/") else ""


def _question_of(plan: PlanView) -> str | None:
    """Return the name of the pending question."""
    pending = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(pending["question"]) if "question" in pending else None


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait that long for the event, and return whether it is set."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def _asked(ask: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Run a call in a thread; turn errors into those of JSON-RPC."""
    try:
        return await asyncio.to_thread(ask, *args, **more)
    except Fault:  # guard: internals stay hidden
        raise RequestError(-32603, "internal error; the log has the details") from None
    except InvalidRequest as error:
        raise RequestError(-32602, redact_text(str(error))) from None
    except CleverAgentsError as error:
        raise RequestError(-32603, redact_text(str(error))) from None
    except OSError as error:
        raise RequestError(-32603, redact_text(f"cannot read or store a file: {error}")) from None
