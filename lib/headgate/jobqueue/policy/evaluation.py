"""One episode of a policy in the grid simulator: what it is about, as the command runner says it, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

import orjson

from headgate.core.errors import InvalidInputError
from headgate.durable.files import write_whole
from headgate.jobqueue.policy.protocol import Policy
from headgate.jobqueue.policy.simulator import NAME, GridSimulation, load_simulation

MAX_STEPS: Final = 300
"""Per episode: the shortest way through the largest grid takes a third of it."""


def read_evaluation_task(task: str | None, instance: str | None, job_file: Path | None) -> tuple[str, str]:
    """Return the task and the instance to evaluate, which may be empty; what is not given is taken from the job.

    A job has `task` and `instance`, or a `payload` that has `task` and `instance_basename`; it may stand under the key
    `job`, beside its lease.

    Raises:
        InvalidInputError: if the file cannot be read or no task is named anywhere.
    """
    job = _job_in(job_file) if job_file is not None and (task is None or instance is None) else {}
    payload = job.get("payload")
    fields = {**(payload if isinstance(payload, dict) else {}), **{key: value for key, value in job.items() if value}}
    task = task if task is not None else _text(fields.get("task"))
    if instance is None:
        instance = _text(fields.get("instance")) or _text(fields.get("instance_basename"))
    if not task:
        where = f"the job in {job_file} has none" if job_file is not None else "there is no job file either"
        raise InvalidInputError(f"no task is named, and {where}", next_step="Give --task and --instance.")
    return task, instance


def _job_in(path: Path) -> dict[str, Any]:
    try:
        document = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the job file {path} cannot be read: {error}") from error
    job = document.get("job", document) if isinstance(document, dict) else document
    if not isinstance(job, dict):
        raise InvalidInputError(f"the job file {path} must hold a JSON object (got {type(job).__name__})")
    return job


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


class EpisodeResult(TypedDict):
    """What came out of an episode.

    Attributes:
        q_score: share of the subgoals that were reached, in [0, 1].
        success: whether all were.
        steps: how many were taken.
        seed: of the instance.
        simulator: its name and version.
        policy: the policy's name, by its own words.
    """

    q_score: float
    success: bool
    steps: int
    seed: int
    simulator: str
    policy: str


def evaluate_episode(
    policy: Policy,
    task: str,
    instance: str,
    max_steps: int = MAX_STEPS,
    on_step: Callable[[int], None] | None = None,
) -> EpisodeResult:
    """Load an instance and run one episode of it; `run_episode` does the second part alone."""
    return run_episode(policy, load_simulation(task, instance), max_steps, on_step)


def run_episode(
    policy: Policy,
    simulation: GridSimulation,
    max_steps: int = MAX_STEPS,
    on_step: Callable[[int], None] | None = None,
) -> EpisodeResult:
    """Run one episode of an instance that has been loaded.

    Args:
        policy: who acts; it is reset first.
        simulation: fresh from `load_simulation`.
        max_steps: the episode ends after so many.
        on_step: called after each step with its number; what it raises ends the episode.

    Raises:
        PolicyError: when the policy or the way to it fails.
        InvalidInputError: if `max_steps` is not positive.
    """
    if max_steps < 1:
        raise InvalidInputError(f"max_steps must be >= 1 (got {max_steps})")
    policy.reset()
    while not simulation.is_over and simulation.steps < max_steps:
        simulation.step(policy.act(simulation.observation()))
        if on_step is not None:
            on_step(simulation.steps)
    return EpisodeResult(
        q_score=simulation.q_score,
        success=simulation.is_over,
        steps=simulation.steps,
        seed=simulation.grid.seed,
        simulator=NAME,
        policy=str(policy.metadata.get("policy", "unnamed"))[:200],
    )


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, durably, and only then give it its name; the folder is made when it is missing.

    Raises:
        InvalidInputError: if it cannot be written there; what was there stays.
    """
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        write_whole({path: text})
    except OSError as error:
        raise InvalidInputError(
            f"the result cannot be written to {path}: {error.strerror or error}", next_step="Name another file."
        ) from error
