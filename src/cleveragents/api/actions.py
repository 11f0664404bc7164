"""Actions, the templates of plans: list, get, add and remove them.

Secrets are masked in views. They are not masked in stored actions, because plans run these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import asdict

from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.core.errors import InvalidAction, RequestRefused, UnknownAction
from cleveragents.core.json_value import freeze
from cleveragents.core.text.redaction import redact, redact_text

if TYPE_CHECKING:
    from pathlib import Path

    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.core.actions.arguments import Argument
    from cleveragents.core.actions.model import Action
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.actions.library import ActionLibrary
    from cleveragents.plans.ports.plans import ActionListing

__all__ = [
    "ActionCheckView",
    "ActionRow",
    "ActionView",
    "Actions",
    "ArgumentView",
    "HttpActions",
    "LocalActions",
    "StepView",
    "action_view",
    "ensure_no_directory",
    "is_full_name",
    "library_root",
]

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:/[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)")


@view
class ActionRow:
    """An action in a list."""

    name: str = shown(examples=["builtin/replace"])
    origin: str = shown("the origin: builtin, user or repository", examples=["builtin"])
    trusted: bool = shown("whether the action is trusted to run", examples=[True])
    description: str = shown("the first line of the description", examples=["Replaces text in files."])
    source: str = shown(examples=["shipped"])
    problem: str | None = shown("why the action cannot be used", examples=[None])


@view
class ArgumentView:
    """An argument that an action takes."""

    name: str = shown(examples=["pattern"])
    type: str = shown(examples=["string"])
    required: bool = shown(examples=[True])
    default: object = shown(examples=[None])
    description: str = shown(examples=["the text to find"])
    rest: bool = shown("whether the argument takes all remaining words", examples=[False])


@view
class StepView:
    """A tool call of an action."""

    name: str | None = shown(examples=["format"])
    tool: str = shown(examples=["command"])
    given: object = shown("its arguments", name="with", examples=[{"argv": ["make", "format"]}])
    shell: bool = shown(examples=[False])
    continue_on_failure: bool = shown(examples=[False])
    expect_exit: object = shown(examples=[0])


@view
class ActionCheckView:
    """A command that must pass."""

    name: str = shown(examples=["tests"])
    command: str = shown(examples=["pytest -q"])
    required: bool = shown(examples=[True])
    timeout_seconds: float | None = shown(examples=[600])


@view
class ActionView:
    """An action with its arguments, steps and checks."""

    name: str = shown(examples=["team/format"])
    description: str = shown(examples=["Formats the code."])
    arguments: tuple[ArgumentView, ...] = shown()
    strategize_actor: str | None = shown(examples=[None])
    execute_actor: str | None = shown(examples=[None])
    review_actor: str | None = shown(examples=[None])
    steps: tuple[StepView, ...] = shown()
    checks: tuple[ActionCheckView, ...] = shown()
    invariants: tuple[str, ...] = shown(examples=[["no file below vendor/ changes"]])
    enforced: tuple[str, ...] = shown("the invariants that are enforced", examples=[[]])
    definition_of_done: str | None = shown(examples=[None])
    profile: str | None = shown(examples=[None])
    budget: dict[str, Any] = shown(examples=[{"usd": 1.5}])
    setup: dict[str, Any] | None = shown(examples=[None])
    include: tuple[str, ...] = shown(examples=[[]])


class Actions(Protocol):
    """The actions for plans: built-in, of the users, and of one repository.

    The repository is that of a `resource`, or the repository around the directory `repository` of this
    machine, which only a local client of the owner can read.
    """

    def list(
        self,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ActionRow]:
        """Return one page of actions, by name. Raises `UnknownResource`."""

    def get(self, name: str, *, resource: str | None = None, repository: Path | None = None) -> ActionView:
        """Return an action. Raises `UnknownAction`, `NotTrusted`, `InvalidAction`, `UnknownResource`."""

    def add(self, yaml: str | bytes, *, source: str = "the request", replace: bool = False) -> ActionView:
        """Store an action without running it; `source` names the YAML in errors.

        Raises `InvalidAction` with every mistake, and stores nothing; `ActionExists` unless `replace` is set;
        `NotAllowed` unless the user is a server admin.
        """

    def remove(self, name: str) -> None:
        """Delete an added action. Plans made from it are not affected.

        Raises `UnknownAction`, `ConfigurationError` for a built-in action, `NotAllowed`.
        """


class LocalActions:
    """Actions in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def list(
        self,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ActionRow]:
        rows = [_row(listing) for listing in self._library(resource, repository).list()]
        return page_of(rows, _place, limit, after)

    def get(self, name: str, *, resource: str | None = None, repository: Path | None = None) -> ActionView:
        from cleveragents.api.server_requests import trusted_by_name

        with trusted_by_name(resource):
            return action_view(self._library(resource, repository).get(name))

    def add(self, yaml: str | bytes, *, source: str = "the request", replace: bool = False) -> ActionView:
        self._access.ensure_server_admin()
        return action_view(self._library().create(yaml, source, replace=replace))

    def remove(self, name: str) -> None:
        self._access.ensure_server_admin()
        self._library().delete(name)

    def _library(self, resource: str | None = None, repository: Path | None = None) -> ActionLibrary:
        return self._access.container.plan_parts.actions(library_root(self._access, resource, repository))


class HttpActions:
    """Actions of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(
        self,
        *,
        resource: str | None = None,
        repository: Path | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ActionRow]:
        ensure_no_directory(repository)
        return self._http.page(ActionRow, "/actions", limit, after, resource=resource)

    def get(self, name: str, *, resource: str | None = None, repository: Path | None = None) -> ActionView:
        ensure_no_directory(repository)
        if not is_full_name(name):  # guard: not the address of something else
            raise UnknownAction(name)
        return view_of(ActionView, self._http.get(f"/actions/{name}", resource=resource))

    def add(self, yaml: str | bytes, *, source: str = "the request", replace: bool = False) -> ActionView:
        try:
            text = yaml if isinstance(yaml, str) else yaml.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidAction(source, ("not UTF-8 text: save it as UTF-8",)) from None
        try:
            return view_of(ActionView, self._http.post("/actions", {"yaml": text, "replace": replace}))
        except InvalidAction as error:
            error.source = source
            raise

    def remove(self, name: str) -> None:
        if not is_full_name(name):
            raise UnknownAction(name)
        self._http.delete(f"/actions/{name}")


def is_full_name(text: str) -> bool:
    """Return whether the text is the name of an action or an actor: NAMESPACE/NAME."""
    return _NAME.fullmatch(text) is not None and len(text) <= 129


def ensure_no_directory(repository: Path | None) -> None:
    """Raise `RequestRefused` for a directory of this machine: a server does not see it."""
    if repository is not None:
        raise RequestRefused(
            "a server cannot read directories of this machine; pass the name of a resource", "resource"
        )


def library_root(access: Access, resource: str | None, repository: Path | None = None) -> Path | None:
    """Return the repository whose actions and actors apply, after checking the user's access to it.

    With `resource`, it is the repository of the resource, or None for a remote that was never fetched on this
    machine; the user must be a viewer of its project. Otherwise it is the repository around the directory
    `repository`, which only the owner may read. Raises `UnknownResource`, `SandboxRefused`, `NotAllowed`.
    """
    if resource is not None:
        from cleveragents.access.model.user import Role
        from cleveragents.api.resources import known_place_of

        return known_place_of(access.container, access.resource(resource, Role.VIEWER))
    if repository is None:
        return None
    from cleveragents.access.trust.repository_files import repository_root

    access.ensure_server_admin()  # guard: only the owner reads directories of the machine
    return repository_root(repository)


def action_view(action: Action) -> ActionView:
    """Return the view of an action."""
    from cleveragents.core.actions.model import Invariant

    setup = action.setup
    said: dict[str, object] = {
        "name": action.name,
        "description": redact_text(action.description),
        "arguments": [_argument(argument) for argument in action.arguments],
        "strategize_actor": action.strategize_actor,
        "execute_actor": action.execute_actor,
        "review_actor": action.review_actor,
        "steps": [
            {
                "name": None if step.name is None else redact_text(step.name),
                "tool": step.tool,
                "with": freeze(redact(step.arguments)),
                "shell": step.shell,
                "continue_on_failure": step.continue_on_failure,
                "expect_exit": step.expect_exit,
            }
            for step in action.steps
        ],
        "checks": [
            {
                "name": redact_text(check.name),
                "command": redact_text(check.command),
                "required": check.required,
                "timeout_seconds": check.timeout_seconds,
            }
            for check in action.checks
        ],
        "invariants": [redact_text(text) for text in action.invariants],
        "enforced": [redact_text(text) for text in action.invariants if Invariant.parse(text).enforced],
        "definition_of_done": redact_text(action.definition_of_done),
        "profile": action.profile,
        "budget": asdict(action.budget),
        "setup": {"command": freeze(redact(setup.command)), "key": setup.key, "paths": setup.paths}
        if setup
        else None,
        "include": action.include,
    }
    return view_of(ActionView, freeze(said))


def _row(listing: ActionListing) -> ActionRow:
    described = listing.action.description if listing.action else ""
    return view_of(
        ActionRow,
        {
            "name": listing.name,
            "origin": listing.origin.value,
            "trusted": listing.trusted,
            "description": redact_text(described.partition("\n")[0]),
            "source": listing.source,
            "problem": listing.problem,
        },
    )


def _argument(argument: Argument) -> dict[str, JsonValue]:
    return {
        "name": argument.name,
        "type": argument.type.value,
        "required": argument.required,
        "default": freeze(redact(argument.default)),
        "description": redact_text(argument.description),
        "rest": argument.rest,
    }


def _place(row: ActionRow) -> str:
    # Two actions may have the same name; the first applies, and its source tells them apart.
    return f"{row.name} {row.source}"
