"""Every scenario at a size that takes seconds, run as the command line runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main

RATED = ("rated_seconds=120", "rated_seeds=1", "bar_rated=0", "bar_rated_refused=100", "bar_unfair=1000")

IDLE_CASES = (
    "row-scale/rows-64",
    "adaptations/adaptive-row-groups-fixed-low",
    "adaptations/adaptive-row-groups-adaptive",
    "adaptations/request-pressure-control",
    "adaptations/request-pressure-advisory",
)

TINY = {
    "alerts": ("models=5", "years=0.005", "dropping=5", "history_days=2", "search_days=1"),
    "hostile": ("kinds=answers,messages", "tries=1"),
    "admission": (
        "waiters=200", "slots=4", "groups=3", "handovers=100", "contended=400", "alone=200", "idle_s=0.1", "most_s=1",
        "iterations=1",
    ),
    "queue": ("groups=1,32", "tasks=300", "backlog=100", "iterations=1", "rival_cpu_s=0.02"),
    "day": ("models=1", "compared_s=3600"),
    "elastic": (
        "scale=0.01", "steady_s=60", "backlog=50", "rivals=verl,clairvoyant", "frontiers=clairvoyant,predictive",
        "drawn_shapes=bursty", "drawn_scale=0.01", "drawn_peers=knative",
    ),
    "environments": ("names=affine:sat", "episodes=5", "turns=50"),
    "scale": (
        "models=4", "environments=3", "samples=300", "workers=16", "demand_per_s=2000", "bare_episodes=64",
        "reading_s=0.05", "sink_batch_size=100",
    ),
    "idle": ("cases=" + ",".join(IDLE_CASES),),
    "jobqueue": (
        "parts=postgres,http,pickup,flat,saturation,heartbeats", "jobs=400", "batch=50", "rival_jobs=1", "http_s=0.2",
        "http_clients=4", "pickup_jobs=20", "pickup_workers=4",
        "handovers=5", "small=1000", "large=2000", "flat_rounds=2", "saturation_hours=0.2", "saturation_scale=600",
        "saturation_episodes=2", "heartbeat_workers=20", "heartbeat_lease_s=10", "heartbeat_s=0.3",
    ),
    "console": (
        "samples=300", "models=6", "environments=4", "days=2", "per_s=5", "run_models=2", "run_environments=2",
        "pairs=1", "window_s=0.3", "viewers=3", "viewers_s=0.3",
    ),
    "limit": ("seconds=60", "seeds=1", "rival_seeds=1", "router_seconds=10"),
    "neighbours": (
        "kinds=computing programs,worker slots,judges", "others=2", "at_once=1", "samples=2", "settle_s=0.1",
        "rival_s=0.5",
    ),
    "placement": (
        "nodes=1", "starts=3", "rival_starts=1", "stops=1", "stuck_stops=1", "cycles=1", "hours=1",
        "cancel_timeout_s=0.1", "trace_jobs=30", "waiting=40",
    ),
    "prefect": (
        "window_s=2", "models=2", "samples_per_s=20", "slots=8", "service_s=0.02", "requests=200", "rival_requests=2",
    ),
    "ranking": (
        "kinds=far apart,a new one unlike the known,baselines of graded strength", "errors=1", "rows_share=0.02",
        "environments=affine:sat-hard", "tasks=8",
    ),
    "scaleout": ("parts=journal", "processes=2", "models=20", "rounds=2", "batch=5", "iterations=1"),
    "store": (
        "rows=1000", "batch_rows=50", "environments=2", "iterations=1", "kills=1", "writers=1", "longest_s=0.2",
    ),
    "utilisation": (
        "models=4", "environments=2", "cap=8", "mean_s=0.05", "warm_up_s=0.3", "window_s=0.7", "iterations=1",
    ),
}  # fmt: skip

EASY = {
    "alerts": ("bar_false=1e9", "bar_found=0"),
    "hostile": ("bar_others=0",),
    "admission": ("bar_handover_ms=1e9", "bar_idle=1e9", "bar_contended=1", "bar_alone=1"),
    "queue": ("bar_us=1e9", "bar_beside=1e9", "bar_flat=1e9"),
    "day": (),
    "elastic": (
        "bar_cost_1s=1e9",
        "bar_wait_1s=1e9",
        "bar_cost_30s=1e9",
        "bar_wait_30s=1e9",
        "bar_operations=1000",
        "bar_worth=0",
        "bar_steady=100",
        "bar_backlog=100",
        "bar_frontier_cost=1e9",
        "bar_frontier_wait=1e9",
        "bar_frontier_operations=1e9",
    ),
    "environments": ("bar_sigmas=100", "bar_turn_ms=1000"),
    "scale": ("bar_us=1e9", "bar_request_us=1e9", "bar_growth=100", "bar_bytes=100000000000"),
    "idle": ("bar_cpu_us=1e9",),
    "jobqueue": (
        "bar_batch=1",
        "bar_http=1",
        "bar_pickup_ms=1e9",
        "bar_handover_ms=1e9",
        "bar_flat=1e9",
        "bar_busy=0.01",
    ),
    "console": ("bar_first_s=1e9", "bar_watched=1e9"),
    "limit": (
        "bar_goodput=0,0,0,0,0,0",
        "bar_refused=100,100,100,100,100",
        "bar_p95=10",
        "rated_seconds=120",
        "rated_seeds=1",
        "bar_rated=0",
        "bar_rated_refused=100",
        "bar_unfair=1000",
    ),
    "neighbours": ("bar_ratio=1e9",),
    "placement": (
        "bar_start_ms=1e9",
        "bar_stop_more_ms=1e9",
        "bar_lost=1e9",
        "bar_wait=1e9",
        *(f"bar_trace_{name}=1e9" for name in ("wait", "wide", "high_s", "slowdown", "cpu_ms", "lied_to")),
        "bar_trace_lie=0",
    ),
    "prefect": ("bar_share=1e9", "bar_calls=1e9", "bar_admission=1000"),
    "ranking": ("bar_tokens=1", "bar_error=1", "bar_held=0"),
    "scaleout": ("bar_us=1e9",),
    "store": ("bar_rows_per_s=1",),
    "utilisation": ("bar=0.05",),
}
"""Bars that a busy machine meets as well: what is tested is the bench, not the machine."""

HARD = {
    "alerts": "bar_found=2",
    "hostile": "bar_others=2",
    "admission": "bar_alone=1e15",
    "queue": "bar_us=0",
    "day": "bar_off=-1",
    "elastic": "bar_step=0",
    "environments": "bar_solver=2",
    "scale": "bar_us=-1e9",
    "idle": "bar_wall=0",
    "jobqueue": "bar_busy=2",
    "console": "bar_first_s=0",
    "limit": "bar_up_s=0",
    "neighbours": "bar_ratio=0",
    "placement": "bar_start_ms=0",
    "prefect": "bar_calls=0",
    "ranking": "bar_worst=0",
    "scaleout": "bar_us=0",
    "store": "bar_rows_per_s=1e15",
    "utilisation": "bar=1.5",
}
"""One bar per scenario that cannot be met."""


APART = ("placement", "prefect")
"""Scenarios that leave threads of Ray or clients of Prefect behind in their process."""


def bench(capsys: pytest.CaptureFixture[str], output: Path, name: str, *changes: str) -> tuple[int, dict[str, Any]]:
    """Run a scenario with `--json`; return the exit status and the one object that is printed."""
    options = [option for change in changes for option in ("--set", change)]
    command = ["bench", name, "--quick", "--json", "--output", str(output), "--seed", "3", *options]
    if name in APART:
        done = subprocess.run([sys.executable, "-m", "headgate.cli", *command], stdout=subprocess.PIPE, check=False)
        return done.returncode, json.loads(done.stdout)
    status = main(command)
    return status, json.loads(capsys.readouterr().out)
