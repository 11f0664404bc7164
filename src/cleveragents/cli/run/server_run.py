"""`agents run` through a server: the server runs the plans, and this command follows and reviews them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.cli.output import progress
from cleveragents.cli.plan.follow import PlansFollower, current_position, on_server
from cleveragents.cli.plan.view import printed_at_end
from cleveragents.cli.plan.work import decide, work_on
from cleveragents.cli.render.narrow_terminal import steps_in_lines
from cleveragents.cli.run.batch import print_outcomes
from cleveragents.cli.run.server_resources import resource_here
from cleveragents.core.actions.arguments import Argument, ArgumentType, parsed
from cleveragents.core.errors import CleverAgentsError, ConfigurationError
from cleveragents.core.json_value import freeze, thaw
from cleveragents.models.model.budget import PICODOLLARS

if TYPE_CHECKING:
    from cleveragents.api.actions import ArgumentView
    from cleveragents.api.client import Client, HttpClient
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.api.plans.views import PlanView
    from cleveragents.cli.plan.work import WorkOptions
    from cleveragents.cli.run.plans import RunOptions

__all__ = ["given_arguments", "run_on_server", "run_together"]


def run_on_server(client: HttpClient, wanted: PlanSpec, handling: RunOptions, deciding: WorkOptions) -> None:
    """Create and run the plans on the server. Exits as `agents run` documents."""
    from cleveragents.cli.run.goals_file import read_goals, text_of

    file, typed = handling.file, handling.typed
    goals = read_goals(file, typed) if file is not None and handling.one_by_one else None
    place = resource_here(client, deciding.prefix, handling.resource)
    base = _request(wanted, handling, place)
    if goals is not None:
        _run_many(client, deciding, [replace(base, goal=goal) for goal in goals], handling)
        return
    if file is not None:
        request = replace(base, goal=None, goals=text_of(file) if typed is None else typed)
    else:
        request = _with_action(client, base, wanted)
    after = current_position(client)
    try:
        plan = client.plans.create(replace(request, max_parallel=handling.parallel))
    except KeyboardInterrupt:
        progress(f"the server may have created the plan; see `{deciding.prefix} plan list`")
        raise
    if handling.background:
        _tell_started(client, deciding, [plan])
        return
    with printed_at_end(deciding.client, deciding.output, plan.id) as told:
        told.plan = decide(deciding, work_on(deciding, plan, after=after))


def _request(wanted: PlanSpec, handling: RunOptions, place: str) -> PlanRequest:
    """Return the request fields that all plans of the command share."""
    limits = wanted.limits
    usd = None if limits.picodollars is None else limits.picodollars / PICODOLLARS
    # With a commit message, the result is applied when the message is sent, not before.
    left = handling.only_review or handling.message is not None
    named, sent = _who(wanted.actor)
    return PlanRequest(
        goal="",
        resource=place,
        actor=named,
        actor_yaml=sent,
        model=wanted.model,
        profile=wanted.profile,
        checks=wanted.checks,
        invariants=wanted.invariants,
        limits=Limits(usd=usd, tokens=limits.tokens, steps=limits.steps, seconds=limits.seconds),
        to_branch=handling.to_branch,
        start="HEAD" if wanted.from_head else "tree",
        apply="review" if left else "auto" if handling.yes else None,
    )


def _who(actor: str | None) -> tuple[str | None, str | None]:
    """Return the name of an actor of the server and None, or None and the content of a local actor file with
    its prompts.
    """
    if actor is None or not is_actor_file(actor):
        return actor, None
    from cleveragents.api.actors import own_text
    from cleveragents.cli.yaml_input import yaml_content

    yaml_content(Path(actor))  # reports an unreadable file as everywhere
    try:
        return None, own_text(Path(actor))
    except ValueError as problem:  # of a prompt file, or of content that is not text
        raise ConfigurationError(actor, str(problem)) from None


def _with_action(client: Client, base: PlanRequest, wanted: PlanSpec) -> PlanRequest:
    if wanted.action is not None:
        found = client.actions.get(wanted.action, resource=base.resource)
        arguments = given_arguments(wanted.action, found.arguments, wanted.pairs, wanted.words)
        return replace(base, action=wanted.action, arguments=arguments, goal=wanted.goal)
    if wanted.pairs:
        raise click.UsageError("--arg needs --action; without an action, write the details in the goal")
    goal = " ".join(wanted.words).strip()
    if not goal:
        raise click.UsageError('missing goal; pass one: `agents run "Add a --json flag to the export"`')
    return replace(base, goal=goal)


def given_arguments(
    action: str, described: Sequence[ArgumentView], pairs: Sequence[str], rest: Sequence[str]
) -> dict[str, object]:
    """Return the given arguments of an action, as the server describes them. Raises `InvalidArguments`.

    Defaults are not included: the server sends them masked, and a masked value must not be sent back. The
    server adds its defaults itself.
    """
    known = [
        Argument(
            name=one.name,
            type=ArgumentType(one.type),
            default=None if one.required else freeze(one.default),
            description=one.description,
            rest=one.rest,
        )
        for one in described
    ]
    values = parsed(action, known, pairs, rest)
    usual = {argument.name: argument.default for argument in known}
    return {name: thaw(value) for name, value in values.items() if value != usual[name]}


def _run_many(
    client: HttpClient, deciding: WorkOptions, requests: Sequence[PlanRequest], handling: RunOptions
) -> None:
    if not handling.background:
        run_together(client, deciding, requests)
        return
    if handling.parallel is not None:
        said = "--parallel cannot be combined with --background; omit one of them"
        limit = "to limit how many plans of a project run at once, use `agents project add --max-parallel`"
        raise click.UsageError(f"{said}; {limit}")
    made: list[PlanView] = []
    try:
        made.extend(client.plans.create(request) for request in requests)
    finally:
        if made:  # guard: created plans continue, whatever happens to the next one
            _tell_started(client, deciding, made)


def run_together(client: Client, deciding: WorkOptions, requests: Sequence[PlanRequest]) -> None:
    """Run all plans on the server, with the requested concurrency limit, and print the outcome of each. No
    question is asked: plans that need a person come to rest. Exits as a local `agents run -f` does.
    """
    waiting, made = deque(requests), list[str]()
    hint = "Ctrl-C pauses them all"
    following = PlansFollower(
        client, [], deciding.output, after=current_position(client), alone=False, hint=hint
    )

    def begin_next() -> None:
        if waiting:
            plan = client.plans.create(waiting.popleft())
            made.append(plan.id)
            following.add(plan)

    interrupted = False
    try:
        try:
            for _ in range(deciding.parallel or len(requests)):
                begin_next()
            plans = following.to_rest(rested=begin_next)
        except KeyboardInterrupt:
            interrupted = True
            plans = following.stopped(deciding.prefix)
    except (CleverAgentsError, click.ClickException):
        following.close()
        for plan_id in made:  # guard: created plans continue, whatever happens to the next one
            progress(on_server(plan_id, deciding.prefix))
        raise
    finally:
        following.close()
    print_outcomes(deciding, plans, interrupted=interrupted)


def _tell_started(client: HttpClient, deciding: WorkOptions, plans: Sequence[PlanView]) -> None:
    url, told = client.http.url, []
    for plan in plans:
        progress(f"plan {plan.id} runs on {url}")
        row = {"plan": plan.id, "goal": plan.goal, "status": plan.status.value, "server": url}
        more = {"id": plan.id, "state": plan.state.value} if deciding.output.machine_readable else {}
        told.append({**more, **row})
    named = plans[0].id if len(plans) == 1 else "PLAN"
    said = (("watch", "follow the plan"), ("show", "show the plan"), ("cancel", "cancel the plan"))
    steps = [(f"{deciding.prefix} plan {step} {named}", what) for step, what in said]
    if deciding.message is not None:
        progress("the result is not applied automatically: apply and commit it with `plan apply --commit`")
    for line in steps_in_lines(steps, sys.stderr):
        progress(line)
    if len(told) == 1:
        deciding.output.record(told[0])
    else:
        deciding.output.table(told, ["plan", "status", "goal"], empty="", cut=["goal"])
