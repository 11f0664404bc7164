"""`agents policy`: rules that approve commands in advance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.rules import RuleView

__all__ = ["policy"]

_PAGE = 1000


@click.group()
def policy() -> None:
    """List, add and revoke rules that approve commands in advance.

    A command that matches a rule runs without approval, if it is isolated. Without isolation it still asks. A
    rule approves nothing that the profile denies.

    \b
    Example:
      agents policy allow "pytest *"
      agents policy list
      agents policy revoke 7QX2
    """


@policy.command("list")
@click.option("--project", metavar="NAME", help="Only rules of this project.")
@format_option
@pass_session
def list_rules(session: Session, project: str | None, output: Output) -> None:
    """List the rules, oldest first, with the place where each applies.

    \b
    Example:
      agents policy list
      agents policy list --project shop --format json
    """
    from cleveragents.api.access import OWNER
    from cleveragents.api.views import as_json, every
    from cleveragents.cli.servers import prefix_of

    rules = session.client().rules
    found = every(lambda after: rules.list(project=project, limit=_PAGE, after=after))
    rows = [{**as_json(one), "applies_to": _place(one)} for one in found]
    if not output.machine_readable:  # for programs, null is the owner of the machine
        rows = [{**row, "by": row["by"] or OWNER} for row in rows]
    empty = f"no rules; add one with `{prefix_of(session)} policy allow COMMAND`"
    output.table(rows, ["id", "pattern", "applies_to", "by", "created"], empty=empty)


@policy.command("allow")
@click.argument("pattern")
@click.option("--resource", metavar="NAME", help="For the project of this resource of a server.")
@click.option("--project", metavar="NAME", help="For all repositories of this project.")
@format_option
@pass_session
def allow_rule(
    session: Session, pattern: str, resource: str | None, project: str | None, output: Output
) -> None:
    """Let commands that match PATTERN run without approval, if they are isolated.

    PATTERN is a command line. A `*` at its end, after a space, stands for any further arguments; without it,
    only exactly this command matches. Commands with pipes, redirections, variables or other special
    characters of a shell match no rule. A pattern that would allow anything, such as `sh *`, is refused.

    The rule applies to the repository around the current directory, in plans of this machine. With --resource
    or --project, it applies to a project.

    \b
    Example:
      agents policy allow "pytest *"
      agents policy allow "git status *"
      agents policy allow "npm run test" --project shop
    """
    from cleveragents.api.views import as_json

    if resource is not None and project is not None:
        raise click.UsageError("pass --resource or --project, not both")
    here = Path.cwd() if resource is None and project is None else resource
    added = session.client().rules.allow(pattern, resource=here, project=project)
    progress(f"allowed without approval, if isolated: `{added.pattern}` in {_place(added)}")
    output.record(as_json(added))


@policy.command("revoke")
@click.argument("rule_id", metavar="ID")
@pass_session
def revoke_rule(session: Session, rule_id: str) -> None:
    """Revoke the rule with this ID, or an unambiguous end of it: the next matching command asks again.

    \b
    Example:
      agents policy revoke 7QX2
    """
    session.client().rules.revoke(rule_id)
    progress(f"revoked rule {rule_id}")


def _place(rule: RuleView) -> str:
    """Return the scope of the rule as text."""
    if rule.plan is not None:
        return f"plan {rule.plan}"
    return f"project {rule.project}" if rule.repository is None else rule.repository
