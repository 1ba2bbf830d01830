from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.models import SimulationPlan
from headgate.models.baselines import Simulation


def test_the_busy_integral_is_exact() -> None:
    simulation = Simulation(SimulationPlan(cap=2, mean_s=1, cv=0), now=10.0)
    assert simulation.enter("a", 11.0) == 1.0
    assert simulation.enter("b", 12.0) == 1.0
    assert simulation.enter("c", 12.5) is None
    simulation.leave(200, 13.0)
    simulation.leave(200, 14.0)
    stats = simulation.stats(20.0)
    assert (stats.busy_slot_s, stats.peak, stats.elapsed_s) == (4.0, 2, 10.0)
    assert stats.utilisation == pytest.approx(0.2)
    assert (stats.by_status, stats.by_model) == ({"200": 2, "429": 1}, {"a": 1, "b": 1})


def test_a_reset_keeps_what_is_in_flight() -> None:
    simulation = Simulation(SimulationPlan(cap=2, mean_s=1), now=0.0)
    simulation.enter("a", 0.0)
    simulation.reset(5.0)
    simulation.validate()
    assert simulation.stats(6.0).busy_slot_s == 1.0


@given(st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=60))
def test_slots_are_never_oversold_and_the_integral_never_falls(cap: int, steps: list[tuple[bool, float]]) -> None:
    simulation = Simulation(SimulationPlan(cap=cap), now=0.0)
    now, inside, busy = 0.0, 0, 0.0
    for enters, pause in steps:
        now += pause
        if enters:
            inside += simulation.enter("m", now) is not None
        elif inside:
            simulation.leave(200, now)
            inside -= 1
        simulation.validate()
        stats = simulation.stats(now)
        assert stats.in_flight == inside
        assert stats.busy_slot_s >= busy
        busy = stats.busy_slot_s


def test_service_times_are_the_same_for_the_same_seed() -> None:
    def drawn(seed: int) -> list[float | None]:
        simulation = Simulation(SimulationPlan(cap=9, seed=seed), now=0.0)
        return [simulation.enter("m", 0.0) for _ in range(9)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
