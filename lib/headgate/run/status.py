"""The state of a run: the status of its models and its queue, its progress, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core import DAY_S
from headgate.core.status import CampaignStatus, ModelStatus, QueueStatus
from headgate.run.matrix import Cell
from headgate.run.parts import Parts
from headgate.sampling import ModelSampler, RankingReport
from headgate.statistics import Agreement
from headgate.storage import control_words
from headgate.telemetry import duration

_HOUR_S = 3_600.0

BY_REQUEST: Final = "stopped by request"
"""The stop reason of a run that its caller, or a signal, stopped before its end."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did.

    Attributes:
        status: as it was at the end.
        samples: samples that this process accepted.
        scored: those of them with a score.
        stored: samples from its spool that are visible in the store.
        spooled: samples left in the journal, of all processes.
        open_tasks: opened tasks without a sample, of all processes; the next run takes them.
        stopped_early: whether it stopped because its samples kept failing.
        given_up: models whose service kept failing, and why: their other tasks were not run.
        empty_because: why there is no sample; empty if there are some, or if the tasks come from a provider.
        agreements: how far repeated judgements agree, by environment; over the latest samples, also of earlier runs.
        ranking: what is known about every two models, if `indifference` asks for it.
        left_out: tasks of a matrix that the journal refused, because another run has or had them.
        in_hand: those of `left_out` that are open: another run has them, and will sample them.
    """

    status: CampaignStatus
    samples: int
    scored: int
    stored: int
    spooled: int
    open_tasks: int
    stopped_by: str
    stopped_early: bool = False
    given_up: Mapping[str, str] = field(default_factory=dict)
    empty_because: str = ""
    agreements: tuple[tuple[str, Agreement], ...] = ()
    ranking: RankingReport | None = None
    left_out: frozenset[Cell] = frozenset()
    in_hand: frozenset[Cell] = frozenset()

    @property
    def was_interrupted(self) -> bool:
        """Whether its caller, or a signal, stopped it before its end."""
        return self.stopped_by == BY_REQUEST

    def ending(self) -> dict[str, Any]:
        """Return how it ended, and its sample counts, as reported by `--json` and flows."""
        names = ("samples", "scored", "stored", "spooled", "open_tasks", "stopped_by", "stopped_early")
        return {name: getattr(self, name) for name in names}


def why_no_samples(status: CampaignStatus, next_due_at: float | None) -> str:
    """Return why a campaign that samples by rates has no sample, for the user who waited for one.

    Args:
        status: as it was at the end.
        next_due_at: when the next sample falls due; None if none will.
    """
    lasted = duration(status.captured_at - status.started_at)
    paused = [model for model in status.models if model.is_paused]
    if len(paused) == len(status.models):
        first = paused[0]
        last = f", the last: {first.last_error}" if first.last_error else ""
        return f"every model is paused, for example {first.model}: {first.pause_reason}{last}"
    if status.open_tasks:
        return f"{status.open_tasks} tasks fell due and none finished within {lasted}; the next run takes them up"
    rates = sorted({pair.rate_per_day for pair in status.pairs if pair.rate_per_day})
    ends = dict.fromkeys(duration(DAY_S / rate) for rate in rates[:-2:-1] + rates[:1])
    spacing = f"; a model has a sample in an environment every {' to '.join(ends)}" if ends else ""
    due_in = "" if next_due_at is None else f"; the next sample is due in {duration(next_due_at - status.captured_at)}"
    return f"nothing fell due within {lasted}{due_in}{spacing}"


def model_status(sampler: ModelSampler, parts: Parts, now: float) -> ModelStatus:
    """Return a model's status: its pause, its counts, its budgets."""
    model, pause, dispatcher = sampler.model, sampler.pause, parts.dispatcher
    is_paused, requests = pause.is_paused(now), parts.requests
    budgets, engines = (None, None) if requests is None else (requests.budgets, requests.engines)
    stop = None if budgets is None else budgets.stop_of(model.key)
    kind, reason, until, since = None, None, None, None
    if is_paused:
        kind, reason, until, since = "errors", f"service errors (pause {pause.level})", pause.paused_until, pause.since
    if stop is not None:
        kind, reason, until, since = "budget", stop.reason, stop.until, stop.since
    steered = parts.controls.pause_of(model.key, None)
    if steered is not None:
        kind, reason, until, since = "control", control_words(steered), None, steered.at
    return ModelStatus(
        uid=model.uid,
        model=model.key,
        name=model.name,
        revision=model.revision,
        is_paused=kind is not None,
        pause_kind=kind,
        pause_reason=reason,
        pause_until=until,
        paused_since=since,
        rate_multiplier=sampler.multiplier,
        configured_daily_rate=sum(sampler.rate_per_day(e) for e in sampler.environments),
        samples_1h=sampler.counts(now, _HOUR_S),
        samples_24h=sampler.counts(now, DAY_S),
        consecutive_errors=pause.consecutive,
        errors_1h=sampler.errors.total(now),
        last_error=sampler.last_error[1] if sampler.last_error else None,
        last_error_at=sampler.last_error[0] if sampler.last_error else pause.began_at if is_paused else None,
        in_flight=dispatcher.in_flight(model.key),
        queued=dispatcher.queued(model.key),
        budgets=() if budgets is None else budgets.status(model.key),
        engines=None if engines is None else engines.status(model.key),
        unscored=sampler.unscored,
        unscored_since=sampler.unscored_since,
    )


def queue_status(parts: Parts, now: float) -> QueueStatus:
    """Return how many tasks are ready, and the state of backpressure."""
    queue, backpressure = parts.dispatcher.queue, parts.backpressure
    return QueueStatus(
        size=parts.backlog(),
        buffered=parts.batches.size,
        max_size=backpressure.max_size,
        warning_threshold=backpressure.warn_above,
        pause_threshold=backpressure.pause_at,
        resume_threshold=backpressure.resume_at,
        is_paused=backpressure.is_paused,
        enqueued=parts.dispatcher.enqueued,
        dequeued=parts.dispatcher.dequeued,
        enqueued_last_minute=parts.enqueued_recently.total(now),
        dequeued_last_minute=parts.dequeued_recently.total(now),
        by_environment={e: n for e, n in queue.by_environment.items() if n},
    )
