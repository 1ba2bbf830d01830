"""Environments: they generate a task from an index, converse, score in [0, 1], and say why."""

from headgate.environments.episode import EpisodeResult, converse, storable
from headgate.environments.protocol import (
    BaselineKind,
    Continue,
    Environment,
    EnvironmentSpec,
    Episode,
    Score,
)
from headgate.environments.registry import Available, available, environment, environments

__all__ = [
    "Available",
    "BaselineKind",
    "Continue",
    "Environment",
    "EnvironmentSpec",
    "Episode",
    "EpisodeResult",
    "Score",
    "available",
    "converse",
    "environment",
    "environments",
    "storable",
]
