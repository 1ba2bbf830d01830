"""What the demo runs and shows: its models and their faults, its rates, its deployments, its counts and scores."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import polars as pl
from rich.table import Table

from headgate.config import setting_fields, variables_of
from headgate.core import DAY_S, errors
from headgate.models import (
    LOCAL_MODEL,
    TASK_HEADER_OPTION,
    Failure,
    FaultPlan,
    RateLimit,
    Slow,
    is_local_model_installed,
)
from headgate.net.listener import free_port
from headgate.orchestration.deployment_file import Deployment, DeploymentFile
from headgate.orchestration.own_server import start_problem
from headgate.orchestration.work_pool import POOL
from headgate.processes import child_process
from headgate.reports import LEADERBOARD_COLUMNS
from headgate.storage import Journal, SampleStore

CAMPAIGN: Final = "demo"
BLOCK: Final = "demo"
"""Name of every block that the demo saves."""

ENVIRONMENTS: Final = ("affine:sat", "affine:abd", "affine:ded", "agentgym:babyai")
BASELINE_INTERVAL_S: Final = 1.5
OWN_MODEL_SAMPLES: Final = 5
"""Of each own model in each environment: enough to see it work, few enough to pay for."""

_SCORED_PER_SECOND: Final = 10.0
"""At these rates the baselines give about 14; what is below this has a cause."""

MODELS: Final[Mapping[str, str]] = {
    "solver": "baseline-solver",
    "greedy": "baseline-greedy",
    "random": "baseline-random",
    "greedy-slow": "baseline-greedy-slow",
    "greedy-limited": "baseline-greedy-limited",
    "solver-failing": "baseline-solver-failing",
}
"""Name in the roster -> name at the endpoint. None is a language model."""

LOCAL_BLOCK: Final = "demo-local-model"
"""Name of the blocks of the one that is: its endpoint, and the roster that has it beside the others."""

LOCAL_ENVIRONMENTS: Final = frozenset({"affine:abd", "affine:ded"})
"""Where it is sampled: prompts of a thousand tokens, which one busy core reads in seconds; the others' are longer."""


@dataclass(frozen=True, slots=True)
class DemoChoices:
    """What a user chooses about the demo.

    Attributes:
        folder: where the demo keeps its server, data and reports.
        roster: sample these models in place of the baselines.
        window_s: how long each environment is sampled.
        keep_serving: leave the Prefect server and its UI up until Ctrl-C.
        local_model: sample the small local model beside the baselines where it is installed.
    """

    folder: Path = Path(".headgate/demo")
    roster: Path | None = None
    window_s: float = 30.0
    keep_serving: bool = False
    local_model: bool = True

    def uses_local_model(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Return whether the small local model is sampled beside the baselines."""
        return self.local_model and self.uses_baselines(environ) and is_local_model_installed()

    def uses_baselines(self, environ: Mapping[str, str] = os.environ) -> bool:
        """Return whether the models are the built-in baselines: no roster is given and no endpoint is set."""
        return self.roster is None and not environ.get("OPENAI_BASE_URL")

    def goal(self, environ: Mapping[str, str] = os.environ) -> int:
        """Return how many scored samples make the demo a success."""
        return int(_SCORED_PER_SECOND * self.window_s) if self.uses_baselines(environ) else 1


def faults(window_s: float) -> FaultPlan:
    """Return what goes wrong at the endpoint of the baselines: one limits, one fails until the window is half over."""
    return FaultPlan(
        rules=(
            Slow(mean_s=0.15, cv=0.5),
            Slow(model="baseline-greedy-slow", mean_s=1.0, cv=0.3),
            RateLimit(model="baseline-greedy-limited", per_second=4.0, retry_after_s=0.5),
            Failure(model="baseline-solver-failing", status=503, until_s=3.0 + 0.4 * window_s),
        )
    )


def endpoint_options() -> dict[str, Any]:
    """Return the request options of the baselines."""
    return {TASK_HEADER_OPTION: True}


def window_parameters(
    choices: DemoChoices, environment: str, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the parameters of one environment's deployment in the demo."""
    is_own = not choices.uses_baselines(environ)
    interval_s = choices.window_s / OWN_MODEL_SAMPLES if is_own else BASELINE_INTERVAL_S
    roster = BLOCK if choices.roster is not None else ""
    return {
        "environment": environment,
        "duration_s": choices.window_s,
        "roster": roster if is_own else LOCAL_BLOCK if environment in LOCAL_ENVIRONMENTS else BLOCK,
        "store": BLOCK,
        "campaign": CAMPAIGN,
        "rate_per_day": DAY_S / interval_s,
        "settings": {
            "journal": str(choices.folder.absolute() / "journal"),
            "low_sample_multiplier": 1,
            "catch_up_horizon_s": 5,
            "batch_flush_interval": 0.5,
            "sink_max_wait": 5,
            "drain_timeout_s": 20 if is_own else 4,
            "error_pause_s": 4,
            "max_pause_s": 8,
            "request_attempts": 2,
            "status_interval_s": 5,
        },
    }


def demo_deployments(
    real: DeploymentFile, choices: DemoChoices, environ: Mapping[str, str] = os.environ
) -> DeploymentFile:
    """Return the deployments of `prefect.yaml` that the demo runs: its parameters in them, their schedules off."""
    chosen = [d for d in real.deployments if _environment_of(d) in ENVIRONMENTS or d.name == "report"]
    return real.model_copy(update={"definitions": {}, "deployments": [_for_demo(d, choices, environ) for d in chosen]})


def _for_demo(deployment: Deployment, choices: DemoChoices, environ: Mapping[str, str]) -> Deployment:
    environment = _environment_of(deployment)
    if environment:
        parameters = window_parameters(choices, environment, environ)
    else:
        parameters = {"hours": 24, "store": BLOCK, "reports": BLOCK, "title": "Headgate demo"}
    schedules = [schedule.model_copy(update={"active": False}) for schedule in deployment.schedules]
    # Without a command of its own Prefect starts two interpreters per run, one of them to prepare a work space.
    command = {"command": f"{sys.executable} -m prefect.engine"}
    pool = deployment.work_pool.model_copy(update={"name": POOL, "job_variables": command})
    # Each runs once. A server on SQLite that was busy with several starts has been seen to cancel the only run of a
    # deployment by the deployment's own limit, after the database was locked between taking the place and saying so.
    own = {"parameters": parameters, "schedules": schedules, "work_pool": pool, "concurrency_limit": None}
    return deployment.model_copy(update=own)


def _environment_of(deployment: Deployment) -> str:
    return str(deployment.parameters.get("environment", ""))


def worker_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the demo's flow runs: keys of models stay, settings of other campaigns do not."""
    ours = {name for setting in setting_fields() for name in variables_of(setting)} | {"HEADGATE_CONFIG"}
    return {name: value for name, value in environ.items() if name not in ours}


def as_typed(option: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the demo's command with an option, as who started it types it: `make` takes options as ARGS."""
    return f"make demo ARGS='{option}'" if "MAKELEVEL" in environ else f"headgate demo {option}"


LOCAL_MODEL_OPTIONS: Final[Mapping[str, Any]] = {"max_tokens": 48, "temperature": 0}
"""Short answers: beside everything else one processor writes a few hundred of its tokens in the window."""

_UP_S: Final = 30.0
_GRACE_S: Final = 5.0


@asynccontextmanager
async def served_local_model(folder: Path, environ: Mapping[str, str]) -> AsyncIterator[str]:
    """Serve the local model in a process of its own; give its address.

    Raises:
        HeadgateError: if it does not answer in time; says what it wrote.
    """
    port = free_port()
    command = [sys.executable, "-m", "headgate.cli", "serve-model", "--port", str(port), "--parallel", "1"]
    log = folder / "local-model.log"
    address = f"http://127.0.0.1:{port}"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=_GRACE_S) as child:
        if problem := await start_problem(f"{address}/health", lambda: child.has_ended, _UP_S):
            raise errors.HeadgateError(
                f"the local model {LOCAL_MODEL} {problem}: {child.last_lines(3)}",
                next_step=f"Its log is in {log}; --no-local-model leaves it out.",
            )
        yield f"{address}/v1"


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """Counts at one moment.

    Attributes:
        scored: samples by (model, environment) since the demo began.
        paused: seconds until each paused model runs again.
        open_tasks: given out, without a sample yet.
        spooled: durable, and not in the store yet.
    """

    scored: Mapping[tuple[str, str], int]
    paused: Mapping[str, float]
    open_tasks: int
    spooled: int

    @property
    def total(self) -> int:
        """All scored samples."""
        return sum(self.scored.values())

    def line(self, seconds: float) -> str:
        """Return the counts in one line, for a terminal that cannot redraw."""
        if not self.total and not self.open_tasks:
            return f"{seconds:5.1f} s  the flow runs are starting"
        by_environment = ", ".join(
            f"{environment} {sum(n for (_, e), n in self.scored.items() if e == environment)}"
            for environment in ENVIRONMENTS
        )
        paused = f"; paused: {', '.join(sorted(self.paused))}" if self.paused else ""
        return f"{seconds:5.1f} s  {self.total} scored ({by_environment}); {self.open_tasks} open{paused}"

    def table(self) -> Table:
        """Return the counts as a table."""
        is_starting = not self.total and not self.open_tasks
        table = Table(title="The flow runs are starting" if is_starting else "Sampling", title_justify="left")
        table.add_column("model", overflow="fold")
        for environment in ENVIRONMENTS:
            table.add_column(environment, justify="right", overflow="fold")
        table.add_column("state")
        for model in sorted({model for model, _ in self.scored} | set(self.paused)):
            left_s = self.paused.get(model)
            state = "sampled" if left_s is None else f"paused, service errors ({left_s:.0f} s)"
            counts = [str(self.scored.get((model, environment), 0)) for environment in ENVIRONMENTS]
            table.add_row(model, *counts, state)
        table.caption = f"{self.total} scored, {self.open_tasks} open, {self.spooled} spooled"
        return table


class DemoJournal:
    """Reads the progress of the demo's campaign out of its journal, which the flow runs share. Use it with `with`."""

    def __init__(self, folder: Path, now: float) -> None:
        self._journal = Journal(folder, CAMPAIGN)
        self._before = self._scored(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()

    def progress(self, now: float) -> DemoProgress:
        """Return the counts since this journal was opened."""
        history = self._journal.history(now)
        scored = {pair: n - self._before.get(pair, 0) for pair, n in self._scored(now).items()}
        return DemoProgress(
            scored={pair: n for pair, n in scored.items() if n > 0},
            paused={model: until - now for model, (_, until) in history.pauses.items() if until > now},
            open_tasks=self._journal.open_count(),
            spooled=self._journal.spool_count(),
        )

    def _scored(self, now: float) -> dict[tuple[str, str], int]:
        counts = self._journal.history(now).counts
        return {pair: sum(n for _, n in minutes) for pair, minutes in counts.items()}


async def demo_samples(store: SampleStore, since: float) -> pl.DataFrame:
    """Return what a leaderboard reads of the demo's stored samples that ended at `since` or later."""
    scan = await store.scan(since=since, columns=["campaign", *LEADERBOARD_COLUMNS])
    return scan.frame.filter(pl.col("campaign") == CAMPAIGN)


def missing_local_model(samples: pl.DataFrame, choices: DemoChoices) -> str:
    """Return why the local model is in no table, and what to do; nothing when it has a score."""
    if LOCAL_MODEL in {key.partition("@")[0] for key in samples["model"]}:
        return ""
    busy = f"{LOCAL_MODEL} has no score: this machine was too busy for an answer within {choices.window_s:g} s."
    return f"{busy} Give it longer: {as_typed('--duration 90')}"
