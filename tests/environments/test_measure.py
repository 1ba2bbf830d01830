"""Baselines come out in the right order, and what a measurement reports."""

from __future__ import annotations

import pytest

from headgate.core import errors
from headgate.environments import environment, measure
from headgate.environments.measurement import baseline_episode


@pytest.mark.parametrize(
    ("name", "episodes"),
    [("affine:sat", 60), ("affine:sat-hard", 60), ("agentgym:babyai", 20), ("agentgym:textcraft", 60)],
)
async def test_solver_beats_greedy_beats_random(name, episodes):
    measured = await measure(name, episodes)
    by_kind = {baseline.kind: baseline for baseline in measured.baselines}
    assert by_kind["solver"].mean_score > by_kind["greedy"].mean_score > by_kind["random"].mean_score
    assert all(baseline.errors == 0 for baseline in measured.baselines)


async def test_solver_beats_greedy_beats_random_on_abduction():
    scores = {kind: [] for kind in ("random", "greedy", "solver")}
    for kind, gained in scores.items():
        for index in range(6):
            gained.append((await baseline_episode(environment("affine:abd"), kind, index)).score)
    assert sum(scores["solver"]) == 6
    assert 6 > sum(scores["greedy"]) > sum(scores["random"])


async def test_only_the_solver_scores_on_deduction():
    measured = await measure("affine:ded", 3)
    assert [baseline.mean_score for baseline in measured.baselines] == [0.0, 0.0, 1.0]


async def test_a_measurement_says_what_an_environment_costs():
    measured = await measure("affine:sat", 3)
    assert (measured.name, measured.episodes) == ("affine:sat", 3)
    assert measured.open_wall_ms > 0
    assert measured.answer_wall_ms > 0
    assert measured.cpu_ms > 0
    assert 3_000 < measured.opening_chars < 5_000
    assert [baseline.turns for baseline in measured.baselines] == [1.0, 1.0, 1.0]


async def test_an_unknown_environment_cannot_be_measured():
    with pytest.raises(errors.UnknownEnvironmentError):
        await measure("affine:nothing", 1)


@pytest.mark.parametrize("kind", ["random", "greedy", "solver"])
async def test_a_baseline_does_the_same_at_every_call(kind):
    for name in ("affine:sat-hard", "agentgym:babyai", "agentgym:textcraft"):
        one, other = [await baseline_episode(environment(name), kind, 6) for _ in range(2)]
        assert one == other
