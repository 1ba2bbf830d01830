"""Environments: where tasks come from and how answers are scored; the registry, the episode loop and our own ones."""

from headgate.environments import pairwise, rubric, tools
from headgate.environments.agentgym import served_environments
from headgate.environments.apart import ApartLimits, HostedEnvironment, end_idle_processes
from headgate.environments.collection import COLLECTION_GROUP, Collection
from headgate.environments.coverage_judge import coverage_judge
from headgate.environments.episode import EpisodeResult, converse
from headgate.environments.java import JavaRuntime, java_runtime
from headgate.environments.judge_question import REMINDER, is_echo, judge_question
from headgate.environments.judge_reply import judged_score, mean_verdict, read_judgement, read_reply
from headgate.environments.loading import GROUP
from headgate.environments.measure import BaselineScore, Measurement, baseline_episode, measure
from headgate.environments.protocol import (
    BaselineKind,
    Continue,
    Environment,
    EnvironmentSpec,
    Episode,
    ForJudge,
    JudgedEnvironment,
    Judgement,
    Score,
)
from headgate.environments.registry import (
    Available,
    AvailableCollection,
    Registry,
    available,
    environment,
    environments,
    registry_with,
)
from headgate.environments.sandbox import SHARED as SANDBOX
from headgate.environments.sandbox import Limits, Outcome, ProgramRun, Sandbox
from headgate.environments.selection import Selection, matching, registry_of, selected

__all__ = [
    "COLLECTION_GROUP",
    "GROUP",
    "REMINDER",
    "SANDBOX",
    "ApartLimits",
    "Available",
    "AvailableCollection",
    "BaselineKind",
    "BaselineScore",
    "Collection",
    "Continue",
    "Environment",
    "EnvironmentSpec",
    "Episode",
    "EpisodeResult",
    "ForJudge",
    "HostedEnvironment",
    "JavaRuntime",
    "JudgedEnvironment",
    "Judgement",
    "Limits",
    "Measurement",
    "Outcome",
    "ProgramRun",
    "Registry",
    "Sandbox",
    "Score",
    "Selection",
    "available",
    "baseline_episode",
    "converse",
    "coverage_judge",
    "end_idle_processes",
    "environment",
    "environments",
    "is_echo",
    "java_runtime",
    "judge_question",
    "judged_score",
    "matching",
    "mean_verdict",
    "measure",
    "pairwise",
    "read_judgement",
    "read_reply",
    "registry_of",
    "registry_with",
    "rubric",
    "selected",
    "served_environments",
    "tools",
]
