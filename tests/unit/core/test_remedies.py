"""Remedies: data that an error carries through pickling, facts and JSON."""

from __future__ import annotations

import json
import pickle

import pytest

from cleveragents.core.errors import (
    ActorAsks,
    BudgetExhausted,
    CleverAgentsError,
    ConfigurationError,
    ConversationBudgetExhausted,
    NeedsHuman,
    NotTrusted,
    PlanError,
    PriceUnknown,
    Remedy,
    RequestRefused,
    StalePlan,
    UnknownPlan,
    remedies_from_json,
    remedies_record,
    remedies_to_json,
)
from cleveragents.core.errors.facts import error_from_facts, facts_of
from cleveragents.core.errors.families import code_of

RESUME = Remedy("plan.resume", "01A", {"limits.usd": 0.02, "model": None}, "Resume it")
ERRORS = [
    UnknownPlan("x"),
    NotTrusted("a hook", "/r/.hook"),
    PriceUnknown("a/b"),
    BudgetExhausted("01A", "too little", "usd", 0.02),
    ConversationBudgetExhausted("01A", "too little", "usd", 0.02),
    StalePlan("01A", 3),
    PlanError("01A", "it failed", (RESUME,)),
    NeedsHuman("01A", "it asks", (RESUME, Remedy("plan.cancel", "01A"))),
    ActorAsks("01A", "red or blue?", (RESUME,), "q1", ("red", "blue")),
    RequestRefused("no goal", None, (RESUME,)),
    ConfigurationError("a.toml", "wrong"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_remedies_survive_pickling_and_http(error: CleverAgentsError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    facts = json.loads(json.dumps(facts_of(error)))
    sent = remedies_from_json(json.loads(json.dumps(remedies_to_json(error.remedies))))
    rebuilt = error_from_facts(code_of(error), facts, sent)
    assert rebuilt is not None
    for other in (copied, rebuilt):
        assert (type(other), str(other), other.remedies) == (type(error), str(error), error.remedies)
    assert "remedies" not in facts


def test_a_remedy_names_the_operation_and_its_subject() -> None:
    assert UnknownPlan("x").remedies == (Remedy("plan.list", text="List the plans"),)
    (raised,) = BudgetExhausted("01A", "too little", "usd", 0.02).remedies
    assert (raised.action, raised.plan, raised.options) == ("plan.resume", "01A", {"limits.usd": 0.02})
    assert StalePlan("01A", 3).remedies == ()


def test_a_waiting_plan_stores_remedies_as_text_and_data() -> None:
    kept = remedies_record((RESUME, Remedy("plan.cancel", "01A", text="Cancel it")))
    assert kept["remedy"] == "Resume it; Cancel it"
    assert remedies_from_json(kept["remedies"])[0] == RESUME


@pytest.mark.parametrize("foreign", [None, "text", [1], [{"plan": "no action"}]])
def test_ignores_remedies_of_another_format(foreign: object) -> None:
    assert remedies_from_json(foreign) == ()
