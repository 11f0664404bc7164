"""Whether a commit can be made at all, found out before anything else is done.

The apply itself looks again, with the repository held. But whoever asks for a commit that their git will not
make should hear of it before a command of an hour, not after.
"""

from __future__ import annotations

from pathlib import Path

from cleveragents.access.model.remote import new_branch, remote_of
from cleveragents.core.errors import ConfigurationError, RequestRefused
from cleveragents.plans.model.plan import Plan

__all__ = ["ensure_can_be_asked", "ensure_can_commit", "ensure_new_branch"]

_ASKED = "--commit"
_NO_PLAN = "0" * 26


def ensure_can_be_asked(plan: Plan, message: str | None, to_branch: str | None) -> None:
    """Of an apply or undo of the plan; errors as `ensure_can_commit` and `ensure_new_branch`."""
    remote = remote_of(plan.resource) is not None
    if to_branch is not None:
        ensure_new_branch(to_branch, remote=remote)
    if message is not None and not remote:
        ensure_can_commit(Path(plan.resource))


def ensure_new_branch(to_branch: str, *, remote: bool) -> None:
    """`RequestRefused` where results are not pushed; `InvalidName`."""
    if not remote:
        problem = "only results of plans on git remotes are pushed to branches; leave it out"
        raise RequestRefused(problem, "to_branch")
    new_branch(to_branch, _NO_PLAN)


def ensure_can_commit(root: Path) -> None:
    """`ConfigurationError`, with what to do about it, unless git would make a commit for the user there."""
    from cleveragents.apply.presence import git_directory_of
    from cleveragents.apply.user_git import UserGit
    from cleveragents.sandboxes.resources import is_repository

    directory = git_directory_of(root) if is_repository(root) else None
    if directory is None:
        raise ConfigurationError(_ASKED, f"{root} is not a git repository, so there is nothing to commit to")
    user = UserGit(directory, root)
    if not user.has_identity():
        remedy = "`git config --global user.name NAME` and `git config --global user.email ADDRESS` tell it"
        raise ConfigurationError(_ASKED, f"git does not know who you are; {remedy}")
    if user.signs_commits():
        remedy = "apply it without a commit, then commit it yourself"
        raise ConfigurationError(_ASKED, f"commit.gpgSign is set, and only your own git signs; {remedy}")
