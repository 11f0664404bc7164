"""The one interface of the product: a client, of this machine or of a server.

    from cleveragents import connect

    with connect() as client:                                   # this machine
        ...
    with connect("https://agents.example", token=...) as client:  # a server
        ...

Both have the same methods, return the same views and raise the same errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from cleveragents.api.jobs import HttpJobs, Jobs, LocalJobs

if TYPE_CHECKING:
    from cleveragents.access.model.user import User
    from cleveragents.api.transport import HttpTransport
    from cleveragents.app.container import Container

__all__ = ["Client", "HttpClient", "LocalClient"]


@runtime_checkable
class Client(Protocol):
    """Everything a surface can ask of CleverAgents. Use it as a context manager."""

    @property
    def jobs(self) -> Jobs:
        """The jobs in the queue and those that ended."""

    def close(self) -> None:
        """Release the connection. A second call changes nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class LocalClient:
    """Calls the services in this process, as one user. Any thread may use it.

    `user` is the acting user, whose rights every call checks; without one it is the owner of this machine's
    state, who may do everything. Whoever built the container closes it, unless the client `owns` it.
    """

    def __init__(self, container: Container, user: User | None = None, *, owns: bool = False) -> None:
        from cleveragents.api.access import Access, owner_of

        self.access = Access(container, user or owner_of(container))
        self._owns = owns

    @property
    def container(self) -> Container:
        return self.access.container

    @property
    def jobs(self) -> Jobs:
        return LocalJobs(self.access)

    def close(self) -> None:
        if self._owns:
            self.container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HttpClient:
    """Calls a server over HTTP. Not thread-safe: use it on the thread that created it."""

    def __init__(self, http: HttpTransport) -> None:
        self.http = http

    @property
    def jobs(self) -> Jobs:
        return HttpJobs(self.http)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
