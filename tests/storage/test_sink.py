"""The sink: from the spool into the store, in batches, until the store has them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headgate.core import Sample, errors
from headgate.core.events import BatchStored, Event, RowsQuarantined, StoreFailed
from headgate.simulation.virtual_time import LoopClock, run_virtual
from headgate.storage import Journal, JournalThread, Sink, SinkRules, StoredBatch
from headgate.storage.spool import LARGEST_BATCH_BYTES
from tests.storage.journals import NOW, opened, opening, sample

RULES = SinkRules(batch_size=10, max_wait_s=300.0, largest=20)


@dataclass
class ScriptedStore:
    """A store that fails as long as it is told to, takes its time, and keeps what it was given."""

    fails: int = 0
    takes_s: float = 0.0
    quarantines: int = 0
    tries: list[tuple[float, str, tuple[int, ...]]] = field(default_factory=list)
    batches: dict[str, list[Sample]] = field(default_factory=dict)

    async def put_batch(self, batch_id: str, samples: list[Sample]) -> StoredBatch:
        now = asyncio.get_running_loop().time()
        self.tries.append((now, batch_id, tuple(s.sequence for s in samples)))
        await asyncio.sleep(self.takes_s)
        if self.fails:
            self.fails -= 1
            raise errors.StoreError("the bucket is away")
        self.batches.setdefault(batch_id, samples)
        bad = self.quarantines
        return StoredBatch(
            batch_id,
            len(samples) - bad,
            1,
            quarantined_rows=bad,
            quarantine_path="quarantine/x" if bad else None,
            reason="score: above 1" if bad else None,
        )

    @property
    def sequences(self) -> list[int]:
        return sorted(s.sequence for batch in self.batches.values() for s in batch)


class Workbench:
    """A journal, a scripted store and the sink between them, in virtual time."""

    def __init__(self, folder: Path, store: ScriptedStore, rules: SinkRules = RULES) -> None:
        self.journal = Journal(folder, "main")
        self.store = store
        self.events: list[Event] = []
        self.clock = LoopClock(NOW)
        self.thread = JournalThread(self.journal, inline=True)
        self.sink = Sink(self.thread, store, rules, clock=self.clock, now=self.clock.wall, emit=self.events.append)
        self._next = 0

    def accept(self, rows: int, *, chars: int = 0) -> None:
        tasks = opened(self.journal, *(opening(self._next + i) for i in range(rows)))
        self._next += rows
        accepted = self.journal.accept([sample(task) for task in tasks], self.clock.wall())
        self.sink.note_accepted(len(accepted), rows * chars)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def times(self) -> list[float]:
        return [at for at, _, _ in self.store.tries]


def played(
    folder: Path, script: Callable[[Workbench], Awaitable[None]], store: ScriptedStore | None = None
) -> Workbench:
    """Run a script beside a running sink; finish the sink when the script is over."""

    async def play() -> Workbench:
        bench = Workbench(folder, store or ScriptedStore())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(bench.sink.run())
            await asyncio.sleep(0)
            await script(bench)
            bench.sink.finish()
            await running
        return bench

    bench = run_virtual(play())
    bench.journal.close()
    return bench


def test_once_a_batch_is_full_everything_that_waits_goes_with_it(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(9)
        await asyncio.sleep(10)
        assert bench.store.tries == []
        bench.accept(4)
        await asyncio.sleep(10)
        assert [rows for _, _, rows in bench.store.tries] == [tuple(range(13))]
        assert bench.times == [10.0]
        assert (bench.sink.spooled, bench.journal.spool_count()) == (0, 0)

    played(tmp_path, script)


def test_large_conversations_are_stored_before_a_batch_has_all_its_rows(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(2, chars=LARGEST_BATCH_BYTES // 2 - 1)
        await asyncio.sleep(10)
        assert bench.store.tries == []
        bench.accept(1, chars=2)
        await asyncio.sleep(10)
        assert (bench.times, bench.sink.spooled) == ([10.0], 0)
        bench.accept(1)
        await asyncio.sleep(10)
        assert bench.times == [10.0]

    played(tmp_path, script)


def test_a_sample_waits_no_longer_than_the_longest_wait(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        await asyncio.sleep(50)
        bench.accept(1)
        await asyncio.sleep(100)
        bench.accept(1)
        await asyncio.sleep(250)
        assert [(at, rows) for at, _, rows in bench.store.tries] == [(350.0, (0, 1))]
        assert bench.journal.spool_count() == 0
        bench.accept(1)
        await asyncio.sleep(1_000)
        assert bench.times == [350.0, 700.0]

    played(tmp_path, script)


def test_no_batch_is_larger_than_the_largest_and_what_is_less_than_full_waits(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(45)
        await asyncio.sleep(10)
        assert [len(rows) for _, _, rows in bench.store.tries] == [20, 20]
        assert bench.times == [0.0, 2.0]

    bench = played(tmp_path, script, ScriptedStore(takes_s=2.0))
    assert bench.store.sequences == list(range(45))


def test_a_failed_batch_keeps_its_id_and_its_rows_while_others_arrive(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(10)
        await asyncio.sleep(0.1)
        assert bench.sink.problem == "the bucket is away"
        bench.accept(25)
        await asyncio.sleep(1_000)
        assert bench.sink.problem == ""

    bench = played(tmp_path, script, ScriptedStore(fails=4))
    first = bench.store.tries[:5]
    assert {(batch_id, rows) for _, batch_id, rows in first} == {(first[0][1], tuple(range(10)))}
    assert bench.store.sequences == list(range(35))
    assert [event.attempt for event in bench.of(StoreFailed)] == [1, 2, 3, 4]  # type: ignore[attr-defined]


def test_pauses_between_tries_grow_to_a_minute_and_no_further_however_long_the_store_is_away(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(10)
        await asyncio.sleep(80_000)

    bench = played(tmp_path, script, ScriptedStore(fails=1_100))
    pauses = [after - before for before, after in zip(bench.times, bench.times[1:], strict=False)][:1_100]
    for number, pause in enumerate(pauses):
        assert 0.75 * min(2.0 ** min(number, 10), 60.0) <= pause <= 1.25 * min(2.0 ** min(number, 10), 60.0) + 1e-6
    told = [event.retry_in_s for event in bench.of(StoreFailed)]  # type: ignore[attr-defined]
    assert told == pytest.approx(pauses)
    assert bench.store.sequences == list(range(10))


def test_after_a_success_the_pauses_are_short_again(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(10)
        await asyncio.sleep(100)
        bench.store.fails = 1
        bench.accept(10)
        await asyncio.sleep(100)

    bench = played(tmp_path, script, ScriptedStore(fails=5))
    assert [event.attempt for event in bench.of(StoreFailed)] == [1, 2, 3, 4, 5, 1]  # type: ignore[attr-defined]


def test_finishing_stores_partial_batches(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(13)
        await asyncio.sleep(1)
        bench.accept(4)

    bench = played(tmp_path, script)
    assert bench.store.sequences == list(range(17))
    assert bench.sink.stored == 17
    assert bench.sink.spooled == 0


def test_finishing_does_not_wait_for_a_pause_and_tries_once_more(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(10)
        await asyncio.sleep(200)
        bench.store.fails = 0

    bench = played(tmp_path, script, ScriptedStore(fails=10_000))
    assert bench.times[-1] == 200.0
    assert bench.store.sequences == list(range(10))


def test_what_the_store_still_refuses_at_the_end_stays_in_the_spool_for_the_heir(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(12)
        await asyncio.sleep(5)

    bench = played(tmp_path, script, ScriptedStore(fails=10_000))
    refused = bench.store.tries[-1]

    async def heir() -> ScriptedStore:
        again = Workbench(tmp_path, ScriptedStore())
        again.journal.adopt([], [])
        again.sink.finish()
        await again.sink.run()
        again.journal.close()
        return again.store

    store = run_virtual(heir())
    assert store.tries[0][1:] == refused[1:]
    assert store.sequences == list(range(12))


def test_a_put_that_is_cancelled_loses_nothing(tmp_path: Path) -> None:
    async def cancelled() -> Workbench:
        bench = Workbench(tmp_path, ScriptedStore(takes_s=60.0))
        running = asyncio.create_task(bench.sink.run())
        await asyncio.sleep(0)
        bench.accept(10)
        await asyncio.sleep(30)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert bench.store.batches == {}
        assert bench.journal.spool_count() == 10
        second = asyncio.create_task(bench.sink.run())
        await asyncio.sleep(100)
        bench.sink.finish()
        await second
        return bench

    bench = run_virtual(cancelled())
    bench.journal.close()
    assert {(batch_id, rows) for _, batch_id, rows in bench.store.tries} == {
        (bench.store.tries[0][1], tuple(range(10)))
    }
    assert bench.store.sequences == list(range(10))


def test_what_was_spooled_before_the_start_is_stored_when_its_time_comes(tmp_path: Path) -> None:
    async def later() -> list[float]:
        bench = Workbench(tmp_path, ScriptedStore())
        bench.accept(3)
        fresh = Sink(
            bench.thread, bench.store, RULES, clock=bench.clock, now=bench.clock.wall, emit=bench.events.append
        )
        running = asyncio.create_task(fresh.run())
        await asyncio.sleep(400)
        fresh.finish()
        await running
        bench.journal.close()
        return bench.times

    assert run_virtual(later()) == [300.0]


def test_a_look_finds_the_samples_that_another_process_left(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        dead = Journal(tmp_path, "main")
        tasks = opened(dead, *(opening(i) for i in range(4)))
        dead.accept([sample(task) for task in tasks], bench.clock.wall())
        dead.close()
        bench.journal.adopt([], [])
        await bench.sink.look()
        await asyncio.sleep(400)
        assert bench.store.sequences == [0, 1, 2, 3]
        assert bench.times == [300.0]

    played(tmp_path, script)


def test_rows_that_the_store_puts_into_quarantine_are_told_of(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        bench.accept(10)
        await asyncio.sleep(1)

    bench = played(tmp_path, script, ScriptedStore(quarantines=2, takes_s=0.5))
    batch_id = bench.store.tries[0][1]
    assert bench.events == [
        BatchStored(batch_id, 8, 1, 0.5),  # type: ignore[arg-type]
        RowsQuarantined(batch_id, 2, "quarantine/x", "score: above 1"),  # type: ignore[arg-type]
    ]
    assert bench.sink.stored == 8


def test_a_journal_that_cannot_be_written_delays_the_sink_and_does_not_end_it(tmp_path: Path) -> None:
    async def script(bench: Workbench) -> None:
        real = bench.journal.batch_stored
        broken = iter([True, True, False, False])

        def batch_stored(batch_id: str) -> None:
            if next(broken):
                raise sqlite3.OperationalError("database or disk is full")
            real(batch_id)  # type: ignore[arg-type]

        bench.journal.batch_stored = batch_stored  # type: ignore[method-assign, assignment]
        bench.accept(10)
        await asyncio.sleep(60)

    bench = played(tmp_path, script)
    assert bench.store.sequences == list(range(10))
    assert len({(batch_id, rows) for _, batch_id, rows in bench.store.tries}) == 1
    failed = bench.of(StoreFailed)
    assert ["database or disk is full" in event.error for event in failed] == [True, True]  # type: ignore[attr-defined]
    assert len(bench.of(BatchStored)) == 1


def test_an_error_of_our_own_ends_the_sink(tmp_path: Path) -> None:
    class Broken(ScriptedStore):
        async def put_batch(self, batch_id: str, samples: list[Sample]) -> StoredBatch:
            raise TypeError("a bug")

    async def run() -> None:
        bench = Workbench(tmp_path, Broken())
        bench.accept(10)
        try:
            await bench.sink.run()
        finally:
            bench.journal.close()

    with pytest.raises(TypeError, match="a bug"):
        run_virtual(run())
