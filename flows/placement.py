"""A training whose roles are placed on a Ray cluster by priority."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration


@flow(name="place-roles", flow_run_name="train {name} in {environment}")
async def place_roles(
    name: p.FolderName = "babyai",
    environment: p.Name = "agentgym:babyai",
    rounds: p.Rounds = 8,
    rollouts: p.Rollouts = 4,
    episodes: p.Instances = 96,
    trial_episodes: p.Instances = 100,
    cluster: p.Block = "",
    pool: p.Name = "rlhf",
    priority: p.ExtraPriority = 0.0,
    folder: p.Path = ".headgate/placement",
    seed: p.Seed = 0,
) -> dict[str, Any]:
    """Train a small policy on an environment, with rollout, reward and train as tasks that share a Ray cluster.

    Rollouts run wherever there is room; scoring and training preempt them when they need it. Preempted work continues
    from its checkpoint. A cancelled run gives back all its resources, and the next run continues from its checkpoint.

    Args:
        name: Name of the training; another name starts a new one.
        environment: Environment to learn.
        rounds: Number of policy updates.
        rollouts: Number of concurrent rollout tasks.
        episodes: Scored episodes per round.
        trial_episodes: Episodes that measure the policy before and after training.
        cluster: Name of a Ray Cluster block. Empty: the worker's RAY_ADDRESS, else a running cluster, else a local one.
        pool: Pool whose quota the roles count against; created if there is none of this name.
        priority: Added to the priority of every role, to put one training before another.
        folder: Folder of trainings; every node of the cluster must see it.
        seed: Random seed.

    Returns:
        Rounds, episodes, mean reward before and after, and number of preemptions.
    """
    return await orchestration.run_placing(orchestration.PlacingOrder(**locals()))
