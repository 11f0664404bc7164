"""Routes of trust in files of a repository that can run code."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from cleveragents.api.trust import RevokedTrustView, TrustedFileView, TrustSurveyView
from cleveragents.api.views import Page
from cleveragents.server.access import AdminClient, ResourceAdmin, ResourceServerAdmin
from cleveragents.server.accounts import NamePath
from cleveragents.server.listing import After, Limit
from cleveragents.server.plan_models import Strict

__all__ = ["router"]

router = APIRouter(tags=["projects"])

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FILE = ".cleveragents/actions/release.yaml"
_MOST_FILES = 10_000


class SeenFile(Strict):
    """A file, as it was shown."""

    path: str = Field(min_length=1, max_length=4096, examples=[_FILE])
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", examples=[_DIGEST])


class Trusting(Strict):
    """What has been read, and may count."""

    files: list[SeenFile] = Field(min_length=1, max_length=_MOST_FILES)


@router.get("/trust", operation_id="listTrust")
def list_trust(client: AdminClient, limit: Limit = 100, after: After = None) -> Page[TrustedFileView]:
    """Lists all contents that are trusted, anywhere."""
    return client.trust.list(limit=limit, after=after)


@router.get("/resources/{name}/trust", operation_id="showBroughtAlong")
def show_brought_along(name: NamePath, client: ResourceAdmin) -> TrustSurveyView:
    """Shows what a repository brings along that counts only once it is trusted: its settings, actions,
    actors, skills and MCP servers. A git remote is asked for its branch."""
    return client.trust.survey(name)


@router.post("/resources/{name}/trust", operation_id="trustBroughtAlong")
def trust_brought_along(name: NamePath, body: Trusting, client: ResourceServerAdmin) -> TrustSurveyView:
    """Trusts files of a repository, with the contents that were shown. If one of them has another by now,
    or is gone, nothing is trusted (409)."""
    return client.trust.give(name, [(one.path, one.digest) for one in body.files])


@router.post("/resources/{name}/trust/revoke", operation_id="revokeTrust")
def revoke_trust(name: NamePath, client: ResourceAdmin) -> RevokedTrustView:
    """Trusts nothing of a repository any more. Neither its files nor its remote are looked at."""
    return client.trust.revoke(name)
