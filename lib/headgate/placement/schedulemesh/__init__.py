"""ScheduleMesh's names on Headgate's placement: a script for it runs when the import line is changed.

The same calls, the same mappings as answers. `deployments/examples/rlhf_pool.py` is a script that uses them.
"""

from headgate.placement.schedulemesh.ray_scheduler import RayScheduler
from headgate.placement.schedulemesh.simple import PreemptionAggressiveness, SimpleScheduler, SimpleTaskSpec

__all__ = ["PreemptionAggressiveness", "RayScheduler", "SimpleScheduler", "SimpleTaskSpec"]
