"""Settings of an elastic pool: those of verl's elastic scheduler, and Headgate's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headgate.core.flaws import flaws_raised
from headgate.elastic.errors import InvalidElasticError

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Pause = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Threshold = Annotated[float, Field(gt=0, le=2)]  # refuses percentages such as 80, which would never be reached
PolicyName = Literal["threshold", "target", "predictive"]

SMALLEST_GAP = 0.05
"""With thresholds closer to each other than this, every small change would trigger scaling."""

_MOST_HEADROOM = 20


class ElasticConfig(BaseModel):
    """How a pool follows its load. Names and defaults of the first block are those of verl's elastic scheduler.

    `headroom`, which `wait_price` replaces, is still read: 1 is a price of 2, and each further one four times as much.

    Attributes:
        scale_down_threshold: load per capacity below which workers are put to sleep.
        scale_up_threshold: load per capacity above which workers are woken.
        min_workers: fewest workers awake; with 0 the first request after a pause waits for a start.
        max_workers: most workers awake.
        requests_per_worker_capacity: requests that one worker is given at once; None for what the engine reports. An
            engine that runs fewer is given fewer.
        monitoring_interval: seconds between two decisions, and between two readings of an engine.
        drain_timeout: how long a draining worker's requests may take before those whose answer has not begun move.
        scale_down_cooldown: seconds between two decisions of `threshold` to put workers to sleep.
        scale_up_cooldown: seconds between two decisions of `threshold` to wake workers, while no request waits.
        min_stable_period: how long load must have been low before `threshold` puts a worker to sleep, and how long a
            woken worker stays awake at least.
        enable_elastic: whether to follow the load; otherwise the workers stay as they are.
        policy: `threshold` (verl's rule, with fixes), `target` (proportional, with a panic window), `predictive`
            (follows the rule that would have cost least on the load so far, waiting counted at `wait_price`).
        target_load: share of a worker's capacity that `target` aims at.
        stable_window: window over which load is measured before workers are put to sleep (`target`); twice as long for
            `predictive`.
        panic_window: window over which load is measured before workers are woken (`target`).
        wait_price: cost of a second of a request's waiting to `predictive`, in worker-seconds; a higher price means
            more workers and less waiting.
        urgent_interval: shortest interval between decisions that are made because a request has to wait.
        confirm_interval: seconds between the two readings that must find a worker idle before it is put to sleep.
        stream_drain_timeout: how long a draining worker may continue answers that have begun to arrive, at least
            `engine_timeout` times `engine_attempts`; longer answers end with the error `request_lost`.
        engine_timeout: limit of one call to an engine, in seconds.
        start_timeout: limit for waking a worker or putting it to sleep, including all attempts; the wait for a lease
            does not count.
        engine_attempts: how often a failing call to an engine is made.
        failed_retry: pause before a failed worker is tried again, doubled with each further failure up to 20 times it.
        max_queue: most requests that wait in front of the pool.
        queue_timeout: longest wait of a request, in seconds; None for as long as its client waits.
        request_timeout: longest time that a worker may take for one request.
        max_losses: a request is given up once this many workers have failed with it.
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
    """Return the settings in a mapping, or in its section `elastic_config` if it has one.

    Raises:
        InvalidElasticError: a setting is unknown, invalid or contradicts another one.
    """
    section = written.get("elastic_config", written)
    if not isinstance(section, Mapping):
        raise InvalidElasticError(f"elastic_config must be a mapping of settings (got {section!r:.80})")
    return ElasticConfig(**{str(name): value for name, value in section.items()})
