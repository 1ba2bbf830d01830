from . import arena as arena
from .budgets.plan import (
    CostPlan as CostPlan,
    budget_plan as budget_plan,
    cost_plan as cost_plan,
    rate_plan as rate_plan,
    refuse_unpriced as refuse_unpriced,
)
from .assembly import (
    run_campaign as run_campaign,
    run_judged as run_judged,
    run_source as run_source,
)
from .inquiry import capacity_plan as capacity_plan
from .controls import (
    controls_of as controls_of,
    settable as settable,
    steer_at_rest as steer_at_rest,
)
from .endpoints import ChatSender as ChatSender, EndpointChats as EndpointChats
from .hosts import HostCluster as HostCluster
from .matrix import MatrixTaskProvider as MatrixTaskProvider, MatrixTasks as MatrixTasks, repeat_ks as repeat_ks
from .follow import FollowOrder as FollowOrder, FollowResult as FollowResult, follow_checkpoints as follow_checkpoints
from .garbage import rare_collections as rare_collections
from .job_collector import JobCollector as JobCollector
from .job_samples import SCORE_FIELD as SCORE_FIELD, JobSampleRules as JobSampleRules
from .judging import JUDGE_PREFIX as JUDGE_PREFIX, judge_of as judge_of, rubric_for as rubric_for
from .assembly import models_at_hand as models_at_hand
from .outside_episodes import sample_jobs as sample_jobs
from .plan import ChatSource as ChatSource, RunPlan as RunPlan
from .queue_drain import (
    DrainResult as DrainResult,
    DrainRules as DrainRules,
    QueueProgress as QueueProgress,
    drain_queue as drain_queue,
)
from .request_side import RequestSide as RequestSide
from .rescoring import OnRescored as OnRescored, PairChange as PairChange
from .rescoring import Rescored as Rescored, Rescoring as Rescoring, rescore as rescore
from .resampling import follow_invalidation as follow_invalidation
from .run import Run as Run
from .environments import (
    outside_executors as outside_executors,
    rates_of as rates_of,
    sampled_environments as sampled_environments,
)
from .served_pool import EngineHosts as EngineHosts
from .status import RunResult as RunResult
from .trials import Trial as Trial, trial as trial
from .request_side import RecentReplies as RecentReplies
