"""The application: middleware, problems, and the routes of every resource, each in a module of its own."""

from __future__ import annotations

from importlib import import_module

from fastapi import APIRouter, FastAPI

from cleveragents import __version__
from cleveragents.interfaces.server import problems
from cleveragents.interfaces.server.service import Service

__all__ = ["ROUTES", "create_app"]

ROUTES: tuple[str, ...] = ()
"""The modules of `interfaces.server.routes` that have a `router`; a new resource is a new one of them."""


def create_app(service: Service) -> FastAPI:
    """The application on these parts, which the caller closes."""
    app = FastAPI(title="CleverAgents", version=__version__, docs_url=None, redoc_url=None)
    app.state.service = service
    problems.install(app)
    for name in ROUTES:
        router: APIRouter = import_module(f"cleveragents.interfaces.server.routes.{name}").router
        app.include_router(router, prefix="/api")
    return app
