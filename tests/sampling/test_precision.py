from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import Task, sample_task
from headgate.sampling import PrecisionStop

MODEL, ENVIRONMENT = "acme/m@main", "affine:sat"


def task(sequence: int, *, data_length: int = 10_000, stage: str = "sample") -> Task:
    return sample_task(
        campaign="main", model=MODEL, environment=ENVIRONMENT, sequence=sequence, data_length=data_length, due_at=0.0,
        stage=stage,
    )  # fmt: skip


def end(stop: PrecisionStop, one: Task, score: float | None) -> object:
    return stop.ended(MODEL, ENVIRONMENT, one.task_id, score)


def test_a_pair_is_settled_once_its_mean_is_known_and_is_told_of_once() -> None:
    stop, told = PrecisionStop(0.1, 20), []
    for sequence in range(200):
        one = task(sequence)
        stop.opened(one)
        told.append(end(stop, one, 1.0))
        stop.validate()
    (known,) = [each for each in told if each is not None]
    assert known.mean == 1.0
    assert known.high - known.low <= 0.2
    assert 20 <= known.tasks < 60
    assert stop.is_settled(MODEL, ENVIRONMENT)
    assert not stop.is_settled(MODEL, "affine:ded")
    assert list(stop.settled()) == [(MODEL, ENVIRONMENT)]


def test_no_pair_is_settled_below_its_least_number_of_tasks() -> None:
    stop = PrecisionStop(0.2, 150)
    for sequence in range(150):
        assert not stop.is_settled(MODEL, ENVIRONMENT)
        stop.opened(task(sequence))
        end(stop, task(sequence), 1.0)
    assert stop.is_settled(MODEL, ENVIRONMENT)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=40), st.randoms(use_true_random=False))
def test_it_does_not_matter_in_which_order_samples_end(scores: list[float | None], rng: random.Random) -> None:
    stops = []
    for order in (range(len(scores)), rng.sample(range(len(scores)), len(scores))):
        stop = PrecisionStop(0.2, 5)
        for sequence in range(len(scores)):
            stop.opened(task(sequence))
        for sequence in order:
            end(stop, task(sequence), scores[sequence])
            stop.validate()
        stops.append(stop)
    first, second = (stop.known(MODEL, ENVIRONMENT) for stop in stops)
    assert first == second


def test_what_ended_early_waits_for_what_was_opened_before_it() -> None:
    stop = PrecisionStop(0.1, 1)
    for sequence in range(3):
        stop.opened(task(sequence))
    end(stop, task(2), 1.0)
    end(stop, task(1), 0.0)
    assert stop.known(MODEL, ENVIRONMENT).tasks == 0
    end(stop, task(0), None)
    assert stop.known(MODEL, ENVIRONMENT).tasks == 2


def test_a_second_pass_over_the_data_tells_nothing_new() -> None:
    stop = PrecisionStop(0.1, 1)
    for sequence in range(30):
        stop.opened(task(sequence, data_length=10))
        end(stop, task(sequence, data_length=10), 1.0)
    assert stop.known(MODEL, ENVIRONMENT).tasks == 10


def test_a_task_that_failed_counts_when_it_is_taken_again() -> None:
    stop = PrecisionStop(0.1, 1)
    for one, score in ((task(0), None), (task(0, stage="sample.2"), 1.0)):
        stop.opened(one)
        end(stop, one, score)
    assert stop.known(MODEL, ENVIRONMENT).tasks == 1


def test_a_process_that_begins_anew_knows_what_the_one_before_it_knew() -> None:
    whole, anew = PrecisionStop(0.15, 20), PrecisionStop(0.15, 20)
    for sequence in range(30):
        whole.opened(task(sequence))
        end(whole, task(sequence), sequence % 3 / 2)
        anew.past(MODEL, ENVIRONMENT, sequence, sequence % 3 / 2)
        anew.past(MODEL, ENVIRONMENT, sequence, 0.0)  # the same task once more
    assert anew.known(MODEL, ENVIRONMENT) == whole.known(MODEL, ENVIRONMENT)


@pytest.mark.parametrize(("half_width", "least"), [(0.0, 1), (0.5, 1), (0.1, 0)])
def test_impossible_values_are_refused(half_width: float, least: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        PrecisionStop(half_width, least)


SHARES = (0.02, 0.05, 0.1, 0.3, 0.5, 0.8, 0.9, 0.95, 0.98)
HALF_WIDTH = 0.08
FIXED = math.ceil(math.log(2 / 0.05) / (2 * HALF_WIDTH**2))
"""Samples that make an interval of this half-width for any scores in [0, 1] (Hoeffding), decided beforehand: 289."""


def stopped(share: float, seed: int) -> tuple[int, bool]:
    """Return how many samples a pair took until it was settled, and whether its interval holds the truth."""
    stop, rng = PrecisionStop(HALF_WIDTH, 20), random.Random(f"{share}:{seed}")
    for sequence in range(5_000):
        stop.opened(task(sequence))
        known = stop.ended(MODEL, ENVIRONMENT, task(sequence).task_id, float(rng.random() < share))
        if known is not None:
            return known.tasks, known.low <= share <= known.high
    raise AssertionError("every pair is known some day")


def test_few_stop_wrongly_and_all_together_take_fewer_samples_than_a_fixed_number_of_the_same_precision() -> None:
    taken, held = zip(*(stopped(share, seed) for share in SHARES for seed in range(25)), strict=True)
    assert sum(not holds for holds in held) / len(held) <= 0.05
    within_budget = [min(count, FIXED) for count in taken]  # `instances` ends a pair that is not settled
    assert sum(within_budget) < 0.75 * FIXED * len(taken)
    assert sum(taken[:25]) < 0.35 * FIXED * 25, "a pair near 0 takes a fraction"


LEVELS = [1 - index % 40 / 40 for index in range(200)]
"""Chance of success of tasks that are listed by level, forty levels in turn, as BabyAI's are; easy ones first."""


def held(order: list[int], rng: random.Random) -> bool:
    """Whether what is known of a pair holds the truth when it is settled, or when all tasks are done."""
    stop = PrecisionStop(0.1, 20)
    for index in order:
        stop.opened(task(index))
        if stop.ended(MODEL, ENVIRONMENT, task(index).task_id, float(rng.random() < LEVELS[index])) is not None:
            break
    known = stop.known(MODEL, ENVIRONMENT)
    return known.low <= sum(LEVELS) / len(LEVELS) <= known.high


@pytest.mark.long
def test_listed_tasks_mislead_in_their_own_order_and_not_in_a_random_one() -> None:
    rng = random.Random(8)
    listed = [held(list(range(200)), rng) for _ in range(100)]
    shuffled = [held(rng.sample(range(200), 200), rng) for _ in range(100)]
    assert sum(listed) / 100 < 0.8
    assert sum(shuffled) / 100 >= 0.95


def test_recounting_drops_what_counts_no_longer_and_keeps_what_is_not_stored_yet() -> None:
    stop = PrecisionStop(0.1, 1)
    for sequence in range(6):
        stop.opened(task(sequence))
    for sequence in (0, 1, 2, 4):
        end(stop, task(sequence), 1.0)
    # 0 was scored anew, 1 and 4 (which waits for 3) were invalidated, 2 is not stored yet, 9 counts again.
    assert stop.recount(MODEL, ENVIRONMENT, {0: 0.0, 9: 1.0}, {1, 4}) is None
    stop.validate()
    known = stop.known(MODEL, ENVIRONMENT)
    assert (known.tasks, known.mean) == (3, pytest.approx(2 / 3))
    end(stop, task(3), 1.0)
    assert stop.known(MODEL, ENVIRONMENT).tasks == 4
    stop.opened(task(1, stage="sample.2"))
    end(stop, task(5), 1.0)
    end(stop, task(1, stage="sample.2"), 1.0)
    assert stop.known(MODEL, ENVIRONMENT).tasks == 6
    stop.validate()
