"""A campaign by rates takes the tasks of invalidated samples again, once, beside what falls due anyway."""

from __future__ import annotations

from pathlib import Path

from headgate.simulation import MemoryStore
from tests.run.run_world import World, models

RATES = {"affine:sat": 2_400.0}


class Invalidated(MemoryStore):
    """A store in which samples were invalidated, of a model that has left the roster, too."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences: list[int] = []

    async def to_resample(self, campaign: str) -> list[tuple[str, str, int, str]]:
        wanted = [("m000@main", "affine:sat", number, "sample.2") for number in self.sequences]
        return [*wanted, ("gone@main", "affine:sat", 0, "sample.2")] if wanted else []


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
