"""What repositories bring along, and which of it an admin has read and trusts.

What is trusted can run programs as the user of the workers. So it is an admin's to say, and it is said of
contents, by their digests, as they were shown: never of whatever is there by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents.api.resources import place_of, trusted_place_of
from cleveragents.api.wording import shown_name, timestamp
from cleveragents.core.json_value import JsonValue
from cleveragents.server.access import AdministeredResource, ServerAdmin
from cleveragents.server.accounts import account_as
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.plan_models import Strict
from cleveragents.server.problems import Refused
from cleveragents.server.service import Here, Service

if TYPE_CHECKING:
    from cleveragents.access.model.project import Resource
    from cleveragents.access.trust_ports import BroughtFile, Survey

__all__ = ["router"]

router = APIRouter(tags=["projects"])

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FILE = ".cleveragents/actions/release.yaml"
_MOST_FILES = 10_000


class Brought(BaseModel):
    """A file that would count if it were trusted."""

    path: str = Field(examples=[_FILE])
    digest: str = Field(description="SHA-256 of its content", examples=[_DIGEST])
    size: int = Field(description="bytes", examples=[412])
    trusted: bool = Field(description="with this very content", examples=[False])
    preview: list[str] = Field(description="what it would run and receive, or its first lines; masked")


class NotTrustable(BaseModel):
    """A file that cannot be trusted."""

    path: str = Field(examples=[".mcp.json"])
    why: str = Field(examples=["leads out of the repository"])


class BroughtAlong(BaseModel):
    """All that a repository brings along: a directory as it is now, a git remote's branch as it is now."""

    resource: str = Field(examples=["shop-main"])
    files: list[Brought]
    refused: list[NotTrustable]


class SeenFile(Strict):
    """A file, as it was shown."""

    path: str = Field(min_length=1, max_length=4096, examples=[_FILE])
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", examples=[_DIGEST])


class Trusting(Strict):
    """What has been read, and may count."""

    files: list[SeenFile] = Field(min_length=1, max_length=_MOST_FILES)


class NoLongerTrusted(BaseModel):
    """What was trusted, and is not any more."""

    paths: list[str]


class Trust(BaseModel):
    """A content that is trusted."""

    path: str = Field(description="of a git remote, below a name of that", examples=[f"remote:9f86/{_FILE}"])
    digest: str = Field(examples=[_DIGEST])
    trusted: str = Field(description="when", examples=["2026-11-15T12:00:00Z"])


@router.get("/trust", operation_id="listTrust")
def list_trust(here: Here, access: ServerAdmin, limit: Limit = 100, after: After = None) -> Listing[Trust]:
    """Lists all contents that are trusted, anywhere."""
    given = here.parts.trust.list()
    rows = [
        Trust(path=shown_name(one.path), digest=one.digest, trusted=timestamp(one.trusted_at))
        for one in given
    ]
    return piece_of(sorted(rows, key=_key), _key, limit, after)


@router.get("/resources/{name}/trust", operation_id="showBroughtAlong")
def show_brought_along(resource: AdministeredResource, here: Here) -> BroughtAlong:
    """Shows what a repository brings along that counts only once it is trusted: its settings, actions,
    actors, skills and MCP servers. A git remote is asked for its branch."""
    return _account(resource.name, _survey(here, resource))


@router.post("/resources/{name}/trust", operation_id="trustBroughtAlong")
def trust_brought_along(
    resource: AdministeredResource, body: Trusting, here: Here, access: ServerAdmin
) -> BroughtAlong:
    """Trusts files of a repository, with the contents that were shown. If one of them has another by now,
    or is gone, nothing is trusted (409)."""
    survey = _survey(here, resource)
    there = [((shown_name(file.path), file.digest), file) for file in survey.files]
    seen = {(one.path, one.digest) for one in body.files}
    changed = sorted(path for path, _ in seen - {shown for shown, _ in there})
    if changed:  # guard: what nobody has seen is not trusted
        named = ", ".join(changed[:5]) + (" …" if len(changed) > 5 else "")
        raise Refused(409, "changed-meanwhile", f"not as it was shown: {named}; look at it again")
    here.parts.trust.give(survey.root, [file for shown, file in there if shown in seen])
    return _account(resource.name, here.parts.trust.survey(survey.root))


@router.post("/resources/{name}/trust/revoke", operation_id="revokeTrust")
def revoke_trust(resource: AdministeredResource, here: Here) -> NoLongerTrusted:
    """Trusts nothing of a repository any more. Neither its files nor its remote are looked at."""
    place = trusted_place_of(here.container, resource)
    return NoLongerTrusted(paths=[shown_name(path) for path in here.parts.trust.revoke(place)])


def _survey(here: Service, resource: Resource) -> Survey:
    return here.parts.trust.survey(place_of(here.container, resource))


def _account(name: str, survey: Survey) -> BroughtAlong:
    account: dict[str, JsonValue] = {
        "resource": name,
        "files": [_brought(file) for file in survey.files],
        "refused": [{"path": path, "why": why} for path, why in survey.refused],
    }
    return account_as(BroughtAlong, account)


def _brought(file: BroughtFile) -> dict[str, JsonValue]:
    from cleveragents.api.trust_preview import preview

    return {
        "path": file.path,
        "digest": file.digest,
        "size": len(file.content),
        "trusted": file.trusted,
        "preview": list(preview(file)),
    }


def _key(trust: Trust) -> str:
    return f"{trust.path} {trust.digest}"
