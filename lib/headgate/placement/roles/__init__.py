"""Roles of a small training on real environments: rollouts play, reward scores, train learns. Plain Python and numpy.

Each can be stopped at any moment and goes on from its checkpoint; they meet in a folder of files.
"""

from headgate.placement.roles.batches import Batch, RoleFolder, names_in
from headgate.placement.roles.policy import Policy, blank_policy
from headgate.placement.roles.role import Figures, Place, Role
from headgate.placement.roles.rollout import BATCH, Reward, Rollout, Trial
from headgate.placement.roles.skill import SKILLS, skill_of
from headgate.placement.roles.train import Train

__all__ = [
    "BATCH",
    "SKILLS",
    "Batch",
    "Figures",
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
