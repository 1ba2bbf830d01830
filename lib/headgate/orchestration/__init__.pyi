from .arenas import run_arena_order as run_arena_order
from .run_state import artifact_key as artifact_key
from .benchmarks import BenchOrder as BenchOrder, run_benchmark as run_benchmark
from .demo.demo import run_demo as run_demo
from .demo.plan import DemoChoices as DemoChoices
from .deployments import (
    cancel_runs as cancel_runs,
    deploy_all as deploy_all,
    finished_runs as finished_runs,
    has_ended as has_ended,
    read_runs as read_runs,
    start_run as start_run,
)
from .deployment_file import (
    Deployment as Deployment,
    DeploymentFile as DeploymentFile,
    Schedule as Schedule,
    checked_deployments as checked_deployments,
    read_deployment_file as read_deployment_file,
)
from .elastic.forms import ActorEngines as ActorEngines, WorkerPlacement as WorkerPlacement
from .elastic.leases import PlacedLeases as PlacedLeases
from .elastic.workers import PlacedEngines as PlacedEngines, placed_engines as placed_engines
from .elastic.report import run_elastic_report as run_elastic_report
from .inputs import ChosenModels as ChosenModels, SamplingOrder as SamplingOrder, settings_of as settings_of
from .jobqueue.drain import run_drain as run_drain
from .jobqueue.generate import run_generation as run_generation
from .jobqueue.requeue import run_requeueing as run_requeueing
from .judging import run_judging as run_judging
from .leaderboards import run_leaderboard as run_leaderboard
from .own_server import clear_leftovers as clear_leftovers
from .limit_choices import (
    slots_for as slots_for,
    FILE_SUFFIXES as FILE_SUFFIXES,
    limits_of as limits_of,
    require_api as require_api,
    shared_slots as shared_slots,
)
from .own_server import (
    LocalServer as LocalServer,
    PrivateServer as PrivateServer,
    private_server as private_server,
    run_server as run_server,
    start_server as start_server,
)
from .placement.demand import Demand as Demand, placed as placed
from .placement.runner import PlacedFuture as PlacedFuture, PlacementTaskRunner as PlacementTaskRunner
from .placement.tenures import Tenure as Tenure, TenureEnd as TenureEnd
from .placement.place_roles import run_placing as run_placing
from .placement.rounds import PlacingOrder as PlacingOrder
from .sampling_run import run_evaluation as run_evaluation, run_sampling as run_sampling
from .sampling_windows import SEED_ENVIRONMENTS as SEED_ENVIRONMENTS, window_deployments as window_deployments
from .slots.audit import (
    LimitReport as LimitReport,
    apply_limits as apply_limits,
    audit_limits as audit_limits,
    limit_reports as limit_reports,
)
from .slots.service import SlotService as SlotService, open_slot_service as open_slot_service
from .slots.broker import SlotBroker as SlotBroker
from .stop_request import StopRequest as StopRequest, stop_on_signals as stop_on_signals
from .upkeep import run_compaction as run_compaction, run_report as run_report
from .work_pool import POOL as POOL, QUEUES as QUEUES, ensure_pool as ensure_pool
from .work_pool import worker as worker
