"""What Prefect needs: flow runs that drain, artifacts, deployments, a private server, and the demo.

Importing this package loads nothing of Prefect; each name is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.orchestration.arenas import ArenaOrder, run_arena_order
    from headgate.orchestration.artifact_keys import artifact_key
    from headgate.orchestration.benchmarking import BenchOrder, run_benchmark
    from headgate.orchestration.children import ChildProcess, child_process
    from headgate.orchestration.costs import CostMeter, RequestCost, WindowCost, cost_meter
    from headgate.orchestration.demo import run_demo
    from headgate.orchestration.demo_plan import DemoChoices
    from headgate.orchestration.deploying import cancel_runs, deploy_all, finished_runs, has_ended, read_runs, start_run
    from headgate.orchestration.deployment_file import (
        Deployment,
        DeploymentFile,
        Schedule,
        checked_deployments,
        read_deployment_file,
    )
    from headgate.orchestration.elastic_forms import ActorEngines, WorkerPlacement
    from headgate.orchestration.elastic_leases import PlacedLeases
    from headgate.orchestration.elastic_placing import PlacedEngines, placed_engines
    from headgate.orchestration.elastic_reporting import ElasticReportOrder, run_elastic_report
    from headgate.orchestration.inputs import ChosenModels, SamplingOrder, settings_of
    from headgate.orchestration.jobqueue_draining import DrainOrder, run_drain
    from headgate.orchestration.jobqueue_generating import GenerationOrder, run_generation
    from headgate.orchestration.jobqueue_requeueing import RequeueOrder, run_requeueing
    from headgate.orchestration.judging import JudgingOrder, run_judging
    from headgate.orchestration.leaderboards import LeaderboardOrder, run_leaderboard
    from headgate.orchestration.leftovers import clear_leftovers
    from headgate.orchestration.limit_choices import FILE_SUFFIXES, limits_of, require_api, shared_slots
    from headgate.orchestration.own_server import (
        LocalServer,
        PrivateServer,
        private_server,
        run_server,
        start_server,
    )
    from headgate.orchestration.placement_demand import Demand, placed
    from headgate.orchestration.placement_runner import PlacedFuture, PlacementTaskRunner
    from headgate.orchestration.placement_tenures import Tenure, TenureEnd
    from headgate.orchestration.placing import PlacingOrder, run_placing
    from headgate.orchestration.sampling_run import run_evaluation, run_sampling
    from headgate.orchestration.sampling_windows import SEED_ENVIRONMENTS, window_deployments
    from headgate.orchestration.slot_audit import LimitReport, apply_limits, audit_limits, limit_reports
    from headgate.orchestration.slot_service import SlotService, open_slot_service
    from headgate.orchestration.slots import SlotBroker
    from headgate.orchestration.stopping import StopRequest, stop_on_signals
    from headgate.orchestration.upkeep import run_compaction, run_report
    from headgate.orchestration.work_pool import POOL, QUEUES, ensure_pool
    from headgate.orchestration.workers import worker

__all__ = [
    "FILE_SUFFIXES",
    "POOL",
    "QUEUES",
    "SEED_ENVIRONMENTS",
    "ActorEngines",
    "ArenaOrder",
    "BenchOrder",
    "ChildProcess",
    "ChosenModels",
    "CostMeter",
    "Demand",
    "DemoChoices",
    "Deployment",
    "DeploymentFile",
    "DrainOrder",
    "ElasticReportOrder",
    "GenerationOrder",
    "JudgingOrder",
    "LeaderboardOrder",
    "LimitReport",
    "LocalServer",
    "PlacedEngines",
    "PlacedFuture",
    "PlacedLeases",
    "PlacementTaskRunner",
    "PlacingOrder",
    "PrivateServer",
    "RequestCost",
    "RequeueOrder",
    "SamplingOrder",
    "Schedule",
    "SlotBroker",
    "SlotService",
    "StopRequest",
    "Tenure",
    "TenureEnd",
    "WindowCost",
    "WorkerPlacement",
    "apply_limits",
    "artifact_key",
    "audit_limits",
    "cancel_runs",
    "checked_deployments",
    "child_process",
    "clear_leftovers",
    "cost_meter",
    "deploy_all",
    "ensure_pool",
    "finished_runs",
    "has_ended",
    "limit_reports",
    "limits_of",
    "open_slot_service",
    "placed",
    "placed_engines",
    "private_server",
    "read_deployment_file",
    "read_runs",
    "require_api",
    "run_arena_order",
    "run_benchmark",
    "run_compaction",
    "run_demo",
    "run_drain",
    "run_elastic_report",
    "run_evaluation",
    "run_generation",
    "run_judging",
    "run_leaderboard",
    "run_placing",
    "run_report",
    "run_requeueing",
    "run_sampling",
    "run_server",
    "settings_of",
    "shared_slots",
    "start_run",
    "start_server",
    "stop_on_signals",
    "window_deployments",
    "worker",
]

_WHERE: Final = {
    "arenas": ("ArenaOrder", "run_arena_order"),
    "artifact_keys": ("artifact_key",),
    "benchmarking": ("BenchOrder", "run_benchmark"),
    "children": ("ChildProcess", "child_process"),
    "costs": ("CostMeter", "RequestCost", "WindowCost", "cost_meter"),
    "demo": ("run_demo",),
    "demo_plan": ("DemoChoices",),
    "deploying": ("cancel_runs", "deploy_all", "finished_runs", "has_ended", "read_runs", "start_run"),
    "deployment_file": ("Deployment", "DeploymentFile", "Schedule", "checked_deployments", "read_deployment_file"),
    "elastic_forms": ("ActorEngines", "WorkerPlacement"),
    "elastic_leases": ("PlacedLeases",),
    "elastic_placing": ("PlacedEngines", "placed_engines"),
    "elastic_reporting": ("ElasticReportOrder", "run_elastic_report"),
    "inputs": ("ChosenModels", "SamplingOrder", "settings_of"),
    "jobqueue_draining": ("DrainOrder", "run_drain"),
    "jobqueue_generating": ("GenerationOrder", "run_generation"),
    "jobqueue_requeueing": ("RequeueOrder", "run_requeueing"),
    "judging": ("JudgingOrder", "run_judging"),
    "leaderboards": ("LeaderboardOrder", "run_leaderboard"),
    "leftovers": ("clear_leftovers",),
    "limit_choices": ("FILE_SUFFIXES", "limits_of", "require_api", "shared_slots"),
    "own_server": ("LocalServer", "PrivateServer", "private_server", "run_server", "start_server"),
    "placement_demand": ("Demand", "placed"),
    "placement_runner": ("PlacedFuture", "PlacementTaskRunner"),
    "placement_tenures": ("Tenure", "TenureEnd"),
    "placing": ("PlacingOrder", "run_placing"),
    "sampling_run": ("run_evaluation", "run_sampling"),
    "slot_audit": ("LimitReport", "apply_limits", "audit_limits", "limit_reports"),
    "slot_service": ("SlotService", "open_slot_service"),
    "slots": ("SlotBroker",),
    "stopping": ("StopRequest", "stop_on_signals"),
    "upkeep": ("run_compaction", "run_report"),
    "sampling_windows": ("SEED_ENVIRONMENTS", "window_deployments"),
    "work_pool": ("POOL", "QUEUES", "ensure_pool"),
    "workers": ("worker",),
}
_FILES: Final = {name: file for file, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    # Prefect takes a second and more to import: the command line does without it for all but its own commands.
    if name in _FILES:
        return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
