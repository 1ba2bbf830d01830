"""Policies: how many workers there should be. Each is pure and is told the demand as it stands."""

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
    """Return a new policy of the kind that the settings name."""
    return _KINDS[config.policy](config)
