"""What the demo runs: its models and their faults, its rates, and the deployments with its own parameters."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
