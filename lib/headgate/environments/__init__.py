"""Environments: where tasks come from and how answers are scored; the registry, the episode loop and our own ones."""

from headgate.environments.episode import EpisodeResult, converse
from headgate.environments.measure import BaselineScore, Measurement, baseline_episode, measure
from headgate.environments.protocol import BaselineKind, Continue, Environment, EnvironmentSpec, Episode, Score
from headgate.environments.registry import GROUP, Available, Registry, available, environment, environments
from headgate.environments.sandbox import SHARED as SANDBOX
from headgate.environments.sandbox import Limits, Outcome, ProgramRun, Sandbox

__all__ = [
    "GROUP",
    "SANDBOX",
    "Available",
    "BaselineKind",
    "BaselineScore",
    "Continue",
    "Environment",
    "EnvironmentSpec",
    "Episode",
    "EpisodeResult",
    "Limits",
    "Measurement",
    "Outcome",
    "ProgramRun",
    "Registry",
    "Sandbox",
    "Score",
    "available",
    "baseline_episode",
    "converse",
    "environment",
    "environments",
    "measure",
]
