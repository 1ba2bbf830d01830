"""Roles of a small training on real environments: rollouts play, reward scores, train learns. Plain Python and numpy.

Each can be killed at any moment and goes on from its checkpoint; they meet in a folder of files.
"""

from headgate.placement.roles.policy import Batch, Policy, RoleFolder, blank_policy, names_in
from headgate.placement.roles.role import BATCH, Place, Reward, Role, Rollout, Trial
from headgate.placement.roles.skill import SKILLS, skill_of
from headgate.placement.roles.train import Train

__all__ = [
    "BATCH",
    "SKILLS",
    "Batch",
    "Place",
    "Policy",
    "Reward",
    "Role",
    "RoleFolder",
    "Rollout",
    "Train",
    "Trial",
    "blank_policy",
    "names_in",
    "skill_of",
]
