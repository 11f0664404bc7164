"""Policies: each profile answers for everything, and joining two can only tighten."""

from __future__ import annotations

import pickle
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.domain.policy import DEFAULT_PROFILE, PROFILES, Capability, Policy, Verdict, profile
from cleveragents.errors import ConfigurationError

policies = st.one_of(
    st.sampled_from(list(PROFILES.values())),
    st.builds(
        Policy,
        st.just("own"),
        st.dictionaries(st.sampled_from(Capability), st.sampled_from(Verdict)).map(MappingProxyType),
        st.booleans(),
    ),
)


def verdicts(policy: Policy) -> list[Verdict]:
    return [policy.verdict(capability) for capability in Capability]


def test_the_profiles_are_those_of_the_design() -> None:
    assert list(PROFILES) == [
        "manual",
        "review",
        "supervised",
        "cautious",
        "trusted",
        "auto",
        "ci",
        "full-auto",
    ]
    assert DEFAULT_PROFILE == "supervised"


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_answers_for_every_capability_by_itself(name: str) -> None:
    assert set(profile(name).verdicts) == set(Capability)
    assert profile(name).name == name


def test_reading_is_always_allowed_and_only_two_profiles_may_use_the_network_unasked() -> None:
    assert {policy.verdict(Capability.READ) for policy in PROFILES.values()} == {Verdict.ALLOW}
    free = [name for name in PROFILES if profile(name).verdict(Capability.NETWORK) is Verdict.ALLOW]
    assert free == ["trusted", "full-auto"]


def test_only_the_automatic_profiles_apply_unasked() -> None:
    free = [name for name in PROFILES if profile(name).verdict(Capability.APPLY) is Verdict.ALLOW]
    assert free == ["auto", "ci", "full-auto"]


def test_the_default_asks_before_it_touches_the_users_files() -> None:
    assert profile(DEFAULT_PROFILE).verdict(Capability.APPLY) is Verdict.ASK


def test_what_a_policy_does_not_mention_is_asked_for() -> None:
    assert Policy("own", {}).verdict(Capability.COMMAND) is Verdict.ASK


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean supervised"):
        profile("superviced")
    with pytest.raises(ConfigurationError, match="known: manual, review"):
        profile("zzz")


@given(policies)
def test_ci_never_asks_whatever_tightens_it(other: Policy) -> None:
    assert Verdict.ASK not in verdicts(profile("ci").tightened(other))


@given(policies, policies)
def test_tightening_never_loosens_either_side(one: Policy, other: Policy) -> None:
    joined = one.tightened(other)
    for capability in Capability:
        answer = joined.verdict(capability).strictness
        assert answer >= one.verdict(capability).strictness
        assert answer >= other.verdict(capability).strictness


@given(policies, policies, policies)
def test_the_order_of_tightening_does_not_matter(one: Policy, two: Policy, three: Policy) -> None:
    assert verdicts(one.tightened(two)) == verdicts(two.tightened(one))
    assert verdicts(one.tightened(two).tightened(three)) == verdicts(one.tightened(two.tightened(three)))


@given(policies, policies)
def test_tightening_twice_is_tightening_once(one: Policy, other: Policy) -> None:
    once = one.tightened(other)
    assert verdicts(once.tightened(other)) == verdicts(once)
    assert verdicts(one.tightened(one)) == verdicts(one)
    assert once.name == one.name


def test_a_tightened_policy_says_no_more_than_the_stricter_needs() -> None:
    joined = profile("full-auto").tightened(profile("review"))
    assert verdicts(joined) == verdicts(profile("review"))


def test_verdicts_and_capabilities_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps((Verdict.DENY, Capability.APPLY))) == (Verdict.DENY, Capability.APPLY)
