"""The Agent2Agent endpoint of a server: an agent card for everybody, tasks for users with a token.

The SDK logs through the server's log: masked, with the number of the request.
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
    """Whether the extra `a2a` is."""
    return find_spec("a2a") is not None


def routes() -> list[BaseRoute]:
    """Return the card at its well-known place, and the endpoint that it names."""
    from starlette.routing import Route

    @cache
    def answering() -> Callable[[Request], Awaitable[Response]]:
        return _dispatcher()  # at the first request: the SDK takes a second to load

    async def endpoint(request: Request) -> Response:
        if getattr(request.state, "user", None) is None:  # guard: nobody hands work over unknown
            error = NotAuthenticated("send it as `Authorization: Bearer …`")
            return problem(status_of(error), code_of(error), str(error))
        response = await answering()(request)
        # The protocol tells of errors with status 200. Nobody is unsure what was done where a database broke
        # off: a new task is kept with its claim, and an answer is to one question.
        if _is_error(response):  # guard: what was refused may be tried again
            setattr(request.state, REFUSED, True)
        return response

    async def card(request: Request) -> Response:
        from a2a.server.request_handlers.response_helpers import agent_card_to_dict
        from starlette.responses import JSONResponse

        # By the name under which it was asked, which the gates have checked: a proxy's, if there is one.
        return JSONResponse(agent_card_to_dict(card_for(f"{request.url.scheme}://{request.url.netloc}")))

    return [Route(PATH, endpoint, methods=["POST"]), Route(CARD, card, methods=["GET"])]


def _is_error(response: Response) -> bool:
    """Whether it is one of the protocol's; what streams is not asked, for it is never kept."""
    from starlette.responses import JSONResponse

    return isinstance(response, JSONResponse) and "error" in json.loads(bytes(response.body))


def _dispatcher() -> Callable[[Request], Awaitable[Response]]:
    from a2a.server.routes.common import DefaultServerCallContextBuilder
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher

    from cleveragents.protocols.a2a_handler import CALLER, Caller, PlanTasks

    _log_through_ours()

    class ByUser(DefaultServerCallContextBuilder):
        """Gives the handler a client of the user that the middleware admitted."""

        def build(self, request: Request) -> ServerCallContext:
            context = super().build(request)
            context.state[CALLER] = Caller(
                client_of(request), partial(client_now, request), claim_of(request)
            )
            return context

    return JsonRpcDispatcher(request_handler=PlanTasks(), context_builder=ByUser()).handle_requests


class _ToOurLog(logging.Handler):
    """Passes records on. They quote requests, which may contain secrets, so nothing is printed unmasked."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, "a2a.said", logger=record.name, said=record.getMessage(), exc_info=record.exc_info
        )


def _log_through_ours() -> None:
    """Send what the SDK logs from now on to our log. A second call changes nothing."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [_ToOurLog()]
        logger.propagate = False  # guard: what somebody sent is in no log as it was


def card_for(origin: str) -> AgentCard:
    """What other agents learn of us without a token: what we do, and how to ask."""
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
        description="Reaches goals on registered repositories, as plans that are sandboxed and reviewed.",
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
                name="Reach a goal on a repository",
                description=(
                    "Say in words what is wanted; metadata.resource names a registered resource, and "
                    "metadata may have model, checks, max_usd, max_tokens, seconds, and for a git remote "
                    "to_branch. It gives a patch, which a person or the profile decides to apply."
                ),
                tags=["code", "git", "refactoring", "review"],
                examples=["Add a --json flag to the export command"],
            )
        ],
    )
