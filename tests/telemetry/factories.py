"""What telemetry tests are about: a status and samples with figures that can be told apart."""

from __future__ import annotations

from dataclasses import replace

from headgate.core import Sample
from headgate.core.status import CampaignStatus, ModelStatus, PairStatus, QueueStatus, RequestStatus, WorkerStatus

START = 1_763_600_000.0


class FixedClock:
    """A clock that stands still."""

    def monotonic(self) -> float:
        return 12.5

    def wall(self) -> float:
        return START

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing here sleeps (asked for {seconds} s)")


def sample(**changes: object) -> Sample:
    made = Sample(
        task_id="t-1",
        campaign="main",
        model="acme/small@main",
        environment="affine:sat",
        sequence=0,
        index=0,
        seed=7,
        stage="sample",
        score=0.75,
        success=True,
        why="3 of 4 clauses hold",
        error_kind=None,
        error=None,
        started_at=START,
        finished_at=START + 2,
        latency_s=2.0,
        queue_wait_s=0.5,
        request_wait_s=0.25,
        prompt_tokens=100,
        completion_tokens=20,
        turns=1,
        attempts=1,
        trace_id="0" * 32,
        conversation='[{"role": "user", "content": "a long story"}]',
    )
    return replace(made, **changes)


def model(uid: int, **changes: object) -> ModelStatus:
    name = f"acme/model-{uid}"
    made = ModelStatus(
        uid=uid,
        model=f"{name}@main",
        name=name,
        revision="main",
        is_paused=False,
        pause_reason=None,
        pause_until=None,
        rate_multiplier=3.0,
        configured_daily_rate=600.0,
        samples_1h={"affine:sat": 5, "agentgym:babyai": 7},
        samples_24h={"affine:sat": 50, "agentgym:babyai": 70},
        consecutive_errors=0,
        errors_1h=0,
        last_error=None,
        last_error_at=None,
        in_flight=2,
        queued=3,
    )
    return replace(made, **changes)


def request_status(number: int, **changes: object) -> RequestStatus:
    made = RequestStatus(
        provider=f"http://provider-{number}/v1",
        model=f"model-{number}",
        domain="chat",
        models=(f"acme/model-{number}@main",),
        cap=8,
        limit=4,
        in_flight=3,
        waiters=2,
        ceiling=5,
        cooldown_s=1.5,
        breaker="closed",
        pressure="cooldown",
        consecutive_rate_limits=1,
        last_outcome="rate_limited",
        retries_denied=6,
    )
    return replace(made, **changes)


def status(**changes: object) -> CampaignStatus:
    pairs = tuple(
        PairStatus(f"acme/model-{uid}@main", environment, 10, 8, 6, 2, 4.5, 300.0, lag)
        for uid in (1, 2, 3)
        for environment, lag in (("affine:sat", 0.0), ("agentgym:babyai", 40.0 * uid))
    )
    made = CampaignStatus(
        campaign="main",
        captured_at=START + 90,
        started_at=START,
        state="running",
        models=(
            model(1),
            model(2, samples_1h={"affine:sat": 1}),
            model(
                3,
                is_paused=True,
                pause_reason="3 consecutive service errors",
                pause_until=START + 900,
                consecutive_errors=3,
                errors_1h=3,
                last_error="HTTP 503",
                last_error_at=START + 80,
            ),
        ),
        pairs=pairs,
        queue=QueueStatus(
            size=1234,
            buffered=17,
            max_size=100_000,
            warning_threshold=5000,
            pause_threshold=8000,
            resume_threshold=3000,
            is_paused=False,
            enqueued=12345,
            dequeued=12000,
            enqueued_last_minute=120,
            dequeued_last_minute=90,
            by_environment={"affine:sat": 1000, "agentgym:babyai": 234},
        ),
        workers=WorkerStatus(
            total=20,
            active=19,
            finished=11_981,
            finished_last_minute=88,
            busy_s=1700.5,
            elapsed_s=90.0,
            utilization_last_minute=0.95,
            mean_task_s=12.25,
        ),
        spooled=56,
        stored=11_925,
        samples=11_981,
        open_tasks=1253,
    )
    return replace(made, **changes)
