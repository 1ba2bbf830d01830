"""Traces through Headgate's decision makers in virtual time, beside the rules of other systems and what nobody beats.

`replay.placement` replays jobs through the placement ledger, `replay.elastic` requests through the elastic pool. In
both a trace is read, played under each policy of a comparison, and measured; the same input gives the same figures on
every machine.
"""

from headgate.replay.errors import InvalidLoadError, InvalidTraceError, OvercommittedError, ReplayFailedError
from headgate.replay.files import yaml_settings

__all__ = [
    "InvalidLoadError",
    "InvalidTraceError",
    "OvercommittedError",
    "ReplayFailedError",
    "elastic",
    "placement",
    "yaml_settings",
]
