from .policy import (
    Batch as Batch,
    Policy as Policy,
    RoleFolder as RoleFolder,
    blank_policy as blank_policy,
    names_in as names_in,
)
from .role import BATCH as BATCH, Place as Place, Reward as Reward, Role as Role, Rollout as Rollout, Trial as Trial
from .skill import SKILLS as SKILLS, skill_of as skill_of
from .train import Train as Train
