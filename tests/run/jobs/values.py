"""Jobs, a queue and a store in memory, as collectors see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headgate.core import Sample
from headgate.core.errors import StoreError
from headgate.jobqueue import Happening, JobState
from headgate.jobqueue.wire import EntryOut, FinishedOut, HistoryOut, JobOut, ResultsOut
from headgate.jobqueue.wire_servers import LaneOut, StatisticsOut
from headgate.storage import History, RecentSample, SampleStore, StoredBatch
from headgate.storage.frames import Scan

BEGAN = 1_767_225_600.0


def job(job_id: str = "a.radio.1", **more: Any) -> JobOut:
    given: dict[str, Any] = {
        "id": job_id, "seq": 1, "team": "team_a", "task": "radio", "instance": "house_radio_0_7", "pool": "team_a",
        "resource_type": "team_a", "payload": {}, "priority": 0, "max_attempts": 3, "state": JobState.DONE,
        "epoch": 2, "failures": 1, "worker": "w-1", "submitted_at": BEGAN, "claimed_at": BEGAN + 10,
        "finished_at": BEGAN + 40, "last_error": "", "result": {"q_score": 0.75}, "result_ref": "", "checksum": "",
    }  # fmt: skip
    return JobOut(**(given | more))


class Queue:
    """A queue whose completed jobs and reservations are added by hand; each of its answers is a page of `page`.

    `then` is called before each look.
    """

    def __init__(self, page: int = 2) -> None:
        self.page = page
        self.finished: list[FinishedOut] = []
        self.entries: list[EntryOut] = []
        self.states: dict[JobState, int] = dict.fromkeys(JobState, 0)
        self.lanes: list[LaneOut] = []
        self.asked: list[int] = []
        self.then: Callable[[], None] = lambda: None

    def complete(self, *jobs: JobOut, server: str = "") -> None:
        for one in jobs:
            entry = len(self.finished) + len(self.entries)
            if server:
                self.entries.append(
                    EntryOut(
                        entry=entry + 1, at=BEGAN, what=Happening.RESERVED, job_id=one.id, epoch=1, worker=one.worker,
                        resource_id=server, note="",
                    )
                )  # fmt: skip
                entry += 1
            self.finished.append(FinishedOut(entry=entry + 1, job=one))
            self.states[JobState.DONE] += 1

    async def results(self, after: int = 0, limit: int = 1000) -> ResultsOut:
        self.asked.append(after)
        found = [one for one in self.finished if one.entry > after][: min(self.page, limit)]
        return ResultsOut(results=found, next=found[-1].entry if found else after)

    async def history(self, after: int = 0, limit: int = 1000, what: Happening | None = None) -> HistoryOut:
        found = [one for one in self.entries if one.entry > after][: min(self.page, limit)]
        return HistoryOut(entries=found, next=found[-1].entry if found else after)

    async def statistics(self) -> StatisticsOut:
        """Return the figures of now; what `then` changes is seen by the next look."""
        self.then()
        return StatisticsOut(jobs=dict(self.states), workers=0, waiting_claims=0, pools=[], lanes=self.lanes)


class FailingStore:
    """A sample store whose next puts fail, before or after the batch was taken."""

    def __init__(self, store: SampleStore) -> None:
        self.store = store
        self.fail_before = 0
        self.fail_after = 0

    async def put_batch(self, batch_id: str, samples: Sequence[Sample]) -> StoredBatch:
        if self.fail_before:
            self.fail_before -= 1
            raise StoreError("the disk is away")
        done = await self.store.put_batch(batch_id, samples)
        if self.fail_after:
            self.fail_after -= 1
            raise StoreError("the answer was lost")
        return done

    async def scan(
        self,
        environments: Iterable[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        columns: Sequence[str] | None = None,
        *,
        everything: bool = False,
    ) -> Scan:
        return await self.store.scan(environments, since, until, columns, everything=everything)

    async def history(self, now: float) -> History:
        return await self.store.history(now)

    async def to_resample(self, campaign: str, *, every: bool = False) -> list[tuple[str, str, int, str]]:
        return await self.store.to_resample(campaign, every=every)

    async def recent(self, campaign: str, since: float, most: int) -> list[RecentSample]:
        return await self.store.recent(campaign, since, most)

    async def task_scores(self, campaign: str) -> list[tuple[str, str, int, float]]:
        return await self.store.task_scores(campaign)
