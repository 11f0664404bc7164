"""The Agent2Agent endpoint of a server: a public agent card, and tasks for users with a token.

The log records of the SDK go to the server's log, masked and with the request id.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import cache, partial
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cleveragents import __version__
from cleveragents.core.errors import NotAuthenticated
from cleveragents.protocols.agent_requests import log_through_ours
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

_CACHED = "public, max-age=3600"


def is_installed() -> bool:
    """Return whether the extra `a2a` is installed."""
    return find_spec("a2a") is not None


def routes() -> list[BaseRoute]:
    """Return the card at its well-known address, and the endpoint that it names."""
    from starlette.routing import Route

    started = formatdate(usegmt=True)  # the card changes only with the program and its address

    @cache
    def answering() -> Callable[[Request], Awaitable[Response]]:
        return _dispatcher()  # at the first request: the SDK takes a second to load

    async def endpoint(request: Request) -> Response:
        if getattr(request.state, "user", None) is None:  # guard: tasks need a user
            error = NotAuthenticated("send the token as `Authorization: Bearer …`")
            return problem(status_of(error), code_of(error), str(error))
        if not _is_json(request):
            return _unsupported_media()
        response = await answering()(request)
        # The protocol reports errors with status 200. After a broken database connection the outcome is still
        # known: a new task is stored with its claim, and an answer belongs to one question.
        if _is_error(response):  # guard: a refused request may be tried again
            setattr(request.state, REFUSED, True)
        return response

    async def card(request: Request) -> Response:
        from a2a.server.request_handlers.response_helpers import agent_card_to_dict
        from starlette.responses import JSONResponse, Response

        # The host name of the request, which the middleware has checked: that of a proxy, if there is one.
        card = card_for(f"{request.url.scheme}://{request.url.netloc}")
        response = JSONResponse(agent_card_to_dict(card))
        etag = f'"{sha256(bytes(response.body)).hexdigest()[:32]}"'
        headers = {"Cache-Control": _CACHED, "ETag": etag, "Last-Modified": started, "Vary": "Host"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        response.headers.update(headers)
        return response

    return [
        Route(PATH, endpoint, methods=["POST"]),
        Route(f"{PATH}/", endpoint, methods=["POST"]),  # some clients append a slash, and follow no redirect
        Route(CARD, card, methods=["GET"]),
    ]


def _is_json(request: Request) -> bool:
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return said == "application/json"


def _unsupported_media() -> Response:
    from a2a.server.request_handlers.response_helpers import build_error_response
    from a2a.utils.errors import ContentTypeNotSupportedError
    from starlette.responses import JSONResponse

    error = ContentTypeNotSupportedError(message="the body must be JSON, with Content-Type: application/json")
    return JSONResponse(build_error_response(None, error))


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

    log_through_ours("a2a", "jsonrpc")

    class ByUser(DefaultServerCallContextBuilder):
        """Passes a client of the authenticated user to the handler."""

        def build(self, request: Request) -> ServerCallContext:
            context = super().build(request)
            context.state[CALLER] = Caller(
                client_of(request), partial(client_now, request), claim_of(request)
            )
            return context

    return JsonRpcDispatcher(request_handler=PlanTasks(), context_builder=ByUser()).handle_requests


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
