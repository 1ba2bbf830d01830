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
    from its checkpoint. A cancelled run gives all its places back, and the next one continues from there.

    Args:
        name: Name of the training; another name starts a new one.
        environment: Environment to learn.
        rounds: Updates of the policy.
        rollouts: Rollout tasks at a time.
        episodes: Scored episodes per round.
        trial_episodes: Episodes that measure the policy before and after.
        cluster: Name of a Ray Cluster block. Empty: RAY_ADDRESS of the worker, else one that runs, else a local one.
        pool: Pool whose quota the roles count against; made when there is none of this name.
        priority: Added to the priority of every role, so that one training goes before another.
        folder: Where trainings are kept; every node of the cluster must see it.
        seed: Of all random choices.

    Returns:
        Rounds, episodes, mean reward before and after, and how often work was stopped for other work.
    """
    return await orchestration.run_placing(orchestration.PlacingOrder(**locals()))
