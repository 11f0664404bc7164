"""The circuit breaker under every interleaving the explorers can find, and under real threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cleveragents.context.executor import CircuitBreaker
from cleveragents.core.circuit_breaker import BreakerState, BreakerTransition
from cleveragents.core.errors import BreakerOpen
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, attempts, hammer, switch_interval
from tests.races.linearizability import Call, History, is_linearizable, run_programs
from tests.races.naive_breaker import LockedBreaker, NaiveBreaker

NAIVE = (NaiveBreaker, LockedBreaker)
COOL_DOWN = 30.0
LEASE = 60.0
OPEN, CLOSED = True, False


class World:
    """A breaker, its clock, a permit taken at the start, and the workers' notes.

    The clock has no lock: it stands still while workers run.
    """

    def __init__(self, kind: type[Any], failure_threshold: int = 1) -> None:
        self.now = 1000.0
        self.heard: list[BreakerTransition] = []
        self.breaker = kind(
            failure_threshold=failure_threshold,
            cool_down_seconds=COOL_DOWN,
            trial_lease_seconds=LEASE,
            clock=lambda: self.now,
            on_transition=self.listen,
        )
        self.permits = [self.breaker.acquire("s"), self.breaker.acquire("s")]
        self.notes: dict[str, Any] = {}

    def listen(self, transition: BreakerTransition) -> None:
        generation = transition.generation
        self.heard.append(transition)
        assert generation == self.heard[-1].generation

    def admits(self, name: str = "s") -> Any:
        """Return a permit, or None."""
        try:
            return self.breaker.acquire(name)
        except BreakerOpen:
            return None

    def trip_and_cool(self) -> None:
        self.breaker.record_failure("s")
        self.now += COOL_DOWN

    def disabled(self) -> bool:
        """Return whether it is open or half-open, whichever caller would get a trial."""
        return "s" in self.breaker._disabled

    def count(self) -> int | None:
        return self.breaker._failures.get("s")


Make = Callable[[type[Any]], Scenario[World]]


def note(name: str, act: Callable[[World], object]) -> Callable[[World], None]:
    def worker(world: World) -> None:
        world.notes[name] = act(world)

    return worker


def scenario(
    kind: type[Any],
    workers: Sequence[Callable[[World], object]],
    outcome: Callable[[World], Hashable],
    allowed: set[Any],
    setup: Callable[[World], object] = lambda world: None,
    failure_threshold: int = 1,
) -> Scenario[World]:
    """Return a scenario whose allowed outcomes must all be reached."""

    def build() -> World:
        world = World(kind, failure_threshold)
        setup(world)
        return world

    return Scenario("breaker", build, workers, outcome, allowed.__contains__, frozenset(allowed))


# ── Counting ──────────────────────────────────────────────────────────────────────────────────────


def no_failure_is_lost(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [lambda w: w.breaker.record_failure("s")] * 2,
        lambda w: (w.count(), w.breaker.is_open("s")),
        {(2, OPEN)},
        failure_threshold=2,
    )


def a_success_and_a_failure_agree(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [lambda w: w.breaker.record_failure("s"), lambda w: w.breaker.record_success("s")],
        lambda w: (w.count(), w.breaker.is_open("s")),
        {(0, CLOSED), (1, OPEN)},
    )


def a_reset_and_a_failure_agree(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [lambda w: w.breaker.record_failure("s"), lambda w: w.breaker.reset("s")],
        lambda w: (w.count(), w.breaker.is_open("s")),
        {(None, CLOSED), (1, OPEN)},
    )


def permits_count_exactly(kind: type[Any]) -> Scenario[World]:
    """Also for a new name: its record is made once."""

    def fail(world: World) -> None:
        world.breaker.acquire("new").failure()

    def totals(world: World) -> Hashable:
        circuit = world.breaker.statistics().circuits["new"]
        return circuit.admitted, circuit.in_flight, circuit.failures, circuit.consecutive_failures

    return scenario(kind, [fail, fail], totals, {(2, 0, 2, 2)}, failure_threshold=9)


# ── Generations ───────────────────────────────────────────────────────────────────────────────────


def a_call_admitted_before_the_trip_cannot_close_it(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [lambda w: w.permits[0].success(), lambda w: w.permits[1].failure()],
        lambda w: w.breaker.is_open("s"),
        {OPEN},
    )


def a_call_admitted_before_a_reset_cannot_open_it(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [lambda w: w.permits[0].failure(), lambda w: w.breaker.reset("s")],
        lambda w: (w.count(), w.breaker.is_open("s")),
        {(None, CLOSED)},
    )


def a_permit_speaks_once(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [
            note("succeeded", lambda w: w.permits[0].success()),
            note("failed", lambda w: w.permits[0].failure()),
        ],
        lambda w: (w.notes["succeeded"], w.notes["failed"], w.breaker.is_open("s")),
        {(True, False, CLOSED), (False, True, OPEN)},
    )


# ── Trials ────────────────────────────────────────────────────────────────────────────────────────


def one_trial_at_a_time(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [note("a", lambda w: w.admits() is not None), note("b", lambda w: w.admits() is not None)],
        lambda w: (w.notes["a"], w.notes["b"], w.disabled()),
        {(True, False, True), (False, True, True)},
        World.trip_and_cool,
    )


def an_expired_trial_cannot_speak_for_the_next(kind: type[Any]) -> Scenario[World]:
    def hang(world: World) -> None:
        world.trip_and_cool()
        world.permits[0] = world.admits()
        world.now += LEASE

    def speak(world: World) -> object:
        return world.permits[0] and world.permits[0].success()

    def outcome(world: World) -> Hashable:
        return world.notes["next"] is not None, world.disabled(), world.breaker.is_open("s")

    return scenario(
        kind,
        [speak, note("next", World.admits)],
        outcome,
        # It closed the breaker before another call tried, or the next trial is running and decides alone.
        {(True, False, CLOSED), (True, True, OPEN)},
        hang,
    )


def a_released_trial_lets_the_next_try(kind: type[Any]) -> Scenario[World]:
    def begin(world: World) -> None:
        world.trip_and_cool()
        world.permits[0] = world.admits()

    def outcome(world: World) -> Hashable:
        next_trial = world.notes["next"] or world.admits()
        return world.notes["next"] is not None, next_trial is not None, world.disabled()

    return scenario(
        kind,
        [lambda w: w.permits[0] and w.permits[0].release(), note("next", World.admits)],
        outcome,
        {(True, True, True), (False, True, True)},
        begin,
    )


def a_trial_and_a_stale_failure_do_not_mix(kind: type[Any]) -> Scenario[World]:
    def begin(world: World) -> None:
        world.trip_and_cool()
        world.permits[0] = world.admits()

    return scenario(
        kind,
        [lambda w: w.permits[0] and w.permits[0].success(), lambda w: w.permits[1].failure()],
        lambda w: (w.count(), w.disabled()),
        {(0, False)},
        begin,
    )


# ── The whole breaker ─────────────────────────────────────────────────────────────────────────────


def a_reset_of_all_is_one_step(kind: type[Any]) -> Scenario[World]:
    def states(world: World) -> Hashable:
        circuits = world.breaker.statistics().circuits
        return circuits["s"].state, circuits["t"].state

    return scenario(
        kind,
        [note("states", states), lambda w: w.breaker.reset_all()],
        lambda w: w.notes["states"],
        {(BreakerState.OPEN,) * 2, (BreakerState.CLOSED,) * 2},
        lambda w: (w.breaker.record_failure("s"), w.breaker.record_failure("t")),
    )


def new_names_may_come_during_a_reset_of_all(kind: type[Any]) -> Scenario[World]:
    return scenario(
        kind,
        [lambda w: w.breaker.record_failure("new"), lambda w: w.breaker.reset_all()],
        lambda w: w.breaker.is_open("new"),
        {OPEN, CLOSED},
    )


def transitions_are_announced_in_order(kind: type[Any]) -> Scenario[World]:
    def heard(world: World) -> Hashable:
        generations = [transition.generation for transition in world.heard]
        assert generations == sorted(set(generations)), f"out of order: {generations}"
        return tuple(transition.state.value for transition in world.heard)

    return scenario(
        kind,
        [lambda w: w.breaker.record_failure("s"), lambda w: w.breaker.record_success("s")],
        heard,
        {("open",), ("open", "closed")},
    )


SCENARIOS: dict[Make, tuple[type[Any], ...]] = {
    no_failure_is_lost: (NaiveBreaker,),
    a_success_and_a_failure_agree: (NaiveBreaker,),
    a_reset_and_a_failure_agree: (NaiveBreaker,),
    permits_count_exactly: (),
    a_call_admitted_before_the_trip_cannot_close_it: NAIVE,
    a_call_admitted_before_a_reset_cannot_open_it: NAIVE,
    a_permit_speaks_once: NAIVE,
    one_trial_at_a_time: NAIVE,
    an_expired_trial_cannot_speak_for_the_next: NAIVE,
    a_released_trial_lets_the_next_try: NAIVE,
    a_trial_and_a_stale_failure_do_not_mix: NAIVE,
    a_reset_of_all_is_one_step: (),
    new_names_may_come_during_a_reset_of_all: (),
    transitions_are_announced_in_order: (),
}
"""Each scenario, and the naive breakers it catches. The lock does make counting exact."""


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
def test_the_breaker_holds(make: Make) -> None:
    assert_holds(make(CircuitBreaker), effort=60)


@pytest.mark.parametrize(
    ("make", "kind"), [(make, kind) for make, kinds in SCENARIOS.items() for kind in kinds]
)
def test_the_same_scenario_catches(make: Make, kind: type[Any]) -> None:
    assert_caught(make(kind), effort=120)


# ── Linearizability ───────────────────────────────────────────────────────────────────────────────

THRESHOLD = 2

State = tuple[str, bool, int, int, tuple[int | None, ...]]
"""Phase, whether a trial may begin, consecutive failures, generation, and each open permit's generation."""

BEGINNINGS: dict[str, State] = {
    "closed": ("closed", False, 0, 1, (1, None, None, None)),
    "failing": ("closed", False, 1, 1, (1, None, None, None)),
    "cooling": ("open", False, 2, 2, (1, None, None, None)),
    "cooled": ("open", True, 2, 2, (1, None, None, None)),
    "trial": ("half open", False, 2, 2, (2, None, None, None)),
}
"""The start states of programs: slot 0 holds a permit shared by all threads; thread n has slot n."""


def model(state: State, call: Call) -> tuple[State, Any]:
    """A breaker, one call at a time. Time stands still, so a cool-down or lease stays once begun."""
    phase, ready, failures, generation, permits = state
    refusing = phase != "closed" and not ready
    match call:
        case Call("is_open"):
            return state, refusing
        case Call("look"):
            return state, (refusing, failures)
        case Call("reset"):
            return ("closed", False, 0, generation + 1, permits), None
        case Call("acquire", (int(slot),)):
            if refusing:
                return state, False
            if phase != "closed":
                phase, generation = "half open", generation + 1
            return (phase, False, failures, generation, _put(permits, slot, generation)), True
        case Call("record", (verdict,)):
            return _after(state, verdict), None
        case Call("settle", (int(slot), verdict)):
            mine = permits[slot]
            state = (phase, ready, failures, generation, _put(permits, slot, None))
            return (_after(state, verdict) if mine == generation else state), mine is not None
    raise AssertionError(call)


def _put(permits: tuple[int | None, ...], slot: int, permit: int | None) -> tuple[int | None, ...]:
    return (*permits[:slot], permit, *permits[slot + 1 :])


def _after(state: State, verdict: Hashable) -> State:
    phase, ready, failures, generation, permits = state
    if verdict == "release":
        return (phase, phase != "closed", failures, generation, permits)
    if verdict == "success":
        return ("closed", False, 0, generation + (phase != "closed"), permits)
    failures += 1
    opens = failures >= THRESHOLD if phase == "closed" else ready or phase == "half open"
    if opens:
        return ("open", False, failures, generation + 1, permits)
    return (phase, ready, failures, generation, permits)


class Subject:
    """A breaker in one of the start states."""

    def __init__(self, kind: type[Any], beginning: str) -> None:
        world = World(kind, THRESHOLD)
        self.breaker = world.breaker
        self.permits: list[Any] = [world.permits[0], None, None, None]
        failures = {"closed": 0, "failing": 1}.get(beginning, THRESHOLD)
        for _ in range(failures):
            self.breaker.record_failure("s")
        if beginning in ("cooled", "trial"):
            world.now += COOL_DOWN
        if beginning == "trial":
            self.permits[0] = world.admits()


def perform(subject: Subject, call: Call) -> object:
    breaker = subject.breaker
    match call:
        case Call("is_open"):
            return breaker.is_open("s")
        case Call("look"):
            return breaker.is_open("s"), breaker._failures.get("s", 0)
        case Call("reset"):
            return breaker.reset("s")
        case Call("acquire", (int(slot),)):
            try:
                subject.permits[slot] = breaker.acquire("s")
            except BreakerOpen:
                return False
            return True
        case Call("record", (str(verdict),)):
            return getattr(breaker, f"record_{verdict}")("s")
        case Call("settle", (int(slot), str(verdict))):
            permit = subject.permits[slot]
            return permit is not None and getattr(permit, verdict)()
    raise AssertionError(call)


def calls_of(thread: int) -> st.SearchStrategy[Call]:
    verdicts = ("success", "failure", "release")
    return st.sampled_from(
        [
            Call("is_open"),
            Call("reset"),
            Call("acquire", (thread,)),
            *(Call("record", (verdict,)) for verdict in verdicts[:2]),
            *(Call("settle", (slot, verdict)) for slot in (0, thread) for verdict in verdicts),
        ]
    )


Program = tuple[str, tuple[list[Call], ...]]


def programs(threads: int, longest: int) -> st.SearchStrategy[Program]:
    workers = (st.lists(calls_of(n), min_size=1, max_size=longest) for n in range(1, threads + 1))
    return st.tuples(st.sampled_from(sorted(BEGINNINGS)), st.tuples(*workers))


def counting_programs() -> st.SearchStrategy[Program]:
    """Calls that the predecessor answers correctly if run alone: only a race can show."""
    calls = [Call("is_open"), Call("record", ("failure",)), Call("record", ("success",))]
    workers = (st.lists(st.sampled_from(calls), min_size=1, max_size=3) for _ in range(2))
    return st.tuples(st.sampled_from(["closed", "failing"]), st.tuples(*workers))


def linearizable(
    kind: type[Any], beginning: str, workers: Sequence[Sequence[Call]]
) -> Scenario[tuple[Subject, History]]:
    def outcome(state: tuple[Subject, History]) -> bool:
        subject, history = state
        history.run(Call("look"), lambda: perform(subject, Call("look")))  # the final state counts, too
        return is_linearizable(history.operations, BEGINNINGS[beginning], model)

    return Scenario(
        f"programs from {beginning}: {workers}",
        lambda: (Subject(kind, beginning), History()),
        run_programs(workers, perform),
        outcome,
        bool,
    )


@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
@given(programs(threads=2, longest=2))
def test_every_program_is_linearizable(program: Program) -> None:
    assert_holds(linearizable(CircuitBreaker, *program), effort=20)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs(threads=3, longest=4))
def test_longer_programs_are_linearizable_on_real_threads(program: Program) -> None:
    scenario = linearizable(CircuitBreaker, *program)
    state = scenario.setup()
    with switch_interval(SWITCH_INTERVALS[1]):
        hammer(lambda number: scenario.workers[number](state), threads=len(scenario.workers))
    assert scenario.allowed(scenario.outcome(state)), state[1].operations


@pytest.mark.parametrize(
    ("kind", "drawn"), [(NaiveBreaker, counting_programs()), (LockedBreaker, programs(threads=2, longest=2))]
)
def test_some_program_is_not_linearizable(kind: type[Any], drawn: st.SearchStrategy[Program]) -> None:
    @settings(max_examples=30, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(drawn)
    def every_program_holds(program: Program) -> None:
        assert_holds(linearizable(kind, *program), effort=20)

    with pytest.raises(AssertionError, match=r"programs from .*(Race condition|outcome False)"):
        every_program_holds()


# ── Real threads, exact totals ────────────────────────────────────────────────────────────────────

ROUNDS = 1000
THREADS = 8


def failures_add_up(kind: type[Any]) -> None:
    breaker = kind()
    hammer(lambda number: [breaker.record_failure("s") for _ in range(ROUNDS)], threads=THREADS)
    assert breaker._failures["s"] == THREADS * ROUNDS
    assert breaker.is_open("s")


def permits_add_up(kind: type[Any]) -> None:
    """Check that each permit is counted once, during any openings, closings and resets."""
    heard: list[BreakerTransition] = []
    breaker = kind(failure_threshold=2, cool_down_seconds=0.0, on_transition=heard.append)

    def work(number: int) -> tuple[int, int]:
        for turn in range(ROUNDS):
            try:
                permit = breaker.acquire("s")
            except BreakerOpen:
                continue
            verdict = (permit.success, permit.failure, permit.release)[(turn + number) % 3]
            assert verdict()
            assert not permit.failure()
            if turn % 100 == number:
                breaker.reset("s")

    hammer(work, threads=THREADS)
    circuit = breaker.statistics().circuits["s"]
    assert circuit.admitted + circuit.refused == THREADS * ROUNDS
    assert circuit.in_flight == 0
    assert circuit.successes + circuit.failures + circuit.released + circuit.stale == circuit.admitted
    states = [transition.state for transition in heard]
    assert states.count(BreakerState.OPEN) == circuit.opened
    assert states.count(BreakerState.HALF_OPEN) == circuit.trials
    generations = [transition.generation for transition in heard]
    assert generations == sorted(set(generations))


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
@pytest.mark.parametrize("totals", [failures_add_up, permits_add_up])
def test_the_totals_are_exact(totals: Callable[[type[Any]], None], interval: float) -> None:
    with switch_interval(interval):
        totals(CircuitBreaker)


def test_the_totals_catch_the_naive_breaker() -> None:
    """Lost increments are likely, not certain: within some attempts."""
    with switch_interval(SWITCH_INTERVALS[1]), pytest.raises(AssertionError):
        for _ in attempts():
            failures_add_up(NaiveBreaker)
