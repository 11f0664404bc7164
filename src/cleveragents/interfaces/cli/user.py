"""`agents user`: who may ask the server, and for what."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from cleveragents.interfaces.cli.output import Output, format_option, progress
from cleveragents.interfaces.cli.session import Session, pass_session
from cleveragents.interfaces.desk.wording import timestamp

if TYPE_CHECKING:
    from cleveragents.domain.json_value import JsonValue
    from cleveragents.domain.user import Token, User

__all__ = ["revoked_in_words", "user"]

_ROLES = ("viewer", "operator", "admin")
_role = click.Choice(_ROLES)


@click.group()
def user() -> None:
    """Add users of the server, give them roles and tokens.

    A viewer sees everything, an operator also makes plans and decides about them, an admin also manages
    users, projects and resources.

    \b
    Example:
      agents user add ada --role operator
      agents user token ada --label laptop
    """


@user.command("add")
@click.argument("name")
@click.option("--role", type=_role, default="viewer", show_default=True, help="What they may do.")
@format_option
@pass_session
def add_user(session: Session, name: str, role: str, output: Output) -> None:
    """Add a user, who can log in once there is a token.

    \b
    Example:
      agents user add ada --role operator
    """
    from cleveragents.domain.user import Role

    container = session.container()
    added = container.users.add(name, Role(role), now=container.clock.now())
    output.record(_fields(added))
    progress(f"`agents user token {name}` makes a token for them")


@user.command("list")
@format_option
@pass_session
def list_users(session: Session, output: Output) -> None:
    """List users, and how many tokens each has.

    \b
    Example:
      agents user list --format json
    """
    users = session.container().users
    rows = [{**_fields(found), "tokens": len(users.tokens_of(found.name))} for found in users.list()]
    output.table(rows, ["name", "role", "tokens", "created"], empty="there are no users yet")


@user.command("remove")
@click.argument("name")
@pass_session
def remove_user(session: Session, name: str) -> None:
    """Remove a user with all tokens and logins; the last admin cannot be removed.

    \b
    Example:
      agents user remove ada
    """
    container = session.container()
    container.users.remove(name, now=container.clock.now())
    progress(f"{name} was removed; their tokens are worthless from now on")


@user.command("role")
@click.argument("name")
@click.argument("role", type=_role)
@format_option
@pass_session
def change_role(session: Session, name: str, role: str, output: Output) -> None:
    """Give a user another role, which holds from the next request on.

    \b
    Example:
      agents user role ada admin
    """
    from cleveragents.domain.user import Role

    container = session.container()
    output.record(_fields(container.users.set_role(name, Role(role), now=container.clock.now())))


@user.command("token")
@click.argument("name")
@click.option("--label", default="", help="What it is for, so that you know it again.")
@click.option("--days", type=click.IntRange(1, 3650), help="How long it is good; else for ever.")
@click.option("--list", "listing", is_flag=True, help="Show what is known of their tokens and logins.")
@click.option("--revoke", metavar="ID", help="Make this token of theirs, and those made with it, worthless.")
@click.option("--alone", is_flag=True, help="With --revoke: those that were made with it stay.")
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
    """Make a token for a user, and print it once.

    Only a digest of it is kept. Whoever has the token can ask the server what the user may. One that is made
    with another, as through a server, is revoked with that.

    \b
    Example:
      agents user token ada --label laptop
      agents user token ada --list
      agents user token ada --revoke 01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C
    """
    if listing and revoke:
        raise click.UsageError("--list shows, --revoke takes away; say one of them")
    if alone and not revoke:
        raise click.UsageError("--alone belongs to --revoke")
    if listing:
        rows = [_token_fields(found) for found in session.container().users.tokens_of(name)]
        columns = ["id", "kind", "label", "created", "expires"]
        output.table(rows, columns, empty=f"{name} has no tokens", cut=["label"])
    elif revoke:
        _revoke(session, name, revoke, alone)
    else:
        _issue(session, name, label, days, output)


def _issue(session: Session, name: str, label: str, days: int | None, output: Output) -> None:
    from cleveragents.domain.user import TokenKind

    container = session.container()
    now = container.clock.now()
    expires = None if days is None else now + timedelta(days=days)
    made, secret = container.users.issue(name, TokenKind.PROGRAM, label, now=now, expires_at=expires)
    if output.for_programs:
        output.record({**_token_fields(made), "token": secret})
        return
    click.echo(secret)
    progress(f"this is the only time that it is shown; `--revoke {made.id}` makes it worthless")


def _revoke(session: Session, name: str, token_id: str, alone: bool) -> None:
    from cleveragents.errors import UnknownUser

    container = session.container()
    if not any(found.id == token_id for found in container.users.tokens_of(name)):
        raise UnknownUser(token_id)
    container.users.revoke(token_id, now=container.clock.now(), alone=alone)
    progress(revoked_in_words(name, token_id, alone=alone))


def revoked_in_words(name: str, token_id: str, *, alone: bool) -> str:
    """What a revoked token means for others."""
    others = "those that were made with it stay" if alone else "so are those that were made with it, if any"
    return f"token {token_id} of {name} is worthless from now on; {others}"


def _fields(found: User) -> dict[str, JsonValue]:
    return {"name": found.name, "role": found.role.value, "created": timestamp(found.created_at)}


def _token_fields(found: Token) -> dict[str, JsonValue]:
    return {
        "id": found.id,
        "kind": found.kind.value,
        "label": found.label,
        "created": timestamp(found.created_at),
        "expires": None if found.expires_at is None else timestamp(found.expires_at),
        "made_with": found.made_with,
    }
