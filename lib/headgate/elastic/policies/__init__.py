"""Policies: how many workers should be awake. Each is pure and gets the current demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.elastic.demand import Policy
from headgate.elastic.policies.predictive import Predictive
from headgate.elastic.policies.target import ForDue, Target
from headgate.elastic.policies.threshold import Threshold
from headgate.elastic.settings import ElasticConfig

__all__ = ["ForDue", "Predictive", "Target", "Threshold", "policy_of"]


_KINDS: Final[dict[str, Callable[[ElasticConfig], Policy]]] = {
    "threshold": Threshold,
    "target": Target,
    "predictive": Predictive,
}


def policy_of(config: ElasticConfig) -> Policy:
    """Return a new policy of the kind named in the settings."""
    return _KINDS[config.policy](config)
