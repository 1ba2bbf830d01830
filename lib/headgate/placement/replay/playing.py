"""One trace through one policy."""

from __future__ import annotations

import dataclasses
import time

from headgate.placement.replay.cluster import Cluster
from headgate.placement.replay.engine import Engine, Policy
from headgate.placement.replay.job import Trace
from headgate.placement.replay.outcome import Outcome


def replayed(trace: Trace, cluster: Cluster, policy: Policy) -> Outcome:
    """Return what a rival makes of a trace."""
    began = time.perf_counter()
    outcome = Engine(trace, cluster, policy).play()
    return dataclasses.replace(outcome, took_s=time.perf_counter() - began)
