"""One episode of a policy in the grid simulator, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypedDict

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy.dialogue import Action
from headgate.jobqueue.policy.simulator import NAME, GridSimulation, load_simulation

MAX_STEPS: Final = 300
"""Per episode: the shortest way through the largest grid takes a third of it."""


class Actor(Protocol):
    """What an episode needs of a policy; `SyncPolicyClient` has it, and so has every `Policy`."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What it says of itself."""
        ...

    def reset(self) -> None:
        """Begin an episode."""
        ...

    def act(self, observation: Mapping[str, Any]) -> Action:
        """Return the action for an observation."""
        ...


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
    policy: Actor,
    task: str,
    instance: str,
    max_steps: int = MAX_STEPS,
    on_step: Callable[[int], None] | None = None,
) -> EpisodeResult:
    """Load an instance and run one episode of it; `run_episode` does the second part alone."""
    return run_episode(policy, load_simulation(task, instance), max_steps, on_step)


def run_episode(
    policy: Actor,
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
