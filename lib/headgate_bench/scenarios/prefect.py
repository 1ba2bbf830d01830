"""P6: the cost of a window as a Prefect flow run, and of requests under the slots of a global limit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.core import DAY_S
from headgate.models import SimulationPlan
from headgate_bench.artifact import at_most
from headgate_bench.definition import Bench, Outcome, Scenario
from headgate_bench.prefect_costs import CostMeter, RequestCost, WindowCost, cost_meter
from headgate_bench.provider import provider

_WINDOW_S: Final = 60.0
"""The window to which the bar refers."""


@dataclass(frozen=True, slots=True)
class PrefectParameters:
    """Parameters of the scenario."""

    window_s: float = 10.0  # length of the window, run twice; the overhead of a flow run does not depend on it
    models: int = 8  # models sampled in affine:sat
    samples_per_s: float = 150.0  # samples due per second, over all models
    batch: int = 300  # samples stored together
    slots: int = 64  # slots of the endpoint's global limit, and requests that it serves at once
    service_s: float = 0.2  # constant service time of the endpoint, so that a window's last reply is not random
    requests: int = 10_000  # requests admitted under slots
    rival_requests: int = 25  # requests of each rival; they take hundreds of times as long
    bar_share: float = 0.01  # maximum overhead of a flow run, as a share of a window of 60 s
    bar_calls: float = 5.0  # maximum calls of the Prefect API per batch
    bar_admission: int = 0  # maximum calls of the Prefect API while requests are admitted


async def measure(parameters: PrefectParameters, bench: Bench) -> Outcome:
    """Return the costs of orchestration, ours and the rivals', on one Prefect server."""
    bench.progress(0.0, "starting a Prefect server")
    async with cost_meter(bench.folder / "prefect") as meter:
        bench.progress(0.2, f"a window of {parameters.window_s:g} s")
        window = await _window(parameters, bench, meter)
        bench.progress(0.7, "requests under slots")
        ours = await meter.slots(parameters.requests, parameters.slots)
        bench.progress(0.8, "one task per request")
        tasks = await meter.task_per_request(parameters.rival_requests)
        bench.progress(0.9, "one slot of a global limit per request")
        limits = await meter.limit_per_request(parameters.rival_requests)
    return _outcome(parameters, window, {"headgate": ours, "one task": tasks, "one concurrency()": limits})


async def _window(parameters: PrefectParameters, bench: Bench, meter: CostMeter) -> WindowCost:
    plan = SimulationPlan(cap=parameters.slots, mean_s=parameters.service_s, cv=0.0, seed=bench.seed)
    async with provider(plan) as simulated:
        models = [{"name": f"simulated-{n}", "base_url": simulated.base_url} for n in range(parameters.models)]
        roster = bench.folder / "roster.json"
        roster.write_text(json.dumps({"models": models}))
        settings: dict[str, Any] = {
            "roster": str(roster),
            "store": str(bench.folder / "samples"),
            "journal": str(bench.folder / "journal"),
            "daily_rate_per_env": parameters.samples_per_s / parameters.models * DAY_S,
            "low_sample_multiplier": 1,
            "num_evaluation_workers": parameters.slots,
            "batch_flush_interval": 0.1,
            "sink_batch_size": parameters.batch,
            "enable_monitoring": False,
        }
        return await meter.window(simulated.base_url, settings, duration_s=parameters.window_s, slots=parameters.slots)


def _outcome(parameters: PrefectParameters, window: WindowCost, requests: dict[str, RequestCost]) -> Outcome:
    ours = requests["headgate"]
    calls = sum(window.calls.values())
    rivals = {name: cost for name, cost in requests.items() if cost is not ours}
    return Outcome(
        bars=[
            at_most(
                "P6.window",
                "time that a window takes longer as a flow run, of 60 s",
                window.more_s / _WINDOW_S,
                parameters.bar_share,
                "of the window",
                {
                    f"{name} per sample": cost.seconds / cost.requests * window.samples / window.plain_s
                    for name, cost in rivals.items()
                },
            ),
            at_most(
                "P6.calls",
                f"calls of the Prefect API per batch of {parameters.batch} samples",
                calls / max(1.0, window.samples / parameters.batch),
                parameters.bar_calls,
                "calls",
                {f"{name} per sample": parameters.batch * cost.calls / cost.requests for name, cost in rivals.items()},
            ),
            at_most(
                "P6.admission",
                f"calls of the Prefect API while {ours.requests:,} requests are admitted",
                ours.calls,
                parameters.bar_admission,
                "calls",
                {name: cost.calls / cost.requests * ours.requests for name, cost in rivals.items()},
            ),
        ],
        samples=[asdict(window), *({"way": name} | asdict(cost) for name, cost in requests.items())],
        notes=[
            f"The window of {parameters.window_s:g} s took {window.more_s:.2f} s more as a flow run.",
            "The start of a process and a worker's polling are not in it: they fall between windows.",
            f"{calls} calls in the window, for {window.samples:,} samples: {_most(window)}.",
            "Calls come with time, slots and the ends of a run; samples and batches add none.",
            *(
                f"{name}: {1e3 * cost.seconds / cost.requests:.3g} ms per request, {cost.requests} requests."
                for name, cost in requests.items()
            ),
        ],
    )


def _most(window: WindowCost) -> str:
    found = sorted(window.calls.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {call}" for call, count in found[:8])


SCENARIO = Scenario(
    name="prefect",
    # A short window has the calls of its start and end, but few batches to spread them over.
    quick=PrefectParameters(bar_calls=20.0),
    full=PrefectParameters(window_s=60.0, rival_requests=100),
    measure=measure,
)
