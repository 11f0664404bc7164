"""The one interface of the product: a client, of this machine or of a server.

    from cleveragents import PlanRequest, connect

    with connect() as client:                                     # this machine
        plan = client.plans.create(PlanRequest(goal="Add a --json flag"))
    with connect("https://agents.example", token=...) as client:  # a server
        print(client.plans.list())

Both clients have the same methods, return the same views and raise the same errors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from cleveragents.access.model.user import Token, User
    from cleveragents.api.actions import Actions, HttpActions, LocalActions
    from cleveragents.api.actors import Actors, HttpActors, LocalActors
    from cleveragents.api.context import Context, HttpContext, LocalContext
    from cleveragents.api.conversations.client import Conversations
    from cleveragents.api.conversations.http import HttpConversations
    from cleveragents.api.conversations.local import LocalConversations
    from cleveragents.api.costs import Costs, HttpCosts, LocalCosts
    from cleveragents.api.events import Events, HttpEvents, LocalEvents
    from cleveragents.api.jobs import HttpJobs, Jobs, LocalJobs
    from cleveragents.api.models import HttpModels, LocalModels, Models
    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.http import HttpPlans
    from cleveragents.api.plans.local import LocalPlans
    from cleveragents.api.projects import Projects
    from cleveragents.api.resources import Resources
    from cleveragents.api.rules import Rules
    from cleveragents.api.transport import HttpTransport
    from cleveragents.api.trust import Trust
    from cleveragents.api.users import LocalUsers, Users
    from cleveragents.api.workers import Workers
    from cleveragents.app.container import Container
    from cleveragents.app.worker_parts import SharedWorker
    from cleveragents.config.loader import Configuration
    from cleveragents.plans.model.plan import Plan

__all__ = ["Client", "HttpClient", "LocalClient", "connect"]


def connect(
    server: str | None = None,
    *,
    token: str | None = None,
    settings: Sequence[str] = (),
    directory: str | os.PathLike[str] = ".",
) -> Client:
    """Return a client of this machine, or of the server at the URL `server`. Use it as a context manager.

    A client of this machine reads the same configuration and state as the command line; `settings` override
    the configuration, as `--set` does: `"models.default=openai/gpt-4.1"`. The client runs the plans it
    creates in this process until it is closed. An unfinished plan continues when the next client waits for it
    or watches it. Plans on registered resources are run by the workers of a server.

    The configuration includes the `.cleveragents.toml` of the repository around `directory`, which can only
    tighten settings. A plan on another repository whose file is stricter is refused (`RequestRefused`);
    connect with that directory instead.

    Raises `ConfigurationError`, `DatabaseUnreachable`; for a server `ServerUnreachable` and
    `NotAuthenticated`, with the first call.
    """
    if server is not None:
        from cleveragents.api.transport import HttpTransport

        return HttpClient(HttpTransport(server.rstrip("/"), token))
    from cleveragents.app.container import Container
    from cleveragents.config.loader import load_configuration

    def configuration_of(place: Path) -> Configuration:
        return load_configuration(os.environ, place, settings)

    loaded = configuration_of(Path(directory).absolute())
    return LocalClient(Container(loaded.settings), embedded=True, configuration_of=configuration_of)


@runtime_checkable
class Client(Protocol):
    """All operations of CleverAgents. Use it as a context manager."""

    @property
    def plans(self) -> Plans:
        """Plans, from request to undo."""

    @property
    def jobs(self) -> Jobs:
        """Queued, running and ended jobs."""

    @property
    def actions(self) -> Actions:
        """The actions for plans."""

    @property
    def actors(self) -> Actors:
        """The actors for plans."""

    @property
    def models(self) -> Models:
        """The language models, and the profiles of plans."""

    @property
    def context(self) -> Context:
        """The search for code relevant to a question."""

    @property
    def conversations(self) -> Conversations:
        """Conversations with an assistant about a repository."""

    @property
    def costs(self) -> Costs:
        """The costs of model calls."""

    @property
    def events(self) -> Events:
        """The events of the audit log."""

    @property
    def projects(self) -> Projects:
        """The projects and their members."""

    @property
    def resources(self) -> Resources:
        """The repositories for plans."""

    @property
    def rules(self) -> Rules:
        """Approval rules: commands that run without asking."""

    @property
    def trust(self) -> Trust:
        """Trust in the config of repositories."""

    @property
    def users(self) -> Users:
        """The users of a server and their tokens."""

    @property
    def workers(self) -> Workers:
        """The workers on all machines."""

    def close(self) -> None:
        """Release all resources of the client. A second call is harmless."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class LocalClient:
    """Calls the services in this process, as one user. Any thread may use it.

    `user` is the acting user, whose rights every call checks; the default is the owner of this machine's
    state, who may do everything. `token` is the user's token, if any. An `embedded` client owns its container
    and runs the plans it queues. With `in_front`, the caller of the client runs plans itself, including plans
    without a queue, which no worker takes; `run_plan` is called with each queued plan. `configuration_of`
    reads the configuration of a directory; with it, a plan on a directory with a stricter configuration is
    refused.

    Thread safety:
        Owner: the caller that created it closes it.
        Lock: `_lock` guards `_worker` while an embedded worker is started or taken to be closed.
        Guarantee: at most one worker is started, and it is closed with the client. A thread that waits for a
            plan or for events then gets `Closed`.
    Cancel safety: a plan that the worker runs when the client is closed is requeued and can be resumed.
    """

    def __init__(
        self,
        container: Container,
        user: User | None = None,
        *,
        token: Token | None = None,
        embedded: bool = False,
        in_front: bool = False,
        run_plan: Callable[[Plan], None] | None = None,
        configuration_of: Callable[[Path], Configuration] | None = None,
    ) -> None:
        from cleveragents.api.access import Access, owner_of

        self.access = Access(container, user or owner_of(container), token)
        self._embedded = embedded
        self._in_front = in_front
        self._run_plan = run_plan
        self._configuration_of = configuration_of
        self._lock = threading.Lock()
        self._worker: SharedWorker | None = None
        self._ended = threading.Event()

    @property
    def plans(self) -> LocalPlans:
        from cleveragents.api.plans.local import LocalPlans

        start_worker = self._ensure_worker if self._embedded else None
        return LocalPlans(
            self.access,
            start_worker,
            self._sleep,
            self._configuration_of,
            shared=not self._in_front,
            run_plan=self._run_plan,
        )

    @property
    def jobs(self) -> LocalJobs:
        from cleveragents.api.jobs import LocalJobs

        return LocalJobs(self.access)

    @property
    def actions(self) -> LocalActions:
        from cleveragents.api.actions import LocalActions

        return LocalActions(self.access)

    @property
    def actors(self) -> LocalActors:
        from cleveragents.api.actors import LocalActors

        return LocalActors(self.access)

    @property
    def models(self) -> LocalModels:
        from cleveragents.api.models import LocalModels

        return LocalModels(self.access)

    @property
    def context(self) -> LocalContext:
        from cleveragents.api.context import LocalContext

        return LocalContext(self.access)

    @property
    def conversations(self) -> LocalConversations:
        from cleveragents.api.conversations.local import LocalConversations

        return LocalConversations(self.access, self.plans, self._sleep)

    @property
    def costs(self) -> LocalCosts:
        from cleveragents.api.costs import LocalCosts

        return LocalCosts(self.access)

    @property
    def events(self) -> LocalEvents:
        from cleveragents.api.events import LocalEvents

        return LocalEvents(self.access, self._sleep)

    @property
    def projects(self) -> Projects:
        from cleveragents.api.projects import LocalProjects

        return LocalProjects(self.access)

    @property
    def resources(self) -> Resources:
        from cleveragents.api.resources import LocalResources

        return LocalResources(self.access)

    @property
    def rules(self) -> Rules:
        from cleveragents.api.rules import LocalRules

        return LocalRules(self.access)

    @property
    def trust(self) -> Trust:
        from cleveragents.api.trust import LocalTrust

        return LocalTrust(self.access)

    @property
    def users(self) -> LocalUsers:
        from cleveragents.api.users import LocalUsers

        return LocalUsers(self.access)

    @property
    def workers(self) -> Workers:
        from cleveragents.api.workers import LocalWorkers

        return LocalWorkers(self.access)

    def close(self) -> None:
        with self._lock:
            worker, self._worker = self._worker, None
            self._ended.set()
        if worker is not None:
            worker.close()
        if self._embedded:
            self.access.container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sleep(self, seconds: float) -> None:
        """Sleep between two polls of a plan or the log. Raises `Closed` as soon as the client is closed."""
        from cleveragents.core.errors import Closed

        if self._ended.wait(seconds):
            raise Closed("the client")

    def _ensure_worker(self) -> None:
        from cleveragents.app.worker_parts import WorkerParts
        from cleveragents.plans.jobs.names import client_queue

        with self._lock:
            if self._worker is None and not self._ended.is_set():
                parts = WorkerParts(self.access.container)
                # guard: not plans of others, which only a worker with isolation may run
                queues = (client_queue(self.access.container.home),)
                self._worker = parts.start(name=f"client-{os.getpid()}", queues=queues)


class HttpClient:
    """Calls a server over HTTP. Any thread may use it."""

    def __init__(self, http: HttpTransport) -> None:
        self.http = http

    @property
    def plans(self) -> HttpPlans:
        from cleveragents.api.plans.http import HttpPlans

        return HttpPlans(self.http)

    @property
    def jobs(self) -> HttpJobs:
        from cleveragents.api.jobs import HttpJobs

        return HttpJobs(self.http)

    @property
    def actions(self) -> HttpActions:
        from cleveragents.api.actions import HttpActions

        return HttpActions(self.http)

    @property
    def actors(self) -> HttpActors:
        from cleveragents.api.actors import HttpActors

        return HttpActors(self.http)

    @property
    def models(self) -> HttpModels:
        from cleveragents.api.models import HttpModels

        return HttpModels(self.http)

    @property
    def context(self) -> HttpContext:
        from cleveragents.api.context import HttpContext

        return HttpContext(self.http)

    @property
    def conversations(self) -> HttpConversations:
        from cleveragents.api.conversations.http import HttpConversations

        return HttpConversations(self.http)

    @property
    def costs(self) -> HttpCosts:
        from cleveragents.api.costs import HttpCosts

        return HttpCosts(self.http)

    @property
    def events(self) -> HttpEvents:
        from cleveragents.api.events import HttpEvents

        return HttpEvents(self.http)

    @property
    def projects(self) -> Projects:
        from cleveragents.api.projects import HttpProjects

        return HttpProjects(self.http)

    @property
    def resources(self) -> Resources:
        from cleveragents.api.resources import HttpResources

        return HttpResources(self.http)

    @property
    def rules(self) -> Rules:
        from cleveragents.api.rules import HttpRules

        return HttpRules(self.http)

    @property
    def trust(self) -> Trust:
        from cleveragents.api.trust import HttpTrust

        return HttpTrust(self.http)

    @property
    def users(self) -> Users:
        from cleveragents.api.users import HttpUsers

        return HttpUsers(self.http)

    @property
    def workers(self) -> Workers:
        from cleveragents.api.workers import HttpWorkers

        return HttpWorkers(self.http)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
