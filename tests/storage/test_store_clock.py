"""A store whose clock says another time than this machine's is refused, before anything is deleted for its age."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from headgate.core import CLOCK_TOLERANCE_S, DAY_S, errors
from headgate.storage import SampleStore
from headgate.storage.objects import ObjectStore
from tests.storage.places import IN_BOTH
from tests.storage.samples import many


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of this machine, as the store compares it: `ahead_s` ahead of the store's."""
    clock = SimpleNamespace(ahead_s=0.0, monotonic=time.monotonic)
    clock.time = lambda: time.time() + clock.ahead_s
    monkeypatch.setattr("headgate.storage.store.time", clock)
    return clock


@IN_BOTH
@pytest.mark.parametrize("ahead_s", [2 * DAY_S, -2 * DAY_S, CLOCK_TOLERANCE_S + 10.0, -400 * DAY_S])
async def test_a_clock_that_disagrees_with_the_store_is_refused(
    store: SampleStore, machine: SimpleNamespace, ahead_s: float
) -> None:
    machine.ahead_s = ahead_s
    with pytest.raises(errors.ClockDisagreesError, match="the sample store"):
        await store.probe()
    machine.ahead_s = CLOCK_TOLERANCE_S - 30.0
    assert (await store.probe()).warning is None


@IN_BOTH
async def test_a_sweep_by_a_clock_ahead_deletes_nothing(
    store: SampleStore, objects: ObjectStore, machine: SimpleNamespace
) -> None:
    objects.put_many([("samples/environment=x/date=2026-01-01/of-an-upload-under-way.parquet", b"x")])
    await store.put_batch("one", many(3))
    before = sorted(found.key for found in objects.listing("samples/"))
    machine.ahead_s = 2 * DAY_S
    for done in (store.sweep(machine.time()), store.compact(machine.time())):
        with pytest.raises(errors.ClockDisagreesError):
            await done
    assert sorted(found.key for found in objects.listing("samples/")) == before
