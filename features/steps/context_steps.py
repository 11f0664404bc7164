"""Steps for the context pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from behave import given, then, when

from cleveragents.context.model.context import StrategyStatus
from cleveragents.core.errors import QuestionRefused, SourceMissing
from cleveragents.models.tokens import estimate_text
from cleveragents.testing.code_index import FakeCodeIndex
from tests.context_world import (
    ROOT,
    TEXTS,
    Found,
    HostileIndex,
    World,
    answered,
    finding,
    fragment,
    part_misdeeds,
    query,
    strategy_misdeeds,
)

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def prepare(context: Any, index: Any = None) -> None:
    context.world = World()
    context.index = index or FakeCodeIndex(TEXTS)
    context.strategies = {}
    context.loads = {}
    context.add_cleanup(context.world.close)


def ask(context: Any, **options: Any) -> Any:
    pipeline = context.world.pipeline(context.strategies, index=context.index, loads=context.loads)
    return pipeline.ask(query(**options))


@given("a repository for the context pipeline")
def a_repository(context: Any) -> None:
    prepare(context)


@given("a repository for the context pipeline whose index cannot be opened")
def a_broken_index(context: Any) -> None:
    prepare(context)
    context.index = HostileIndex(context.world, "open raises")


@given('a repository for the context pipeline with a secret in "{path}"')
def a_secret(context: Any, path: str) -> None:
    prepare(context, FakeCodeIndex({**TEXTS, path: f"TOKEN = '{SECRET}'\n"}))


@given("a repository for the context pipeline that is not there")
def no_repository(context: Any) -> None:
    prepare(context, FakeCodeIndex(TEXTS, missing=[Path(ROOT.root)]))


@given('a strategy of the context pipeline "{name}" that finds "{path}"')
def a_good_strategy(context: Any, name: str, path: str) -> None:
    context.strategies[name] = finding(fragment(path))


@given('a strategy of the context pipeline "{name}" that finds "{path}" in the code')
def a_strategy_that_looks(context: Any, name: str, path: str) -> None:
    def make(ground: Any) -> Found:
        return Found(name, lambda: [fragment(path)] if len(ground.code.chunks.lengths) else [])

    context.strategies[name] = make


@given('a strategy of the context pipeline "{name}" that raises')
@given('a strategy of the context pipeline "{name}" that hangs')
@given('a strategy of the context pipeline "{name}" that gives garbage')
def a_bad_strategy(context: Any, name: str) -> None:
    kinds = {"broken": "raises", "hung": "hangs", "liar": "things"}
    context.strategies[name] = strategy_misdeeds(context.world)[kinds[name]]


@given("the packer of the context pipeline is replaced by one that raises")
def a_bad_packer(context: Any) -> None:
    context.loads["packer"] = part_misdeeds(context.world)["raises"]


@when("the context pipeline is asked with a budget of {tokens:d} tokens")
def asked(context: Any, tokens: int) -> None:
    context.answer = answered(lambda: ask(context, budget_tokens=tokens), context.world)


@when("the context pipeline is asked {times:d} times")
def asked_often(context: Any, times: int) -> None:
    for _ in range(times):
        context.answer = ask(context)


@when("the context pipeline is asked about another repository")
def asked_elsewhere(context: Any) -> None:
    context.index = FakeCodeIndex(TEXTS)
    context.answer = ask(context)


@when("the context pipeline is asked again after the breaker has cooled down")
def asked_later(context: Any) -> None:
    context.world.clock.advance(31)
    context.answer = ask(context)


@then('the context answer shows "{text}"')
def shows(context: Any, text: str) -> None:
    assert text in context.answer.text


@then("the context answer does not show the secret")
def hides(context: Any) -> None:
    assert SECRET not in repr(context.answer)


@then("the context answer takes at most {tokens:d} tokens")
def takes(context: Any, tokens: int) -> None:
    assert estimate_text(context.answer.text) <= tokens


@then("the context answer came while what hangs still hangs")
def came(context: Any) -> None:
    assert context.world.hanging.is_set()


@then('the context answer says that "{name}" was {status}')
def told(context: Any, name: str, status: str) -> None:
    statuses = {one.name: one.status for one in context.answer.strategies}
    assert statuses[name] is StrategyStatus(status)


@then('the context answer says that "{name}" found "{path}"')
def found_by(context: Any, name: str, path: str) -> None:
    findings = {one.place.path: one.place.findings for one in context.answer.fragments}
    assert name in {one.strategy for one in findings[path]}


@then('the context answer notes "{note}"')
def notes(context: Any, note: str) -> None:
    assert any(note in one for one in context.answer.notes)


@then("asking the context pipeline is refused")
def missing(context: Any) -> None:
    try:
        ask(context)
    except SourceMissing:
        return
    raise AssertionError("it answered")


@then("asking the context pipeline nothing is refused")
def nothing(context: Any) -> None:
    try:
        query("  ")
    except QuestionRefused:
        return
    raise AssertionError("it took the question")
