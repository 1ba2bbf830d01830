"""Which models a ranking gives more of an environment's samples; and a ranking that rests on what counts now."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from headgate.core import Model
from headgate.sampling import ModelSampler, RankingStop, SamplingRules, ranking_shares
from headgate.statistics import PairDecision, PairwiseRanking

RULES = {"indifference": 0.05, "uniform": 0.25, "most": 3.0}


def shares(chances: list[float], counts: list[int], tokens: list[float] | None = None) -> NDArray[np.float64]:
    """Return the shares of models with these chances of a point that have so many samples of two environments."""
    rng = np.random.default_rng(1)
    scores = [
        {name: {n: float(rng.random() < chance) for n in range(count)} for name in ("one", "two")}
        for chance, count in zip(chances, counts, strict=True)
    ]
    *counting, found = ranking_shares(scores, tokens or [1.0] * len(chances), **RULES)
    assert set(map(type, counting)) <= {type(None)}
    assert found is not None
    assert found.sum() == pytest.approx(len(chances))
    assert found.min() >= 0.25 - 1e-9
    assert found.max() <= 3 + 1e-9
    return found


def test_models_that_are_hard_to_tell_apart_get_more_than_one_that_is_ranked_and_the_best_keeps_its_rate() -> None:
    best, close, other, last = shares([0.95, 0.5, 0.52, 0.05], [150] * 4)
    assert best == pytest.approx(1)
    assert close == pytest.approx(other)
    assert close > 1 > last == pytest.approx(0.25)


def test_a_model_that_is_new_keeps_its_rate_at_least_and_what_lies_behind_is_caught_up_with() -> None:
    *_, new = shares([0.9, 0.5, 0.52, 0.1, 0.5], [150, 150, 150, 150, 5])
    assert new >= 1
    *_, ahead, behind = shares([0.9, 0.1, 0.5, 0.52], [200, 200, 200, 60])
    assert behind > ahead


def test_of_two_models_the_one_whose_samples_cost_fewer_tokens_gets_more() -> None:
    _, cheap, dear, _ = shares([0.95, 0.5, 0.52, 0.05], [150] * 4, [1.0, 1.0, 4.0, 1.0])
    assert cheap > dear


@pytest.mark.parametrize("counts", [[0, 0, 0], [5, 5, 5]])
def test_where_nothing_is_known_all_have_their_rates(counts: list[int]) -> None:
    assert shares([0.5, 0.5, 0.5], counts) == pytest.approx(1, abs=0.5)


def test_one_model_alone_has_its_rate_and_ranked_models_have_theirs() -> None:
    assert list(shares([0.5], [50])) == [1]
    assert shares([0.95, 0.5, 0.05], [400] * 3) == pytest.approx(1)


def test_a_sampler_samples_at_its_share_until_it_gets_another() -> None:
    rates = {"test:one": 1_000.0, "test:two": 100.0}
    sampler = ModelSampler(Model("a", uid=0), rates, SamplingRules(low_sample_threshold=0), ordinal=0, now=0.0)
    sampler.allot(0.25, 10.0)
    assert {name: sampler.rate_per_day(name) for name in rates} == {"test:one": 250, "test:two": 25}
    sampler.steer({"test:one": 2_000.0, "test:two": 100.0}, frozenset(), 20.0)
    sampler.allot(3.0, 30.0)
    assert {name: sampler.rate_per_day(name) for name in rates} == {"test:one": 6_000, "test:two": 300}
    sampler.validate()
    sampler.allot(1.0, 40.0)
    taken, now = 0, 40.0
    while now < 86_440:
        taken += sum(one.environment == "test:one" for one in sampler.due(now)[0])
        now += 10.0
    assert taken == pytest.approx(2_000, abs=2)


def test_a_ranking_that_is_counted_anew_rests_on_what_is_left() -> None:
    rows = {("test:one", n): n for n in range(100)}
    stop = RankingStop(0.1, rows)
    stop.join(["a", "b"])
    for n in range(60):
        stop.ended("a", "test:one", n, 1.0)
        stop.ended("b", "test:one", n, 0.0)
    assert stop.settled() == ["a", "b"]
    stop.recount([("a", "test:one", n, 1.0) for n in range(60)] + [("b", "test:one", n, 0.0) for n in range(5)])
    assert stop.settled() == []
    assert stop.report().pairs[0].tasks == 5
    for n in range(5, 100):
        stop.ended("b", "test:one", n, 1.0)
        stop.ended("a", "test:one", n, 1.0)
    assert stop.settled() == ["a", "b"]
    assert stop.report().pairs[0].difference < 1


def test_a_model_that_joins_is_compared_on_the_tasks_that_ranked_models_have_and_takes_no_others() -> None:
    stop = RankingStop(0.01, {("test:one", n): n for n in range(100)})
    stop.join(["a", "b"])
    for n in range(60):
        stop.ended("a", "test:one", n, 1.0)
        stop.ended("b", "test:one", n, n % 2)
    assert stop.settled() == ["a", "b"]
    stop.join(["c"], stop.settled())
    taken = 0
    while "c" not in stop.settled():
        stop.ended("c", "test:one", taken, (taken + 1) % 2)
        taken += 1
    assert taken == 60
    assert [(one.first, one.second, one.verdict == "open") for one in stop.report().pairs] == [
        ("a", "b", False), ("a", "c", False), ("b", "c", True)
    ]  # fmt: skip


def test_a_verdict_is_described_once_however_many_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[int] = []
    decision = PairwiseRanking.decision

    def noted(self: PairwiseRanking, pair: int) -> PairDecision:
        described.append(pair)
        return decision(self, pair)

    monkeypatch.setattr(PairwiseRanking, "decision", noted)
    stop = RankingStop(0.1, {("test:one", n): n for n in range(60)})
    names = [str(model) for model in range(6)]
    stop.join(names)
    told = []
    for n in range(60):
        for model, name in enumerate(names):
            stop.ended(name, "test:one", n, model / 5)
            told += stop.news()
    assert len(told) == len({(one.first, one.second) for one in told}) == len(described) == 15
