"""ScheduleMesh's API on Headgate's placement: a script written for it runs once the import line is changed.

Calls and returned mappings are the same. `deployments/examples/rlhf_pool.py` is a script that uses it.
"""

from headgate.placement.schedulemesh.ray_scheduler import RayScheduler
from headgate.placement.schedulemesh.simple import PreemptionAggressiveness, SimpleScheduler, SimpleTaskSpec

__all__ = ["PreemptionAggressiveness", "RayScheduler", "SimpleScheduler", "SimpleTaskSpec"]
