"""Environments: where tasks come from and how answers are scored; the registry, the episode loop and our own ones."""

from headgate.environments.agentgym import served_environments
from headgate.environments.coverage_judge import coverage_judge
from headgate.environments.episode import EpisodeResult, converse
from headgate.environments.judge_question import REMINDER, is_echo, judge_question
from headgate.environments.judge_reply import mean_verdict, read_judgement
from headgate.environments.judged import judged_score, read_reply
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
    GROUP,
    Available,
    Registry,
    available,
    environment,
    environments,
    registry_with,
)
from headgate.environments.sandbox import SHARED as SANDBOX
from headgate.environments.sandbox import Limits, Outcome, ProgramRun, Sandbox

__all__ = [
    "GROUP",
    "REMINDER",
    "SANDBOX",
    "Available",
    "BaselineKind",
    "BaselineScore",
    "Continue",
    "Environment",
    "EnvironmentSpec",
    "Episode",
    "EpisodeResult",
    "ForJudge",
    "JudgedEnvironment",
    "Judgement",
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
    "coverage_judge",
    "environment",
    "environments",
    "is_echo",
    "judge_question",
    "judged_score",
    "mean_verdict",
    "measure",
    "read_judgement",
    "read_reply",
    "registry_with",
    "served_environments",
]
