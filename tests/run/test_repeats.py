"""Several samples of each task of a matrix: the same task, another seed, none twice."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headgate.core import Model, request_seed_of, sample_task
from headgate.core.errors import InvalidInputError
from headgate.models.client import request_body
from headgate.run import Run
from headgate.run.matrix import MatrixTaskProvider, MatrixTasks, repeat_ks, request_seed, seeded
from headgate.simulation import LoopClock, ServiceTime
from tests.run.run_world import World, models

SAT = "affine:sat"


def plan(tasks: MatrixTasks, **more: Any) -> dict[str, Any]:
    return {"provider": MatrixTaskProvider([SAT], tasks, **more), "stop_when_idle": True}


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_a_run_that_was_stopped_goes_on_without_a_repeat_twice(world: World, is_shuffled: bool) -> None:
    tasks = MatrixTasks(6, 5, {SAT: 1_000})

    async def stop_soon(campaign: Run, clock: LoopClock) -> None:
        await clock.sleep(15)
        campaign.stop("somebody asked")

    often = {"settings": {"repeats": 5}, "service": ServiceTime(10.0), "duration_s": None}
    world.run(models(2), {SAT: 1.0}, plan=plan(tasks, is_shuffled=is_shuffled), during=stop_soon, **often)
    before = list(world.store.samples)
    assert 0 < len(before) < 60
    done = {(sample.model, SAT, sample.sequence) for sample in before}
    world.run(models(2), {SAT: 1.0}, start_s=500, plan=plan(tasks, done=done, is_shuffled=is_shuffled), **often)
    expected = sorted(repeat * 1_000 + index for repeat in range(5) for index in range(6))
    assert set(map(tuple, world.sequences().values())) == {tuple(expected)}
    for sample in world.store.samples:
        assert (sample.index, sample.request_seed) == (
            sample.sequence % 1_000,
            request_seed_of(SAT, sample.index, sample.sequence // 1_000),
        )
        assert sample.answer == ("right" if sample.success else "wrong")
    assert len({sample.request_seed for sample in world.store.samples}) == 30
    assert len({(sample.index, sample.seed) for sample in world.store.samples}) == 6


@pytest.mark.parametrize(
    ("instances", "repeats", "length", "sequences"),
    [
        (3, 1, 10, [0, 1, 2]),
        (3, 2, 10, [0, 1, 2, 10, 11, 12]),
        (5, 1, 2, [0, 1, 2, 3, 4]),
        (3, 2, 2, [0, 1, 2, 4, 5, 6]),
        (2, 3, 1, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_sequences_are_those_of_later_passes(instances: int, repeats: int, length: int, sequences: list[int]) -> None:
    tasks = MatrixTasks(instances, repeats, {SAT: length})
    assert tasks.sequences(SAT) == sequences
    assert len(set(sequences)) == tasks.size
    indices = [sequence % length for sequence in sequences]
    assert all(indices.count(index) % repeats == 0 for index in indices)
    stored = pl.DataFrame({"environment": SAT, "sequence": range(40)}).vstack(
        pl.DataFrame({"environment": "test:other", "sequence": range(40)})
    )
    assert tasks.of(stored)["sequence"].to_list() == sorted(sequences)


@pytest.mark.parametrize(("instances", "repeats", "length"), [(0, 1, 9), (1, 0, 9), (1, 2**20, 2**50)])
def test_what_cannot_be_numbered_is_refused(instances: int, repeats: int, length: int) -> None:
    with pytest.raises(InvalidInputError, match=r"must be >= 1|cannot be numbered"):
        MatrixTasks(instances, repeats, {SAT: length})


@pytest.mark.parametrize(
    ("options", "repeats", "seeds"),
    [
        ({}, 1, [None, None]),
        ({}, 2, [request_seed_of(SAT, 3, 0), request_seed_of(SAT, 3, 1)]),
        ({"seed": 7}, 1, [7, 8]),
        ({"seed": 2**31 - 1}, 2, [2**31 - 1, 0]),
        ({"seed": None}, 2, [None, None]),
        ({"seed": "dice"}, 2, [None, None]),
    ],
)
def test_the_seed_of_requests(options: dict[str, Any], repeats: int, seeds: list[int | None]) -> None:
    model = Model("m", base_url="http://127.0.0.1:1/v1", options=tuple(options.items()))
    made = []
    for sequence in (3, 13):
        about = {"campaign": "c", "model": model.key, "environment": SAT, "data_length": 10, "due_at": 0.0}
        task = sample_task(sequence=sequence, **about)
        made.append(request_seed(model, task, 10, repeats))
        asked = seeded(model, made[-1])
        body = request_body(asked, (), dict(asked.options), streams=False)
        stated = made[-1] if made[-1] is not None else options.get("seed")
        assert (b'"seed"' in body) is (stated is not None)
    assert made == seeds


def test_a_run_of_repeats_tells_powers_of_two_and_all() -> None:
    assert {n: repeat_ks(n) for n in (1, 2, 3, 4, 8, 10)} == {
        1: (),
        2: (2,),
        3: (2, 3),
        4: (2, 4),
        8: (2, 4, 8),
        10: (2, 4, 8, 10),
    }


async def test_requests_ask_for_the_seed_and_scores_tell_of_the_repeats(
    baselines: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import headgate
    from headgate.models import TASK_HEADER_OPTION

    monkeypatch.chdir(tmp_path)
    model = headgate.Model(
        "greedy", base_url=baselines, served_name="baseline-greedy", options=((TASK_HEADER_OPTION, True),)
    )
    for repeats, taken in ((1, 2), (3, 4), (3, 0)):
        scores = await headgate.evaluate(
            model, ["headgate:tables"], instances=2, repeats=repeats, progress=False, num_evaluation_workers=2
        )
        assert scores.result is not None
        assert (scores.samples.height, scores.result.samples) == (2 * repeats, taken)
    assert {"pass@2", "pass@3", "maj@2", "maj@3"} <= set(scores.summary.columns)
    (row,) = scores.summary.to_dicts()
    assert row["maj@3"] == row["pass@3"] == row["mean_score"], "a baseline always answers alike"
    stored = (await headgate.leaderboard(".headgate/samples")).samples
    assert sorted(stored["index"]) == [0, 0, 0, 1, 1, 1]
    with pytest.raises(headgate.HeadgateError, match="repeats=3 needs instances"):
        await headgate.keep_sampling(model, ["headgate:tables"], duration_s=1, repeats=3, progress=False)
