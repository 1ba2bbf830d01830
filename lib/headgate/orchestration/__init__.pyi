from .arenas import run_arena_order as run_arena_order
from .artifacts import markdown_table as markdown_table
from .benchmarks import BenchOrder as BenchOrder, run_benchmark as run_benchmark
from .demo.cluster import run_cluster_demo as run_cluster_demo
from .demo.demo import run_demo as run_demo
from .demo.demo import DemoChoices as DemoChoices
from .checkpoints import run_following as run_following
from .deployment_file import checked_deployments as checked_deployments
from .engines import engine_hosts as engine_hosts
from .elastic.workers import placed_engines as placed_engines
from .findings import Findings as Findings, run_findings as run_findings
from .inputs import SamplingOrder as SamplingOrder, settings_of as settings_of
from .jobqueue.drain import run_drain as run_drain
from .jobqueue.generate import run_generation as run_generation
from .jobqueue.requeue import run_requeueing as run_requeueing
from .judging import run_judging as run_judging
from .leaderboards import run_leaderboard as run_leaderboard
from .limit_choices import (
    slots_for as slots_for,
    FILE_SUFFIXES as FILE_SUFFIXES,
    limits_of as limits_of,
    require_api as require_api,
    shared_slots as shared_slots,
)
from .own_server import (
    PrivateServer as PrivateServer,
    private_server as private_server,
    run_server as run_server,
    start_server as start_server,
)
from .placement.demand import Demand as Demand, placed as placed
from .placement.runner import PlacementTaskRunner as PlacementTaskRunner
from .placement.place_roles import run_placing as run_placing
from .placement.rounds import PlacingOrder as PlacingOrder
from .sampling_run import run_evaluation as run_evaluation, run_sampling as run_sampling
from .slots.audit import (
    LimitReport as LimitReport,
    apply_limits as apply_limits,
    audit_limits as audit_limits,
    limit_reports as limit_reports,
)
from .slots.service import open_slot_service as open_slot_service
from .slots.broker import SlotBroker as SlotBroker
from .upkeep import run_compaction as run_compaction, run_report as run_report
