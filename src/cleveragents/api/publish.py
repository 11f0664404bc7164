"""Publish a result: push it to a new branch, from which a pull request can be opened.

The files, the index and the branches of the user's repository stay as they are. The default branch of the
remote and branches of others are never written.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cleveragents.access.model.project import remote_of
from cleveragents.api.plans.summary import EXAMPLE_PLAN
from cleveragents.api.views import shown, view, view_of
from cleveragents.core.errors import (
    Conflict,
    GitFailed,
    InvalidRequest,
    NeedsHuman,
    PlanError,
    Remedy,
    RequestRefused,
    ResultChanged,
)
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "BRANCH",
    "PublishTarget",
    "PublishView",
    "ensure_repository",
    "ensure_unapplied",
    "publish_directory",
    "publish_remote",
    "repository_at",
    "web_address",
]

BRANCH = "agents/{plan}"
"""The default branch of a published result."""

_SECONDS = 300.0
_MOST_NAMED = 5
_PROTOCOLS = "https:ssh:git:file"
_SHORT = re.compile(r"(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^/].*)")
_URL = re.compile(r"(?:https?|ssh|git)://(?:[^@/]*@)?(?P<host>[^/:]+)(?::[0-9]+)?/(?P<path>.+)")


@view
class PublishView:
    """A result on a branch of a git remote."""

    plan: str = shown(examples=[EXAMPLE_PLAN])
    remote: str = shown("the URL of the remote, without a password", examples=["git@example.org:shop.git"])
    base: str = shown("the base branch of the pull request", examples=["main"])
    branch: str = shown("the new branch with the result", examples=[f"agents/{EXAMPLE_PLAN}"])
    commit: str | None = shown(examples=["9f2b…"])
    title: str = shown(examples=["Add a --json flag to the export command"])
    body: str = shown(examples=["- Change src/export.py"])
    url: str | None = shown("the page to open a pull request; null if unknown", examples=[None])
    unchanged: bool = shown(default=False, description="whether the branch already had this result")


@dataclass(frozen=True, slots=True)
class _Remote:
    """A remote of the user's repository, its default branch, and the commit of the branch to push, if any.
    `targets` are the URLs that git pushes to.
    """

    name: str
    url: str
    default: str
    existing: str
    tip: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PublishTarget:
    """The new branch and the git remote of a publish, as the user names them, and whether commits of the user
    that the remote does not have may be pushed; `confirm` asks about them.
    """

    branch: str | None = None
    remote: str | None = None
    with_commits: bool = False
    confirm: Callable[[str], bool] | None = None


def ensure_repository(plan: Plan) -> Path:
    """Return the git directory of the plan's repository. Raises `PlanError` for a plain directory."""
    from cleveragents.apply.target import git_directory_of
    from cleveragents.sandboxes.resources import is_repository

    root = Path(plan.resource)
    directory = git_directory_of(root) if is_repository(root) else None
    if directory is None:
        raise PlanError(plan.id, f"cannot publish: {root} is not a git repository")
    return directory


def ensure_unapplied(plan: Plan | PlanView, commit: str | None) -> None:
    """Raise `PlanError` for an applied plan, which git publishes. `commit` is the commit of the apply."""
    if plan.state is not PlanState.APPLIED:
        return
    how = "to publish your files, commit them on a new branch and push it with git"
    if commit is not None:
        how = f"the commit is {commit}; to publish it, push that commit with git"
    if remote_of(plan.resource) is not None:
        how = f"the result is pushed{'' if commit is None else f' as commit {commit}'}"
    raise PlanError(plan.id, f"cannot publish: already applied; {how}")


def publish_directory(
    container: Container,
    plan: Plan,
    view: PlanView,
    target: PublishTarget,
    *,
    message: str,
) -> Mapping[str, JsonValue]:
    """Commit the result on top of HEAD and push it to a new branch. A second call updates that branch, if the
    result, HEAD or the message has changed.

    Raises `PlanError` without a remote, or if the branch belongs to others or git fails; `RequestRefused` for
    the default branch; `NeedsHuman` if the push would include commits of the user and the target does not
    allow that; `StalePlan` and `ResultChanged` if the plan or its result changes before the end of the push;
    `InvalidName`; the errors of an apply.
    """
    from cleveragents.access.model.project import new_branch
    from cleveragents.api.plans.changes import commit_message
    from cleveragents.plans.apply_policy import ensure_checked

    parts, root, directory = container.plan_parts, Path(plan.resource), ensure_repository(plan)
    name = new_branch(target.branch or BRANCH, plan.id)
    git = _Git(plan.id, root, directory)
    ref = f"refs/heads/{name}"
    found = git.remote(target.remote, ref)
    if name == found.default:  # guard: a result reaches the default branch by a pull request only
        raise RequestRefused(f"{name} is the default branch of {found.name}; choose another name", "branch")
    ensure_checked(parts, plan, view.tree)
    text = message or commit_message(view)
    commit = parts.apply.commit_apart(plan, text, view.tree, target.confirm)
    row = _row(plan.id, found.url, found.default, name, text)
    content = git.content(commit)
    earlier = [known.get("commit") for known in parts.plans.published(plan.id)]
    facts: dict[str, JsonValue] = {"branch": name, "remote": found.name}
    if found.existing and content and git.content(found.existing) == content:
        if found.existing not in earlier:  # a process died after its push
            _record(container, plan, {**facts, "commit": found.existing})
        return row | {"commit": found.existing, "unchanged": True}
    # guard: a commit of others is never overwritten, also not if it kept the message of the plan's commit
    if found.existing and found.existing not in earlier:
        raise PlanError(
            plan.id,
            f"cannot publish: {found.name} already has the branch {name}, with a commit that this plan did "
            "not publish; choose another name",
        )
    if not target.with_commits:  # guard: a commit that the user has not pushed may be private
        _ensure_pushed(plan.id, found.name, git.unpushed(found, commit), target.confirm)
    _ensure_same(parts, plan, view.tree)  # guard: `confirm` may have waited for a person
    # The commit is pushed as it was confirmed, even if HEAD has moved since.
    git.push(found.name, ref, commit, instead_of=found.existing)
    try:
        # guard: no lock stops a discard or an apply in another process during the push
        _ensure_same(parts, plan, view.tree)
    except (Conflict, InvalidRequest):
        git.take_back(found, ref, commit)
        raise
    _record(container, plan, {**facts, "commit": commit})
    return row | {"commit": commit}


def publish_remote(plans: Plans, plan_id: str, branch: str | None, message: str | None) -> PublishView:
    """Apply the result of a plan on a git remote to a new branch, and return the branch.

    Raises `RequestRefused` for a plan on a directory and for the default branch, and the errors of an apply.
    """
    from cleveragents.api.plans.changes import commit_message

    plan = plans.get(plan_id)
    url, marked, base = plan.resource.rpartition("#")
    if plan.branch is None or not marked:
        problem = "a server does not push from its own directories; publish the plan on the server's machine"
        raise RequestRefused(problem, "plan_id")
    ensure_unapplied(plan, None if plan.last_apply is None else plan.last_apply.commit)
    name = (branch or BRANCH).replace("{plan}", plan.id)
    if name == base:  # guard: a result reaches the default branch by a pull request only
        raise RequestRefused(f"{name} is the branch of the resource; choose another name", "branch")
    text = message or commit_message(plan)
    applied = plans.apply(plan.id, commit=text, to_branch=name, version=plan.version, tree=plan.tree)
    commit = None if applied.last_apply is None else applied.last_apply.commit
    return view_of(PublishView, _row(plan.id, url, base, name, text) | {"commit": commit})


def web_address(url: str, base: str, branch: str) -> str | None:
    """Return the URL of the page that opens a pull request; None if the host of the remote is unknown."""
    found = repository_at(url)
    if found is None:
        return None
    host, path = found[0], quote(found[1])
    source, target = quote(branch, safe="/"), quote(base, safe="/")
    if "gitlab" in host:
        asked = f"merge_request%5Bsource_branch%5D={quote(branch, safe='')}"
        return f"https://{host}/{path}/-/merge_requests/new?{asked}"
    expand = "?expand=1" if "github" in host else ""
    return f"https://{host}/{path}/compare/{target}...{source}{expand}"


def repository_at(url: str) -> tuple[str, str] | None:
    """Return the host of a remote and the path of the repository on that host, without `.git`; None for a
    remote without a host.
    """
    found = _URL.fullmatch(url) or _SHORT.fullmatch(url)
    return None if found is None else (found["host"].lower(), found["path"].rstrip("/").removesuffix(".git"))


def _ensure_same(parts: PlanParts, plan: Plan, tree: str | None) -> None:
    """Raise `StalePlan` if the plan moved, and `ResultChanged` if this is not its result any more."""
    from cleveragents.api.plans.apply_jobs import ensure_unmoved

    ensure_unmoved(parts.plans.get(plan.id), plan.version)
    if parts.result.decided(plan, parts.sandboxes.open(plan.id))[0] != tree:
        raise ResultChanged(plan.id)


def _row(plan_id: str, url: str, base: str, branch: str, text: str) -> dict[str, JsonValue]:
    title, _, body = text.strip().partition("\n")
    return {
        "plan": plan_id,
        "remote": _without_password(url),
        "base": base,
        "branch": branch,
        "title": title,
        "body": body.strip(),
        "url": web_address(url, base, branch),
    }


def _without_password(url: str) -> str:
    return redact_text(re.sub(r"(?<=://)[^@/]*@", "", url))


def _ensure_pushed(
    plan_id: str, remote: str, unpushed: Sequence[str], confirm: Callable[[str], bool] | None
) -> None:
    """Raise `NeedsHuman` if there are commits of the user that the remote does not have, unless they are
    confirmed.
    """
    if not unpushed:
        return
    count, named = len(unpushed), ", ".join(unpushed[:_MOST_NAMED])
    commits = "1 commit" if count == 1 else f"{count} commits"
    more = ", …" if count > _MOST_NAMED else ""
    include = Remedy("plan.publish", plan_id, {"with_commits": True}, "Push them with the result")
    what = redact_text(f"{remote} does not have {commits} of yours ({named}{more})")
    if confirm is None or not confirm(f"{what}. Push them with the result?"):
        raise NeedsHuman(plan_id, what, (include,))


def _record(container: Container, plan: Plan, facts: dict[str, JsonValue]) -> None:
    from cleveragents.core.event import DomainEvent, EventType
    from cleveragents.storage.outbox import append_to_outbox

    event = DomainEvent(
        EventType.PLAN_PUBLISHED, plan.id, container.identifiers.new(), container.clock.now(), facts
    )
    container.database.write(lambda connection: append_to_outbox(connection, event))


@dataclass(frozen=True, slots=True)
class _Git:
    """git in the user's repository, with the user's credentials. No hook runs."""

    plan_id: str
    root: Path
    directory: Path

    def remote(self, named: str | None, ref: str) -> _Remote:
        """Return the named remote, or that of the current branch, or `origin`. Raises `PlanError`."""
        name = named or self._usual()
        if name is None or name not in self._lines("remote"):
            known = f"no remote {named!r}" if named else "no remote"
            add = f"git remote add {shlex.quote(named or 'origin')} URL"
            raise PlanError(self.plan_id, f"cannot publish: the repository has {known}; run `{add}`")
        default = existing = tip = ""
        # A remote may be fetched from one repository and pushed to another, such as a fork.
        targets = self._lines("remote", "get-url", "--push", "--all", name)
        for line in self._lines("ls-remote", "--symref", targets[0], "HEAD", ref):
            value, _, what = line.partition("\t")
            if value.startswith("ref: refs/heads/") and what == "HEAD":
                default = value.removeprefix("ref: refs/heads/")
            elif what == ref:
                existing = value
            elif what == "HEAD":
                tip = value
        if not default:
            problem = f"cannot publish: {name} has no default branch: its HEAD names no existing branch"
            raise PlanError(self.plan_id, f"{problem}; push that branch, or let its HEAD name another")
        return _Remote(name, self._address(name, targets[0]), default, existing, tip, tuple(targets))

    def _address(self, name: str, target: str) -> str:
        """Return the configured URL of the remote; if it names no host, the URL that git makes of it
        (`insteadOf`).
        """
        configured = self._lines("config", f"remote.{name}.url", succeeds=(0, 1))
        return next((url for url in configured if web_address(url, "", "")), target)

    def _usual(self) -> str | None:
        branch = self._lines("symbolic-ref", "-q", "--short", "HEAD", succeeds=(0, 1))
        asked = ("config", f"branch.{branch[0]}.remote") if branch else ("config", "remote.pushDefault")
        known = self._lines("remote")
        tracked = self._lines(*asked, succeeds=(0, 1))
        candidates = [*tracked, "origin", *(known if len(known) == 1 else [])]
        return next((name for name in candidates if name in known), None)

    def unpushed(self, remote: _Remote, commit: str) -> list[str]:
        """Return the hashes and subjects of the commits before `commit` that the remote does not have, as
        far as this repository knows; newest first.
        """
        known = [f"--remotes={remote.name}", remote.tip]
        if [*remote.targets] != self._lines("remote", "get-url", "--all", remote.name):
            # guard: the branches that were fetched say nothing about the repository that is pushed to
            known = self._heads(remote.targets[0]) if len(remote.targets) == 1 else []
        plain = ("--no-decorate", "--no-show-signature", "--topo-order", "--format=%h %s")
        # Some branches of the remote may not be in this repository.
        return self._lines("log", "--ignore-missing", *plain, "--skip=1", commit, "--not", *known)

    def _heads(self, url: str) -> list[str]:
        """Return the commits of the branches of a repository."""
        return [line.partition("\t")[0] for line in self._lines("ls-remote", "--heads", url)]

    def content(self, commit: str) -> list[str]:
        """Return the tree, the parents, the author and the message of a commit, without times; nothing if
        this repository does not have the commit.
        """
        fields = ("-1", "--no-decorate", "--no-show-signature", "--format=%T%n%P%n%an%n%ae%n%B")
        return self._lines("log", *fields, commit, "--", succeeds=(0, 128))

    def push(self, remote: str, ref: str, commit: str, *, instead_of: str) -> None:
        """Push the commit without tags and submodules, unless the branch has another commit than
        `instead_of`. An empty commit stands for no branch.
        """
        only = ("--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        lease = f"--force-with-lease={ref}:{instead_of}"
        self._lines("push", "--quiet", *only, lease, remote, f"{commit}:{ref}")

    def take_back(self, remote: _Remote, ref: str, commit: str) -> None:
        """Restore the branch as it was before the push of this commit. Raises `PlanError` if the branch
        stays.
        """
        try:
            self.push(remote.name, ref, remote.existing, instead_of=commit)
        except PlanError as error:
            branch = f"the branch {ref.removeprefix('refs/heads/')} of {remote.name}"
            problem = f"the plan changed during the push, but {branch} keeps its earlier result"
            raise PlanError(self.plan_id, f"{problem}: {error.reason}") from None

    def _lines(self, *words: str, succeeds: tuple[int, ...] = (0,)) -> list[str]:
        from cleveragents.git.plumbing import run_git, user_environment, within

        place = {"GIT_DIR": str(self.directory), "GIT_WORK_TREE": str(self.root)}
        try:
            said = run_git(
                *words,
                environment={**user_environment(), **place, "GIT_ALLOW_PROTOCOL": _PROTOCOLS},
                directory=self.root,
                succeeds=succeeds,
                seconds_left=within(_SECONDS),
            )
        except GitFailed as error:
            problem = _without_password(error.problem)
            raise PlanError(self.plan_id, f"cannot publish: git {words[0]} failed: {problem}") from None
        return os.fsdecode(said).splitlines()
