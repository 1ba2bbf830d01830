"""Environments: where tasks come from and how answers are scored; the registry, the episode loop and our own ones."""

from headgate.environments import pairwise, rubric, tools
from headgate.environments.agentgym import served_environments
from headgate.environments.answers import (
    ONE_ACTION,
    last_python_fence,
    last_tagged,
    named_actions,
    normalised_output,
    only_action,
    without_thinking,
)
from headgate.environments.apart import ApartLimits, HostedEnvironment, end_idle_processes
from headgate.environments.coverage_judge import coverage_judge
from headgate.environments.episode import EpisodeResult, converse
from headgate.environments.java import JavaRuntime, java_runtime
from headgate.environments.judge_question import (
    REMINDER,
    is_echo,
    judge_question,
    judged_score,
    mean_verdict,
    read_judgement,
    read_reply,
)
from headgate.environments.measure import BaselineScore, Measurement, baseline_episode, measure
from headgate.environments.protocol import (
    COLLECTION_GROUP,
    BaselineKind,
    Collection,
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
    AvailableCollection,
    Registry,
    available,
    environment,
    environments,
    registry_with,
)
from headgate.environments.sandbox import SHARED as SANDBOX
from headgate.environments.sandbox import Limits, Outcome, ProgramRun, Sandbox
from headgate.environments.selection import Selection, environments_at_hand, matching, registry_of, selected
from headgate.environments.shares import MODEL, FairSlots, Hold
from headgate.environments.single_turn import SingleTurnEpisode, TaskCache, failed, passed, question
from headgate.environments.tools import Toolbox, python_tool, tool_call

__all__ = [
    "COLLECTION_GROUP",
    "GROUP",
    "MODEL",
    "ONE_ACTION",
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
    "FairSlots",
    "ForJudge",
    "Hold",
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
    "SingleTurnEpisode",
    "TaskCache",
    "Toolbox",
    "available",
    "baseline_episode",
    "converse",
    "coverage_judge",
    "end_idle_processes",
    "environment",
    "environments",
    "environments_at_hand",
    "failed",
    "is_echo",
    "java_runtime",
    "judge_question",
    "judged_score",
    "last_python_fence",
    "last_tagged",
    "matching",
    "mean_verdict",
    "measure",
    "named_actions",
    "normalised_output",
    "only_action",
    "pairwise",
    "passed",
    "python_tool",
    "question",
    "read_judgement",
    "read_reply",
    "registry_of",
    "registry_with",
    "rubric",
    "selected",
    "served_environments",
    "tool_call",
    "tools",
    "without_thinking",
]
