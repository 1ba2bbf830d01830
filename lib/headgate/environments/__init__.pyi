from . import (
    answers as answers,
    apart as apart,
    judge_questions as judge_questions,
    pairwise as pairwise,
    rubric as rubric,
    sandbox as sandbox,
    shares as shares,
    tool_forms as tool_forms,
    tools as tools,
)
from .agentgym.served import served_environments as served_environments
from .apart import end_idle_processes as end_idle_processes
from .judge_baseline import coverage_judge as coverage_judge
from .episode import (
    ANSWER_CHARS as ANSWER_CHARS,
    EpisodeResult as EpisodeResult,
    converse as converse,
    sum_of_known as sum_of_known,
)
from .java import java_runtime as java_runtime
from .measurement import (
    BaselineScore as BaselineScore,
    Measurement as Measurement,
    baseline_episode as baseline_episode,
    measure as measure,
)
from .protocol import (
    BaselineKind as BaselineKind,
    Collection as Collection,
    Continue as Continue,
    Environment as Environment,
    EnvironmentSpec as EnvironmentSpec,
    Episode as Episode,
    ForJudge as ForJudge,
    JudgedEnvironment as JudgedEnvironment,
    Judgement as Judgement,
    Score as Score,
)
from .registry import (
    GROUP as GROUP,
    Available as Available,
    AvailableCollection as AvailableCollection,
    Registry as Registry,
    available as available,
    checked_environment as checked_environment,
    environment as environment,
    environments as environments,
    registry_with as registry_with,
)
from .sandbox import SANDBOX as SANDBOX
from .sandbox import Limits as Limits, Sandbox as Sandbox
from .selection import OutsideEnvironment as OutsideEnvironment, environments_at_hand as environments_at_hand
from .selection import registry_of as registry_of, selected as selected
from .single_turn import (
    SingleTurnEpisode as SingleTurnEpisode,
    TaskCache as TaskCache,
    failed as failed,
    passed as passed,
    question as question,
)
from .tool_forms import NativeForm as NativeForm
