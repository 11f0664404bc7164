"""Policies: each profile answers for everything, and joining two can only tighten."""

from __future__ import annotations

import pickle
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.errors import ConfigurationError, NetworkNotDenied
from cleveragents.core.policy import (
    DEFAULT_PROFILE,
    PROFILES,
    Capability,
    Isolation,
    Policy,
    Verdict,
    profile,
)

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


def test_a_policy_asks_for_capabilities_it_does_not_mention() -> None:
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


def test_tightening_by_a_stricter_policy_gives_its_verdicts() -> None:
    joined = profile("full-auto").tightened(profile("review"))
    assert verdicts(joined) == verdicts(profile("review"))


def test_verdicts_and_capabilities_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps((Verdict.DENY, Capability.APPLY))) == (Verdict.DENY, Capability.APPLY)


ISOLATED = {
    "manual": ("ask", "ask"),
    "review": ("ask", "ask"),
    "supervised": ("allow", "allow"),
    "cautious": ("allow", "allow"),
    "trusted": ("allow", "allow"),
    "auto": ("allow", "allow"),
    "ci": ("allow", "allow"),
    "full-auto": ("allow", "allow"),
}
UNISOLATED = {
    "manual": ("ask", "ask"),
    "review": ("deny", "deny"),
    "supervised": ("ask", "allow"),
    "cautious": ("deny", "deny"),
    "trusted": ("allow", "allow"),
    "auto": ("allow", "allow"),
    "ci": ("deny", "deny"),
    "full-auto": ("allow", "allow"),
}


def command_verdicts(name: str, *, isolated: bool) -> tuple[str, str]:
    """Return the verdicts on a command of an agent, and on one of the user or an action."""
    policy = profile(name)
    return (
        policy.command_verdict(isolated=isolated, by_agent=True).value,
        policy.command_verdict(isolated=isolated, by_agent=False).value,
    )


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_decides_about_commands_with_and_without_isolation(name: str) -> None:
    assert command_verdicts(name, isolated=True) == ISOLATED[name]
    assert command_verdicts(name, isolated=False) == UNISOLATED[name]


def test_joined_profiles_are_judged_by_their_verdicts_not_by_their_names() -> None:
    assert command_verdicts("trusted+auto", isolated=False) == ("ask", "allow")
    assert command_verdicts("trusted+ci", isolated=False) == ("deny", "deny")


@given(policies, st.booleans())
def test_isolation_never_makes_a_policy_stricter(policy: Policy, by_agent: bool) -> None:
    isolated = policy.command_verdict(isolated=True, by_agent=by_agent)
    unisolated = policy.command_verdict(isolated=False, by_agent=by_agent)
    assert isolated is policy.verdict(Capability.COMMAND)
    assert unisolated.strictness >= isolated.strictness


@given(policies)
def test_a_policy_that_denies_the_network_runs_no_command_that_could_use_it(policy: Policy) -> None:
    if policy.verdict(Capability.NETWORK) is Verdict.DENY:
        assert policy.command_verdict(isolated=False, by_agent=False) is Verdict.DENY
        with pytest.raises(NetworkNotDenied, match="denies the network, and without bubblewrap"):
            policy.ensure_denies_network("a check", Isolation.NONE)
    policy.ensure_denies_network("a check", Isolation.BUBBLEWRAP)
