"""The Agent2Agent endpoint of a server: a public agent card, and tasks for users with a token.

The log records of the SDK go to the server's log, masked and with the request id.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from cleveragents import __version__
from cleveragents.core.errors import NotAuthenticated
from cleveragents.server.access import client_now, client_of
from cleveragents.server.middleware.idempotency import REFUSED, claim_of
from cleveragents.server.problems import code_of, problem, status_of

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.types import AgentCard
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

__all__ = ["card_for", "is_installed", "routes"]

PATH = "/a2a"
CARD = "/.well-known/agent-card.json"

_LOGGERS = ("a2a", "jsonrpc")


def is_installed() -> bool:
    """Return whether the extra `a2a` is installed."""
    return find_spec("a2a") is not None


def routes() -> list[BaseRoute]:
    """Return the card at its well-known address, and the endpoint that it names."""
    from starlette.routing import Route

    @cache
    def answering() -> Callable[[Request], Awaitable[Response]]:
        return _dispatcher()  # at the first request: the SDK takes a second to load

    async def endpoint(request: Request) -> Response:
        if getattr(request.state, "user", None) is None:  # guard: tasks need a user
            error = NotAuthenticated("send it as `Authorization: Bearer …`")
            return problem(status_of(error), code_of(error), str(error))
        response = await answering()(request)
        # The protocol reports errors with status 200. After a broken database connection the outcome is still
        # known: a new task is stored with its claim, and an answer belongs to one question.
        if _is_error(response):  # guard: a refused request may be tried again
            setattr(request.state, REFUSED, True)
        return response

    async def card(request: Request) -> Response:
        from a2a.server.request_handlers.response_helpers import agent_card_to_dict
        from starlette.responses import JSONResponse

        # The host name of the request, which the middleware has checked: that of a proxy, if there is one.
        return JSONResponse(agent_card_to_dict(card_for(f"{request.url.scheme}://{request.url.netloc}")))

    return [Route(PATH, endpoint, methods=["POST"]), Route(CARD, card, methods=["GET"])]


def _is_error(response: Response) -> bool:
    """Return whether the response is an error of the protocol. Streams are never stored, so they are not
    read.
    """
    from starlette.responses import JSONResponse

    return isinstance(response, JSONResponse) and "error" in json.loads(bytes(response.body))


def _dispatcher() -> Callable[[Request], Awaitable[Response]]:
    from a2a.server.routes.common import DefaultServerCallContextBuilder
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher

    from cleveragents.protocols.a2a_handler import CALLER, Caller, PlanTasks

    _log_through_ours()

    class ByUser(DefaultServerCallContextBuilder):
        """Passes a client of the authenticated user to the handler."""

        def build(self, request: Request) -> ServerCallContext:
            context = super().build(request)
            context.state[CALLER] = Caller(
                client_of(request), partial(client_now, request), claim_of(request)
            )
            return context

    return JsonRpcDispatcher(request_handler=PlanTasks(), context_builder=ByUser()).handle_requests


class _ToOurLog(logging.Handler):
    """Forwards log records, masked: they quote requests, which may contain secrets."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, "a2a.said", logger=record.name, said=record.getMessage(), exc_info=record.exc_info
        )


def _log_through_ours() -> None:
    """Send the SDK's log to our log from now on. A second call is harmless."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [_ToOurLog()]
        logger.propagate = False  # guard: requests are never logged unmasked


def card_for(origin: str) -> AgentCard:
    """Return the public agent card: our skills and the endpoint."""
    from a2a.types import (
        AgentCapabilities,
        AgentCard,
        AgentInterface,
        AgentSkill,
        HTTPAuthSecurityScheme,
        SecurityRequirement,
        SecurityScheme,
        StringList,
    )

    return AgentCard(
        name="CleverAgents",
        description="Runs goals on registered repositories as sandboxed, reviewed plans.",
        version=__version__,
        supported_interfaces=[
            AgentInterface(url=f"{origin}{PATH}", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "text/x-diff"],
        security_schemes={
            "bearer": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))
        },
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})],
        skills=[
            AgentSkill(
                id="plan",
                name="Run a goal on a repository",
                description=(
                    "Describe the goal; metadata.resource names a registered resource, and "
                    "metadata may have model, checks, max_usd, max_tokens, seconds, and for a git remote "
                    "to_branch. The result is a patch. It is applied by a person, or automatically if the "
                    "profile allows it."
                ),
                tags=["code", "git", "refactoring", "review"],
                examples=["Add a --json flag to the export command"],
            )
        ],
    )
