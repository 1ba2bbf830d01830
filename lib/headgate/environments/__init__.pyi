from . import pairwise as pairwise, rubric as rubric, tools as tools
from .agentgym import served_environments as served_environments
from .answers import (
    ONE_ACTION as ONE_ACTION,
    last_python_fence as last_python_fence,
    last_tagged as last_tagged,
    named_actions as named_actions,
    normalised_output as normalised_output,
    only_action as only_action,
    without_thinking as without_thinking,
)
from .apart import (
    ApartLimits as ApartLimits,
    HostedEnvironment as HostedEnvironment,
    end_idle_processes as end_idle_processes,
)
from .judge_baseline import coverage_judge as coverage_judge
from .episode import EpisodeResult as EpisodeResult, converse as converse
from .java import JavaRuntime as JavaRuntime, java_runtime as java_runtime
from .judge_questions import (
    REMINDER as REMINDER,
    is_echo as is_echo,
    judge_question as judge_question,
    judged_score as judged_score,
    mean_verdict as mean_verdict,
    read_judgement as read_judgement,
    read_reply as read_reply,
)
from .measurement import (
    BaselineScore as BaselineScore,
    Measurement as Measurement,
    baseline_episode as baseline_episode,
    measure as measure,
)
from .protocol import (
    COLLECTION_GROUP as COLLECTION_GROUP,
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
    environment as environment,
    environments as environments,
    registry_with as registry_with,
)
from .sandbox import SANDBOX as SANDBOX
from .sandbox import Limits as Limits, Outcome as Outcome, ProgramRun as ProgramRun, Sandbox as Sandbox
from .selection import (
    Selection as Selection,
    environments_at_hand as environments_at_hand,
    matching as matching,
    registry_of as registry_of,
    selected as selected,
)
from .shares import MODEL as MODEL, FairSlots as FairSlots, Hold as Hold
from .single_turn import (
    SingleTurnEpisode as SingleTurnEpisode,
    TaskCache as TaskCache,
    failed as failed,
    passed as passed,
    question as question,
)
from .tools import Toolbox as Toolbox, python_tool as python_tool, tool_call as tool_call
