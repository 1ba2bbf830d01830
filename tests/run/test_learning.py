"""What one process has learnt of a provider, the next one begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.admission import Correlation, OutcomeKind, RequestLease, RequestOutcome
from headgate.config import Settings
from headgate.core import Model, SystemClock
from headgate.core.events import Event, SharedLimitIgnored
from headgate.core.rates import ModelRates, RateLimits
from headgate.core.status import RateStatus
from headgate.run.health import Health
from headgate.run.learning import SharedLearning
from headgate.run.request_side import RequestSide
from headgate.sampling import ModelSampler, SamplingRules
from headgate.storage import Journal, JournalThread, LimitKey, LimitReport
from tests.storage.journals import NOW

MODEL = Model(name="small", base_url="http://127.0.0.1:9/v1", max_parallel=64)


class Process:
    """A process of a campaign, as far as it learns."""

    def __init__(self, folder: Path, model: Model = MODEL) -> None:
        clock = SystemClock()
        self.events: list[Event] = []
        self.journal = JournalThread(Journal(folder, "main"), inline=True)
        self.requests = RequestSide(Settings(), clock=clock, emit=lambda _: None)
        self.requests.register(model)
        self.sampler = ModelSampler(MODEL, {"affine:sat": 100.0}, SamplingRules(), ordinal=0, now=NOW, history={})
        self.dispatcher = SimpleNamespace(held=None, hold=lambda model, until: setattr(self.dispatcher, "held", until))
        parts = SimpleNamespace(
            clock=clock,
            journal=self.journal,
            requests=self.requests,
            now=lambda: NOW,
            samplers={MODEL.key: self.sampler},
            dispatcher=self.dispatcher,
            emit=self.events.append,
            local=SimpleNamespace(touch=lambda *_: None),
            wake=SimpleNamespace(set=lambda: None),
        )
        self.learning = SharedLearning(parts, Health(parts, None))  # type: ignore[arg-type]

    def limit(self) -> tuple[int, int | None]:
        (status,) = self.requests.status()
        return status.limit, status.ceiling

    def is_refused(self) -> None:
        """Have as many requests in flight as it may, of which the provider refuses the last."""
        leases: list[RequestLease] = []
        item = self.requests.item(MODEL, Correlation("r", 1, "t", ""))
        while isinstance(lease := self.requests.admission.try_acquire(item), RequestLease):
            leases.append(lease)
        self.requests.admission.release(leases.pop(), RequestOutcome(OutcomeKind.RATE_LIMITED))
        for lease in leases:
            self.requests.admission.release(lease, RequestOutcome(OutcomeKind.LOCAL_CANCELLED))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with ExitStack() as stack:

        def start(model: Model = MODEL) -> Process:
            made = Process(tmp_path, model)
            stack.callback(made.journal.close)
            return made

        yield start


async def test_a_process_begins_at_its_part_of_the_ceiling_that_the_others_have_found(
    started: Callable[[], Process],
) -> None:
    first = started()
    await first.learning.share()
    first.is_refused()
    _, ceiling = first.limit()
    assert ceiling is not None
    await first.learning.share()
    second = started()
    await second.learning.share()
    assert second.limit() == (max(1, ceiling // 2 - 1), ceiling // 2)
    await first.learning.share()
    assert first.limit() == second.limit(), "and the first one leaves it that part"
    second.journal.close()
    await first.learning.share()
    assert first.limit()[1] == ceiling


@pytest.mark.parametrize("is_rated", [False, True])
async def test_what_was_granted_since_a_refusal_is_shared_and_no_ceiling_where_the_minute_was_used_up(
    started: Callable[[], Process], monkeypatch: pytest.MonkeyPatch, *, is_rated: bool
) -> None:
    first = started()
    (status,) = first.requests.status()
    rate = RateStatus("model", "tokens_per_minute", 9e4, 1.0, 0.0, 0.0, is_told=False, is_learnt=True, learnt=6e4)
    said = replace(status, ceiling=4, limit=38, rates=(rate,) if is_rated else ())
    monkeypatch.setattr(first.requests, "status", lambda: (said,))
    await first.learning.share()
    second = started()
    await second.learning.share()
    assert second.limit()[1] == (None if is_rated else 19)


async def test_processes_take_equal_parts_of_a_limit_per_minute(started: Callable[[Model], Process]) -> None:
    model = replace(MODEL, rates=ModelRates(own=RateLimits(600)))

    def limits(*processes: Process) -> list[float]:
        return [process.requests.status()[0].rates[0].limit for process in processes]

    processes = first, second = started(model), started(model)
    for process in processes:
        lease = process.requests.admission.try_acquire(process.requests.item(model, Correlation("r", 1, "t", "")))
        assert isinstance(lease, RequestLease)
    for process in (*processes, *processes):
        await process.learning.share()
    assert limits(*processes) == [300.0, 300.0]
    second.journal.close()
    await first.learning.share()
    assert limits(first) == [600.0]


def tokens_per_minute(process: Process) -> LimitKey:
    (status,) = process.requests.status()
    return LimitKey(status.provider, status.model, "tokens_per_minute")


async def test_a_limit_per_minute_that_others_have_learnt_holds_before_the_first_request(
    started: Callable[[], Process],
) -> None:
    first, second = started(), started()
    key = tokens_per_minute(first)
    first.journal.journal.share_limits({key: LimitReport(64, None, 60_000)}, NOW)
    await second.learning.share()
    (status,) = second.requests.status()
    (rate,) = status.rates
    assert (rate.scope, rate.unit, rate.limit) == (f"model {status.provider} small", "tokens_per_minute", 30_000)
    assert rate.is_learnt
    assert rate.is_heard
    await second.learning.share()
    assert second.requests.status()[0].rates[0].limit == 30_000, "it says nothing that others have not told it"
    first.journal.journal.share_limits({key: LimitReport(64, 60_000, 0)}, NOW)
    await second.learning.share()
    assert not second.requests.status()[0].rates


async def test_a_limit_per_minute_in_the_journal_that_cannot_be_true_is_told_and_not_taken_over(
    started: Callable[[], Process],
) -> None:
    first, second = started(), started()
    key = tokens_per_minute(first)
    with first.journal.journal._transaction():
        first.journal.journal._db.run("set_limit", (*key, 7, NOW))
    for process in (first, second):
        await process.learning.share()
        assert not process.requests.status()[0].rates
    assert first.events == [SharedLimitIgnored(*key, "7")]
    assert not second.events, "it is told once"


async def test_a_model_that_one_process_has_paused_is_paused_for_all_and_once(started: Callable[[], Process]) -> None:
    first, second = started(), started()
    first.journal.journal.record_pause(MODEL.key, 1, NOW + 60.0)
    await second.learning.share()
    assert second.sampler.pause.is_paused(NOW + 59.0)
    assert second.dispatcher.held == second.sampler.pause.paused_until
    second.sampler.pause.end()
    await second.learning.share()
    assert not second.sampler.pause.is_paused(NOW), "what it has heard of is not begun again"
