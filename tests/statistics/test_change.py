"""The change test: drops are told once, with where, how much and since when; what is steady or rises is not."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from headgate.core.events import ScoreDropped
from headgate.statistics import ScoreChange
from headgate_bench.score_changes import KINDS, ManyScoreChanges, Scores

DAY_S = 86_400.0
EVERY_S = DAY_S / 100
TASKS = 50


def _played(
    change: ScoreChange, environments: dict[str, float], days: tuple[float, float], rng: random.Random
) -> Iterator[ScoreDropped]:
    """Sample each environment 100 times a day, whose tasks succeed in 98 of 100 cases or fail in as many."""
    first, last = (int(100 * day) for day in days)
    for number in range(first, last):
        index = number % TASKS
        for environment, kept in environments.items():
            chance = (0.98 if index % 2 else 0.02) * kept
            drop = change.add(environment, index, float(rng.random() < chance), number * EVERY_S)
            change.validate()
            if drop is not None:
                yield drop


def test_a_drop_in_one_environment_is_told_once_with_its_size_and_its_beginning() -> None:
    change, rng = ScoreChange(2), random.Random(1)
    assert list(_played(change, {"sat": 1.0, "abd": 1.0}, (0, 20), rng)) == []
    (drop,) = _played(change, {"sat": 0.8, "abd": 1.0}, (20, 40), rng)
    assert drop.environment == "sat"
    assert drop.before == pytest.approx(0.5, abs=0.05)
    assert drop.low <= drop.after - drop.before <= drop.high < 0
    assert 19.5 * DAY_S <= drop.since <= 21 * DAY_S
    assert drop.samples >= 5
    (further,) = _played(change, {"sat": 0.5, "abd": 1.0}, (40, 50), rng)
    assert further.environment == "sat", "from its new level it is followed on"
    assert further.before == pytest.approx(0.4, abs=0.06)


def test_a_drop_everywhere_is_told_of_the_model() -> None:
    names = [f"e{number}" for number in range(4)]
    change, rng = ScoreChange(len(names)), random.Random(2)
    assert list(_played(change, dict.fromkeys(names, 1.0), (0, 10), rng)) == []
    (drop,) = _played(change, dict.fromkeys(names, 0.8), (10, 20), rng)
    assert drop.environment == ""
    assert drop.since < 10.5 * DAY_S, "found in all together, long before it would be in each"


def test_a_model_that_gets_better_is_nobodys_alarm() -> None:
    change, rng = ScoreChange(1), random.Random(3)
    assert list(_played(change, {"sat": 0.6}, (0, 20), rng)) == []
    assert list(_played(change, {"sat": 1.0}, (20, 40), rng)) == []


def test_little_is_known_of_a_new_model_and_nothing_is_said_of_it() -> None:
    change = ScoreChange(1)
    assert [change.add("sat", number, float(number < 60), number * EVERY_S) for number in range(99)] == [None] * 99
    assert change.evidence == 0.0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.tasks != 0], ids=lambda kind: kind.name)
def test_the_replay_of_the_benchmark_is_that_of_the_library(kind) -> None:  # type: ignore[no-untyped-def]
    models = 4
    scores, many = Scores(kind, models, seed=5), ManyScoreChanges(models, kind.tasks, days=0.01)
    each = [ScoreChange(1) for _ in range(models)]
    told = []
    for number in range(900):
        if number == 700:
            scores.drop(0.3)
        drawn = scores.next(number)
        alarms = many.add(number, drawn)
        ours = [
            one.add("sat", number % kind.tasks, float(score), number * EVERY_S)
            for one, score in zip(each, drawn, strict=True)
        ]
        if alarms.any():
            told.append(number)
            assert [drop is not None for drop in ours] == list(alarms)
            break  # from here on the library begins anew, the replay goes on
        assert ours == [None] * models
    assert np.isfinite(many.spread)


@pytest.mark.parametrize("share", [0.0, 0.004, 0.03])
def test_a_model_that_hardly_ever_succeeds_is_not_said_to_score_worse(share: float) -> None:
    rng = random.Random(4)
    change = ScoreChange(2)
    drops = [change.add(f"e:{n % 2}", n % 500, float(rng.random() < share), n * 30.0) for n in range(12_000)]
    assert [drop for drop in drops if drop is not None] == []
    change.validate()


def test_after_a_drop_to_nothing_no_further_one_is_told() -> None:
    change = ScoreChange(1)
    drops = [change.add("e", n % 500, float(n < 400), n * 30.0) for n in range(8_000)]
    (drop,) = [drop for drop in drops if drop is not None]
    assert (drop.after, drop.since) == (0.0, 400 * 30.0)
