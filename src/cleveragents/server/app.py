"""The application: middleware, problems, and the routes of every resource."""

from __future__ import annotations

from importlib import import_module

from fastapi import FastAPI

from cleveragents import __version__
from cleveragents.server import problems
from cleveragents.server.description import DescribedApi
from cleveragents.server.metrics import RequestMeter, ServerMetrics
from cleveragents.server.middleware.body import BodyLimits
from cleveragents.server.middleware.idempotency import Idempotency
from cleveragents.server.middleware.identity import Identity, RateLimit, TokenBuckets
from cleveragents.server.middleware.origin import (
    HostCheck,
    MediaCheck,
    OriginCheck,
    allowed_names,
    is_loopback,
)
from cleveragents.server.middleware.responses import RequestLog, SecurityHeaders
from cleveragents.server.routes import page
from cleveragents.server.service import Service

__all__ = ["PROTOCOLS", "ROUTES", "create_app"]

ROUTES: tuple[str, ...] = (
    "session",
    "users",
    "jobs",
    "context",
    "conversations",
    "library",
    "projects",
    "rules",
    "page",
    "events",
    "health",
    "plans",
    "plan_views",
    "plan_actions",
)
"""The modules of `server.routes`. Each has a `router` below /api, a `root` outside of it, or both."""

PROTOCOLS: tuple[str, ...] = (
    "cleveragents.protocols.a2a_routes",
    "cleveragents.protocols.mcp_routes",
)
"""Optional protocols. Each module has `is_installed`, which tests for its library, and `routes()`."""

_STRANGERS_PER_MINUTE = 10


def create_app(service: Service) -> FastAPI:
    """Create the application on these parts. The caller closes them."""
    app = DescribedApi(
        title="CleverAgents",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.service = service
    problems.install(app)
    for name in ROUTES:
        module = import_module(f"cleveragents.server.routes.{name}")
        for router in (getattr(module, "router", None), getattr(module, "root", None)):
            if router is not None:
                app.add_routes(router)
    for name in PROTOCOLS:
        protocol = import_module(name)
        if protocol.is_installed():
            app.router.routes.extend(protocol.routes())
    page.install(app)
    _add_middleware(app, service)
    return app


def _add_middleware(app: FastAPI, service: Service) -> None:
    container = service.container
    settings = container.settings.server
    monotonic = container.clock.monotonic
    strangers = TokenBuckets(_STRANGERS_PER_MINUTE, monotonic)
    app.state.strangers = strangers
    # The middleware added last runs first.
    app.add_middleware(Idempotency, service=service)
    app.add_middleware(MediaCheck)
    app.add_middleware(OriginCheck)
    app.add_middleware(BodyLimits, limit=settings.body_bytes, seconds=settings.body_seconds)
    app.add_middleware(RateLimit, buckets=TokenBuckets(settings.requests_per_minute, monotonic))
    app.add_middleware(Identity, service=service, strangers=strangers)
    names = allowed_names(settings.host, settings.names)
    app.add_middleware(HostCheck, names=names, any_address=not is_loopback(settings.host))
    app.add_middleware(RequestLog, clock=container.clock, identifiers=container.identifiers)
    app.add_middleware(SecurityHeaders)
    app.state.meters = ServerMetrics()
    app.add_middleware(RequestMeter, meters=app.state.meters, container=container)
