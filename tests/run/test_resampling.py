"""A campaign by rates takes the tasks of invalidated samples again, once, beside what falls due anyway."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from headgate import storage
from headgate.core.events import ControlChanged, PairSettled, ScoreDropped
from headgate.run import Run, follow_invalidation
from headgate.simulation import LoopClock, MemoryStore
from tests.run.run_world import World, models

RATES = {"affine:sat": 2_400.0}


class Invalidated(MemoryStore):
    """A store in which samples were invalidated, of a model that has left the roster, too."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences: list[int] = []
        self.counted_out = 0

    async def to_resample(self, campaign: str, *, every: bool = False) -> list[tuple[str, str, int, str]]:
        wanted = [("m000@main", "affine:sat", number, "sample.2") for number in self.sequences]
        return [*wanted, ("gone@main", "affine:sat", 0, "sample.2")] if wanted else []

    async def invalid(self, campaign: str, since: float) -> list[tuple[str, str, float, float, int]]:
        out = self.samples[: self.counted_out]
        found = [(s.model, s.environment, s.finished_at, s.score or 0.0, s.index) for s in out]
        return [row for row in found if row[2] >= since] + [("m000@main", "affine:sat", since + 0.5, 1.0, 9_999)]

    async def task_scores(self, campaign: str) -> list[tuple[str, str, int, float]]:
        out = {(s.model, s.environment, s.sequence) for s in self.samples[: self.counted_out]}
        return [row for row in await super().task_scores(campaign) if row[:3] not in out]

    async def recent(self, campaign: str, since: float, most: int) -> list[storage.RecentSample]:
        out = {(s.model, s.finished_at) for s in self.samples[: self.counted_out]}
        rows = await super().recent(campaign, since, most)
        return [row for row in rows if (row.model, row.finished_at) not in out]

    def marked(self, count: int, *, undo: bool = False) -> storage.Invalidated:
        """Return what `headgate invalidate` says of the first samples, and let the store say so, too."""
        rows = pl.DataFrame([
            {name: getattr(one, name) for name in ("campaign", "model", "environment", "score", "finished_at")}
            for one in self.samples[:count]
        ])  # fmt: skip
        self.counted_out = 0 if undo else count
        return storage.Invalidated("mark", count, (), 0, (), undo, rows)


def test_tasks_to_be_taken_again_are_taken_once_and_numbers_go_on(tmp_path: Path) -> None:
    store = Invalidated()
    world = World(tmp_path, store)
    first = world.run(models(2), RATES, duration_s=600.0)
    before = {sample.task_id for sample in store.samples}
    assert first.open_tasks == 0
    store.sequences = [0, 3]
    world.run(models(2), RATES, start_s=700.0, duration_s=600.0)
    world.run(models(2), RATES, start_s=1_400.0, duration_s=600.0)  # the store says so still: nothing is taken twice
    fresh = [sample for sample in store.samples if sample.task_id not in before]
    again = [(one.model, one.sequence, one.index) for one in fresh if one.stage == "sample.2"]
    assert again == [("m000@main", 0, 0), ("m000@main", 3, 3)]
    assert len({sample.task_id for sample in store.samples}) == len(store.samples)
    numbers = sorted(one.sequence for one in store.samples if (one.model, one.stage) == ("m000@main", "sample"))
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 40


def test_a_run_that_goes_on_counts_what_was_invalidated_no_longer_and_again_after_an_undo(tmp_path: Path) -> None:
    store = Invalidated()
    world = World(tmp_path, store)
    seen: list[tuple[float, ...]] = []

    async def during(run: Run, clock: LoopClock) -> None:
        async def look() -> None:
            await clock.sleep(11)
            status = run.status()
            (model, _), (pair, _) = status.models, status.pairs
            of_all = run.samplers[model.model].samples_24h(run.now())
            seen.append((model.samples_24h["affine:sat"], of_all, pair.scored, pair.score_sum, pair.done))

        await clock.sleep(900)
        await run.steering.steer({"verb": "pause"}, "ops")
        await clock.sleep(60)
        await look()
        scores = [sample.score or 0.0 for sample in store.samples[:10] if sample.model == "m000@main"]
        assert 0 < len(scores) < 10
        gone = (len(scores), len(scores), len(scores), sum(scores), 0)
        seen.append(tuple(counted - out for counted, out in zip(seen[0], gone, strict=True)))
        for undo in (False, True):
            done = store.marked(10, undo=undo)
            what = storage.Invalidation(storage.Chosen(), "a wrong key", "anna", undo=undo)
            await follow_invalidation(world.settings(), store, what, done, run.now())  # type: ignore[arg-type]
            await look()

    settings = {"sink_batch_size": 10, "sink_max_wait": 1.0}
    world.run(models(2), RATES, duration_s=1_200.0, during=during, settings=settings)
    before, expected, after, undone = seen
    assert (after, undone) == (expected, before)
    changes = [(event.verb, event.by, event.reason) for event in world.of(ControlChanged)]
    assert ("recount", "anna", "10 samples count no longer: a wrong key") in changes


@pytest.mark.parametrize(
    ("marks", "drops"), [((), 1), ((False,), 0), ((False, True), 1)], ids=["not", "once", "undone"]
)
def test_a_drop_is_looked_for_among_the_samples_that_count(tmp_path: Path, marks: tuple[bool, ...], drops: int) -> None:
    store = Invalidated()
    world = World(tmp_path, store)

    async def during(run: Run, clock: LoopClock) -> None:
        assert world.chats is not None
        world.chats._skill = 0.95  # a scorer that was wrong
        await clock.sleep(3 * 3_600)
        for undo in marks:
            done = store.marked(len(store.samples), undo=undo)
            what = storage.Invalidation(storage.Chosen(), "a wrong key", "anna", undo=undo)
            await follow_invalidation(world.settings(), store, what, done, run.now())  # type: ignore[arg-type]
            await clock.sleep(11)
        world.chats._skill = 0.2

    settings = {"sink_batch_size": 10, "sink_max_wait": 1.0, "low_sample_threshold": 0}
    world.run(models(1), RATES, duration_s=6 * 3_600, during=during, settings=settings)
    assert len(world.of(ScoreDropped)) == drops


@pytest.mark.parametrize("marks", [(), (False,), (False, True)], ids=["not", "once", "undone"])
def test_a_mean_is_known_by_the_samples_that_count(tmp_path: Path, marks: tuple[bool, ...]) -> None:
    store = Invalidated()
    world = World(tmp_path, store)

    async def during(run: Run, clock: LoopClock) -> None:
        assert world.chats is not None
        world.chats._skill = 1.0
        await clock.sleep(600)
        for undo in marks:
            done = store.marked(len(store.samples), undo=undo)
            what = storage.Invalidation(storage.Chosen(), "a wrong key", "anna", undo=undo)
            await follow_invalidation(world.settings(), store, what, done, run.now())  # type: ignore[arg-type]
            await clock.sleep(11)

    settings = {
        "sink_batch_size": 1, "sink_max_wait": 1.0, "low_sample_threshold": 0, "target_half_width": 0.1,
        "target_min_tasks": 30,
    }  # fmt: skip
    world.run(models(1), RATES, duration_s=3 * 3_600, during=during, settings=settings)
    (settled,) = world.of(PairSettled)
    assert (store.counted_out > 0) == (marks == (False,))
    assert len(store.samples) == settled.tasks + store.counted_out
