"""`python -m tests.docs.api_page`: writes docs/reference/api.md, from what the server says of itself."""

from __future__ import annotations

from typing import Any

from cleveragents.application.container import Container
from cleveragents.infrastructure.configuration.settings import Settings
from cleveragents.interfaces.server.app import create_app
from cleveragents.interfaces.server.service import Service


def described() -> dict[str, Any]:
    """The OpenAPI document. No part of the container is built for it."""
    with Container(Settings()) as container:
        return create_app(Service(container)).openapi()
