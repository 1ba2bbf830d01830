"""Settings of an elastic pool: those of verl's elastic scheduler, and our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headgate.core.flaws import flaws_raised
from headgate.elastic.errors import InvalidElasticError

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Pause = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Threshold = Annotated[float, Field(gt=0, le=2)]  # 80 is per cent, and would never be reached
PolicyName = Literal["threshold", "target", "predictive"]

SMALLEST_GAP = 0.05
"""Thresholds that are closer than this to each other would take every small change for a reason to scale."""

_MOST_HEADROOM = 20


class ElasticConfig(BaseModel):
    """How a pool follows its load. Names and defaults of the first block are those of verl's elastic scheduler.

    `headroom`, which `wait_price` replaces, is still read: 1 is a price of 2, and each further one four times as much.

    Attributes:
        scale_down_threshold: load per capacity below which workers are put to sleep.
        scale_up_threshold: load per capacity above which workers are woken.
        min_workers: so many are always awake; with 0 the first request after a pause waits for a start.
        max_workers: so many are awake at most.
        requests_per_worker_capacity: requests that one worker is given at once; None takes what the engine tells. An
            engine that runs fewer is given fewer.
        monitoring_interval: seconds between two decisions, and between two readings of an engine.
        drain_timeout: how long a draining worker's requests may take before those that have not begun to answer move.
        scale_down_cooldown: between two decisions of `threshold` to put workers to sleep.
        scale_up_cooldown: between two decisions of `threshold` to wake workers, while nothing waits.
        min_stable_period: how long load must have been low before `threshold` puts a worker to sleep, and how long a
            worker that was woken is left awake.
        enable_elastic: follow the load; otherwise the workers stay as they are.
        policy: `threshold` (verl's rule, repaired), `target` (proportional, with a panic window), `predictive`
            (follows the rule that would have cost least on the load so far, waiting counted at `wait_price`).
        target_load: share of a worker's capacity that `target` aims at.
        stable_window: load is looked at over so long before workers are put to sleep (`target`), or over twice as long
            (`predictive`).
        panic_window: load is looked at over so long before workers are woken (`target`).
        wait_price: what a second of a request's waiting is worth to `predictive`, in seconds of a worker; more costs
            more and waits less.
        urgent_interval: a request that has to wait is a reason to decide at once, but not more often than this.
        confirm_interval: between the two readings that have to find a worker idle before it is put to sleep.
        stream_drain_timeout: how long a draining worker may go on with answers that have begun to arrive, at least
            `engine_timeout` times `engine_attempts`; what takes longer ends with the error `request_lost`.
        engine_timeout: one call of an engine takes so long at most.
        start_timeout: starting a worker takes so long at most, its lease and all attempts included.
        engine_attempts: a call of an engine that fails is made so often.
        failed_retry: pause before a failed worker is tried again, doubled with each further failure up to 20 times it.
        max_queue: requests that wait in front of the pool at most.
        queue_timeout: a request waits so long at most; None for as long as its client does.
        request_timeout: a worker may take so long for one request.
        max_losses: a request that broke with so many workers is given to no further one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale_down_threshold: Threshold = 0.5
    scale_up_threshold: Threshold = 0.8
    min_workers: int = Field(default=1, ge=0)
    max_workers: int = Field(default=8, ge=1)
    requests_per_worker_capacity: int | None = Field(default=8, ge=1)
    monitoring_interval: Seconds = 5.0
    drain_timeout: Seconds = 30.0
    scale_down_cooldown: Pause = 60.0
    scale_up_cooldown: Pause = 30.0
    min_stable_period: Pause = 10.0
    enable_elastic: bool = True

    policy: PolicyName = "predictive"
    target_load: Ratio = 0.7
    stable_window: Seconds = 20.0
    panic_window: Seconds = 6.0
    wait_price: Pause = 2.0
    urgent_interval: Seconds = 0.25
    confirm_interval: Seconds = 1.0
    stream_drain_timeout: Seconds = 120.0
    engine_timeout: Seconds = 10.0
    start_timeout: Seconds = 180.0
    engine_attempts: int = Field(default=3, ge=1)
    failed_retry: Seconds = 15.0
    max_queue: int = Field(default=10_000, ge=0)
    queue_timeout: Seconds | None = 120.0
    request_timeout: Seconds = 600.0
    max_losses: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.min_workers > self.max_workers:
            raise ValueError(f"min_workers must be <= max_workers (got {self.min_workers} > {self.max_workers})")
        if self.scale_down_threshold + SMALLEST_GAP > self.scale_up_threshold:
            raise ValueError(
                f"scale_down_threshold must be at least {SMALLEST_GAP} below scale_up_threshold "
                f"(got {self.scale_down_threshold} and {self.scale_up_threshold})"
            )
        if self.panic_window > self.stable_window:
            raise ValueError(f"panic_window must be <= stable_window (got {self.panic_window} > {self.stable_window})")
        if self.target_load > 1:
            raise ValueError(f"target_load must be <= 1 (got {self.target_load})")
        return self

    def __init__(self, **written: Any) -> None:
        headroom = written.pop("headroom", None)
        if isinstance(headroom, int | float) and 0 <= headroom <= _MOST_HEADROOM:
            written.setdefault("wait_price", 2 * 4 ** (headroom - 1))
        elif headroom is not None:
            raise InvalidElasticError(f"headroom must be between 0 and {_MOST_HEADROOM} (got {headroom!r:.80})")
        with flaws_raised(type(self), InvalidElasticError):
            super().__init__(**written)


def elastic_config(written: Mapping[str, Any]) -> ElasticConfig:
    """Return the settings of a mapping, or of its section `elastic_config` where it has one.

    Raises:
        InvalidElasticError: if a setting is unknown, impossible or contradicts another one.
    """
    section = written.get("elastic_config", written)
    if not isinstance(section, Mapping):
        raise InvalidElasticError(f"elastic_config must be a mapping of settings (got {section!r:.80})")
    return ElasticConfig(**{str(name): value for name, value in section.items()})
