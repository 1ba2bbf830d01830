"""Scheduling: fair ready queue, task admission, stages, the adaptive frontier, and the loop that joins them."""

from headgate.scheduling.backpressure import Backpressure
from headgate.scheduling.dispatcher import Dispatch, Dispatcher, Held
from headgate.scheduling.explanation import Explanation
from headgate.scheduling.fair_queue import FairQueue, Selection, StaleSelection
from headgate.scheduling.frontier import AdaptiveFrontier, BlockReason, FrontierRules, FrontierView
from headgate.scheduling.loop import DispatchLoop, LoopResult
from headgate.scheduling.policies import BoundedBorrow, DenyReason, StrictFair, TaskPolicy
from headgate.scheduling.pressure import PressureRules
from headgate.scheduling.retries import RetryLaterError, RetryRules, TaskFailedError
from headgate.scheduling.row_groups import RowGroup
from headgate.scheduling.stages import StageGraph, StageState
from headgate.scheduling.trace import Trace

__all__ = [
    "AdaptiveFrontier",
    "Backpressure",
    "BlockReason",
    "BoundedBorrow",
    "DenyReason",
    "Dispatch",
    "DispatchLoop",
    "Dispatcher",
    "Explanation",
    "FairQueue",
    "FrontierRules",
    "FrontierView",
    "Held",
    "LoopResult",
    "PressureRules",
    "RetryLaterError",
    "RetryRules",
    "RowGroup",
    "Selection",
    "StageGraph",
    "StageState",
    "StaleSelection",
    "StrictFair",
    "TaskFailedError",
    "TaskPolicy",
    "Trace",
]
