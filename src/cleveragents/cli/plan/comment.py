"""`agents plan comment|comments|revise`: comment on a result and request changes."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.plan.choose import chosen_plan, optional_plan
from cleveragents.cli.plan.view import plan_argument
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.plans.model.comment import CommentState

if TYPE_CHECKING:
    from cleveragents.api.plans.client import Plans, Side
    from cleveragents.api.plans.detail_views import CommentView
    from cleveragents.api.plans.views import PlanView

__all__ = ["comment_lines", "comment_on_plan", "comments_of_plan", "revise_plan"]

_PLACE = re.compile(r"(?P<path>.+?):(?P<line>[0-9]{1,9})(?:-(?P<end>[0-9]{1,9}))?", re.DOTALL)
_QUOTED = 5
_STATES = [state.value for state in CommentState]


@click.command("comment")
@plan_argument
@click.argument("words", nargs=-1, metavar="[PATH:LINE] TEXT")
@click.option("--old", is_flag=True, help="PATH:LINE refers to the file before the change, as in the diff.")
@click.option("--resolve", type=click.IntRange(min=1), metavar="N", help="Resolve comment N.")
@click.option("--decline", type=click.IntRange(min=1), metavar="N", help="Decline comment N.")
@click.option("--reopen", type=click.IntRange(min=1), metavar="N", help="Reopen comment N.")
@format_option
@pass_session
def comment_on_plan(
    session: Session,
    plan_id: str,
    words: tuple[str, ...],
    old: bool,
    resolve: int | None,
    decline: int | None,
    reopen: int | None,
    output: Output,
) -> None:
    """Comment on a plan, or on lines of its result.

    PATH:LINE, or PATH:START-END, names lines of a changed file as the result has them; with --old, as the
    file was before the plan, for lines that the plan removed. The command prints these lines. If the file
    changes later, the comment follows its lines if they are found unchanged at exactly one place; otherwise
    it is outdated and keeps the original lines. TEXT - is read from stdin. The agent gets the comments with
    `agents plan revise PLAN`. With --resolve, --decline or --reopen, TEXT is the reason and may be omitted.

    \b
    Example:
      agents plan comment 7QX2 "Also update the changelog"
      agents plan comment 7QX2 src/export.py:12-14 "Raise ValueError instead"
      agents plan comment 7QX2 --old src/export.py:30 "Why was this check removed?"
      agents plan comment 7QX2 --resolve 2 "Fixed by hand"
    """
    chosen = {CommentState.RESOLVED: resolve, CommentState.DECLINED: decline, CommentState.OPEN: reopen}
    answers = [(state, number) for state, number in chosen.items() if number is not None]
    if len(answers) > 1:
        raise click.UsageError("--resolve, --decline and --reopen exclude each other")
    plans = session.client().plans
    if answers:
        ((state, number),) = answers
        if len(words) > 1:
            raise click.UsageError(f"too many arguments; put the reason in quotes: {printable(words[1])!r}")
        reason = _text(words[0]) if words else ""
        shown = plans.answer_comment(plan_id, number, state, reason=reason)
        progress(f"comment {shown.number}: {shown.state.value}")
    else:
        shown = _added(plans, plan_id, words, "before" if old else "after")
        place = f" on {shown.place}" if shown.path else ""
        send = f"; send it to the agent with `{prefix_of(session)} plan revise {plan_id}`"
        progress(f"comment {shown.number}{place}{send if 'revise' in plans.get(plan_id).can else ''}")
        for line in shown.lines[:_QUOTED]:
            progress(f"  > {line}")
        if len(shown.lines) > _QUOTED:
            progress(f"  … {counted(len(shown.lines) - _QUOTED, 'more line')}")
    if output.machine_readable:
        from cleveragents.api.views import as_json

        output.record(as_json(shown))


@click.command("comments")
@optional_plan
@click.option("--state", type=click.Choice(_STATES), help="Only comments in this state.")
@format_option
@pass_session
def comments_of_plan(session: Session, plan_id: str | None, state: str | None, output: Output) -> None:
    """List the comments on a plan, with their answers.

    An outdated comment is shown with the lines that it was made on.

    \b
    Example:
      agents plan comments 7QX2
      agents plan comments 7QX2 --state open
    """
    from cleveragents.api.views import as_json, every

    client = session.client()
    plans, plan_id = client.plans, chosen_plan(client, plan_id, "comments")
    found = [
        one
        for one in every(lambda after: plans.comments(plan_id, after=after))
        if state in (None, one.state.value)
    ]
    if output.machine_readable or not found:
        which = "" if state is None else f"{state} "
        output.table([as_json(one) for one in found], [], empty=f"no {which}comments")
        return
    for comment in found:
        heading, *lines = comment_lines(comment)
        output.title(heading)
        for line in lines:
            click.echo(line)


@click.command("revise")
@optional_plan
@click.option(
    "-m", "--message", metavar="TEXT", default="", help="Text for the agent; - reads it from stdin."
)
@click.option("--model", metavar="PROVIDER/NAME", help="Continue with another model.")
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@format_option
@pass_session
def revise_plan(
    session: Session, plan_id: str | None, message: str, model: str | None, yes: bool, output: Output
) -> None:
    """Request changes: send all open comments to the agent.

    The agent continues in the same sandbox, changes the result, and answers each comment: resolved or
    declined, with a reason. A comment without an answer stays open. Comments that are added while the agent
    works belong to the next revision.

    \b
    Example:
      agents plan revise 7QX2
      agents plan revise 7QX2 -m "Keep the public API as it is"
    """
    from cleveragents.cli.plan.work import WorkOptions, continue_plan

    client = session.client()
    plans = client.plans
    plan = plans.get(chosen_plan(client, plan_id, "revise"))
    count = plan.open_comments

    def tell(revised: PlanView) -> None:
        what = counted(count, "comment") if count else "the message"
        progress(f"revision {revised.corrections[-1].number} of plan {revised.id}: {what} sent to the agent")

    def act() -> PlanView:
        return plans.revise(plan.id, _text(message) if message else "", model=model)

    continue_plan(WorkOptions(client, prefix_of(session), output, yes=yes), plan, act, tell=tell)


def _added(plans: Plans, plan_id: str, words: tuple[str, ...], side: Side) -> CommentView:
    if not words:
        raise click.UsageError("missing TEXT; list the comments with `agents plan comments PLAN`")
    if len(words) == 1:
        if _PLACE.fullmatch(words[0]) and not any(map(str.isspace, words[0])):
            raise click.UsageError(f"missing TEXT after {printable(words[0])}")
        if side == "before":
            raise click.UsageError("--old needs PATH:LINE and TEXT")
        return plans.comment(plan_id, _text(words[0]))
    place, *texts = words
    named = _PLACE.fullmatch(place)
    if named is None or len(texts) > 1:
        raise click.UsageError(
            f"pass TEXT, or PATH:LINE and TEXT in quotes; {printable(place)!r} is not PATH:LINE"
            if named is None
            else "too many arguments; put TEXT in quotes"
        )
    line, end = int(named["line"]), named["end"]
    last = None if end is None else int(end)
    return plans.comment(plan_id, _text(texts[0]), path=named["path"], line=line, end_line=last, side=side)


def _text(word: str) -> str:
    return sys.stdin.read() if word == "-" else word


def comment_lines(comment: CommentView) -> list[str]:
    """Return a comment as lines without control characters: its heading, the commented lines, the text and
    the answers.
    """
    place = comment.place or "the plan"
    outdated = ", outdated" if comment.outdated else ""
    lines = [f"{comment.number}. {comment.state.value}{outdated}: {place}, by {comment.author}"]
    lines += [f"  > {line}" for line in comment.lines]
    lines += [f"  {line}" for line in comment.text.split("\n")]
    for answer in comment.answers:
        call = "" if answer.call is None else f" (call {answer.call})"
        reason = f": {answer.reason}" if answer.reason else ""
        lines.append(f"  {answer.state.value} by {answer.author}{call}{reason}")
    return [printable(line) for line in lines]
