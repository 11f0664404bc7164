"""`agents user`: users of the server, their roles and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.users import Users, UserView
    from cleveragents.core.json_value import JsonValue

__all__ = ["user"]

_ROLES = ("viewer", "operator", "admin")
_role = click.Choice(_ROLES)
_PAGE = 1000


@click.group()
def user() -> None:
    """Manage users of the server, their roles and tokens.

    A role applies to a project: a viewer reads, an operator also works with plans, an admin also manages the
    members. A server admin may act in every project and manages users, projects, resources and trust. Give
    a user a role in another project with `agents project add-member`.

    \b
    Example:
      agents user add ada --role operator
      agents user token ada --label laptop
    """


@user.command("add")
@click.argument("name")
@click.option(
    "--role",
    type=_role,
    default="viewer",
    show_default=True,
    help="Role in the project. For admin, see above.",
)
@click.option("--project", metavar="NAME", help="Project of the user. Default: `default`.")
@format_option
@pass_session
def add_user(session: Session, name: str, role: str, project: str | None, output: Output) -> None:
    """Add a user. To log in, the user needs a token.

    The user becomes a member of the project with this role. `--role admin` without `--project` adds a server
    admin.

    \b
    Example:
      agents user add ada --role operator
      agents user add bob --role admin --project shop
    """
    from cleveragents.access.model.user import Role
    from cleveragents.cli.servers import prefix_of

    added = session.client().users.add(name, Role(role), project=project)
    output.record(_fields(added, output))
    progress(f"create a token with `{prefix_of(session)} user token {name}`")


@user.command("list")
@format_option
@pass_session
def list_users(session: Session, output: Output) -> None:
    """List users and their number of tokens.

    \b
    Example:
      agents user list --format json
    """
    from cleveragents.api.views import every

    users = session.client().users
    known = every(lambda after: users.list(limit=_PAGE, after=after))
    rows = [{**_fields(found, output), "tokens": len(_tokens(users, found.name))} for found in known]
    output.table(rows, ["name", "role", "projects", "tokens", "created"], empty="no users yet")


@user.command("remove")
@click.argument("name")
@pass_session
def remove_user(session: Session, name: str) -> None:
    """Remove a user with all tokens and logins; the last admin cannot be removed.

    \b
    Example:
      agents user remove ada
    """
    session.client().users.remove(name)
    progress(f"removed {name} and all of their tokens")


@user.command("role")
@click.argument("name")
@click.argument("role", type=_role)
@format_option
@pass_session
def change_role(session: Session, name: str, role: str, output: Output) -> None:
    """Change the role of a user. Takes effect with the next request.

    `admin` makes the user a server admin. Any other role applies to all projects of the user, who is then no
    server admin. Change the role in one project with `agents project add-member`.

    \b
    Example:
      agents user role ada admin
    """
    from cleveragents.access.model.user import Role

    output.record(_fields(session.client().users.set_role(name, Role(role)), output))


@user.command("token")
@click.argument("name")
@click.option("--label", default="", help="Purpose of the token, for lists.")
@click.option("--days", type=click.IntRange(1, 3650), help="Lifetime in days. Default: unlimited.")
@click.option("--list", "listing", is_flag=True, help="List the tokens and logins of the user.")
@click.option("--revoke", metavar="ID", help="Revoke this token, and tokens created with it.")
@click.option("--alone", is_flag=True, help="With --revoke: keep tokens created with it.")
@format_option
@pass_session
def token(
    session: Session,
    name: str,
    label: str,
    days: int | None,
    listing: bool,
    revoke: str | None,
    alone: bool,
    output: Output,
) -> None:
    """Create a token for a user, and print it once.

    Only a digest is stored. The token gives all permissions of the user. A token that was created with
    another token, as through a server, is revoked together with it.

    \b
    Example:
      agents user token ada --label laptop
      agents user token ada --list
      agents user token ada --revoke 01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C
    """
    if listing and revoke:
        raise click.UsageError("pass --list or --revoke, not both")
    if alone and not revoke:
        raise click.UsageError("--alone needs --revoke")
    users = session.client().users
    if listing:
        columns = ["id", "kind", "label", "created", "expires"]
        output.table(_tokens(users, name), columns, empty=f"{name} has no tokens", cut=["label"])
    elif revoke:
        _revoke(users, name, revoke, alone)
    else:
        _issue(users, name, label, days, output)


def _tokens(users: Users, name: str) -> list[dict[str, JsonValue]]:
    from cleveragents.api.views import as_json, every

    return [as_json(one) for one in every(lambda after: users.tokens(name, limit=_PAGE, after=after))]


def _issue(users: Users, name: str, label: str, days: int | None, output: Output) -> None:
    from cleveragents.api.views import as_json

    made = users.issue_token(name, label=label, days=days)
    if output.machine_readable:
        output.record(as_json(made))
        return
    click.echo(made.token)
    progress(f"the token is shown only once; revoke it with `--revoke {made.id}`")


def _revoke(users: Users, name: str, token_id: str, alone: bool) -> None:
    from cleveragents.core.errors import UnknownUser

    if not any(found["id"] == token_id for found in _tokens(users, name)):  # guard: only tokens of this user
        raise UnknownUser(token_id)
    users.revoke_token(token_id, alone=alone)
    others = "; tokens created with it stay valid" if alone else " and all tokens created with it"
    progress(f"revoked token {token_id} of {name}{others}")


def _fields(found: UserView, output: Output) -> dict[str, JsonValue]:
    """Return the row of a user; for people, the projects on one line."""
    from cleveragents.api.views import as_json

    fields = as_json(found)
    if not output.machine_readable:
        fields["projects"] = ", ".join(f"{name} ({role})" for name, role in fields["projects"].items())
    return {name: fields[name] for name in ("name", "role", "projects", "created")}
