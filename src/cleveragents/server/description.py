"""The OpenAPI document: roles, problems and examples that FastAPI does not describe.

FastAPI describes parameters and responses of each route. Problems (RFC 9457), tokens and idempotency keys are
the same for all routes, so this module adds them once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from cleveragents import __version__
from cleveragents.server.access import AccessRule
from cleveragents.server.middleware.identity import COOKIE
from cleveragents.server.problems import MEDIA_TYPE, Problem

__all__ = ["DescribedApi", "operations_of"]

Node = dict[str, Any]
"""A part of the document."""

_LOG_IN: Final = "logIn"
_TAGS: Final = {
    "about": "The server itself.",
    "session": "Browser sessions.",
    "users": "Users and their tokens.",
    "plans": "Plans: run in a sandbox, reviewed, applied, undone.",
    "events": "The audit log and the live stream.",
    "jobs": "Jobs and workers.",
    "conversations": "Sessions: conversations with an assistant about a repository.",
    "context": "Code relevant to a question.",
    "actors": "Actors: agents as graphs of models and tools.",
    "actions": "Templates of plans.",
    "models": "Language models and profiles.",
    "projects": "Projects, members, repositories and trust.",
    "rules": "Rules that approve commands in advance.",
    "health": "Health and metrics of the server.",
}
_PROBLEMS: Final = {
    "400": ("bad-request", "the request is malformed, or ended too early"),
    "401": ("not-authenticated", "the token or cookie is missing, unknown, expired or revoked"),
    "403": ("not-allowed", "the user lacks the role, or the browser's request comes from another site"),
    "404": ("not-found", "not found"),
    "408": ("request-timeout", "the request did not arrive in time; send it again"),
    "409": ("conflict", "conflict with the current state; reload the object and try again"),
    "413": ("body-too-large", "the request is larger than `server.body_bytes`"),
    "415": ("unsupported-media-type", "the body is not JSON"),
    "421": ("unknown-host", "unknown host name of this server"),
    "422": ("invalid-request", "invalid parameters or body"),
    "429": ("too-many-requests", "too many requests; try again after `Retry-After` seconds"),
    "500": ("internal-error", "internal error; the server's log has the details of `request_id`"),
    "503": ("unavailable", "temporarily unavailable; try again"),
}
_EVERYWHERE: Final = ("400", "401", "403", "408", "413", "421", "429", "500", "503")
"""Statuses of the connection and the middleware, possible for every request."""
_NAMES: Final = {"resource", "project", "name"}
"""Path parameters whose object may not exist."""

_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "a repeated request with the same key gets the same response and has no second effect",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


class DescribedApi(FastAPI):
    """An application with a complete OpenAPI document."""

    def __init__(self, **more: Any) -> None:
        self.rules: dict[str, AccessRule] = {}
        super().__init__(**more)

    def add_routes(self, router: APIRouter) -> None:
        """Add the routes of a router and record their access rules.

        `include_router` would analyse the parameters of all routes again, which takes as long as importing
        them.
        """
        for route in router.routes:
            if isinstance(route, APIRoute) and route.operation_id is not None:
                calls: list[object] = [one.call for one in route.dependant.dependencies]
                rules = [call for call in calls if isinstance(call, AccessRule)]
                if rules:
                    self.rules[route.operation_id] = max(rules, key=lambda rule: rule.rank)
        self.router.routes.extend(router.routes)

    def openapi(self) -> Node:
        """Return the document, built once. Concurrent first calls build equal documents."""
        if self.openapi_schema is None:
            self.openapi_schema = _described(self)
        return self.openapi_schema


def operations_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Node]]:
    """Yield path, method and description of every operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _described(app: DescribedApi) -> Node:
    document = get_openapi(
        title="CleverAgents",
        version=__version__,
        openapi_version="3.1.0",
        summary="Run AI agents in parallel on real repositories, safely.",
        description="Errors are problem details (RFC 9457). Programs compare `code`.",
        routes=app.routes,
    )
    components: Node = document.setdefault("components", {})
    schemas: Node = components.setdefault("schemas", {})
    for path, method, operation in operations_of(document):
        operation["summary"] = operation["summary"].capitalize()
        if path.startswith("/api/"):
            _add_security(method, operation)
            _add_role(operation, app.rules.get(operation["operationId"]))
        _add_problems(path, method, operation)
        _exemplify(operation, schemas)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    components["responses"] = {code: _problem(*_PROBLEMS[code], code) for code in _PROBLEMS}
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "the token of a user"},
        "browser": {
            "type": "apiKey",
            "in": "cookie",
            "name": COOKIE,
            "description": "requests that change something also need X-CSRF-Token (see getSession)",
        },
    }
    used = {tag for _, _, operation in operations_of(document) for tag in operation.get("tags", ())}
    document["tags"] = [{"name": name, "description": said} for name, said in _TAGS.items() if name in used]
    return document


def _add_security(method: str, operation: Node) -> None:
    if operation["operationId"] != _LOG_IN:
        operation["security"] = [{"token": []}, {"browser": []}]
        if method == "post":
            operation.setdefault("parameters", []).append(dict(_KEY))


def _add_problems(path: str, method: str, operation: Node) -> None:
    wrong = [*_EVERYWHERE]
    named = {parameter["name"] for parameter in operation.get("parameters", ())}
    if path.startswith("/api/"):
        wrong.append("422")
    if "{" in path or "requestBody" in operation or named & _NAMES:
        wrong.append("404")
    if method != "get" or "{" in path:
        wrong.append("409")
    if method != "get":
        wrong.append("415")
    said: Node = operation["responses"]
    own = [status for status in said if status in _PROBLEMS]
    operation["responses"] = {
        **{status: one for status, one in said.items() if status not in _PROBLEMS},
        **{status: {"$ref": f"#/components/responses/{status}"} for status in sorted({*wrong, *own})},
    }


def _add_role(operation: Node, rule: AccessRule | None) -> None:
    if rule is not None:
        operation["x-role"], operation["x-role-in"] = rule.role.value, rule.where
        operation["description"] = f"{operation['description']}\n\n{rule.needed}"


def _problem(code: str, why: str, status: str) -> Node:
    example = {
        "type": f"/problems/{code}",
        "title": code.replace("-", " "),
        "status": int(status),
        "code": code,
        "detail": why,
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    said: Node = {"description": why, "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}
    if status == "429":
        said["headers"] = {"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}}
    return said


def _exemplify(operation: Node, schemas: Mapping[str, Node]) -> None:
    """Give every body an example, built from the examples of its fields."""
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for body in bodies:
        for media_type, content in body.get("content", {}).items():
            schema = content.get("schema", {})
            if media_type == "application/json" and not {"example", "examples"} & content.keys():
                content["example"] = _example(schema, schemas)


def _example(schema: Node, schemas: Mapping[str, Node]) -> object:
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for way in ("anyOf", "oneOf", "allOf"):
        if schema.get(way):
            ways = [_example(one, schemas) for one in schema[way]]
            return None if {"type": "null"} in schema[way] else ways[0]
    if schema.get("type") == "object" or "properties" in schema:
        return {name: _example(one, schemas) for name, one in schema.get("properties", {}).items()}
    if schema.get("type") == "array":
        return [_example(schema["items"], schemas)] if "items" in schema else []
    return {"string": "", "integer": 0, "number": 0.0, "boolean": False}.get(str(schema.get("type")))
